package admin_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

func TestInitWhoseAnswerIsLost(t *testing.T) {
	st := newStore()
	st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put"})
	info, made, err := admin.Init(t.Context(), newLock(t, st, nil))
	if err != nil || !info.Exists || made != here().Tokens() { // a free marker is no object
		t.Errorf("got %+v, %v, %v", info, made, err)
	}
}

// TestInit: it costs a read and a write, says what it has made, and does not say that it has made what it
// could not make.
func TestInit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		absent, err := lock.Inspect(t.Context())
		if want := (leasehold.Info{Key: "jobs/backup", Age: -1}); err != nil || fmt.Sprint(absent) != fmt.Sprint(want) {
			t.Errorf("of no lock: %+v, %v", absent, err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Nth: 1}, faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 4})
		if info, made, err := admin.Init(t.Context(), lock); !errors.Is(err, store.ErrDenied) || made || info.Exists {
			t.Errorf("a write that was denied: %+v, %v, %v", info, made, err)
		}
		got := cost(st, func() {
			if info, made, err := admin.Init(t.Context(), lock); err != nil || !made || !info.Exists || info.Held || info.Key != "jobs/backup" || info.Token == 0 {
				t.Errorf("%+v, %v, %v", info, made, err)
			}
		})
		if want := (requests{get: 1, put: 1}); got != want {
			t.Errorf("it made %v, want %v", got, want)
		}
	})
}
