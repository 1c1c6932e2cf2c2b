package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// plain is a record as any version must be able to read it.
const plain = `{"format":1,"token":42,"state":"held","holder":"web-1","address":"10.0.1.42:8443","ttl_ms":15000,` +
	`"write_id":"0f9c.7","session":"","meta":{"version":"1.8.2"},` +
	`"acquired_at":"2026-11-20T10:30:45.000Z","renewed_at":"2026-11-20T10:30:50.000Z","expires_at":"2026-11-20T10:31:05.000Z"}` + "\n"

func TestRecordIsReadAndWrittenAlike(t *testing.T) {
	r, err := record.Decode([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)
	want := record.Record{
		Token: 42, Held: true, Holder: "web-1", Address: "10.0.1.42:8443", TTL: 15 * time.Second,
		WriteID: "0f9c.7", Meta: map[string]string{"version": "1.8.2"},
		AcquiredAt: at, RenewedAt: at.Add(5 * time.Second), ExpiresAt: at.Add(20 * time.Second),
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("decoded %+v, want %+v", r, want)
	}
	body, err := r.Encode()
	if err != nil || string(body) != plain {
		t.Errorf("encoded %s, %v; want %s", body, err, plain)
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	text := strings.TrimSuffix(plain, "}\n") + `,"Zone":"a","colour":{"deep": [1,2.50,"<&>"]}}` + "\n"
	r, err := record.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Encode()
	if err != nil || string(body) != text {
		t.Errorf("encoded %s, %v; want %s", body, err, text)
	}
}

func TestForeignObjects(t *testing.T) {
	replace := func(from, to string) string {
		if !strings.Contains(plain, from) {
			t.Fatalf("no %s", from)
		}
		return strings.Replace(plain, from, to, 1)
	}
	for name, c := range map[string]struct{ body, says string }{
		"empty":            {"", "not a JSON object"},
		"garbage":          {"\x00\x01garbage", "not a JSON object"},
		"not UTF-8":        {"\xff\xfe", "not UTF-8"},
		"an array":         {"[1,2]", "not a JSON object"},
		"cut short":        {plain[:60], "broken"},
		"two objects":      {plain + plain, "something follows"},
		"no format":        {replace(`"format":1,`, ``), "no format"},
		"of s3lect":        {`{"leaderID":"web-1","leaderAddr":"10.0.0.7:1","lastUpdated":"2026-11-20T10:30:45Z"}`, "lock file of s3lect"},
		"of our s3lect":    {`{"leaderID":"web-1","leaderAddr":"","lastUpdated":"2026-11-20T10:30:45Z","leasehold":{}}`, "lock file of s3lect"},
		"higher format":    {replace(`"format":1`, `"format":2`), "upgrade leasehold"},
		"format zero":      {replace(`"format":1`, `"format":0`), "does not exist"},
		"no token":         {replace(`"token":42,`, ``), "no token"},
		"token zero":       {replace(`:42`, `:0`), "token 0"},
		"negative token":   {replace(`:42`, `:-1`), "token -1"},
		"token as text":    {replace(`:42`, `:"42"`), "not an integer"},
		"token a fraction": {replace(`:42`, `:42.0`), "not an integer"},
		"token overflows":  {replace(`:42`, `:9223372036854775808`), "not an integer"},
		"token twice":      {replace(`"token":42`, `"token":42,"token":43`), "twice"},
		"other case":       {replace(`"token"`, `"Token"`), "no token"},
		"no ttl":           {replace(`"ttl_ms":15000,`, ``), "no ttl_ms"},
		"ttl zero":         {replace(`:15000`, `:0`), "ttl_ms 0"},
		"no end":           {strings.TrimSuffix(plain, "}\n"), "broken"},
		"no value":         {replace(`:42`, `:`), "broken"},
		"no name":          {replace(`"token":`, ``), "broken"},
		"meta a number":    {replace(`{"version":"1.8.2"}`, `7`), "meta"},
		"previous a text":  {replace(`"session":""`, `"session":"","previous":"7"`), "previous"},
		"ended a number":   {replace(`"session":""`, `"session":"","ended":7`), "ended"},
		"freed a number":   {replace(`"session":""`, `"session":"","freed":7`), "freed"},
		"rest a number":    {replace(`"session":""`, `"session":"","rest":7`), "rest"},
		"layout a number":  {replace(`"session":""`, `"session":"","layout":7`), "layout"},
		"ttl overflows":    {replace(`:15000`, `:9223372036854775807`), "ttl_ms"},
		"other state":      {replace(`"held"`, `"busy"`), `"busy"`},
		"no write ID":      {replace(`"0f9c.7"`, `""`), "write_id"},
		"holder a number":  {replace(`"web-1"`, `7`), "holder"},
		"of a session":     {replace(`"session":""`, `"session":"","layout":"session"`), "session"},
		"too large":        {plain + strings.Repeat(" ", record.MaxSize), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := record.Decode([]byte(c.body))
			if !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want ErrForeign that says %q", err, c.says)
			}
		})
	}
}

func TestTimesAreForPeopleOnly(t *testing.T) {
	body := strings.Replace(plain, "2026-11-20T10:30:45.000Z", "yesterday", 1)
	if _, err := record.Decode([]byte(body)); err != nil {
		t.Errorf("a time that cannot be read made the lock unreadable: %v", err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, r := range map[string]record.Record{
		"large meta data": {Token: 1, Meta: map[string]string{"k": strings.Repeat("x", record.MaxSize)}},
		"broken text":     {Token: 1, Holder: "web\xff"},
		"broken name":     {Token: 1, Meta: map[string]string{"k\xff": "v"}},
		"broken value":    {Token: 1, Meta: map[string]string{"k": "v\xff"}},
		"broken rest":     {Token: 1, Rest: &record.Rest{WriteID: "w\xff"}},
	} {
		if body, err := r.Encode(); err == nil {
			t.Errorf("%s: encoded %d bytes", name, len(body))
		}
	}
}

// form is the form of a record in the store, which others read too.
type form struct {
	Format     int               `json:"format"`
	Token      int64             `json:"token,omitempty"`
	State      string            `json:"state"`
	Holder     string            `json:"holder"`
	Address    string            `json:"address"`
	TTL        int64             `json:"ttl_ms"`
	WriteID    string            `json:"write_id"`
	Session    string            `json:"session"`
	Meta       map[string]string `json:"meta,omitempty"`
	Successor  string            `json:"successor,omitempty"`
	Layout     string            `json:"layout,omitempty"`
	Previous   int64             `json:"previous,omitempty"`
	Ended      string            `json:"ended,omitempty"`
	Freed      *record.Freed     `json:"freed,omitempty"`
	Rest       *record.Rest      `json:"rest,omitempty"`
	AcquiredAt string            `json:"acquired_at,omitempty"`
	RenewedAt  string            `json:"renewed_at,omitempty"`
	ExpiresAt  string            `json:"expires_at,omitempty"`
	Term       int64             `json:"term,omitempty"`
	TermToken  int64             `json:"term_token,omitempty"`
	History    json.RawMessage   `json:"history,omitempty"`
}

// TestEncodeAsJSON: a record is written in its form byte for byte, with each of its fields and
// without, and whatever stands in its texts.
func TestEncodeAsJSON(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02T15:04:05.000Z"
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_999_999, time.FixedZone("", 3600))
	texts := []string{"", " ", "~", "x", "web-1:8443", `"`, `\`, "a\x1fb", "\x7f", "<a&b>", "\n", "é", "\u2028", "日本", strings.Repeat("long ", 300)}
	for i, s := range texts {
		for bits := range 1 << 9 {
			has := func(bit int) bool { return bits>>bit&1 == 1 }
			r := record.Record{Held: has(0), Holder: s, TTL: time.Duration(i+1) * time.Second, WriteID: "w" + s, Session: s}
			f := form{Format: 1, State: "free", Holder: s, TTL: int64(i+1) * 1000, WriteID: "w" + s, Session: s}
			if has(0) {
				f.State = "held"
			}
			if has(1) {
				r.Token, f.Token = 7, 7
			}
			if has(2) {
				r.Address, f.Address = s, s
			}
			if has(3) {
				r.Meta = map[string]string{"b": s, "a" + s: "<"}
				f.Meta = r.Meta
			}
			if has(4) {
				r.Successor, r.Layout = s, s
				f.Successor, f.Layout = s, s
			}
			if has(5) {
				r.Previous, r.Ended = -3, s
				f.Previous, f.Ended = -3, s
			}
			if has(6) {
				r.Freed = &record.Freed{Count: 4, Last: []string{s}}
				r.Rest = &record.Rest{Milliseconds: 5, WriteID: s}
				f.Freed, f.Rest = r.Freed, r.Rest
			}
			if has(7) {
				r.AcquiredAt, r.RenewedAt, r.ExpiresAt = at, at.Add(time.Millisecond), at.Add(time.Second)
				f.AcquiredAt, f.RenewedAt, f.ExpiresAt = r.AcquiredAt.UTC().Format(layout), r.RenewedAt.UTC().Format(layout), r.ExpiresAt.UTC().Format(layout)
			}
			if has(8) {
				r.Term, r.TermToken, r.History = 5, 7, json.RawMessage(`[{"token":6,"holder":"<&>"}]`)
				f.Term, f.TermToken, f.History = r.Term, r.TermToken, r.History
			}
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(f); err != nil {
				t.Fatal(err)
			}
			if body, err := r.Encode(); err != nil || !bytes.Equal(body, want.Bytes()) {
				t.Fatalf("%q, %b: %s, %v; want %s", s, bits, body, err, want.Bytes())
			}
		}
	}
}

// TestTimesToTheMillisecond: of any second.
func TestTimesToTheMillisecond(t *testing.T) {
	t.Parallel()
	for ms := range 1000 {
		at := time.Date(2026, 11, 20, 23, 59, 59, ms*1e6+999_999, time.UTC)
		r := record.Record{Token: 1, TTL: time.Second, WriteID: "w", ExpiresAt: at}
		want := `"expires_at":"` + at.Format("2006-01-02T15:04:05.000Z") + `"`
		if body, err := r.Encode(); err != nil || !strings.Contains(string(body), want) {
			t.Fatalf("%s, %v; want %s", body, err, want)
		}
	}
}

// marker is a record of the layout marker, with what Terraform and OpenTofu read of it: to us these are fields that
// we do not know, and that are kept.
const marker = `{"format":1,"state":"held","holder":"web-1","address":"10.0.1.42:8443","ttl_ms":15000,` +
	`"write_id":"0f9c.7","session":"","meta":{"version":"1.8.2"},"layout":"marker",` +
	`"acquired_at":"2026-11-20T10:30:45.000Z","renewed_at":"2026-11-20T10:30:50.000Z","expires_at":"2026-11-20T10:31:05.000Z",` +
	`"Created":"2026-11-20T10:30:45Z","ID":"0f9c-1795257045000","Info":"held by leasehold until 2026-11-20T10:31:05Z unless it is renewed",` +
	`"Operation":"leasehold","Path":"prod/terraform.tfstate.tflock","Version":"leasehold","Who":"web-1"}` + "\n"

func TestMarkerThatTerraformReads(t *testing.T) {
	r, err := record.DecodeIn(record.LayoutMarker, []byte(marker))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Held || r.Token != 0 || r.Holder != "web-1" || r.Meta["version"] != "1.8.2" || len(r.Unknown) != 7 || string(r.Unknown["Who"]) != `"web-1"` {
		t.Errorf("decoded %+v", r)
	}
	body, err := r.Encode()
	if err != nil || string(body) != marker {
		t.Errorf("encoded %s, %v; want %s", body, err, marker)
	}
}
