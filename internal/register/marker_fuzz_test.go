package register_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/leasehold/leasehold/internal/register"
)

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
