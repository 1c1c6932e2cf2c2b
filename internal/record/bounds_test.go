package record_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

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
	for _, c := range []struct{ layout, body, says string }{
		{"", `{"token":1,"layout":"epochs",` + rest, `it belongs to the layout "epochs", not "object"`},
		{"epochs", `{"token":1,` + rest, `it belongs to the layout "object", not "epochs"`},
		{record.LayoutMarker, `{"token":1,"layout":"marker",` + rest, "it has a token"},
		{record.LayoutMarker, `{"layout":"marker",` + rest, ""},
		{"epochs", `{"layout":"epochs",` + rest, "it has no token"},
	} {
		r, err := record.DecodeIn(c.layout, []byte(c.body))
		switch {
		case c.says == "" && (err != nil || r.Token != 0):
			t.Errorf("%s: %+v, %v", c.body, r, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
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
