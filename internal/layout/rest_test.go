package layout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A timid store tells its time of an absent object only, like a directory, or not at all.
type timid struct {
	*memstore.Store
	mute bool
	gets int
}

func (s *timid) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.gets++
	obj, err := s.Store.Get(ctx, key, unless)
	if obj != nil {
		obj.Date = time.Time{}
	}
	if failure, is := err.(*store.Error); is && s.mute { //nolint:errorlint // it is what memstore returns
		failure.Date = time.Time{}
	}
	return obj, err
}

// TestRestIsDated: a look at a lock that rests finds out how old the rest is, by one more request
// where the store does not tell with the first; of any other lock it does not ask.
func TestRestIsDated(t *testing.T) {
	for _, name := range []string{"object", "epochs", "epochs+if-match"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &timid{Store: memstore.New()}
				lay := func(key string) layout.Layout {
					if name == "object" {
						return layout.Object{Store: st, Key: key}
					}
					return layout.Epochs{Store: st, Key: key, IfMatch: name == "epochs+if-match"}
				}
				write := func(key string, rest *record.Rest) {
					r := record.Record{Token: 1, TTL: time.Second, WriteID: "me.1", Rest: rest}
					if _, err := lay(key).Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: r}); err != nil {
						t.Fatal(err)
					}
				}
				write("rests", &record.Rest{Milliseconds: 60_000, WriteID: "me.1"})
				write("free", nil)
				time.Sleep(40 * time.Second)
				s, err := lay("rests").Look(t.Context(), "")
				if age, told := s.Age(); err != nil || !told || age != 40*time.Second || s.Rest(time.Now()) != 21*time.Second {
					t.Errorf("after 40 s: %v old, %t, rests for %v, %v", age, told, s.Rest(time.Now()), err)
				}
				if seen := layout.ReadDone(s, err); seen.Age != 40*time.Second {
					t.Errorf("the candidate hears of %v", seen.Age)
				}
				before := st.gets
				if _, err = lay("free").Look(t.Context(), ""); err != nil || st.gets != before+1 {
					t.Errorf("a look at a lock that does not rest took %d reads, %v", st.gets-before, err)
				}
				// Nobody tells: the candidate counts from its first sighting, and people see what the
				// wall clocks say.
				st.mute = true
				s, err = lay("rests").Look(t.Context(), "")
				s.Record.RenewedAt = time.Now().Add(-50 * time.Second)
				if seen := layout.ReadDone(s, err); err != nil || seen.Age != 0 || s.Rest(time.Now()) != 10*time.Second {
					t.Errorf("where nobody tells: %v old, rests for %v, %v", seen.Age, s.Rest(time.Now()), err)
				}
			})
		})
	}
}
