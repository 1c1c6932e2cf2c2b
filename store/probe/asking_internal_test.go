package probe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http/httptrace"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestAgain: what has no answer is asked for four times, after 50, 200 and 800 ms; what has one is not.
func TestAgain(t *testing.T) {
	t.Parallel()
	fault := func(kind error) error { return &store.Error{Op: "put", Kind: kind} }
	for _, c := range []struct {
		answers []error // the last one is given for ever
		calls   int
		took    time.Duration
	}{
		{[]error{nil}, 1, 0},
		{[]error{fault(store.ErrRefused)}, 1, 0},
		{[]error{fault(store.ErrPrecondition)}, 1, 0},
		{[]error{fault(store.ErrThrottled), nil}, 2, 50 * time.Millisecond},
		{[]error{fault(store.ErrConflict), fault(store.ErrUnavailable), fault(store.ErrNotExist)}, 3, 250 * time.Millisecond},
		{[]error{fault(store.ErrUnknownOutcome)}, 4, 1050 * time.Millisecond},
		{[]error{&store.Error{Op: "list", Kind: store.ErrUnavailable, Cause: store.ErrUnordered}}, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := surveyed(t, few)
			begin, calls := time.Now(), 0
			err := s.again(func() error { calls++; return c.answers[min(calls, len(c.answers))-1] })
			if took := time.Since(begin); calls != c.calls || took != c.took || err != c.answers[len(c.answers)-1] { //nolint:errorlint // this one
				t.Errorf("%v: %v after %d calls in %v", c.answers, err, calls, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := surveyed(t, few)
		ctx, cancel := context.WithCancel(t.Context())
		s.ctx = ctx
		calls := 0
		err := s.again(func() error { calls++; cancel(); return fault(store.ErrThrottled) })
		if calls != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end it asks %d times: %v", calls, err)
		}
	})
}

// TestCertain: an experiment is made on another key while writes of the last one had no answer.
func TestCertain(t *testing.T) {
	t.Parallel()
	refused, gone := &store.Error{Op: "get", Kind: store.ErrRefused}, &store.Error{Op: "get", Kind: store.ErrNotExist}
	for _, c := range []struct {
		doubts int // how many of the first had no answer
		err    error
		keys   []string
		result Result
		detail string
		failed error
	}{
		{0, nil, []string{"k-0"}, OK, "done", nil},
		{0, refused, []string{"k-0"}, OK, "done", refused},
		{0, gone, []string{"k-0"}, OK, "done", gone},
		{1, nil, []string{"k-0", "k-1"}, OK, "done", nil},
		{1, refused, []string{"k-0"}, OK, "done", refused},
		{1, gone, []string{"k-0", "k-1"}, OK, "done", gone},
		{4, nil, []string{"k-0", "k-1", "k-2", "k-3"}, Unknown, "too many writes had no answer", nil},
		{4, gone, []string{"k-0", "k-1", "k-2", "k-3"}, Unknown, "too many writes had no answer", nil},
	} {
		s := surveyed(t, few)
		var keys []string
		result, detail, err := s.certain("k", func(key string) (Result, string, error) {
			keys = append(keys, key)
			if len(keys) <= c.doubts {
				s.busy[store.ErrUnknownOutcome]++
			}
			return OK, "done", c.err
		})
		if !slices.Equal(keys, c.keys) || result != c.result || detail != c.detail || err != c.failed { //nolint:errorlint // this one
			t.Errorf("%+v: %s, %s, %v; of %q", c, result, detail, err, keys)
		}
	}
}

// TestWrite: it is found out whether a write has landed that had no answer, and where it cannot be, its object is left alone.
func TestWrite(t *testing.T) {
	t.Parallel()
	fault := func(kind error) error { return &store.Error{Op: "put", Kind: kind} }
	lost, refused, busy := fault(store.ErrUnknownOutcome), fault(store.ErrPrecondition), fault(store.ErrThrottled)
	for _, c := range []struct {
		puts    []error
		gets    []any // bodies or errors
		version store.Version
		failed  error
		retired int
	}{
		{[]error{nil}, nil, "put 1", nil, 0},
		{[]error{busy, nil}, nil, "put 2", nil, 0},
		{[]error{lost, nil}, nil, "put 2", nil, 0},
		{[]error{refused}, nil, "", refused, 0},
		{[]error{busy, refused}, nil, "", refused, 0},
		{[]error{lost, refused}, []any{"mine"}, "get 1", nil, 0},
		{[]error{lost, fault(store.ErrNotExist)}, []any{"mine"}, "get 1", nil, 0},
		{[]error{lost, refused}, []any{"other"}, "", refused, 0},
		{[]error{lost, refused}, []any{fault(store.ErrNotExist)}, "", refused, 0},
		{[]error{lost, refused, refused}, []any{busy, "mine"}, "get 2", nil, 0},
		{[]error{lost, busy, refused}, []any{"mine"}, "get 1", nil, 0},
		{[]error{lost, fault(store.ErrRefused)}, nil, "", fault(store.ErrRefused), 0},
		{[]error{lost, lost, lost, lost}, []any{"mine"}, "get 1", nil, 0},
		{[]error{lost, busy, busy, busy}, []any{"other"}, "", busy, 1},
		{[]error{lost, lost, lost, lost}, []any{fault(store.ErrNotExist)}, "", lost, 1},
		{[]error{busy, busy, busy, busy}, nil, "", busy, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			puts, gets := 0, 0
			b := &brokenstore.Store{Store: memstore.New()}
			b.OnPut = func(_ context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
				if string(body) != "mine" || only.Match() != "was" {
					t.Errorf("%q is written, of %q", body, only.Match())
				}
				if puts++; puts > len(c.puts) {
					t.Fatalf("%+v: it writes %d times", c, puts)
				}
				if err := c.puts[puts-1]; err != nil {
					return nil, err
				}
				return &store.Object{Key: key, Version: store.Version(fmt.Sprint("put ", puts))}, nil
			}
			b.OnGet = func(_ context.Context, key string, _ store.Version) (*store.Object, error) {
				if gets++; gets > len(c.gets) {
					t.Fatalf("%+v: it reads %d times", c, gets)
				}
				if err, ok := c.gets[gets-1].(error); ok {
					return nil, err
				}
				return &store.Object{Key: key, Version: store.Version(fmt.Sprint("get ", gets)), Body: []byte(c.gets[gets-1].(string))}, nil //nolint:errcheck,forcetypeassert // it is one
			}
			s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, few)
			if err != nil {
				t.Fatal(err)
			}
			o, err := s.write(s.a, "key", []byte("mine"), store.IfMatch("was"))
			if (o == nil) != (c.failed != nil) || o != nil && (o.Version != c.version || string(o.Body) != "mine") || fmt.Sprint(err) != fmt.Sprint(c.failed) {
				t.Errorf("%+v: %+v, %v", c, o, err)
			}
			if puts != len(c.puts) || gets != len(c.gets) || s.retirements() != c.retired {
				t.Errorf("%+v: after %d writes and %d reads; %d are left alone", c, puts, gets, s.retirements())
			}
		})
	}
}

// TestListAgain: a listing that ends half-way is begun again, and its keys are given without the prefix of the probe.
func TestListAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &brokenstore.Store{Store: memstore.New()}
		var asked []string
		s, err := newSurvey(t.Context(), b, few)
		if err != nil {
			t.Fatal(err)
		}
		b.OnList = func(_ context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				asked = append(asked, prefix+" after "+after)
				for _, key := range []string{"", s.prefix + "a", s.prefix + "b"} {
					if !yield(store.Entry{Key: key}, nil) {
						return
					}
				}
				if len(asked) == 1 {
					yield(store.Entry{}, &store.Error{Op: "list", Kind: store.ErrThrottled})
				}
			}
		}
		all, err := s.list(s.a, "x", "")
		if want := []store.Entry{{}, {Key: "a"}, {Key: "b"}}; !reflect.DeepEqual(all, want) || err != nil {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err = s.list(s.a, "y", "z"); err != nil {
			t.Error(err)
		}
		if x := s.prefix + "x after "; !slices.Equal(asked, []string{x, x, s.prefix + "y after " + s.prefix + "z"}) {
			t.Errorf("it asks for %q", asked)
		}
	})
}

// TestCount: no request is sent beyond what was announced, and none that would send more bytes; progress is told ten times a second.
func TestCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []Progress
		s := surveyed(t, &Options{Races: 1, OnProgress: func(p Progress) { told = append(told, p) }})
		n := &s.report.Requests.Put
		s.report.Limit, s.report.SentLimit = s.reserve+5, 10
		s.begin("this")
		for _, c := range []struct {
			requests, bytes int
			want            error
			sent            int64
		}{
			{2, 4, nil, 4}, {1, 7, errNoBudget, 4}, {4, 0, errNoBudget, 4}, {1, 6, nil, 10}, {1, 1, errNoBudget, 10}, {2, 0, nil, 10}, {1, 0, errNoBudget, 10},
		} {
			before := *n
			if err := s.count(n, c.requests, c.bytes); err != c.want || s.report.Sent != c.sent || err == nil && *n != before+c.requests || err != nil && *n != before { //nolint:errorlint // this one
				t.Errorf("%+v: %v; %d bytes, %d requests", c, err, s.report.Sent, *n)
			}
			time.Sleep(progressEvery / 2)
		}
		limit := s.reserve + 5
		if want := []Progress{{"this", 2, limit}, {"this", 3, limit}, {"this", 5, limit}}; !reflect.DeepEqual(told, want) {
			t.Errorf("it tells %+v", told)
		}
	})
}

// TestMetered: HTTP requests beyond the expected ones of a call count, and the call ends when it has made too many, or
// when the probe may send no more. It has 30 s, also when the probe has ended, and 120 s for a large value.
func TestMetered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := func(ctx context.Context, times int) error {
			for range times {
				httptrace.ContextClientTrace(ctx).GetConn("host:443")
			}
			return context.Cause(ctx)
		}
		s := surveyed(t, few)
		n := &s.report.Requests.Get
		for _, c := range []struct{ times, counted int }{{1, 0}, {2, 1}, {9, 8}} {
			ctx, cancel := s.bounded(n, 1, 8)
			before := *n
			if err := ask(ctx, c.times); err != nil || *n-before != c.counted {
				t.Errorf("of %d requests %d are counted: %v", c.times, *n-before, err)
			}
			cancel()
		}
		ctx, cancel := s.bounded(n, 1, 8)
		if err := ask(ctx, 10); !errors.Is(err, errManyRequests) {
			t.Errorf("after ten requests: %v", err)
		}
		cancel()
		s.report.Limit = s.reserve + s.report.Requests.Total() + 1
		ctx, cancel = s.bounded(n, 1, 8)
		if err := ask(ctx, 2); err != nil {
			t.Errorf("with one left: %v", err)
		}
		if err := ask(ctx, 1); !errors.Is(err, errNoBudget) {
			t.Errorf("with none left: %v", err)
		}
		cancel()

		ended, end := context.WithCancel(t.Context())
		end()
		s.ctx = ended
		s.report.Limit = 1 << 20
		for _, c := range []struct {
			bounded func() (context.Context, context.CancelFunc)
			least   time.Duration
			counted int // of 61 requests
		}{
			{func() (context.Context, context.CancelFunc) { return s.bounded(n, 1, 100) }, 30 * time.Second, 60},
			{func() (context.Context, context.CancelFunc) { return s.boundedLarge(n) }, 120 * time.Second, 60},
		} {
			before, begin := *n, time.Now()
			ctx, cancel = c.bounded() //nolint:fatcontext // one after the other
			if err := ask(ctx, 61); err != nil || *n-before != c.counted {
				t.Errorf("of 61 requests %d are counted: %v", *n-before, err)
			}
			<-ctx.Done()
			if took := time.Since(begin); took != c.least {
				t.Errorf("a call has %v", took)
			}
			cancel()
		}
		ctx, cancel = s.boundedLarge(n)
		if err := ask(ctx, 62); !errors.Is(err, errManyRequests) {
			t.Errorf("after 62 requests of a large value: %v", err)
		}
		cancel()
		ctx, cancel = s.bounded(n, 1, 8)
		cancel()
		if ctx.Err() == nil {
			t.Error("a call that ended still has time")
		}
	})
}

// TestCutOff: an error of a call that was cut off says why, and that it is not worth another one.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why, err, want error
	}{
		{errManyRequests, nil, nil},
		{errNoBudget, store.ErrUnavailable, store.ErrUnavailable},
		{nil, store.ErrUnavailable, store.ErrUnavailable},
		{errManyRequests, store.ErrUnavailable, &store.Error{Op: "get", Key: "k", Kind: store.ErrRefused, Cause: errManyRequests}},
		{errManyRequests, store.ErrUnknownOutcome, &store.Error{Op: "get", Key: "k", Kind: store.ErrUnknownOutcome, Cause: errManyRequests}},
	} {
		ctx, cut := context.WithCancelCause(t.Context())
		if c.why != nil {
			cut(c.why)
		}
		if got := cutOff(ctx, "get", "k", c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, because of %v: %v, not %v", c.err, c.why, got, c.want)
		}
		cut(nil)
	}
}

// TestFollowed: of each request it is known what must be removed, what may yet arrive, how long it took and what the store's clock said.
func TestFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &brokenstore.Store{Store: memstore.New()}
		var fails error
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if fails != nil {
				return nil, fails
			}
			return b.Store.Put(ctx, key, body, only)
		}
		b.OnDelete = func(ctx context.Context, key string) error {
			if fails != nil {
				return fails
			}
			return b.Store.Delete(ctx, key)
		}
		s, err := newSurvey(t.Context(), &inspected{Store: b}, few)
		if err != nil {
			t.Fatal(err)
		}
		key := s.path("a")
		var o *store.Object
		for _, step := range []struct {
			name   string
			do     func() error
			fails  error
			took   string // what it was, if that is known
			dated  bool
			known  bool // that it must be removed
			doubt  bool
			landed bool
		}{
			{"a create that is refused", func() error { _, err := s.a.Put(t.Context(), key, s.body(), store.IfAbsent()); return err }, &store.Error{Kind: store.ErrRefused}, "create", false, false, false, false},
			{"a create that is busy", func() error { _, err := s.a.Put(t.Context(), key, s.body(), store.IfAbsent()); return err }, &store.Error{Kind: store.ErrConflict}, "", false, false, false, false},
			{"a create", func() (err error) { o, err = s.a.Put(t.Context(), key, s.body(), store.IfAbsent()); return err }, nil, "create", true, true, false, true},
			{"a create over it", func() error { _, err := s.a.Put(t.Context(), key, s.body(), store.IfAbsent()); return err }, nil, "put, refused", true, true, false, true},
			{"an update", func() (err error) {
				o, err = s.b.Put(t.Context(), key, s.body(), store.IfMatch(o.Version))
				return err
			}, nil, "update", true, true, false, true},
			{"a read", func() error { _, err := s.a.Get(t.Context(), key, ""); return err }, nil, "get", true, true, false, true},
			{"a read of the same", func() error { _, err := s.a.Get(t.Context(), key, o.Version); return err }, nil, "get, unchanged", true, true, false, true},
			{"a listing", func() error { _, err := s.list(s.a, "", ""); return err }, nil, "list", false, true, false, true},
			{"a delete of its version", func() error { return s.deleteIf("a", "0") }, nil, "", false, true, false, true},
			{"a delete that is refused", func() error { return s.a.Delete(t.Context(), key) }, &store.Error{Kind: store.ErrRefused}, "delete", false, true, false, true},
			{"a delete", func() error { return s.a.Delete(t.Context(), key) }, nil, "delete", false, false, false, true},
			{"a read of nothing", func() error { _, err := s.a.Get(t.Context(), key, ""); return err }, nil, "get", true, false, false, true},
			{"a write without an answer", func() error { _, err := s.a.Put(t.Context(), key, s.body(), store.IfAbsent()); return err }, &store.Error{Kind: store.ErrUnknownOutcome}, "", false, true, true, true},
		} {
			fails = step.fails
			took, dates := map[string]int{}, len(s.samples.dates)
			for op, all := range s.samples.took {
				took[op] = len(all)
			}
			_ = step.do()
			if step.took != "" {
				took[step.took]++
			}
			for op, all := range s.samples.took {
				if len(all) != took[op] {
					t.Errorf("%s: %d of %q", step.name, len(all), op)
				}
			}
			if dated := len(s.samples.dates) - dates; (dated > 0) != step.dated || s.keys[key] != step.known || s.settled("a") == step.doubt || s.hasWritten() != step.landed {
				t.Errorf("%s: dates %d, known %t, settled %t, landed %t", step.name, dated, s.keys[key], s.settled("a"), s.hasWritten())
			}
			if _, known := s.bodies.written[key]; known != (step.known && step.landed) && !step.doubt {
				t.Errorf("%s: a body of it is known: %t", step.name, known)
			}
		}
		if want := map[error]int{store.ErrConflict: 1, store.ErrUnknownOutcome: 1}; !reflect.DeepEqual(s.busy, want) {
			t.Errorf("of answers that were none it knows %v", s.busy)
		}
	})
}
