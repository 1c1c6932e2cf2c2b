package record

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// asJSON is what encoding/json writes.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// numbers are the largest and the smallest of each width.
func numbers() []int64 {
	all := []int64{math.MaxInt64}
	for n := int64(1); n <= math.MaxInt64/10; n *= 10 {
		all = append(all, n, n*10-1)
	}
	return append(all, math.MaxInt64/10*10, 1234567890)
}

// TestEntries: an entry is written as encoding/json writes it, and both readers give what was written.
// readOurs reads each entry in which no text is quoted.
func TestEntries(t *testing.T) {
	t.Parallel()
	const form = "2006-01-02T15:04:05.000Z"
	at := time.Date(2026, 11, 20, 12, 0, 0, 89e6, time.UTC)
	check := func(p Past) {
		t.Helper()
		f := past{Token: p.Token, Term: p.Term, Holder: p.Holder, How: p.How}
		if !p.From.IsZero() {
			f.From, f.To = p.From.Format(form), p.To.Format(form)
		}
		if p.Leases > 1 {
			f.First, f.Leases = p.First, p.Leases
		}
		want := asJSON(t, f)
		raw := p.append(nil)
		if string(raw) != want {
			t.Fatalf("written: %s, want %s", raw, want)
		}
		got, ok := readOurs(raw)
		if quoted := strings.Contains(want, `\`); ok == quoted || ok && got != p {
			t.Fatalf("%s is read as %+v, %t", raw, got, ok)
		}
		if p.Leases < 2 {
			p.First, p.Leases = p.Token, 1
		}
		if got, ok = readPast(raw); !ok || got != p {
			t.Fatalf("%s is read as %+v, %t", raw, got, ok)
		}
		others := append([]byte("{ "), raw[1:]...)
		if got, ok = readPast(others); !ok || got != p {
			t.Fatalf("%s is read as %+v, %t", others, got, ok)
		}
	}
	for _, n := range numbers() {
		check(Past{Token: n, Holder: "a", From: at, To: at.Add(time.Hour), How: EndedByRelease})
		check(Past{Token: n, Term: n, Holder: "a", From: at, To: at, How: EndedByRelease})
		if n <= LastToken {
			check(Past{Token: math.MaxInt64, Holder: "a", From: at, To: at, How: EndedAgain, First: n, Leases: n + 1})
			check(Past{Token: math.MaxInt64, Term: n, Holder: "a", From: at, To: at, How: EndedAgain, First: n, Leases: 2})
		}
	}
	for _, s := range []string{
		"", " ", "x", "web-7d9f8b6c5d-x2x4z/1", "<a&b>", "\x7f", "é", "日本", "\u2028", "\ufffd", `"`, `\`, "a\x1fb", "\n",
		`,"how":`, "}", "7", strings.Repeat("x", maxName), strings.Repeat("x", maxName-3) + "…", strings.Repeat("é", maxName/2), strings.Repeat("\x01", maxName),
	} {
		check(Past{Token: 7, Term: 3, Holder: s, From: at, To: at.Add(time.Millisecond), How: EndedByTakeover})
		check(Past{Token: 7, Holder: "a", From: at, To: at, How: s, First: 5, Leases: 3})
		check(Past{Token: 7, Holder: s, How: s}) // without times
	}
	for _, n := range []int64{0, -1, math.MinInt64} { // these are none
		if raw := string(Past{Token: 7, Term: n, First: 5, Leases: n}.append(nil)); raw != `{"token":7,"holder":"","from":"","to":"","how":""}` {
			t.Errorf("%d is written: %s", n, raw)
		}
	}
}

// TestOthersEntries: readOurs refuses all that append would not have written, however like an entry
// it is.
func TestOthersEntries(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const noon, from = `"2026-11-20T12:00:00.000Z"`, `"from":"2026-11-20T12:00:00.000Z"`
	raw := string(Past{Token: 70, Term: 3, Holder: "a", From: at, To: at, How: "released", First: 10, Leases: 3}.append(nil))
	if _, ok := readOurs([]byte(raw)); !ok {
		t.Fatal(raw)
	}
	for end := range raw {
		if p, ok := readOurs([]byte(raw[:end])); ok {
			t.Errorf("%s is read as %+v", raw[:end], p)
		}
	}
	long := `"` + strings.Repeat("x", maxName+1) + `"`
	for what, others := range map[string][]string{
		`{"`:                    {`{ "`, ` {"`},
		`}`:                     {`} `, `}}`, ` }`, `,"later":1}`, `,"token":71}`},
		`"token":70,`:           {``},
		`"token"`:               {`"Token"`},
		`:70`:                   {`:-70`, `:070`, `:+70`, `:7e1`, `:70.0`, `:"70"`, `: 70`, `:`, `:9223372036854775808`, `:18446744073709551686`},
		`:3,`:                   {`:0,`, `:-3,`, `:03,`, `:9223372036854775808,`, `:null,`},
		`,"holder":"a"`:         {``},
		`"a"`:                   {`7`, `null`, `"\u0061"`, `"\"`, "\"\xff\"", long},
		`"holder":"a",` + from:  {from + `,"holder":"a"`},
		`,` + from:              {``},
		`,"to":` + noon:         {``},
		`00.000Z`:               {`00Z`, `00.0000Z`, `00.000+00:00`, `61.000Z`},
		noon:                    {`"yesterday"`},
		`,"how":"released"`:     {``},
		`"released"`:            {`7`, `"\n"`, long},
		`:10`:                   {`:-10`, `:010`},
		`,"first":10`:           {``},
		`"first":10,"leases":3`: {`"leases":3,"first":10`},
		`:3}`:                   {`:1}`, `:0}`},
		`,"leases":3`:           {``, `,"leases":3,"leases":3`},
	} {
		for _, by := range others {
			other := strings.Replace(raw, what, by, 1)
			if other == raw {
				t.Fatalf("there is no %s in %s", what, raw)
			}
			if p, ok := readOurs([]byte(other)); ok {
				t.Errorf("%s is read as %+v", other, p)
			}
		}
	}
	for _, none := range []string{"", "7", `""`, "null", "[]", "{}", `{"token":`, `{"token":"`} {
		if p, ok := readPast([]byte(none)); ok {
			t.Errorf("%s is read as %+v", none, p)
		}
	}
}

// TestRowOfLeases: an entry is of several leases only if their number and the first token can be.
func TestRowOfLeases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, leases int64
		row           bool
	}{
		{1, 2, true},
		{8, 2, true},
		{3, LastToken, true},
		{3, LastToken + 1, false},
		{3, 1, false},
		{3, 0, false},
		{3, -2, false},
		{0, 2, false},
		{-1, 2, false},
		{9, 2, false},
		{10, 2, false},
	} {
		raw := asJSON(t, past{Token: 9, First: c.first, Leases: c.leases})
		want := Past{Token: 9, First: 9, Leases: 1}
		if c.row {
			want.First, want.Leases = c.first, c.leases
		}
		if p, ok := readPast([]byte(raw)); !ok || p != want {
			t.Errorf("%s is read as %+v, %t", raw, p, ok)
		}
	}
}

// TestPlain: a text of one character is plain if encoding/json only puts it between quotes.
func TestPlain(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		s := string([]byte{byte(c)})
		want := asJSON(t, s) == `"`+s+`"`
		if plain(s) != want || plain("a"+s) != want || plain(s+"a") != want {
			t.Errorf("%q is plain: %t, want %t", s, plain(s), want)
		}
		if got := string(appendText([]byte("x:"), s)); got != "x:"+asJSON(t, s) {
			t.Errorf("%q is written as %s", s, got)
		}
	}
	if !plain("") {
		t.Error("no text is not plain")
	}
}

// TestPlainCostsNothing: a plain text is written without encoding/json, which would allocate.
func TestPlainCostsNothing(t *testing.T) {
	b := make([]byte, 0, 100)
	if n := testing.AllocsPerRun(100, func() { appendText(b, "web-7d9f8b6c5d-x2x4z/1") }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// TestShort: what is cut is as long as it can be, and ends between two characters.
func TestShort(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	for s, want := range map[string]string{
		"":                             "",
		x(96):                          x(96),
		x(97):                          x(93) + "…",
		x(30 << 10):                    x(93) + "…",
		x(94) + "é":                    x(94) + "é",
		x(95) + "é":                    x(93) + "…",
		x(92) + "éxxx":                 x(92) + "…",
		x(91) + "éxxxx":                x(91) + "é…",
		x(90) + "🙂xxx":                 x(90) + "…",
		x(89) + "🙂xxxx":                x(89) + "🙂…",
		strings.Repeat("日本", 17):       strings.Repeat("日本", 15) + "日…",
		x(90) + "\ufffd\ufffd\ufffd":   x(90) + "\ufffd…",
		strings.Repeat("\x80", 30<<10): "…",
	} {
		if got := short(s); got != want {
			t.Errorf("%.100q is cut to %q, want %q", s, got, want)
		}
	}
}

// TestElements: an array is split at its own commas alone, and nothing else is.
func TestElements(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		``:                       nil,
		`7`:                      nil,
		`null`:                   nil,
		`"[1,2]"`:                nil,
		`{"a":1,"b":[2,3]}`:      nil,
		`[]`:                     nil,
		"[ \t\n]":                nil,
		`[1]`:                    {"1"},
		`[1,"a,b",null,[],{},0]`: {"1", `"a,b"`, "null", "[]", "{}", "0"},
		"[ 12 ,\n\"a\" ]":        {"12", `"a"`},
		`["\"",1]`:               {`"\""`, "1"},
		`["\\",1]`:               {`"\\"`, "1"},
		`["\\\"]",1]`:            {`"\\\"]"`, "1"},
		`["[{",1]`:               {`"[{"`, "1"},
		`["]}",1]`:               {`"]}"`, "1"},
		`[{"a":[1,{"b":2}],"c":"}"},[[3,4],5],6]`: {`{"a":[1,{"b":2}],"c":"}"}`, "[[3,4],5]", "6"},
	} {
		var got []string
		for _, e := range elements([]byte(raw)) {
			got = append(got, string(e))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", raw, got, want)
		}
	}
}

// TestBoundsOfAHistory: of what others have written sixteen entries are read, and those that end
// within 4 KiB.
func TestBoundsOfAHistory(t *testing.T) {
	t.Parallel()
	array := func(entries int) string { return "[" + strings.Repeat("1,", entries-1) + "1]" }
	for _, n := range []int{1, 15, 16, 17, 1000} {
		if got := len(elements([]byte(array(n)))); got != min(n, 16) {
			t.Errorf("of %d there are %d", n, got)
		}
	}
	filled := func(size int) string { return `[1,"` + strings.Repeat("x", size-len(`[1,""]`)) + `"]` }
	for size, want := range map[int]int{4095: 2, 4096: 2, 4097: 1} {
		if got := len(elements([]byte(filled(size)))); got != want {
			t.Errorf("of an array of %d bytes there are %d, want %d", size, got, want)
		}
	}
}

// TestRoomInAHistory: a new entry leaves in place all of the older ones that fit into 4 KiB with it,
// to the byte.
func TestRoomInAHistory(t *testing.T) {
	t.Parallel()
	p := Past{Token: 7, Holder: "a", How: EndedByRelease}
	alone := len(Record{}.Remember(p))
	for size, want := range map[int]int{4095: 3, 4096: 3, 4097: 2, 4098: 2} {
		// The second of the old entries ends at that byte.
		filler := `"` + strings.Repeat("x", size-alone-len(`,1,""`)) + `"`
		next := Record{History: json.RawMessage("[1," + filler + ",2]")}.Remember(p)
		var all []json.RawMessage
		if err := json.Unmarshal(next, &all); err != nil || len(all) != want || want == 3 && len(next) != size {
			t.Errorf("with an entry up to byte %d there are %d in %d bytes, want %d, %v", size, len(all), len(next), want, err)
		}
	}
	full := json.RawMessage("[" + strings.Repeat("1,", MaxPast-1) + "2]")
	if got := elements(Record{History: full}.Remember(p)); len(got) != 16 || string(got[15]) != "1" {
		t.Errorf("of sixteen and one there are %d: %s", len(got), got)
	}
}

// TestPackAsNumbers: a history that Remember wrote is packed as numbers, and any other is kept as it
// is.
func TestPackAsNumbers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var entries []Past
	for i, n := range numbers() {
		p := Past{Token: n, Term: int64(i % 3), Holder: strings.Repeat("é\"", i%5), From: at.Add(-time.Duration(i) * time.Hour), To: at, How: EndedByRelease}
		if i%2 == 0 && n > 1 && n < math.MaxInt64 {
			p.First, p.Leases = n/2, min(n, LastToken)
		}
		entries = append(entries, p)
	}
	entries = append(entries, Past{Token: 1})
	var r Record
	for _, p := range entries {
		r.History = r.Remember(p)
		packed := Pack(r.History)
		if got := Unpack(packed); string(got) != string(r.History) || packed[0] != asNumbers {
			t.Fatalf("%s was packed as %q, and became %s", r.History, packed, got)
		}
	}
	for _, history := range []string{
		`7`, `{}`, `[ ]`, `[1]`, `[ {"token":7,"holder":"","from":"","to":"","how":""}]`, `[{"token":7,"holder":"","from":"","to":"","how":"","later":1}]`,
		`[{"token":7,"holder":"","from":"","to":"","how":""},{"token":0}]`, `[{"token":7}]`,
	} {
		packed := Pack(json.RawMessage(history))
		if got := Unpack(packed); string(got) != history || packed != "\x00"+history {
			t.Errorf("%s was packed as %q, and became %s", history, packed, got)
		}
	}
}
