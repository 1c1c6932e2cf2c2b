package probe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// harmless are the experiments that no use rests on. To add one here is to say that no
// outcome of it can make a lock unsafe.
var harmless = []string{"settings", oldVersions, quotes, bareWrites, deleteIf, "left by earlier probes", trouble}

// outcome makes a report of experiments that all come out well but for one.
func outcome(t *testing.T, of string, result Result, failed error) *Report {
	t.Helper()
	s, err := newSurvey(t.Context(), memstore.New(), few)
	if err != nil {
		t.Fatal(err)
	}
	s.experiments, s.wrote = nil, true
	for _, e := range experiments {
		e.vital, e.after = false, nil
		e.run = func(*survey) (Result, string, error) {
			if e.name == of {
				return result, "made to", failed
			}
			return OK, "", nil
		}
		s.experiments = append(s.experiments, e)
	}
	if err := s.all(); err != nil {
		t.Fatal(err)
	}
	return s.report
}

// TestEveryFindingReachesTheVerdict: each experiment is made to go wrong alone, and then
// just what rests on it is not safe. "read unless unchanged" could be BAD, and everything
// was safe all the same.
func TestEveryFindingReachesTheVerdict(t *testing.T) {
	for _, e := range experiments {
		if (len(e.uses) == 0) != slices.Contains(harmless, e.name) {
			t.Errorf("%q is said to rule out %q", e.name, e.uses)
		}
		for _, c := range []struct {
			name   string
			result Result
			err    error
			rules  []string
		}{
			{"ok", OK, nil, nil},
			{"a note", Note, nil, nil},
			{"bad", Bad, nil, e.uses},
			{"unknown", Unknown, nil, e.uses},
			{"no answer", OK, store.ErrUnavailable, e.uses},
			{"another answer than before", OK, store.ErrNotExist, e.uses},
			{"a bucket that is gone", OK, store.ErrNoBucket, e.uses},
		} {
			r := outcome(t, e.name, c.result, c.err)
			f := r.Finding(e.name)
			if f.Result == Bad && len(e.uses) == 0 {
				c.rules = Uses() // what nothing is known of rules out all
			}
			for _, use := range Uses() {
				err := r.Proves(r.Store, use)
				if want := slices.Contains(c.rules, use); (err != nil) != want || want && !errors.Is(err, ErrUnproven) {
					t.Errorf("%q is %s: for %s: %v", e.name, c.name, use, err)
				}
				if slices.Contains(f.Against(), use) != (err != nil) {
					t.Errorf("%q is %s: it is against %q, and for %s: %v", e.name, c.name, f.Against(), use, err)
				}
			}
			for _, v := range r.Verdicts {
				if v.Safe != (r.Proves(r.Store, v.Use) == nil) || v.Untried {
					t.Errorf("%q is %s: %+v, and %v", e.name, c.name, v, r.Proves(r.Store, v.Use))
				}
			}
		}
	}
}

// A verdict that has overlooked a finding counts for nothing.
func TestFindingsCountWhateverVerdictsSay(t *testing.T) {
	r := &Report{Store: "s3://b", Verdicts: []Verdict{{Use: "object", Safe: true}}}
	if err := r.Proves("s3://b", "object"); err != nil {
		t.Error(err)
	}
	r.Findings = []Finding{{Name: "new", Result: Bad, Detail: "this"}}
	if err := r.Proves("s3://b", "object"); !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "new: this") {
		t.Error(err)
	}
	r.Findings[0].Uses = []string{"epochs"}
	if err := r.Proves("s3://b", "object"); err != nil {
		t.Error(err)
	}
}

// A finding from before an interrupt counts. A use that was not tried is neither safe
// nor unsafe.
func TestInterruptKeepsWhatIsBad(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &brokenstore.Store{Store: memstore.New()}
	unmoved(1)(b, func(int) bool { return true })
	r, err := Run(ctx, brokenstore.Bare{Store: b}, &Options{OnFinding: func(f Finding) {
		if f.Name == unchanged {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, v := range r.Verdicts {
		if v.Safe || v.Untried != (v.Use == useFastStart) {
			t.Errorf("%+v", v)
		}
	}
	empty(t, b.Store)
}

// weighed counts the bytes that are sent.
type weighed struct {
	store.Store
	sent atomic.Int64
}

func (w *weighed) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	w.sent.Add(int64(len(body)))
	return w.Store.Put(ctx, key, body, only)
}

// A probe sends no more than it says before, and no larger bodies than it may.
func TestProbeSendsWhatItSays(t *testing.T) {
	for _, c := range []struct {
		largest int
		untried []string
	}{
		{0, nil},
		{64 << 10, byLarge},
		{1 << 10, byCreate},
	} {
		st := &weighed{Store: memstore.New()}
		opts := &Options{LargestBody: c.largest}
		r := probedSoon(t, st, opts)
		if sent := st.sent.Load(); sent != r.Sent || sent > r.SentLimit || r.SentLimit != opts.Bytes() {
			t.Errorf("bodies of %d: %d bytes, %d are told, of at most %d, %d", c.largest, sent, r.Sent, r.SentLimit, opts.Bytes())
		}
		if r.Requests.Total() > opts.Requests() {
			t.Errorf("bodies of %d: %d requests of %d", c.largest, r.Requests.Total(), opts.Requests())
		}
		for _, v := range r.Verdicts {
			if want := slices.Contains(c.untried, v.Use); v.Untried != want || v.Safe == want {
				t.Errorf("bodies of %d: %+v", c.largest, v)
			}
		}
		t.Logf("figures: bodies up to %d: %d requests of %d, %d bytes of %d", opts.largestBody(), r.Requests.Total(), r.Limit, r.Sent, r.SentLimit)
	}
	if _, err := Run(t.Context(), memstore.New(), &Options{LargestBody: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

// Progress is told of while an experiment goes on, and grows.
func TestProgress(t *testing.T) {
	var told []Progress
	var r *Report
	synctest.Test(t, func(t *testing.T) { // where requests that take no time take none
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: time.Millisecond}}})
		defer st.Close()
		r = probed(t, st, &Options{Races: 1000, OnProgress: func(p Progress) { told = append(told, p) }})
	})
	if len(told) < 2 {
		t.Fatalf("in %v it told %v", r.Took.Duration(), told)
	}
	for i, p := range told {
		if p.Limit != r.Limit || p.Requests < 1 || p.Doing == "" || i > 0 && p.Requests <= told[i-1].Requests {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

// A bucket that does not exist is an error; one that is gone for the other connections is
// a finding, because something was written to it.
func TestProbeOfNoBucket(t *testing.T) {
	gone := func(b *brokenstore.Store) {
		no := func(op, key string) error { return &store.Error{Op: op, Key: key, Kind: store.ErrNoBucket} }
		b.OnGet = func(_ context.Context, key string, _ store.Version) (*store.Object, error) {
			return nil, no("get", key)
		}
		b.OnPut = func(_ context.Context, key string, _ []byte, _ store.Condition) (*store.Object, error) {
			return nil, no("put", key)
		}
		b.OnDelete = func(_ context.Context, key string) error { return no("delete", key) }
	}
	none := &brokenstore.Store{Store: memstore.New()}
	gone(none)
	if r, err := Run(t.Context(), brokenstore.Bare{Store: none}, few); !errors.Is(err, store.ErrNoBucket) || r != nil {
		t.Errorf("%+v, %v", r, err)
	}
	good := memstore.New()
	r, err := Run(t.Context(), good, &Options{Open: func(context.Context) (store.Store, error) { return brokenstore.Bare{Store: none}, nil }})
	if err != nil || r.Proves(r.Store, useObject) == nil || r.Finding(canCreate).Result != Bad {
		t.Errorf("%+v, %v", r, err)
	}
	empty(t, good)
}

// TestProbeOfTwoCopies: connections that lead to two copies of a store end in a verdict.
// They ended in an error, as if there were no object.
func TestProbeOfTwoCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := memstore.New(), memstore.New()
		r, err := Run(t.Context(), one, &Options{Open: func(context.Context) (store.Store, error) { return two, nil }})
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range locks {
			if r.Proves(r.Store, use) == nil {
				t.Errorf("it is said to be safe for %s", use)
			}
		}
		empty(t, one)
		empty(t, two)
	})
}
