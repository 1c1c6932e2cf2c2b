package record_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// plain is a record as any version must be able to read it.
const plain = `{"format":1,"token":42,"state":"held","holder":"web-1","address":"10.0.1.42:8443","ttl_ms":15000,` +
	`"write_id":"0f9c.7","session":"","meta":{"version":"1.8.2"},` +
	`"acquired_at":"2026-11-20T10:30:45.000Z","renewed_at":"2026-11-20T10:30:50.000Z","expires_at":"2026-11-20T10:31:05.000Z"}` + "\n"

// TestAllocationsOfEncode: each renewal encodes a record, which takes 6 allocations, or 8 with the race detector.
func TestAllocationsOfEncode(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := record.Record{Held: true, Token: 42, TTL: 15 * time.Second, WriteID: "0f9c.7", Holder: "web-1", AcquiredAt: at, RenewedAt: at}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Encode() }); n > 8 {
		t.Errorf("%v allocations, want at most 8", n)
	}
}

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
	IfMatch    bool              `json:"if_match,omitempty"`
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
				r.Successor, r.Layout = s, record.Layout{Name: s, IfMatch: i%2 == 1}
				f.Successor, f.Layout, f.IfMatch = s, s, r.Layout.IfMatch
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
	r, err := record.DecodeIn(record.Layout{Name: record.LayoutMarker}, []byte(marker))
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

// FuzzDecode: whatever lies in the store, it is either refused or read, and what is read
// says what was there, known fields and unknown ones: so it is when it is written back.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(strings.TrimSuffix(plain, "}\n") + `,"colour":[null,{"a":1e9}],"":0}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`))
	f.Add([]byte(`{"format":1,"token":2,"state":"held","ttl_ms":1,"write_id":"x","layout":"epochs","previous":1,"ended":"broken","successor":"b"}`))
	f.Add([]byte(`{"format":1,"token":2,"state":"held","ttl_ms":1,"write_id":"x","layout":"epochs","if_match":true}`))
	f.Add([]byte(`{"format":1,"token":2,"state":"held","ttl_ms":1,"write_id":"x","layout":"epoch\u0073","if_match":null}`))
	f.Add([]byte(`{"format":1,"token":2,"state":"held","ttl_ms":1,"write_id":"x","if_match":"kept"}`))
	f.Add([]byte(`{"format":1,"state":"held","ttl_ms":1,"write_id":"x","layout":"marker"}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"held","ttl_ms":1,"write_id":"x","layout":"session","freed":{"count":2,"last":["a","b"]}}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"held","ttl_ms":1,"write_id":"x","session":"sessions/1"}`))
	f.Add([]byte(`{"format":1,"token":9223372036854775807,"state":"free","ttl_ms":1,"write_id":"x"}`))
	f.Add([]byte(`{"format":1,"token":9223372036854775808,"state":"free","ttl_ms":1,"write_id":"x"}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x","rest":{"ms":60000,"write_id":"x"}}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"held","ttl_ms":1,"write_id":"x","rest":{"ms":-1,"write_id":"y"}}`))
	f.Add([]byte(`{"format":1,"token":3,"state":"held","ttl_ms":1,"write_id":"x","term":2,"term_token":3,"history":[{"token":2,"term":1,"holder":"a","from":"","to":"","how":"released"}]}`))
	f.Add([]byte(`{"format":1,"token":3,"state":"held","ttl_ms":1,"write_id":"x","term":-1,"term_token":"3","history":{"a":null}}`))
	f.Add([]byte(`{"format":1,"token":3,"state":"sealed","ttl_ms":1,"write_id":"x","moved_to":"gs://b/l","moves_from":7}`))
	f.Add([]byte(`{"format":1,"token":3,"state":"closed","ttl_ms":1,"write_id":"x","moves_from":"gs:\u002f/b/l"}`))
	f.Add([]byte(`{"format":1,"token":3,"state":"free","ttl_ms":1,"write_id":"x","moved_to":"gs://b/l"}`))
	f.Add([]byte(marker))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := record.DecodeIn(record.AnyLayout, body)
		if _, inDefault := record.Decode(body); (inDefault == nil) != (err == nil && r.Layout == record.Layout{}) {
			t.Fatalf("layout %v: %v in the default layout, %v in any", r.Layout, inDefault, err)
		}
		if err != nil && !errors.Is(err, record.ErrForeign) {
			t.Fatalf("error of another kind: %v", err)
		}
		moved := errors.Is(err, record.ErrMoved)
		if moved != (r.Move != record.Move{}) || moved && r.Held {
			t.Fatalf("%v comes with %+v", err, r)
		}
		if err != nil && !moved {
			return
		}
		if r.Token < 0 || (r.Token == 0) != (r.Layout.Name == record.LayoutMarker) || r.TTL <= 0 || r.TTL > protocol.MaxTTL || r.WriteID == "" {
			t.Fatalf("accepted %+v", r)
		}
		again, err := r.Encode()
		if err != nil {
			if len(body) < record.MaxSize/8 {
				t.Fatalf("cannot write back what was read: %v", err)
			}
			return
		}
		if before, after := members(t, body), members(t, again); !maps.Equal(before, after) {
			t.Fatalf("read %q\nand wrote %q", before, after)
		}
		r2, err := record.DecodeIn(r.Layout, again)
		if err != nil && !moved || moved && !errors.Is(err, record.ErrMoved) {
			t.Fatalf("cannot read back %s: %v", again, err)
		}
		if third, err := r2.Encode(); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("wrote %s, then %s, %v", again, third, err)
		}
	})
}

// members are those of a record, each as compact JSON: of fields that we know what they
// mean, of others what is written. Left out are times and terms, which need not be readable, and
// what means the same as if it was not there.
func members(t *testing.T, body []byte) map[string]string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	var layout string
	if raw, ok := all["layout"]; ok {
		if err := json.Unmarshal(raw, &layout); err != nil {
			t.Fatal(err)
		}
	}
	texts := map[string]string{}
	for name, raw := range all {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		texts[name] = compact.String()
		if name == "if_match" && layout == record.LayoutEpochs && texts[name] != "true" { // only there it is known
			delete(texts, name)
		}
		if name == "moved_to" || name == "moves_from" { // known if the state says so, and then a text
			var place string
			if json.Unmarshal(raw, &place) == nil {
				texts[name] = fmt.Sprintf("%q", place)
			}
		}
		known, ok := map[string]any{
			"state": "", "holder": "", "address": "", "write_id": "", "session": "", "successor": "", "layout": "", "ended": "",
			"previous": int64(0), "meta": map[string]string(nil), "freed": (*record.Freed)(nil), "rest": (*record.Rest)(nil), "acquired_at": nil, "renewed_at": nil, "expires_at": nil, "term": nil, "term_token": nil,
		}[name]
		if !ok {
			continue
		}
		delete(texts, name)
		if known == nil {
			continue
		}
		value := reflect.New(reflect.TypeOf(known))
		if err := json.Unmarshal(raw, value.Interface()); err != nil {
			t.Fatalf("the field %s was accepted: %v", name, err)
		}
		if meant := value.Elem(); !meant.IsZero() && (meant.Kind() != reflect.Map || meant.Len() > 0) {
			text, err := json.Marshal(meant.Interface())
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
	}
	return texts
}

var update = flag.Bool("update", false, "write docs/format/vectors.json")

const vectorsFile = "../../docs/format/vectors.json"

// A vector is an object and what it means: see docs/format-testing.md.
type vector struct {
	Name    string `json:"name"`
	About   string `json:"about,omitempty"`
	ReadAs  string `json:"read_as"`
	IfMatch bool   `json:"if_match,omitempty"` // with read_as epochs
	Body    string `json:"body,omitempty"`
	Base64  string `json:"body_base64,omitempty"`
	PadTo   int    `json:"pad_to,omitempty"`
	Verdict string `json:"verdict"`
	Kind    string `json:"kind,omitempty"`
	Means   any    `json:"means,omitempty"`
}

// means is what a reader finds in a record.
type means struct {
	State     string            `json:"state"`
	Token     int64             `json:"token"`
	Holder    string            `json:"holder"`
	TTL       int64             `json:"ttl_ms"`
	WriteID   string            `json:"write_id"`
	Mark      string            `json:"mark"`
	Session   string            `json:"session"`
	Meta      map[string]string `json:"meta,omitempty"`
	Successor string            `json:"successor,omitempty"`
	Ended     string            `json:"ended,omitempty"`
	RestMS    int64             `json:"rest_ms,omitempty"`
	Term      int64             `json:"term,omitempty"`
	Unknown   []string          `json:"unknown,omitempty"`
	Past      []pastMeans       `json:"past,omitempty"`
	Patience  int64             `json:"patience_ms"` // -1: until the session is over; 0: it is free
}

type pastMeans struct {
	Token  int64  `json:"token"`
	Term   int64  `json:"term,omitempty"`
	Holder string `json:"holder"`
	How    string `json:"how"`
	First  int64  `json:"first"`
	Leases int64  `json:"leases"`
}

// tableMeans is what a reader finds in a table.
type tableMeans struct {
	Size    int64        `json:"size"`
	Token   int64        `json:"token"`
	WriteID string       `json:"write_id"`
	Holders []entryMeans `json:"holders"`
	Waiters []entryMeans `json:"waiters"`
}

type entryMeans struct {
	ID      string `json:"id"`
	Session string `json:"session"`
	Weight  int64  `json:"weight"`
	Token   int64  `json:"token,omitempty"`
	Holder  string `json:"holder"`
}

// body is the bytes of the object.
func (v vector) body(t *testing.T) []byte {
	t.Helper()
	body := []byte(v.Body)
	if v.Base64 != "" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(v.Base64); err != nil {
			t.Fatal(err)
		}
	}
	return append(body, bytes.Repeat([]byte(" "), max(0, v.PadTo-len(body)))...)
}

// judged fills in what this package finds in the object.
func (v vector) judged(t *testing.T) vector {
	t.Helper()
	v.Kind, v.Means = "", nil
	if v.ReadAs == record.LayoutTable {
		table, err := record.DecodeTable(v.body(t))
		v.Verdict = verdict(err)
		if err == nil {
			v.Means = tableMeans{table.Size, table.Token, table.WriteID, entriesMean(table.Holders), entriesMean(table.Waiters)}
			v.Verdict = "table"
		} else {
			v.Kind = kind(err)
		}
		return v
	}
	layout := record.Layout{Name: v.ReadAs, IfMatch: v.IfMatch}
	if v.ReadAs == "object" {
		layout.Name = ""
	}
	r, err := record.DecodeIn(layout, v.body(t))
	if v.Verdict = verdict(err); err != nil {
		v.Kind = kind(err)
		return v
	}
	m := means{
		State: "free", Token: r.Token, Holder: r.Holder, TTL: r.TTL.Milliseconds(), WriteID: r.WriteID, Mark: r.Incarnation(), Session: r.Session,
		Meta: r.Meta, Successor: r.Successor, Ended: r.Ended, RestMS: r.Resting().Milliseconds(), Term: r.CountedTerm(),
		Unknown: slices.Sorted(maps.Keys(r.Unknown)),
	}
	for _, p := range r.Past() {
		m.Past = append(m.Past, pastMeans{p.Token, p.Term, p.Holder, p.How, p.First, p.Leases})
	}
	if r.Held {
		m.State = "held"
		m.Patience = (r.TTL + r.TTL/12 + 10*time.Millisecond).Milliseconds() // protocol.Patience, which imports this package
		if r.Session != "" {
			m.Patience = -1
		}
	}
	v.Means = m
	return v
}

func entriesMean(all []record.Entry) []entryMeans {
	list := []entryMeans{}
	for _, s := range all {
		list = append(list, entryMeans{s.ID, s.Session, s.Weight, s.Token, s.Holder})
	}
	return list
}

// kind is what is wrong with an object, without what encoding/json says of it: that is not ours to promise.
func kind(err error) string {
	text := strings.TrimPrefix(err.Error(), record.ErrForeign.Error()+": ")
	for _, end := range []string{"its JSON is broken", "is not what it should be"} {
		if i := strings.Index(text, end); i >= 0 {
			return text[:i+len(end)]
		}
	}
	return text
}

func verdict(err error) string {
	switch {
	case err == nil:
		return "record"
	case errors.Is(err, record.ErrMoved):
		return "moved"
	}
	return "foreign"
}

// TestVectors: docs/format/vectors.json is what this version writes, byte for byte, and what it makes of it and of
// objects that others have written.
func TestVectors(t *testing.T) {
	t.Parallel()
	var file struct {
		Format  int      `json:"format"`
		Vectors []vector `json:"vectors"`
	}
	file.Format = record.Format
	names := map[string]bool{}
	for _, v := range vectors(t) {
		if names[v.Name] {
			t.Errorf("two vectors are called %q", v.Name)
		}
		names[v.Name] = true
		if v.Verdict != "" && v.judged(t).Verdict != v.Verdict {
			t.Errorf("%s: the verdict is %s (%s), want %s", v.Name, v.judged(t).Verdict, v.judged(t).Kind, v.Verdict)
		}
		file.Vectors = append(file.Vectors, v.judged(t))
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(file); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, want.Bytes(), 0o644); err != nil { //nolint:gosec // it is a document
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(vectorsFile)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("docs/format/vectors.json is not what this version writes, %v: look at what -update changes in it", err)
	}
}

// vectors are all, those of other layouts last.
func vectors(t *testing.T) (all []vector) {
	t.Helper()
	at := time.Date(2026, 11, 26, 9, 0, 0, 125e6, time.UTC)
	base := record.Record{
		Token: 1_764_147_600_125, Held: true, Holder: "host-a/4711", TTL: 15 * time.Second, WriteID: "0123456789abcdef0123456789abcdef.3",
		AcquiredAt: at, RenewedAt: at.Add(5 * time.Second), ExpiresAt: at.Add(20 * time.Second), Term: 1, TermToken: 1_764_147_600_125,
	}
	with := func(change func(*record.Record)) record.Record {
		r := base
		change(&r)
		return r
	}
	released := with(func(r *record.Record) { r.Held, r.ExpiresAt = false, r.RenewedAt })
	add := func(name, about, as string, r record.Record) {
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		want := "record"
		if r.Move != (record.Move{}) {
			want = "moved"
		}
		all = append(all, vector{Name: name, About: about, ReadAs: as, Body: string(body), Verdict: want})
	}
	add("held", "the first lease of a lock", "object", base)
	add("free", "the same lease, released", "object", released)
	add("held-again", "the next lease, whose record remembers the one before", "object", with(func(r *record.Record) {
		r.Token, r.Term, r.TermToken, r.Holder = base.Token+1, 2, base.Token+1, "host-b/7"
		r.WriteID, r.AcquiredAt = "fedcba9876543210fedcba9876543210.1", at.Add(time.Minute)
		r.History = released.Remember(record.Past{Token: base.Token, Term: 1, Holder: base.Holder, From: at, To: at.Add(5 * time.Second), How: "released", First: base.Token, Leases: 1})
	}))
	add("held-with-all", "every optional field", "object", with(func(r *record.Record) {
		r.Address, r.Meta, r.Successor = "https://10.0.0.1:8443", map[string]string{"job": "backup <\"é\">", "line": "a\nb\u2028c"}, "host-c/1"
	}))
	add("held-under-a-session", "it is not over before its session is", "object", with(func(r *record.Record) { r.Session = "../sessions/00112233" }))
	add("held-unknown-fields", "a later version has written fields that this one keeps", "object", with(func(r *record.Record) {
		r.Unknown = map[string]json.RawMessage{"x_big": json.RawMessage("9007199254740993"), "x_deep": json.RawMessage(`{"a":[1,2.50,null],"b":"\u00e9"}`)}
	}))
	add("free-broken", "freed by hand", "object", with(func(r *record.Record) { r.Held, r.Ended = false, record.EndedByHand }))
	add("free-resting", "the release asks all to leave the lock alone for a minute", "object", with(func(r *record.Record) {
		r.Held, r.Rest = false, &record.Rest{Milliseconds: 60_000, WriteID: r.WriteID}
	}))
	add("free-rest-of-another-write", "a rest that does not count", "object", with(func(r *record.Record) {
		r.Held, r.Rest = false, &record.Rest{Milliseconds: 60_000, WriteID: "another.1"}
	}))
	add("free-successor", "the release names who is to come next", "object", with(func(r *record.Record) { r.Held, r.Successor = false, "host-c/1" }))
	add("shortest", "the smallest token and TTL that a record can have", "object", record.Record{Token: 1, TTL: time.Millisecond, WriteID: "w"})
	add("last-token", "the last token that is given out: it may be released, and none can follow it", "object", with(func(r *record.Record) { r.Token = record.LastToken }))
	add("token-set-by-hand", "a token above that: it is read, and not acquired over", "object", with(func(r *record.Record) { r.Held, r.Token = false, record.MaxToken }))
	add("sealed", "the lock has moved", "object", with(func(r *record.Record) { r.Held, r.Move.To, r.Ended = false, "s3://new/lock", record.EndedByMove }))
	add("closed", "the lock is to come here", "object", with(func(r *record.Record) { r.Held, r.Move.From = false, "s3://old/lock" }))

	good := all[0].Body
	raw := func(name, about, want, old, new string) {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%s: there is no %s in %s", name, old, good)
		}
		v := vector{Name: name, About: about, ReadAs: "object", Body: strings.Replace(good, old, new, 1), Verdict: want}
		if !utf8.ValidString(v.Body) {
			v.Body, v.Base64 = "", base64.StdEncoding.EncodeToString([]byte(v.Body))
		}
		all = append(all, v)
	}
	raw("other-order", "order and white space mean nothing", "record", `{"format":1,"token":1764147600125,`, "{ \"token\" : 1764147600125,\n\t\"format\":1, ")
	raw("null-is-absent", "an optional field may be null", "record", `"address":""`, `"address":null,"meta":null,"rest":null`)
	raw("no-times", "times are for people, and one that cannot be read is no fault", "record", `"renewed_at":"2026-11-26T09:00:05.125Z"`, `"renewed_at":"yesterday"`)
	raw("strange-history", "a history of another form is kept and not read", "record", `"term":1,`, `"term":"one","history":{"a":1},`)
	raw("escaped-name", "an escaped name is that name", "record", `"holder":`, `"hold\u0065r":`)
	raw("empty", "", "foreign", good, "")
	raw("text", "", "foreign", good, "notes of somebody\n")
	raw("array", "", "foreign", good, "["+good+"]")
	raw("null", "", "foreign", good, "null")
	raw("cut", "", "foreign", good, good[:100])
	raw("followed", "something follows the object", "foreign", good, good+"{}")
	raw("byte-order-mark", "", "foreign", good, "\ufeff"+good)
	raw("not-utf-8", "", "foreign", "host-a", "host-\xff")
	raw("nan", "", "foreign", `"session":""`, `"session":"","x":NaN`)
	raw("newer-format", "a later version has written it", "foreign", `"format":1`, `"format":2`)
	raw("format-0", "", "foreign", `"format":1`, `"format":0`)
	raw("format-text", "", "foreign", `"format":1`, `"format":"1"`)
	raw("format-missing", "", "foreign", `"format":1,`, ``)
	raw("token-twice", "which of the two would count?", "foreign", `"state"`, `"token":9,"state"`)
	raw("token-missing", "", "foreign", `"token":1764147600125,`, ``)
	raw("token-0", "", "foreign", `"token":1764147600125`, `"token":0`)
	raw("token-negative", "", "foreign", `"token":1764147600125`, `"token":-1`)
	raw("token-too-large", "2^63", "foreign", `"token":1764147600125`, `"token":9223372036854775808`)
	raw("token-float", "", "foreign", `"token":1764147600125`, `"token":7.0`)
	raw("token-exponent", "", "foreign", `"token":1764147600125`, `"token":7e3`)
	raw("token-true", "", "foreign", `"token":1764147600125`, `"token":true`)
	raw("token-null", "", "foreign", `"token":1764147600125`, `"token":null`)
	raw("state-other", "", "foreign", `"held"`, `"leased"`)
	raw("state-upper-case", "", "foreign", `"held"`, `"Held"`)
	raw("state-missing", "", "foreign", `"state":"held",`, ``)
	raw("ttl-0", "", "foreign", `"ttl_ms":15000`, `"ttl_ms":0`)
	raw("ttl-more-than-a-day", "", "foreign", `"ttl_ms":15000`, `"ttl_ms":86400001`)
	raw("ttl-text", "", "foreign", `"ttl_ms":15000`, `"ttl_ms":"15s"`)
	raw("write-id-empty", "", "foreign", `"write_id":"0123456789abcdef0123456789abcdef.3"`, `"write_id":""`)
	raw("write-id-missing", "", "foreign", `"write_id":"0123456789abcdef0123456789abcdef.3",`, ``)
	raw("holder-number", "", "foreign", `"holder":"host-a/4711"`, `"holder":4711`)
	raw("meta-number", "", "foreign", `"session":""`, `"session":"","meta":{"a":1}`)
	raw("meta-array", "", "foreign", `"session":""`, `"session":"","meta":[]`)
	raw("time-number", "", "foreign", `"renewed_at":"2026-11-26T09:00:05.125Z"`, `"renewed_at":5`)
	raw("rest-number", "", "foreign", `"session":""`, `"session":"","rest":5`)
	raw("if-match-unknown", "a field of another layout is unknown in this one, and kept", "record", `"session":""`, `"session":"","if_match":true`)
	raw("name-in-another-case", "names are compared as they are: there is no token", "foreign", `"token"`, `"Token"`)
	raw("of-another-layout", "", "foreign", `"session":""`, `"session":"","layout":"epochs"`)
	raw("sealed-without-a-place", "", "foreign", `"held"`, `"sealed"`)
	largest, tooLarge := all[0], all[0]
	largest.Name, largest.About, largest.PadTo = "largest", "65,536 bytes", record.MaxSize
	tooLarge.Name, tooLarge.About, tooLarge.PadTo, tooLarge.Verdict = "too-large", "a byte more", record.MaxSize+1, "foreign"
	all = append(all, largest, tooLarge)

	epoch := func(ifMatch bool) record.Record {
		return with(func(r *record.Record) {
			r.Token, r.Previous, r.Layout = 42, 41, record.Layout{Name: record.LayoutEpochs, IfMatch: ifMatch}
		})
	}
	add("epochs", "KEY/0000000042.json of a lock in the layout epochs, where a renewal creates the next one", "epochs", epoch(false))
	add("epochs-if-match", "the same where a renewal overwrites it", "epochs", epoch(true))
	all[len(all)-1].IfMatch = true
	add("marker", "a lock that is there while it is held", "marker", with(func(r *record.Record) { r.Token, r.Term, r.TermToken, r.Layout.Name = 0, 0, 0, record.LayoutMarker }))
	add("heartbeat", "of a session that goes on, and tells of a lock that was released under it", "session", with(func(r *record.Record) {
		r.Layout.Name, r.Freed = record.LayoutSession, &record.Freed{Count: 1, Last: []string{"9f86d081"}}
	}))
	add("heartbeat-over", "of a session that is over", "session", with(func(r *record.Record) {
		r.Layout.Name, r.Held, r.Ended = record.LayoutSession, false, "its holder was waited out by host-b/7"
	}))
	again := func(name string, change func(*vector)) {
		t.Helper()
		v := all[slices.IndexFunc(all, func(v vector) bool { return v.Name == name })]
		v.About, v.Verdict = "", "foreign"
		change(&v)
		all = append(all, v)
	}
	for _, name := range []string{"epochs", "epochs-if-match", "marker", "heartbeat"} {
		again(name, func(v *vector) { v.Name, v.ReadAs, v.IfMatch = name+"-as-object", "object", false })
	}
	again("epochs", func(v *vector) {
		v.Name, v.About, v.IfMatch = "epochs-by-if-match", "the two ways must not meet in one lock", true
	})
	again("epochs-if-match", func(v *vector) { v.Name, v.IfMatch = "epochs-if-match-by-creation", false })
	again("epochs-if-match", func(v *vector) {
		v.Name, v.Body = "epochs-if-match-text", strings.Replace(v.Body, `"if_match":true`, `"if_match":"true"`, 1)
	})
	table := record.Table{
		Size: 2, Token: 12, WriteID: "0123456789abcdef0123456789abcdef.9", Turn: 1500 * time.Millisecond,
		Holders: []record.Entry{
			{ID: "a1", Session: "sessions/00112233", Weight: 1, Token: 11, Holder: "host-a/4711", Since: at},
			{ID: "b1", Session: "sessions/44556677", Weight: 1, Token: 12, Holder: "host-b/7", Since: at.Add(time.Second)},
		},
		Waiters: []record.Entry{{ID: "c1", Session: "sessions/8899aabb", Weight: 2, Holder: "host-c/1", Since: at.Add(2 * time.Second)}},
	}
	body, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	overfull := strings.Replace(string(body), `"size":2`, `"size":1`, 1)
	return append(
		all,
		vector{Name: "table", About: "a semaphore of two slots, both taken, and one waits for both", ReadAs: "table", Body: string(body), Verdict: "table"},
		vector{Name: "table-as-object", ReadAs: "object", Body: string(body), Verdict: "foreign"},
		vector{Name: "table-overfull", About: "more weight than there is", ReadAs: "table", Body: overfull, Verdict: "foreign"},
	)
}
