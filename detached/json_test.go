package detached_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/detached"
)

// TestJSON: what is read is what was written, and anything else says what is wrong with it.
func TestJSON(t *testing.T) {
	t.Parallel()
	const plain = `{"format":1,"key":"jobs/backup","holder":"ci","token":42,"ttl_ms":60000,` +
		`"acquired_at":"2026-11-20T10:30:45Z","expires_at":"2026-11-20T10:31:40Z","store":"mem://","layout":"epochs","no_if_match":true,"write_id":"0f9c.7","pending":["0f9c-1"]}`
	d, err := detached.Parse([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	if text, err = json.Marshal(d); err != nil || string(text) != plain {
		t.Errorf("%s, %v", text, err)
	}
	if _, err = detached.Parse([]byte(strings.TrimSuffix(plain, "}") + `,"colour":"red","Token":7}`)); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
	for _, c := range []struct{ from, to, says string }{
		{plain, "", "not a JSON object"},
		{plain, plain + plain, "something follows"},
		{`"format":1`, `"format":2`, "made by a later version, and this one knows formats up to 1: upgrade"},
		{`"format":1`, `"format":0`, "does not exist"},
		{`"format":1,`, ``, "no format"},
		{`"token":42`, `"token":42,"token":43`, "twice"},
		{`"token":42`, `"Token":42`, "no token"},
		{`"token":42`, `"token":"42"`, "token"},
		{`"token":42`, `"token":0`, "token 0"},
		{`"ttl_ms":60000`, `"ttl_ms":1`, "TTL"},
		{`"key":"jobs/backup"`, `"key":""`, "key is empty"},
		{`"layout":"epochs"`, `"layout":"marker"`, `layout is "marker"`},
		{`"layout":"epochs"`, `"layout":"other"`, `layout is "other"`},
		{`"layout":"epochs"`, `"layout":"object"`, `layout is "object", which needs If-Match`},
		{`"no_if_match":true`, `"no_if_match":"yes"`, "no_if_match"},
		{`"write_id":"0f9c.7"`, `"write_id":""`, "write ID"},
		{`["0f9c-1"]`, `[""]`, "write ID"},
		{`["0f9c-1"]`, `["1","2","3","4","5","6","7","8","9"]`, "9 pending"},
		{`"expires_at":"2026-11-20T10:31:40Z",`, ``, "no expires_at"},
		{`"expires_at":"2026-11-20T10:31:40Z"`, `"expires_at":"tomorrow"`, "tomorrow"},
	} {
		text := strings.Replace(plain, c.from, c.to, 1)
		if text == plain {
			t.Fatalf("no %s", c.from)
		}
		if _, err := detached.Parse([]byte(text)); !errors.Is(err, detached.ErrForeign) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse: whatever a lease file has, it is refused as one, or it is a lease that is written and read again as it
// is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1,"key":"jobs/a","holder":"me","token":7,"ttl_ms":60000,"acquired_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-02T03:05:05Z","store":"mem","layout":"object","write_id":"x"}`))
	f.Add([]byte(`{"format":1,"key":"a","token":1,"ttl_ms":1,"expires_at":"2026-01-02T03:05:05Z","layout":"epochs","write_id":"x","released":true,"pending":["y"],"url":"s3://b"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"Token":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := detached.Parse(text)
		if err != nil {
			if !errors.Is(err, detached.ErrForeign) || !reflect.DeepEqual(d, detached.Lease{}) {
				t.Errorf("%+v, %v", d, err)
			}
			return
		}
		if d.Token < 1 || d.TTL <= 0 || d.Key == "" {
			t.Errorf("accepted %+v", d)
		}
		again, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := detached.Parse(again); err != nil || !reflect.DeepEqual(back, d) {
			t.Errorf("%+v is written as %s and read as %+v, %v", d, again, back, err)
		}
	})
}
