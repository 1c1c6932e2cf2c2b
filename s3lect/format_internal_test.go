package s3lect

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

var someRecord = record.Record{
	Token: 42, Held: true, Holder: "server-001", Address: "10.0.1.42:8443", TTL: 15 * time.Second, WriteID: "0f9c2f4e.1",
	AcquiredAt: time.Date(2026, 11, 20, 10, 30, 40, 0, time.UTC), RenewedAt: time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC),
	ExpiresAt: time.Date(2026, 11, 20, 10, 31, 0, 0, time.UTC), Meta: map[string]string{"<&>": "\u2028"},
	Unknown: map[string]json.RawMessage{"STATE": json.RawMessage(`"free"`), "leaderID": json.RawMessage(`"other"`)},
}

func mustEncode(t testing.TB, r record.Record) []byte {
	t.Helper()
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// FuzzFormat reads an object as a lockfile, and writes a record as one. Nothing panics.
// A lockfile gives a record that the codec accepts or calls foreign; anything else is
// an error. A record comes back as it was.
func FuzzFormat(f *testing.F) {
	held, free := someRecord, someRecord
	free.Held = false
	for _, record := range []record.Record{held, free} {
		body := mustEncode(f, record)
		file, err := encode(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
		f.Add(body)
	}
	for _, file := range []string{
		`{"leaderID":"server-001","leaderAddr":"10.0.1.42:8443","lastUpdated":"2024-10-27T10:30:45Z"}`,
		`{"leaderID":"server-001","lastUpdated":"2024-10-27T10:30:45.123456789+02:00","more":1}`,
		`{"leaderID":"server-001","lastUpdated":"0001-01-01T00:00:00Z"}`,
		`{"lastUpdated":"0001-01-01T00:00:00Z"}`,
		`{"lastUpdated":"2024-10-27T10:30:45Z","more":1}`,
		`{"leaderID":null,"leaderAddr":null,"lastUpdated":null,"leasehold":null}`,
		`{"leasehold":{"format":9}}`, `{}`, `null`, `[]`, "",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkObject(t, body)
		if r, err := record.Decode(body); err == nil && (!r.Held || r.Holder != "" && !r.RenewedAt.IsZero()) {
			checkRecord(t, body, r)
		}
	})
}

func checkObject(t *testing.T, body []byte) {
	t.Helper()
	if _, err := record.Decode(body); err == nil {
		// A lock of leasehold itself is no lockfile, unless somebody made it both.
		if c, err := parse(body); err == nil && c.Leasehold == nil && c.LeaderID == "" {
			t.Fatalf("a record is taken for a lockfile: %s", body)
		}
	}
	l := &lockfile{ttl: 15 * time.Second}
	shown, err := l.record(&store.Object{Body: body, Version: `"etag.1"`, Date: time.UnixMilli(1_800_000_000_000)})
	if err != nil {
		return
	}
	c, err := parse(body)
	if err != nil {
		t.Fatalf("taken for a lockfile, and not: %s", body)
	}
	r, err := record.Decode(shown)
	switch {
	case c.Leasehold != nil: // for the codec to judge
		return
	case err != nil && len(body) < record.MaxSize/8: // what is longer may get too long
		t.Fatalf("%s gives %s: %v", body, shown, err)
	case err == nil && (r.Held == c.free() || r.Held && r.Holder != c.LeaderID || r.Address != c.LeaderAddr || r.Token < 1_800_000_000_000):
		t.Fatalf("%s gives %+v", body, r)
	}
	var o struct { // as the original reads it
		LeaderID    string    `json:"leaderID"`
		LastUpdated time.Time `json:"lastUpdated"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("the original does not read %s: %v", body, err)
	}
}

func checkRecord(t *testing.T, body []byte, r record.Record) {
	t.Helper()
	file, err := encode(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	c, err := parse(file)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	back, err := record.Decode(c.Leasehold)
	if err != nil || !reflect.DeepEqual(compact(t, back), compact(t, r)) {
		t.Fatalf("%+v came back as %+v, %v", r, back, err)
	}
	var o LeaderRecord
	if err := json.Unmarshal(file, &o); err != nil {
		t.Fatalf("the original does not read %s: %v", file, err)
	}
	want := LeaderRecord{}
	if r.Held {
		want = LeaderRecord{LeaderID: r.Holder, LeaderAddr: r.Address, LastUpdated: r.RenewedAt}
	}
	if o.LeaderID != want.LeaderID || o.LeaderAddr != want.LeaderAddr || !o.LastUpdated.Equal(want.LastUpdated) {
		t.Fatalf("the original reads %+v in %s", o, file)
	}
	if token := tokenOf(body); token != r.Token {
		t.Fatalf("the token %d was read as %d", r.Token, token)
	}
}

// compact takes the white space out of the fields that the codec does not know.
func compact(t *testing.T, r record.Record) record.Record {
	t.Helper()
	unknown := map[string]json.RawMessage{}
	for name, value := range r.Unknown {
		var b bytes.Buffer
		if err := json.Compact(&b, value); err != nil {
			t.Fatal(err)
		}
		unknown[name] = b.Bytes()
	}
	r.Unknown = unknown
	return r
}

// A term has one token as long as it lasts, the next one a larger one, and none is
// smaller than that of a record of leasehold.
func TestTokensOfReigns(t *testing.T) {
	l := &lockfile{ttl: time.Minute}
	const start = 1_800_000_000_000
	look := func(version, body string) record.Record {
		t.Helper()
		shown, err := l.record(&store.Object{Body: []byte(body), Version: store.Version(version), Date: time.UnixMilli(start)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.Decode(shown)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const a1, a2 = `{"leaderID":"a","lastUpdated":"2024-10-27T10:30:45Z"}`, `{"leaderID":"a","lastUpdated":"2024-10-27T10:30:50Z"}`
	const b, free = `{"leaderID":"b","lastUpdated":"2024-10-27T10:30:45Z"}`, `{"leaderID":"b","lastUpdated":"0001-01-01T00:00:00Z"}`
	mine, err := encode(mustEncode(t, record.Record{Token: start + 100, Held: true, Holder: "c", TTL: time.Minute, WriteID: "c.1", RenewedAt: time.Now()}))
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]bool{}
	for _, tc := range []struct {
		version, body string
		token         int64
	}{
		{"1", a1, start},
		{"2", a2, start},
		{"3", b, start + 1},
		{"4", free, start + 2},
		{"5", a1, start + 3},
		{"6", string(mine), start + 100},
		{"7", a1, start + 101},
	} {
		r := look(tc.version, tc.body)
		if r.Token != tc.token || r.TTL != time.Minute {
			t.Errorf("%s has the token %d and not %d, the TTL %v", tc.body, r.Token, tc.token, r.TTL)
		}
		if writes[r.WriteID] {
			t.Errorf("two versions have the write ID %s", r.WriteID)
		}
		writes[r.WriteID] = true
		if again := look(tc.version, tc.body); again.Token != r.Token || again.WriteID != r.WriteID {
			t.Errorf("the same version was %+v and then %+v", r, again)
		}
		if l.original() != (tc.version != "6") {
			t.Errorf("at version %s the leader is of the original package: %t", tc.version, l.original())
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, record := range []string{
		``, `null`, `7`, `{"state":7}`, `{"state":"held"}`, `{"state":"held","holder":"a"}`,
		`{"state":"held","holder":"a","renewed_at":"soon"}`, `{"state":"held","renewed_at":"2024-10-27T10:30:45Z"}`,
	} {
		if file, err := encode([]byte(record)); err == nil {
			t.Errorf("%s became %s", record, file)
		}
	}
}
