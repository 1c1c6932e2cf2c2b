package layout_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// past runs f in virtual time, over each of the ways.
func past(t *testing.T, f func(t *testing.T, e layout.Epochs, st *tapped)) {
	t.Helper()
	for _, ifMatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("if-match=%v", ifMatch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &tapped{Store: memstore.New()}
				f(t, layout.Epochs{Store: st, Key: "jobs/l", IfMatch: ifMatch}, st)
			})
		})
	}
}

// terms makes leases, a minute each, and returns what is there then.
func terms(t *testing.T, e layout.Epochs, n int, s layout.Snapshot) layout.Snapshot {
	t.Helper()
	for range n {
		s = write(t, e, candidate.Claim, s)
		time.Sleep(time.Minute)
		s = write(t, e, candidate.Free, s)
	}
	return s
}

func collected(t *testing.T, e layout.Epochs, c layout.Collection) (got []string) {
	t.Helper()
	for p, err := range e.Collect(t.Context(), c) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Key)
	}
	return got
}

// TestTenThousandEpochs: the costs of an acquisition and of a renewal do not grow
// with the past. A new candidate pays one listing more once there is a signpost.
func TestTenThousandEpochs(t *testing.T) {
	for _, ifMatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("if-match=%v", ifMatch), func(t *testing.T) {
			costs := func(n int) []string {
				st := &tapped{Store: memstore.New()}
				e := layout.Epochs{Store: st, Key: "jobs/l", IfMatch: ifMatch}
				// The records of the past are made by hand: only their keys matter.
				for i := range n - 3 {
					plant(t, st.Store, layout.EpochKey(e.Key, int64(i+1)), "{}")
				}
				body := free(t, e.Layout())
				plant(t, st.Store, layout.EpochKey(e.Key, int64(n-2)), body)
				// As those who collect do at every hundredth.
				collected(t, e, layout.DefaultCollection)
				s := terms(t, e, 1, look(t, e, ""))
				var got []string
				for _, step := range []func(){
					func() { s = write(t, e, candidate.Claim, s) },
					func() { s = write(t, e, candidate.Renew, s) },
					func() { _, _ = e.Look(t.Context(), s.Version) },
					func() { s = write(t, e, candidate.Free, s) },
					func() { s = write(t, e, candidate.Claim, look(t, e, "")) },
				} {
					got = append(got, st.cost(step))
				}
				return got
			}
			synctest.Test(t, func(t *testing.T) {
				few, many := costs(3), costs(10_000)
				t.Logf("with 3 epochs %q, with 10,000 %q", few, many)
				wants(t, "who knows", many[:4], few[:4])
				wants(t, "a newcomer", many[4], strings.Replace(few[4], "2 LIST", "3 LIST", 1))
				if !strings.Contains(few[4], "2 LIST") {
					t.Errorf("a newcomer's first claim cost %s", few[4])
				}
			})
		})
	}
}

// TestCollect: by number and by age, from the oldest on, as many as allowed, and never
// the highest, nor what is no record.
func TestCollect(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		if got := collected(t, e, layout.Collection{Limit: -1}); len(got) > 0 {
			t.Errorf("of nothing %q was collected", got)
		}
		s := terms(t, e, 10, layout.Snapshot{})
		all := keys(t, st)
		top := layout.EpochKey(e.Key, s.Record.Epoch)
		old := layout.Collection{Keep: 2, Age: 5*time.Minute + time.Second, Limit: -1}
		dry := old
		dry.Dry = true
		want := collected(t, e, dry)
		if len(want) == 0 || !slices.Equal(keys(t, st), all) {
			t.Fatalf("a dry run told of %q and left %d of %d", want, len(keys(t, st)), len(all))
		}
		few := old
		few.Limit = 2
		wants(t, "two at a time", collected(t, e, few), want[:2])
		wants(t, "then the rest", collected(t, e, old), want[2:])
		wants(t, "then nothing", len(collected(t, e, old)), 0)
		time.Sleep(time.Hour)
		collected(t, e, old)
		left := keys(t, st)
		if len(left) != 3 || !slices.Contains(left, top) {
			t.Errorf("2 and the highest stay, and there are %q", left)
		}
		var leases int
		for term, err := range e.Terms(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if leases++; term.Why != "released" || !term.Ended.Equal(term.Record.RenewedAt) {
				t.Errorf("%+v", term)
			}
		}
		wants(t, "leases", leases, 3)
		collected(t, e, layout.Collection{Limit: -1})
		wants(t, "with nothing kept", keys(t, st), []string{top})
		wants(t, "and still", look(t, e, "").Version, s.Version)
	})
}

func TestCollectLeavesWhatIsNotOurs(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		foreign := layout.EpochKey(e.Key, 1)
		plant(t, st, foreign, "garbage")
		plant(t, st, e.Key+"/notes.txt", "garbage")
		body := free(t, e.Layout())
		plant(t, st, layout.EpochKey(e.Key, 2), body)
		s := terms(t, e, 3, look(t, e, ""))
		time.Sleep(time.Hour)
		var errs, got int
		for p, err := range e.Collect(t.Context(), layout.Collection{Limit: -1}) {
			switch {
			case err == nil:
				got++
			case errors.Is(err, record.ErrForeign) && p.Key == foreign && strings.Contains(err.Error(), foreign):
				errs++
			default:
				t.Errorf("%v, %v", p, err)
			}
		}
		if errs != 1 || got == 0 {
			t.Errorf("%d errors and %d collected", errs, got)
		}
		wants(t, "left", keys(t, st), []string{foreign, layout.EpochKey(e.Key, s.Record.Epoch), e.Key + "/notes.txt"})
	})
}

// TestHighestDeletedByHand: the one before it is the highest again, for a candidate
// that knew the deleted one and for a newcomer; and a signpost to a missing epoch
// misleads nobody.
func TestHighestDeletedByHand(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		s := terms(t, e, 2, layout.Snapshot{})
		held := write(t, e, candidate.Claim, s)
		plant(t, st, fmt.Sprintf("%s/!%019d", e.Key, math.MaxInt64-held.Record.Epoch), "{}")
		wants(t, "a newcomer", look(t, e, "").Version, held.Version)
		remove(t, st, layout.EpochKey(e.Key, held.Record.Epoch))
		wants(t, "a newcomer, after that", look(t, e, "").Version, s.Version)
		if e.IfMatch { // who creates the next one instead need not notice
			wants(t, "the holder, after that", look(t, e, held.Version).Version, s.Version)
		}
		again := write(t, e, candidate.Claim, s)
		wants(t, "claimed again", look(t, e, "").Version, again.Version)
		// A signpost that is too high is removed.
		remove(t, st, keys(t, st)...)
		plant(t, st, fmt.Sprintf("%s/!%019d", e.Key, math.MaxInt64-700), "{}")
		s = terms(t, e, 1, layout.Snapshot{})
		collected(t, e, layout.Collection{Limit: -1})
		wants(t, "all that is left", keys(t, st), []string{layout.EpochKey(e.Key, s.Record.Epoch)})
	})
}

// A lock that began anew, after all was deleted by hand, can name a number of its former
// life. History and collections went round for ever.
func TestPreviousOfAFormerLife(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, _ *tapped) {
		var former layout.Snapshot
		former.Record.Epoch = 3
		s := write(t, e, candidate.Claim, former)
		wants(t, "its number", s.Record.Epoch, 1)
		s = terms(t, e, 3, s)
		n := 0
		for _, err := range e.Terms(t.Context()) {
			if n++; err != nil || n > 10 {
				t.Fatalf("term %d: %v", n, err)
			}
		}
		time.Sleep(time.Hour)
		collected(t, e, layout.Collection{Keep: 100, Limit: -1})
		wants(t, "then", look(t, e, "").Version, s.Version)
	})
}

// TestSignposts: one every 500 epochs, of which the newest stays.
func TestSignposts(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		posts := func() (n int) {
			for _, key := range keys(t, st.Store) {
				if strings.Contains(key, "/!") {
					n++
				}
			}
			return n
		}
		var s layout.Snapshot
		for s.Record.Epoch < 1200 {
			op := candidate.Claim
			if s.Record.Held {
				op = candidate.Free
			}
			s = write(t, e, op, s)
			if e.Due(candidate.Claim, s.Record.Epoch) {
				collected(t, e, layout.DefaultCollection)
				collected(t, e, layout.DefaultCollection) // another at the same time
			}
			if n := s.Record.Epoch; n%25 != 0 && (n < 495 || n > 510) {
				continue
			}
			switch n := posts(); {
			case s.Record.Epoch < 500 && n != 0, s.Record.Epoch > 501 && n != 1:
				t.Fatalf("%d signposts at epoch %d", n, s.Record.Epoch)
			}
		}
		wants(t, "a newcomer", look(t, e, "").Version, s.Version)
	})
}

func TestDue(t *testing.T) {
	plain, ifMatch := layout.Epochs{}, layout.Epochs{IfMatch: true}
	for _, c := range []struct {
		e    layout.Epochs
		op   candidate.Op
		n    int64
		want bool
	}{
		{plain, candidate.Claim, 1, false},
		{plain, candidate.Claim, 100, true},
		{plain, candidate.Claim, 101, true},
		{plain, candidate.Claim, 102, false},
		{plain, candidate.Renew, 200, true},
		{plain, candidate.Renew, 201, false},
		{plain, candidate.Free, 200, false},
		{plain, candidate.Free, 201, false},
		{ifMatch, candidate.Claim, 100, true},
		{ifMatch, candidate.Claim, 101, false},
		{ifMatch, candidate.Renew, 100, false},
		{ifMatch, candidate.Free, 100, false},
	} {
		if got := c.e.Due(c.op, c.n); got != c.want {
			t.Errorf("if-match %v, %v of %d: %v", c.e.IfMatch, c.op, c.n, got)
		}
	}
}

// TestNoTime: where the store does not tell the time, nothing is deleted.
func TestNoTime(t *testing.T) {
	st := &timeless{tapped{Store: memstore.New()}}
	e := layout.Epochs{Store: st, Key: "l"}
	var s layout.Snapshot
	for range 5 {
		s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
	}
	if got := collected(t, e, layout.Collection{Limit: -1}); len(got) > 0 {
		t.Errorf("collected %q", got)
	}
	m := layout.Marker{Store: st, Key: "m", TTL: time.Second}
	write(t, m, candidate.Claim, look(t, m, ""))
	if _, err := m.Expire(t.Context(), false); !errors.Is(err, layout.ErrNotExpired) || !strings.Contains(err.Error(), "time") {
		t.Errorf("expire: %v", err)
	}
}

var _ store.Store = (*timeless)(nil)

// TestCollectLeavesADay: a late request may yet meet an epoch that is younger than a day.
func TestCollectLeavesADay(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, _ *tapped) {
		terms(t, e, 10, layout.Snapshot{})
		c := layout.DefaultCollection
		c.Keep = 0
		time.Sleep(23 * time.Hour)
		wants(t, "collected in the first day", len(collected(t, e, c)), 0)
		time.Sleep(2 * time.Hour)
		if len(collected(t, e, c)) == 0 {
			t.Error("nothing is collected after it")
		}
	})
}
