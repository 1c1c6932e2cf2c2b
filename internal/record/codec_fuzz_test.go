package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// FuzzDecode: whatever lies in the store, it is either refused or read, and what is read
// says what was there, known fields and unknown ones: so it is when it is written back.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(strings.TrimSuffix(plain, "}\n") + `,"colour":[null,{"a":1e9}],"":0}`))
	f.Add([]byte(`{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`))
	f.Add([]byte(`{"format":1,"token":2,"state":"held","ttl_ms":1,"write_id":"x","layout":"epochs","previous":1,"ended":"broken","successor":"b"}`))
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
		if _, inDefault := record.Decode(body); (inDefault == nil) != (err == nil && r.Layout == "") {
			t.Fatalf("layout %q: %v in the default layout, %v in any", r.Layout, inDefault, err)
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
		if r.Token < 0 || (r.Token == 0) != (r.Layout == record.LayoutMarker) || r.TTL <= 0 || r.TTL > protocol.MaxTTL || r.WriteID == "" {
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
	texts := map[string]string{}
	for name, raw := range all {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		texts[name] = compact.String()
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
