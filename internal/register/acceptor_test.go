package register_test

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/register"
)

func ballot(counter uint64) register.Ballot { return register.Ballot{Counter: counter, By: "me"} }

func configuration() register.Configuration {
	return register.Configuration{Quorum: "q", Number: 3, Members: []register.Member{
		{Place: "mem://a", Marker: "A"}, {Place: "mem://b", Marker: "B", Since: 1}, {Place: "mem://c", Marker: "C", Since: 3},
	}}
}

// TestAcceptorIsRead: what is written is read as it was.
func TestAcceptorIsRead(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]register.Acceptor{
		"promise": {Quorum: "q", Promised: ballot(1)},
		"largest": {Quorum: "q", Promised: ballot(1 << 62)},
		"value": {
			Quorum: "q", Number: 7, Promised: ballot(3), Accepted: ballot(2),
			Value: register.Value{Version: "v", Body: []byte("line\nand another\x00")},
		},
		"empty":   {Quorum: "q", Promised: ballot(3), Accepted: ballot(3), Value: register.Value{Version: "v"}},
		"deleted": {Quorum: "q", Promised: ballot(3), Accepted: ballot(3), Value: register.Value{Version: "v", Deleted: true}},
		"beside":  {Quorum: "q", Promised: ballot(3), Accepted: ballot(3), Value: register.Value{Version: "v", Beside: 1 << 40}},
	} {
		object, err := a.Encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := register.Decode("q", object); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s: %s is read as %+v, %v", name, object, got, err)
		}
	}
}

// TestAcceptorIsRefused: what is no acceptor of this quorum's is told apart, each kind by its words.
func TestAcceptorIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ object, want string }{
		{``, `does not begin with a line`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me"}`, `does not begin with a line`},
		{strings.Repeat(" ", register.MaxHeader) + "\n", `does not begin with a line`},
		{"text\n", `its first line: invalid character`},
		{"{}\n", `has no "leasehold_quorum"`},
		{`{"leasehold_quorum":2,"quorum":"q","promised":"1.me"}` + "\n", `format 2, and this version understands 1`},
		{`{"leasehold_quorum":1,"quorum":"p","promised":"1.me"}` + "\n", `of the quorum "p", not of "q"`},
		{`{"leasehold_quorum":1,"quorum":"q"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","configuration":-1,"promised":"1.me"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","accepted":"2.me","version":"v"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"2.me","accepted":"1.me"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"2.me","version":"v"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"4611686018427387905.me"}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me"}` + "\nb", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","beside":1}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","accepted":"1.me","version":"v","beside":-1}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","accepted":"1.me","version":"v","deleted":true}` + "\nb", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","accepted":"1.me","version":"v","deleted":true,"beside":1}` + "\n", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1.me","accepted":"1.me","version":"v","beside":1}` + "\nb", `contradicts itself`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"me"}` + "\n", `is no ballot`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"1."}` + "\n", `is no ballot`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"0.me"}` + "\n", `is no ballot`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"01.me"}` + "\n", `is no ballot`},
		{`{"leasehold_quorum":1,"quorum":"q","promised":"-1.me"}` + "\n", `is no ballot`},
	} {
		a, err := register.Decode("q", []byte(c.object))
		if !errors.Is(err, register.ErrForeign) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q is read as %+v, %v, want an error about %q", c.object, a, err, c.want)
		}
	}
}

// TestMaxHeader: what the first line may have fits, and one that is longer is not written.
func TestMaxHeader(t *testing.T) {
	t.Parallel()
	a := register.Acceptor{Quorum: "q", Promised: ballot(1), Accepted: ballot(1), Value: register.Value{Body: []byte("body")}}
	longest := 0
	for n := 1; n < 2*register.MaxHeader; n++ {
		a.Value.Version = strings.Repeat("v", n)
		object, err := a.Encode()
		if err != nil {
			if want := "more than " + strconv.Itoa(register.MaxHeader-1); !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v does not end with %q", err, want)
			}
			break
		}
		if _, err := register.Decode("q", object); err != nil {
			t.Fatalf("a first line of %d bytes was written and is not read: %v", len(object)-len("\nbody"), err)
		}
		longest = len(object) - len("\nbody")
	}
	if longest != register.MaxHeader-1 {
		t.Errorf("the longest first line has %d bytes, want %d", longest, register.MaxHeader-1)
	}
}

func TestBallots(t *testing.T) {
	t.Parallel()
	order := []register.Ballot{{}, {Counter: 1, By: "a"}, {Counter: 1, By: "b"}, {Counter: 2, By: "a"}, {Counter: 10, By: "a"}}
	for i, a := range order {
		for j, b := range order {
			if a.Below(b) != (i < j) {
				t.Errorf("%v below %v: %v", a, b, a.Below(b))
			}
		}
		text, err := a.MarshalText()
		back := register.Ballot{Counter: 9, By: "before"}
		if err2 := back.UnmarshalText(text); err != nil || err2 != nil || back != a {
			t.Errorf("%v is written as %q and read as %v, %v, %v", a, text, back, err, err2)
		}
	}
}

// TestConfigurationIsChecked: each thing that can be wrong with one is told.
func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	if err := configuration().Check(); err != nil {
		t.Error(err)
	}
	first := configuration()
	for i := range first.Members {
		first.Members[i].Since = 0
	}
	if first.Number = 0; first.Check() != nil {
		t.Error(first.Check())
	}
	five := configuration()
	five.Members = append(five.Members, register.Member{Place: "mem://d", Marker: "D"}, register.Member{Place: "mem://e", Marker: "E"})
	if err := five.Check(); err != nil {
		t.Error(err)
	}
	if n, m := configuration().Majority(), five.Majority(); n != 2 || m != 3 {
		t.Errorf("majorities of %d and %d", n, m)
	}
	for want, spoil := range map[string]func(c *register.Configuration){
		"without a name": func(c *register.Configuration) { c.Quorum = "" },
		"the number -1":  func(c *register.Configuration) { c.Number = -1 },
		"2 members":      func(c *register.Configuration) { c.Members = c.Members[:2] },
		"4 members": func(c *register.Configuration) {
			c.Members = append(c.Members, register.Member{Place: "x", Marker: "X"})
		},
		"member 1 of":            func(c *register.Configuration) { c.Members[0].Place = "" },
		"member 2 of":            func(c *register.Configuration) { c.Members[1].Marker = "" },
		"member 3 of":            func(c *register.Configuration) { c.Members[2].Since = 4 },
		"no time":                func(c *register.Configuration) { c.Members[2].Since = -1 },
		"mem://a is a member of": func(c *register.Configuration) { c.Members[2].Place = "mem://a" },
		"mem://c is a member of": func(c *register.Configuration) { c.Members[2].Marker = "A" },
	} {
		c := configuration()
		spoil(&c)
		if err := c.Check(); !errors.Is(err, register.ErrForeign) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %q", c, err, want)
		}
	}
}

func TestMarkerIsRead(t *testing.T) {
	t.Parallel()
	for _, m := range []register.Marker{
		{Name: "A", Known: configuration()},
		{Name: "A", Number: 3, Whole: true, Known: configuration()},
	} {
		object, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := register.DecodeMarker(object); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s is read as %+v, %v", object, got, err)
		}
		for _, c := range []struct{ from, to, want string }{
			{`"leasehold_quorum_member": 1`, `"leasehold_quorum_member": 2`, "format 2"},
			{`"marker": "A",`, `"marker": "",`, "without a name"},
			{`"number": `, `"number": -`, "the number -"},
			{`"quorum": "q"`, `"quorum": ""`, "without a name"},
			{`{`, `[`, "a marker: "},
		} {
			if m.Number == 0 && c.to == `"number": -` {
				continue // -0 is 0
			}
			spoilt := strings.Replace(string(object), c.from, c.to, 1)
			if got, err := register.DecodeMarker([]byte(spoilt)); !errors.Is(err, register.ErrForeign) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s is read as %+v, %v, want an error about %q", spoilt, got, err, c.want)
			}
		}
	}
}

// FuzzDecode: what is understood is written again as something that is understood in the same way.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"leasehold_quorum":1,"quorum":"q","promised":"2.me","accepted":"1.me","version":"v"}` + "\nbody"))
	f.Add([]byte(`{"leasehold_quorum":1,"quorum":"q","promised":"2.me","accepted":"1.me","version":"v","beside":7}` + "\n"))
	f.Add([]byte(`{"leasehold_quorum":1,"quorum":"q","promised":"2.me"}` + "\n"))
	f.Fuzz(func(t *testing.T, object []byte) {
		a, err := register.Decode("q", object)
		if err != nil {
			if !errors.Is(err, register.ErrForeign) {
				t.Errorf("%v is no ErrForeign", err)
			}
			return
		}
		again, err := a.Encode()
		if err != nil {
			return // what was read had a shorter first line than we write
		}
		if b, err := register.Decode("q", again); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%q is %+v, and written anew it is %+v, %v", object, a, b, err)
		}
	})
}

// FuzzMarker: whatever lies in the place of a member's marker, it is refused as one, or it has a configuration that can
// be, and is written and read again as it is.
func FuzzMarker(f *testing.F) {
	good, err := register.Marker{Name: "A", Number: 1, Whole: true, Known: configuration()}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"leasehold_quorum":1}`))
	f.Add([]byte(`{"leasehold_quorum":1,"name":"A","number":-1}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		m, err := register.DecodeMarker(object)
		if err != nil {
			if !errors.Is(err, register.ErrForeign) || !reflect.DeepEqual(m, register.Marker{}) {
				t.Errorf("%+v, %v", m, err)
			}
			return
		}
		if bad := m.Known.Check(); bad != nil || m.Name == "" || m.Number < 0 {
			t.Errorf("accepted %+v: %v", m, bad)
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := register.DecodeMarker(again)
		if err != nil {
			t.Fatalf("%s cannot be read back: %v", again, err)
		}
		if third, err := back.Encode(); err != nil || string(third) != string(again) {
			t.Errorf("%s, then %s, %v", again, third, err)
		}
	})
}
