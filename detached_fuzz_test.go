package leasehold_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/leasehold/leasehold"
)

// FuzzDetached: whatever a lease file has, it is refused as one, or it is a lease that is written and read again as it
// is.
func FuzzDetached(f *testing.F) {
	f.Add([]byte(`{"format":1,"key":"jobs/a","holder":"me","token":7,"ttl_ms":60000,"acquired_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-02T03:05:05Z","store":"mem","layout":"object","write_id":"x"}`))
	f.Add([]byte(`{"format":1,"key":"a","token":1,"ttl_ms":1,"expires_at":"2026-01-02T03:05:05Z","layout":"epochs","write_id":"x","released":true,"pending":["y"],"url":"s3://b"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"Token":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := leasehold.ParseDetached(text)
		if err != nil {
			if !errors.Is(err, leasehold.ErrForeignLease) || !reflect.DeepEqual(d, leasehold.Detached{}) {
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
		if back, err := leasehold.ParseDetached(again); err != nil || !reflect.DeepEqual(back, d) {
			t.Errorf("%+v is written as %s and read as %+v, %v", d, again, back, err)
		}
	})
}
