package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/storetest"
)

// instrument finds one by its name.
func instrument(t *testing.T, name string) *metrics.Instrument {
	t.Helper()
	all := metrics.Instruments()
	i := slices.IndexFunc(all, func(i *metrics.Instrument) bool { return i.Name == name })
	if i < 0 {
		t.Fatalf("there is no instrument %s", name)
	}
	return all[i]
}

// TestInstruments: names are unique in OpenTelemetry and in Prometheus, attributes are bounded, and what is
// documented is a sentence.
func TestInstruments(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, i := range metrics.Instruments() {
		for _, name := range []string{i.Name, i.PrometheusName()} {
			if name = "name " + name; seen[name] && i.Name != i.PrometheusName() {
				t.Errorf("there are two with the %s", name)
			}
			seen[name] = true
		}
		if !strings.HasSuffix(i.Description, ".") || i.Description[:1] != strings.ToUpper(i.Description[:1]) {
			t.Errorf("%s: %q is no sentence", i.Name, i.Description)
		}
		if (i.Kind == metrics.Histogram) != (len(i.Buckets) > 0) || !slices.IsSorted(i.Buckets) {
			t.Errorf("%s is a %s with buckets %v", i.Name, i.Kind, i.Buckets)
		}
		for _, a := range i.Attributes {
			if bounded := a.Name != metrics.AttrKey && a.Name != metrics.AttrName; bounded != (len(a.Values) > 0) || len(a.Values) > 20 {
				t.Errorf("%s: %s has %d values", i.Name, a.Name, len(a.Values))
			}
		}
	}
	for name, want := range map[string]string{
		"leasehold.acquire.duration":     "leasehold_acquire_duration_seconds",
		"leasehold.acquire.pending":      "leasehold_acquire_pending",
		"leasehold.lease.losses":         "leasehold_lease_losses_total",
		"leasehold.store.io":             "leasehold_store_io_bytes_total",
		"leader_election_master_status":  "leader_election_master_status",
		"leader_election_slowpath_total": "leader_election_slowpath_total",
	} {
		if got := instrument(t, name).PrometheusName(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// checked is a sink that refuses what is not in the list.
type checked struct {
	t *testing.T
	*metrics.Set
}

func (c checked) Record(ctx context.Context, i *metrics.Instrument, value float64, attributes ...metrics.Attr) {
	if i.Kind == metrics.Counter && value < 0 || i.Kind == metrics.Gauge {
		c.t.Errorf("%s, a %s, is %v", i.Name, i.Kind, value)
	}
	c.check(i, attributes)
	c.Set.Record(ctx, i, value, attributes...)
}

func (c checked) Observe(i *metrics.Instrument, f func(func(float64, ...metrics.Attr))) {
	c.Set.Observe(i, func(yield func(float64, ...metrics.Attr)) {
		f(func(value float64, attributes ...metrics.Attr) {
			c.check(i, attributes)
			yield(value, attributes...)
		})
	})
}

func (c checked) check(i *metrics.Instrument, attributes []metrics.Attr) {
	got := map[string]bool{}
	for _, a := range attributes {
		n := slices.IndexFunc(i.Attributes, func(has metrics.Attribute) bool { return has.Name == a.Name })
		if n < 0 || got[a.Name] {
			c.t.Errorf("%s has no attribute %s, or it comes twice: %v", i.Name, a.Name, attributes)
			continue
		}
		if v := i.Attributes[n].Values; v != nil && !slices.Contains(v, a.Value) {
			c.t.Errorf("%s: the attribute %s has no value %q", i.Name, a.Name, a.Value)
		}
		got[a.Name] = true
	}
	for _, a := range i.Attributes {
		if !got[a.Name] && a.Name != metrics.AttrKey {
			c.t.Errorf("%s comes without its attribute %s: %v", i.Name, a.Name, attributes)
		}
	}
}

// recorder is one whose measurements are checked.
func recorder(t *testing.T, opts *metrics.Options) (*metrics.Recorder, checked) {
	t.Helper()
	set := checked{t, metrics.NewSet()}
	r, err := metrics.New(set, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r, set
}

// wants checks the value of an instrument with some attributes, given as pairs, and of a histogram how many
// values it has.
func (c checked) wants(name string, value float64, count uint64, attributes ...string) {
	c.t.Helper()
	synctest.Wait()
	var attrs []metrics.Attr
	for pair := range slices.Chunk(attributes, 2) {
		attrs = append(attrs, metrics.Attr{Name: pair[0], Value: pair[1]})
	}
	got, n := c.Value(instrument(c.t, name), attrs...)
	if diff := got - value; diff < -0.001 || diff > 0.001 || n != count {
		c.t.Errorf("%s %q is %v of %d, want %v of %d", name, attributes, got, n, value, count)
	}
}

// TestLock: each instrument of a lock through its life, a loss and a takeover.
func TestLock(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		r, set := recorder(t, nil)
		newLock := func(st store.Store) *leasehold.Lock {
			lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: r.Trace()})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		a, b := newLock(st), newLock(inner)
		lease := leasetest.Acquire(t, a)
		set.wants("leasehold.lease.held", 1, 1, metrics.AttrKind, "lock")
		for _, rare := range []string{"leasehold.acquire.takeovers", "leasehold.renewal.late", "leasehold.store.troubles"} {
			set.wants(rare, 0, 1, metrics.AttrKind, "lock")
		}
		set.wants("leasehold.lease.losses", 0, 1, metrics.AttrCause, "expired") // or no alert would see the first
		time.Sleep(6 * time.Second)
		set.wants("leasehold.renewal.duration", 0, 1)
		set.wants("leasehold.renewal.remaining", 8.74, 1)
		set.wants("leasehold.renewal.late", 0, 1)
		if _, err := b.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		set.wants("leasehold.acquire.duration", 0, 1, metrics.AttrOutcome, "held", metrics.AttrWaited, "false")
		got := make(chan *leasehold.Lease)
		go func() { got <- leasetest.Acquire(t, b) }()
		time.Sleep(3 * time.Second)
		set.wants("leasehold.acquire.pending", 1, 1)
		set.wants("leasehold.acquire.oldest", 3, 1)
		st.Partition(true) // at 9 s; the last renewal was at 5 s
		second := <-got
		set.wants("leasehold.acquire.takeovers", 1, 1)
		set.wants("leasehold.acquire.pending", 0, 1)
		set.wants("leasehold.acquire.oldest", 0, 1)
		set.wants("leasehold.lease.losses", 1, 1, metrics.AttrCause, "expired")
		set.wants("leasehold.lease.duration", 18.74, 1, metrics.AttrEnd, "lost")
		set.wants("leasehold.lease.held", 1, 1)
		if v, n := set.Value(instrument(t, "leasehold.store.troubles")); v < 1 || n != 1 {
			t.Errorf("%v reports of trouble", v)
		}
		if v, n := set.Value(instrument(t, "leasehold.request.duration"), metrics.Attr{Name: metrics.AttrOutcome, Value: "unavailable"}); n < 3 {
			t.Errorf("%d requests have failed, which took %v s", n, v)
		}
		time.Sleep(time.Second)
		leasetest.Release(t, second)
		set.wants("leasehold.lease.duration", 1, 1, metrics.AttrEnd, "released")
		set.wants("leasehold.release.duration", 0, 1, metrics.AttrOutcome, "confirmed")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := lease.Release(ctx); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		set.wants("leasehold.release.duration", 15, 1, metrics.AttrOutcome, "unconfirmed")
		set.wants("leasehold.lease.held", 0, 1)
		if v, n := set.Value(instrument(t, "leasehold.acquire.duration"), metrics.Attr{Name: metrics.AttrOutcome, Value: "acquired"}); n != 2 || v < 15 || v > 19 {
			t.Errorf("%d acquisitions took %v s", n, v)
		}
		for _, i := range metrics.Instruments() {
			for _, a := range i.Attributes {
				if v, n := set.Value(i, metrics.Attr{Name: a.Name, Value: "jobs/backup"}); n > 0 {
					t.Errorf("%s tells a lock apart that is not named: %v", i.Name, v)
				}
			}
		}
	})
}

// TestElection: who leads, and whether that is known, by the key of the election; and the two names that
// dashboards for Kubernetes use.
func TestElection(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		ra, a := recorder(t, nil)
		rb, b := recorder(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		run := func(st store.Store, holder string, r *metrics.Recorder) {
			el, err := leasehold.NewElection(st, "leaders/x", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{
				Holder: holder, Layout: leasehold.LayoutObject, Trace: r.Trace(),
			}})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				_ = el.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		run(cut, "a", ra)
		synctest.Wait()
		run(inner, "b", rb)
		time.Sleep(time.Second)
		for set, leads := range map[checked]float64{a: 1, b: 0} {
			set.wants("leader_election_master_status", leads, 1, "name", "leaders/x")
			set.wants("leader_election_slowpath_total", 0, 1, "name", "leaders/x")
			set.wants("leasehold.leader.known", 1, 1, metrics.AttrKey, "leaders/x")
			set.wants("leasehold.leader.changes", 1, 1, metrics.AttrKey, "leaders/x")
		}
		cut.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 1})
		time.Sleep(5 * time.Second)
		a.wants("leader_election_slowpath_total", 1, 1, "name", "leaders/x")
		cut.Clear()
		cut.Partition(true)
		time.Sleep(time.Minute)
		a.wants("leader_election_master_status", 0, 1, "name", "leaders/x")
		b.wants("leader_election_master_status", 1, 1, "name", "leaders/x")
		b.wants("leasehold.leader.changes", 2, 1, metrics.AttrKey, "leaders/x")
		b.wants("leasehold.leader.known", 1, 1, metrics.AttrKey, "leaders/x")
		b.wants("leasehold.acquire.takeovers", 1, 1, metrics.AttrKey, "leaders/x", metrics.AttrKind, "election")
		stop()
		cut.Partition(false)
		all.Wait()
		b.wants("leader_election_master_status", 0, 1, "name", "leaders/x")
		b.wants("leasehold.leader.known", 0, 1, metrics.AttrKey, "leaders/x")
		b.wants("leasehold.lease.held", 0, 1)
	})
}

// TestKeys: those that are named have their own series, as many as may be, and the others are one.
func TestKeys(t *testing.T) {
	t.Parallel()
	for what, opts := range map[string]*metrics.Options{
		"a pattern that is none": {Keys: []string{"["}},
		"a negative bound":       {MaxKeys: -1},
		"a bound too large":      {MaxKeys: 1001},
	} {
		if _, err := metrics.New(metrics.NewSet(), opts); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	for what, c := range map[string]struct {
		opts *metrics.Options
		want map[string]int // locks of which the key has that value
	}{
		"none":        {nil, map[string]int{"": 0}},
		"by name":     {&metrics.Options{Keys: []string{"b/3"}}, map[string]int{"b/3": 1, "other": 19}},
		"by pattern":  {&metrics.Options{Keys: []string{"a/*", "b/7"}, MaxKeys: 100}, map[string]int{"a/0": 1, "a/9": 1, "b/7": 1, "b/1": 0, "other": 9}},
		"too many":    {&metrics.Options{Keys: []string{"*/*"}, MaxKeys: 3}, map[string]int{"a/0": 1, "a/2": 1, "a/3": 0, "other": 17}},
		"none at all": {&metrics.Options{Keys: []string{}}, map[string]int{"other": 20}},
	} {
		r, set := recorder(t, c.opts)
		trace := r.Trace()
		for i := range 20 {
			of := locktrace.Subject{Key: fmt.Sprintf("%c/%d", 'a'+i/10, i%10)}
			for range 2 {
				trace.Released(t.Context(), locktrace.Released{Subject: of, Held: time.Second})
			}
		}
		for key, want := range c.want {
			if _, n := set.Value(instrument(t, "leasehold.lease.duration"), metrics.Attr{Name: metrics.AttrKey, Value: key}); n != uint64(2*want) {
				t.Errorf("%s: %d measurements of the key %q, want %d", what, n, key, 2*want)
			}
		}
		if _, n := set.Value(instrument(t, "leasehold.lease.duration")); n != 40 {
			t.Errorf("%s: %d measurements", what, n)
		}
	}
	// Elections are told apart without a word, up to the bound.
	r, set := recorder(t, &metrics.Options{MaxKeys: 2})
	for i := range 4 {
		of := locktrace.Subject{Kind: locktrace.Election, Key: fmt.Sprint(i)}
		r.Trace().Leader(t.Context(), locktrace.Leader{Subject: of, Known: true, New: true})
	}
	for key, want := range map[string]float64{"0": 1, "1": 1, "other": 2} {
		if v, _ := set.Value(instrument(t, "leasehold.leader.known"), metrics.Attr{Name: metrics.AttrKey, Value: key}); v != want {
			t.Errorf("the leaders of %v elections %q are known, want %v", v, key, want)
		}
	}
}

// TestOutcome: each kind of error has its name, which is among Outcomes; what matches two has that of the
// graver one.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"ok":           nil,
		"not_exist":    store.ErrNotExist,
		"not_modified": store.ErrNotModified,
		"unknown":      errors.Join(store.ErrThrottled, store.ErrUnknownOutcome),
		"throttled":    store.ErrThrottled,
		"precondition": store.ErrPrecondition,
		"conflict":     store.ErrConflict,
		"denied":       store.ErrDenied,
		"no_bucket":    store.ErrNoBucket,
		"too_large":    store.ErrTooLarge,
		"invalid":      store.ErrInvalid,
		"refused":      store.ErrRefused,
		"unavailable":  &store.Error{Kind: store.ErrUnavailable, Cause: context.DeadlineExceeded},
		"cancelled":    &store.Error{Kind: store.ErrUnavailable, Cause: context.Canceled},
		"foreign":      leasehold.ErrMoved,
		"other":        io.ErrUnexpectedEOF,
	} {
		if want == "foreign" {
			err = fmt.Errorf("%w: %w", leasehold.ErrForeignObject, err)
		}
		if got := metrics.Outcome(err); got != want || !slices.Contains(metrics.Outcomes, got) {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
	if len(metrics.Outcomes) != 16 {
		t.Errorf("%q", metrics.Outcomes)
	}
	for _, f := range metrics.Failures {
		if !slices.Contains(metrics.Outcomes, f) {
			t.Errorf("%q is no outcome", f)
		}
	}
}

// plain is a store that is nothing more.
type plain struct{ store.Store }

// special is one that speaks for itself, and whose versions are hashes.
type special struct{ store.Store }

func (special) Proves(_, use string) error          { return errors.New("not for " + use) }
func (special) VersionOf(body []byte) store.Version { return store.Version(body) }

type inspected struct{ special }

func (inspected) Inspect() store.Inspection { return nil }

type purged struct{ special }

func (purged) Purge(context.Context, string) (int, error) { return 7, nil }

// TestStoreIsWhatItWas: a store that is measured is what it was, and nothing that it was not.
func TestStoreIsWhatItWas(t *testing.T) {
	t.Parallel()
	mem := memstore.New()
	for what, st := range map[string]store.Store{
		"memstore": mem, "faultstore": faultstore.Wrap(mem, nil), "plain": plain{mem}, "special": special{mem},
		"inspected": inspected{special{mem}}, "purged": purged{special{mem}},
	} {
		m := metrics.Store(st, metrics.NewSet())
		_, isLarge := st.(store.Large)
		_, isInspector := st.(store.Inspector)
		_, isPurger := st.(store.Purger)
		_, large := m.(store.Large)
		_, inspector := m.(store.Inspector)
		_, purger := m.(store.Purger)
		if large != isLarge || inspector != isInspector || purger != isPurger || m.String() != st.String() {
			t.Errorf("%s: large %t, inspector %t, purger %t, %s", what, large, inspector, purger, m)
		}
		own, isProof := st.(store.Proof)
		proof, ok := m.(store.Proof)
		hashed, is := m.(store.Hashed)
		if !ok || !is {
			t.Fatalf("%s: what is measured is no Proof, or not Hashed", what)
		}
		var word error
		if isProof {
			word = own.Proves("x", "object")
		}
		if err := proof.Proves("x", "object"); fmt.Sprint(err) != fmt.Sprint(word) || what == "special" && err == nil {
			t.Errorf("%s: its own word is %v, want %v", what, err, word)
		}
		want := store.Version("")
		if h, ok := st.(store.Hashed); ok {
			want = h.VersionOf([]byte("b"))
		}
		if got := hashed.VersionOf([]byte("b")); got != want || what == "special" && got != "b" {
			t.Errorf("%s: a version is %q, want %q", what, got, want)
		}
	}
}

// TestStoreConforms: it keeps the contract, bodies of any size included.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) store.Store { return metrics.Store(memstore.New(), metrics.NewSet()) })
}

// TestStore: each call is one measurement and one request, with its bytes.
func TestStore(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := faultstore.Wrap(memstore.New(), nil)
		set := checked{t, metrics.NewSet()}
		st := metrics.Store(inner, set)
		ctx := t.Context()
		obj, err := st.Put(ctx, "k", []byte("12345"), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = st.Put(ctx, "k", []byte("123"), store.IfAbsent())
		_, _ = st.Put(ctx, "k", make([]byte, store.MaxBody+1), store.IfAbsent())
		_, _ = st.Get(ctx, "k", "")
		_, _ = st.Get(ctx, "k", obj.Version)
		_, _ = st.Get(ctx, "none", "")
		inner.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Delay: 2 * time.Second})
		_, _ = st.Get(ctx, "k", "")
		inner.Clear()
		for e, err := range st.List(ctx, "", "") {
			if time.Sleep(time.Second); e.Key != "k" || err != nil {
				t.Errorf("%+v, %v", e, err)
			}
			break
		}
		_ = st.Delete(ctx, "k")
		for _, w := range []struct {
			op, outcome string
			seconds     float64
			count       uint64
		}{
			{"put", "ok", 0, 1},
			{"put", "precondition", 0, 1},
			{"put", "too_large", 0, 1},
			{"get", "ok", 2, 2},
			{"get", "not_modified", 0, 1},
			{"get", "not_exist", 0, 1},
			{"list", "ok", 1, 1},
			{"delete", "ok", 0, 1},
		} {
			set.wants("leasehold.store.duration", w.seconds, w.count, metrics.AttrOperation, w.op, metrics.AttrOutcome, w.outcome)
		}
		set.wants("leasehold.store.duration", 3, 9)
		set.wants("leasehold.store.io", 8, 1, metrics.AttrOperation, "put")
		set.wants("leasehold.store.io", 10, 1, metrics.AttrOperation, "get")
		if c := inner.Counts(); c != (faultstore.Counts{Get: 4, Put: 2, Delete: 1, List: 1}) {
			t.Errorf("it has sent %+v", c)
		}

		large, ok := st.(store.Large)
		if !ok {
			t.Fatal("it is no store.Large")
		}
		if n, failed := large.PutLarge(ctx, "l", strings.NewReader("1234567")); n != 7 || failed != nil {
			t.Errorf("%d, %v", n, failed)
		}
		body, size, err := large.GetLarge(ctx, "l")
		if err != nil || size != 7 {
			t.Fatal(size, err)
		}
		time.Sleep(time.Second)
		if all, failed := io.ReadAll(body); string(all) != "1234567" || failed != nil {
			t.Errorf("%q, %v", all, failed)
		}
		time.Sleep(time.Second) // it is at its end
		body.Close()
		set.wants("leasehold.store.duration", 1, 1, metrics.AttrOperation, "get_large", metrics.AttrOutcome, "ok")
		set.wants("leasehold.store.io", 7, 1, metrics.AttrOperation, "get_large")
		set.wants("leasehold.store.io", 7, 1, metrics.AttrOperation, "put_large")
		inner.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "get"})
		if body, _, err = large.GetLarge(ctx, "l"); err == nil {
			if _, err = io.ReadAll(body); err == nil {
				t.Error("the body does not break off")
			}
			body.Close()
		}
		set.wants("leasehold.store.duration", 0, 1, metrics.AttrOperation, "get_large", metrics.AttrOutcome, "unavailable")
		if _, _, err = large.GetLarge(ctx, "none"); err == nil {
			t.Error("there is none")
		}
	})
}

// TestSetIsBounded: a series more than there may be is counted with the others of its kind.
func TestSetIsBounded(t *testing.T) {
	t.Parallel()
	set := metrics.NewSet()
	i := &metrics.Instrument{Name: "x", Kind: metrics.Counter, Description: "X."}
	for n := range metrics.MaxSeries + 500 {
		set.Record(t.Context(), i, 1, metrics.Attr{Name: "n", Value: fmt.Sprint(n)})
	}
	if v, n := set.Value(i); v != metrics.MaxSeries+500 || n != metrics.MaxSeries+1 {
		t.Errorf("%v in %d series", v, n)
	}
	if v, _ := set.Value(i, metrics.Attr{Name: "n", Value: "overflow"}); v != 500 {
		t.Errorf("%v are over", v)
	}
}

// TestHandler: a scrape, also while others record, and nothing for other methods.
func TestHandler(t *testing.T) {
	t.Parallel()
	r, set := recorder(t, &metrics.Options{Keys: []string{"*"}})
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			trace := r.Trace()
			for range 100 {
				of := locktrace.Subject{Key: fmt.Sprint(n)}
				ctx := trace.AcquireStart(t.Context(), locktrace.AcquireStart{Subject: of, Time: time.Now()})
				trace.AcquireDone(ctx, locktrace.AcquireDone{Subject: of, Took: time.Second})
				trace.Released(ctx, locktrace.Released{Subject: of, Held: time.Second})
			}
		})
	}
	for range 10 {
		w := httptest.NewRecorder()
		set.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	all.Wait()
	text := set.Append([]byte("# mine\n"))
	for _, line := range []string{
		"# mine\n# HELP leasehold_acquire_duration_seconds ",
		`leasehold_acquire_duration_seconds_bucket{leasehold_key="7",leasehold_kind="lock",leasehold_outcome="acquired",leasehold_waited="false",le="1"} 100` + "\n",
		`leasehold_lease_held{leasehold_key="3",leasehold_kind="lock"} 0` + "\n",
	} {
		if !bytes.Contains(text, []byte(line)) {
			t.Errorf("there is no %q in\n%s", line, text)
		}
	}
	w := httptest.NewRecorder()
	set.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
