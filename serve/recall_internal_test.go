package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A scripted store answers each read as it is told to, and notes what it is asked.
type scripted struct {
	store.Store
	object  *store.Object
	err     error
	listing []store.Entry
	asked   []string
}

func (s *scripted) Get(_ context.Context, key string, unless store.Version) (*store.Object, error) {
	s.asked = append(s.asked, key+" unless "+string(unless))
	return s.object, s.err
}

func (s *scripted) List(context.Context, string, string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for _, e := range s.listing {
			if !yield(e, nil) {
				return
			}
		}
		if s.err != nil {
			yield(store.Entry{Key: "k", Version: "v1"}, s.err)
		}
	}
}

// What a look has read is answered from memory where the listing shows the same version, with the time that the store has now;
// it is asked for conditionally where the listing says nothing, and forgotten when it is not there any more.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recall
		st := &scripted{}
		began := time.Now()
		var look store.Store
		begins := func(listing ...store.Entry) {
			look, st.listing = r.begin(st), listing
			for e, err := range look.List(t.Context(), "", "") {
				if err != nil && st.err == nil || e.Key == "" {
					t.Errorf("%+v, %v", e, err)
				}
			}
		}
		gets := func(what string, unless store.Version, want, wantAsked string) {
			t.Helper()
			st.asked = nil
			o, err := look.Get(t.Context(), "k", unless)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprintf("%s %s %v", o.Body, o.Version, o.Date.Sub(began))
			}
			if asked := strings.Join(st.asked, ", "); got != want || asked != wantAsked {
				t.Errorf("%s: %s by asking for %q, want %s by %q", what, got, asked, want, wantAsked)
			}
		}
		seen := store.Entry{Key: "k", Version: "v1"}

		begins(seen)
		st.object = &store.Object{Body: []byte("one"), Version: "v1", Date: began} // which does not say its key
		gets("the first read", "", "one v1 0s", "k unless ")
		gets("the next one in this look", "", "one v1 0s", "")
		gets("one that is conditional itself", "v0", "one v1 0s", "k unless v0")
		r.end()

		time.Sleep(5 * time.Second)
		begins(seen)
		gets("when it is listed as it was", "", "one v1 5s", "")
		r.end()

		begins(store.Entry{Key: "k"})
		st.object, st.err = nil, store.ErrNotModified
		gets("when the listing has no version", "", "one v1 5s", "k unless v1")
		time.Sleep(time.Second)
		st.err = nil
		gets("again", "", "one v1 6s", "")
		r.end()

		begins()
		st.err = errors.New("no answer")
		gets("when the store fails", "", "no answer", "k unless v1")
		st.listing = nil
		for range look.List(t.Context(), "", "") { //nolint:errcheck // an entry beside an error says nothing
		}
		gets("when the listing fails", "", "no answer", "k unless v1")
		st.err, st.object = nil, &store.Object{Body: []byte("two"), Version: "v2", Date: began}
		gets("when it has changed", "", "two v2 0s", "k unless v1")
		r.end()

		begins(store.Entry{Key: "k", Version: "v2"})
		gets("since then", "", "two v2 0s", "")
		r.end()
		begins(store.Entry{Key: "k", Version: "v3"})
		st.object, st.err = nil, store.ErrNotExist
		gets("when it is gone", "", store.ErrNotExist.Error(), "k unless v2")
		gets("and asked for again", "", store.ErrNotExist.Error(), "k unless ")
		st.err, st.object = nil, &store.Object{Body: []byte("three")}
		gets("without a version", "", "three  "+fmt.Sprint((time.Time{}).Sub(began)), "k unless ")
		gets("which is never recalled", "", "three  "+fmt.Sprint((time.Time{}).Sub(began)), "k unless ")
		st.object = &store.Object{Body: []byte("four"), Version: "v4"}
		gets("with a version, and no time", "", "four v4 "+fmt.Sprint((time.Time{}).Sub(began)), "k unless ")
		gets("as it is recalled", "", "four v4 "+fmt.Sprint((time.Time{}).Sub(began)), "")
		r.end()
		if len(r.of) != 1 || r.size != len("k")+len("four")+256 {
			t.Errorf("%d objects of %d bytes are remembered", len(r.of), r.size)
		}
		begins()
		r.end()
		if len(r.of) != 0 || r.size != 0 {
			t.Errorf("%d objects of %d bytes are remembered that the last look did not see", len(r.of), r.size)
		}
	})
}

// What is remembered takes 16 MiB at most, with 256 bytes for each object beside it, and replacing an object makes no room for
// others that there is not.
func TestRecallIsBounded(t *testing.T) {
	t.Parallel()
	var r recall
	r.begin(nil)
	keep := func(key string, size int) (kept bool) {
		r.keep(store.Object{Key: key, Version: "v", Body: make([]byte, size)})
		_, kept, _ = r.known(key)
		return kept
	}
	const half = 8<<20 - 1 - 256
	for range 3 { // the same one
		if !keep("a", half) {
			t.Fatal("half of it does not fit")
		}
	}
	if keep("b", half+1) || !keep("b", half) || keep("c", 0) {
		t.Errorf("the bound is not where it should be: %d bytes", r.size)
	}
	if r.size != 16<<20 {
		t.Errorf("%d bytes", r.size)
	}
	if keep("b", half+1) {
		t.Error("it grew beyond the bound")
	}
	if !keep("c", half-1) || keep("d", 0) || r.size != 16<<20-1 {
		t.Errorf("what was dropped makes no room: %d bytes", r.size)
	}
}
