package record_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// TestBoundsOfTokens: programs of other versions rest on these.
func TestBoundsOfTokens(t *testing.T) {
	t.Parallel()
	if record.LastToken != math.MaxInt64/2 || record.MaxToken != math.MaxInt64 || record.MaxSize != 65536 || record.MaxTTL != 24*time.Hour {
		t.Error(int64(record.LastToken), int64(record.MaxToken), record.MaxSize, record.MaxTTL)
	}
}

func TestIncarnation(t *testing.T) {
	t.Parallel()
	for id, mark := range map[string]string{"me.7": "me", "me.7.8": "me", "me": "me", "": ""} {
		if got := (record.Record{WriteID: id}).Incarnation(); got != mark {
			t.Errorf("%q is written by %q, want %q", id, got, mark)
		}
	}
}

// TestSameLease: a lease is told by its token and its holder's mark, and where there are no tokens
// by when it was acquired.
func TestSameLease(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 10, 30, 0, 0, time.UTC)
	of := func(token int64, id string, acquired time.Time) record.Record {
		return record.Record{Token: token, WriteID: id, AcquiredAt: acquired}
	}
	for _, c := range []struct {
		title string
		a, b  record.Record
		same  bool
	}{
		{"a renewal", of(7, "me.1", at), of(7, "me.2", at), true},
		{"a renewal by a clock that was set", of(7, "me.1", at), of(7, "me.2", at.Add(time.Hour)), true},
		{"the next token", of(7, "me.1", at), of(8, "me.2", at), false},
		{"another candidate", of(7, "me.1", at), of(7, "you.1", at), false},
		{"a renewal without tokens", of(0, "me.1", at), of(0, "me.2", at.Add(time.Microsecond)), true},
		{"the next lease without tokens", of(0, "me.1", at), of(0, "me.2", at.Add(time.Millisecond)), false},
		{"another candidate without tokens", of(0, "me.1", at), of(0, "you.1", at), false},
		{"the first token", of(1, "me.1", at), of(1, "me.2", at.Add(time.Hour)), true},
	} {
		if got := c.a.SameLease(c.b); got != c.same {
			t.Errorf("%s: the same lease %t", c.title, got)
		}
	}
}

// TestMovedRecords: what is sealed or closed is told with what it says, and is not understood by whoever
// knows only locks that are held or free.
func TestMovedRecords(t *testing.T) {
	t.Parallel()
	for says, move := range map[string]record.Move{
		"sealed: the lock has moved to gs://new/b":                                             {To: "gs://new/b"},
		"closed: the lock is to come here from s3://old/a, and leasehold move is not done yet": {From: "s3://old/a"},
	} {
		r := record.Record{Token: 7, Holder: "mover", TTL: time.Minute, WriteID: "m.1", Move: move, Ended: record.EndedByMove}
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.Decode(body)
		m, ok := errors.AsType[*record.MovedError](err)
		if !ok || m.Move != move || err.Error() != says || !errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) {
			t.Errorf("%s is read as %v", body, err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s is read as %+v", body, got)
		}
		// A version that does not know moves refuses the state.
		if text := string(body); strings.Contains(text, `"held"`) || strings.Contains(text, `"free"`) {
			t.Errorf("to other versions it is a lock: %s", text)
		}
		for _, broken := range []string{
			strings.NewReplacer(move.To+move.From, "").Replace(string(body)),
			strings.NewReplacer(`"moved_to":"`+move.To+`"`, `"moved_to":7`, `"moves_from":"`+move.From+`"`, `"moves_from":7`).Replace(string(body)),
			strings.NewReplacer("moved_to", "other", "moves_from", "other").Replace(string(body)),
			strings.NewReplacer("mover", "m", `"write_id":"m.1"`, `"write_id":""`).Replace(string(body)),
		} {
			if r, err := record.Decode([]byte(broken)); err == nil || errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) || r.Token != 0 {
				t.Errorf("%s is read as %+v, %v", broken, r, err)
			}
		}
	}
	// What moved once keeps nothing of that when the lock is written as one: the fields are known ones.
	body := `{"format":1,"token":7,"state":"free","holder":"a","ttl_ms":1000,"write_id":"a.1","moved_to":"x"}`
	if r, err := record.Decode([]byte(body)); err != nil || r.Move != (record.Move{}) || len(r.Unknown) != 1 {
		t.Errorf("a lock with a field of a move: %+v, %v", r, err)
	}
}

// TestRecordBounds: the first and the last of each range are in it.
func TestRecordBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		token, ttl int64
		ok         bool
	}{
		{1, 1, true},
		{2, 2, true},
		{math.MaxInt64, (24 * time.Hour).Milliseconds(), true},
		{0, 1, false},
		{-1, 1, false},
		{1, 0, false},
		{1, (24 * time.Hour).Milliseconds() + 1, false},
	} {
		body := fmt.Sprintf(`{"format":1,"token":%d,"state":"free","ttl_ms":%d,"write_id":"x"}`, c.token, c.ttl)
		r, err := record.Decode([]byte(body))
		if (err == nil) != c.ok || c.ok && (r.Token != c.token || r.TTL.Milliseconds() != c.ttl) {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
}

// TestRecordSize: a record may have 64 KiB, and not one byte more.
func TestRecordSize(t *testing.T) {
	t.Parallel()
	r := record.Record{Token: 1, TTL: time.Second, WriteID: "x"}
	short, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.Holder = strings.Repeat("h", 64<<10-len(short))
	body, err := r.Encode()
	if err != nil || len(body) != 64<<10 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if _, err = record.Decode(body); err != nil {
		t.Error(err)
	}
	if _, err = record.Decode(append(body, ' ')); err == nil {
		t.Error("one byte more is read")
	}
	r.Holder += "h"
	if _, err = r.Encode(); err == nil {
		t.Error("one byte more is written")
	}
}

// TestRecordForPeople: texts stand in it as they are.
func TestRecordForPeople(t *testing.T) {
	t.Parallel()
	body, err := record.Record{Token: 1, TTL: time.Second, WriteID: "x", Holder: "<a&b>", Session: "s"}.Encode()
	if err != nil || !strings.Contains(string(body), `"holder":"<a&b>"`) || !strings.Contains(string(body), `"session":"s"`) {
		t.Errorf("%s, %v", body, err)
	}
}

// TestOtherLayouts: a record is read in its own layout only, and says which that is; and it
// has a token where its layout has tokens.
func TestOtherLayouts(t *testing.T) {
	t.Parallel()
	const rest = `"format":1,"state":"free","ttl_ms":1,"write_id":"x"}`
	marker := record.Layout{Name: record.LayoutMarker}
	epochs, ifMatch := record.Layout{Name: record.LayoutEpochs}, record.Layout{Name: record.LayoutEpochs, IfMatch: true}
	for _, c := range []struct {
		layout     record.Layout
		body, says string
	}{
		{record.Layout{}, `{"token":1,"layout":"epochs",` + rest, `it belongs to the layout "epochs", not "object"`},
		{epochs, `{"token":1,` + rest, `it belongs to the layout "object", not "epochs"`},
		{ifMatch, `{"token":1,"if_match":true,` + rest, `it belongs to the layout "object", not "epochs"`},
		{marker, `{"token":1,"layout":"marker",` + rest, "it has a token"},
		{marker, `{"layout":"marker",` + rest, ""},
		{epochs, `{"layout":"epochs",` + rest, "it has no token"},
		{epochs, `{"token":1,"layout":"epochs","if_match":true,` + rest, "its lock is used with If-Match, which NoIfMatch"},
		{ifMatch, `{"token":1,"layout":"epochs",` + rest, "its lock is used without If-Match: set NoIfMatch"},
		{ifMatch, `{"token":1,"layout":"epochs","if_match":false,` + rest, "its lock is used without If-Match: set NoIfMatch"},
		{ifMatch, `{"token":1,"layout":"epochs","if_match":1,` + rest, "its if_match is not what it should be"},
	} {
		r, err := record.DecodeIn(c.layout, []byte(c.body))
		switch {
		case c.says == "" && (err != nil || r.Token != 0):
			t.Errorf("%s: %+v, %v", c.body, r, err)
		case c.says != "" && (!errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %s", c.body, err, c.says)
		}
	}
}

// TestResting: a rest counts in the free record that asked for it, and in no other, for a day at
// most.
func TestResting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title string
		r     record.Record
		want  time.Duration
	}{
		{"none", record.Record{WriteID: "x"}, 0},
		{"a minute", record.Record{WriteID: "x", Rest: &record.Rest{Milliseconds: 60_000, WriteID: "x"}}, time.Minute},
		{"held", record.Record{Held: true, WriteID: "x", Rest: &record.Rest{Milliseconds: 60_000, WriteID: "x"}}, 0},
		{"of another write", record.Record{WriteID: "y", Rest: &record.Rest{Milliseconds: 60_000, WriteID: "x"}}, 0},
		{"nothing", record.Record{WriteID: "x", Rest: &record.Rest{WriteID: "x"}}, 0},
		{"negative", record.Record{WriteID: "x", Rest: &record.Rest{Milliseconds: -1, WriteID: "x"}}, 0},
		{"a day", record.Record{WriteID: "x", Rest: &record.Rest{Milliseconds: 86_400_000, WriteID: "x"}}, 24 * time.Hour},
		{"longer", record.Record{WriteID: "x", Rest: &record.Rest{Milliseconds: math.MaxInt64, WriteID: "x"}}, 24 * time.Hour},
	} {
		if got := c.r.Resting(); got != c.want {
			t.Errorf("%s: it rests for %v, want %v", c.title, got, c.want)
		}
	}
}

// TestRestInTheStore: a record says how long it rests, and of which write that is.
func TestRestInTheStore(t *testing.T) {
	t.Parallel()
	r := record.Record{Token: 1, TTL: time.Second, WriteID: "me.3", Rest: &record.Rest{Milliseconds: 1500, WriteID: "me.3"}}
	body, err := r.Encode()
	if err != nil || !strings.Contains(string(body), `"rest":{"ms":1500,"write_id":"me.3"}`) {
		t.Errorf("%s, %v", body, err)
	}
	again, err := record.Decode(body)
	if err != nil || again.Resting() != 1500*time.Millisecond {
		t.Errorf("%v, %v", again.Resting(), err)
	}
}
