package terraform_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestSettlesItsOwn: a process whose lock was broken elsewhere does not hold it against the next run, and it takes none of the room.
func TestSettlesItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, &terraform.Options{Locks: 1}), start(t, st, nil)
		a.lock("s", "x")
		b.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`)
		a.lock("s", "y") // at once
		b.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"y"}`)
		b.lock("s", "z")
		if got := holder(t, a.want(http.StatusLocked, "LOCK", "/s", lockBody("w"))); got.ID != "z" {
			t.Errorf("held by %+v", got)
		}
		a.lock("r", "r") // for which there is room
		a.want(http.StatusOK, "UNLOCK", "/r", "")
		if r := leasetest.RecordIn(t, st, "locks/r/_lock"); r.Held || r.Ended == "broken" {
			t.Errorf("an UNLOCK without an ID at the process that holds the lock: %+v", r)
		}
		b.unlock("s", "z")

		a.lock("s", "x")
		b.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`)
		a.st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "locks/s/_lock"})
		if d := detail(t, a.want(http.StatusInternalServerError, "LOCK", "/s", lockBody("y"))); !strings.HasPrefix(d, "an earlier lock could not be let go of: ") {
			t.Errorf("where its own lock cannot be let go of: %s", d)
		}
		a.st.Clear()
		time.Sleep(5 * time.Minute)
		a.until("y", 5*time.Minute)
		a.unlock("s", "y")
	})
}

// TestLockWaits: a request that waits for another one of its name until its client gives up is told so, and changes nothing.
func TestLockWaits(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_states/*", Nth: 1, Delay: 5 * time.Second})
		first := waits(t, func() answer { return s.do("POST", "/s", stateOf(1, "x")) })
		got := holder(t, start(t, st, nil).want(http.StatusLocked, "LOCK", "/s", lockBody("y")))
		want := terraform.LockInfo{ID: got.ID, Operation: "POST without a lock", Who: "192.0.2.1:1234", Created: time.Now().UTC()}
		if got != want || len(got.ID) < 16 {
			t.Errorf("held by %+v, want %+v", got, want)
		}
		for method, body := range map[string]string{"LOCK": lockBody("x"), "UNLOCK": lockBody("x"), "POST": stateOf(2, "y"), "DELETE": ""} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			a := s.send(httptest.NewRequestWithContext(ctx, method, "/s", strings.NewReader(body)))
			if d := detail(t, a); a.status != http.StatusServiceUnavailable || d != "other requests for s are under way, and did not end in time: context deadline exceeded" {
				t.Errorf("%s: %d %s", method, a.status, d)
			}
		}
		if a := first(); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held {
			t.Errorf("it is locked: %+v", r)
		}
	})
}

// TestCloseCannotWait: a LOCK that is under way when the process stops, and is not waited for, locks nothing.
func TestCloseCannotWait(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		lock := waits(t, func() answer { return s.do("LOCK", "/s", lockBody("x")) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); err == nil || !strings.HasPrefix(err.Error(), "requests are under way: context deadline exceeded") {
			t.Errorf("close: %v", err)
		}
		if a := lock(); a.status != http.StatusServiceUnavailable || detail(t, a) != "the server stops" {
			t.Errorf("%+v", a)
		}
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held {
			t.Errorf("it is locked: %+v", r)
		}
	})
}

// TestNotLetGo: a lock that was taken for nothing and cannot be released is told of in the log.
func TestNotLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		var log leasetest.Log
		s := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.st.Inject(
			faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "states/s/_state"},
			faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "locks/s/_lock", Nth: 2},
		)
		s.want(http.StatusInternalServerError, "LOCK", "/s", lockBody("x"))
		if !strings.Contains(log.String(), `level=WARN msg="a lock was not released, and ends with its TTL" state=s error=`) {
			t.Errorf("the log is %s", log.String())
		}
	})
}

// TestBrokenMeanwhile: of two that break a lock, the one that is late does not break the lock of the next run.
func TestBrokenMeanwhile(t *testing.T) {
	for _, late := range []faultstore.Fault{{Op: "get", Nth: 2}, {Op: "put", Nth: 1}} {
		t.Run(late.Op, func(t *testing.T) {
			bubble(t, func(t *testing.T, st *memstore.Store) {
				a, b, c := start(t, st, nil), start(t, st, nil), start(t, st, nil)
				b.lock("s", "x")
				late.Kind, late.Key, late.Delay = faultstore.DelayBefore, "locks/s/_lock", 5*time.Second
				c.st.Inject(late)
				unlock := waits(t, func() answer { return c.do("UNLOCK", "/s", `{"ID":"x"}`) })
				b.unlock("s", "x")
				a.lock("s", "y")
				if got := unlock(); got.status != http.StatusConflict || !strings.HasPrefix(detail(t, got), "the lock of s has changed hands meanwhile: ") {
					t.Errorf("%d %s", got.status, got.body)
				}
				if r := leasetest.RecordIn(t, st, "locks/s/_lock"); !r.Held || r.Meta["ID"] != "y" {
					t.Errorf("the next lock: %+v", r)
				}
				a.unlock("s", "y")
			})
		})
	}
}

// TestDroppedMeanwhile: a state that is dropped between the look at the list and the read of it is another one by then, and that is
// answered. One that is gone for good is looked for three times.
func TestDroppedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		opts := &terraform.Options{Versions: 1}
		a, b := start(t, st, opts), start(t, st, opts)
		a.want(http.StatusOK, "POST", "/s", stateOf(1, "x"))
		a.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "states/s/_states/*", Nth: 1, Delay: 5 * time.Second})
		read := waits(t, func() answer { return a.do("GET", "/s", "") })
		b.want(http.StatusOK, "POST", "/s", stateOf(2, "x"))
		if got := read(); got.status != http.StatusOK || got.body != stateOf(2, "x") {
			t.Errorf("%d %s", got.status, got.body)
		}
		for _, key := range data(t, st) {
			if err := st.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		a.st.Reset()
		if d := detail(t, a.want(http.StatusInternalServerError, "GET", "/s", "")); !strings.HasPrefix(d, "the state: s: state 2 is listed, and cannot be read: ") {
			t.Errorf("%s", d)
		}
		if n := a.st.Counts(); n != (faultstore.Counts{Get: 6}) {
			t.Errorf("that takes %+v", n)
		}
	})
}

// lent is a store that counts the bodies that are open.
type lent struct {
	*memstore.Store
	open *atomic.Int64
}

func (l lent) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	r, n, err := l.Store.GetLarge(ctx, key)
	if err == nil {
		l.open.Add(1)
		r = returned{r, l.open}
	}
	return r, n, err
}

type returned struct {
	io.ReadCloser
	open *atomic.Int64
}

func (r returned) Close() error {
	r.open.Add(-1)
	return r.ReadCloser.Close()
}

// TestDamagedStates: of a state that is not what was stored, and is over 1 MiB, everything is sent but its last KiB, so no client
// takes it for whole, and the log says so. A smaller one is not sent at all. No body stays open.
func TestDamagedStates(t *testing.T) {
	for _, size := range []int{1 << 10, 1 << 20, 1<<20 + 1, 3 << 20} {
		text := stateOf(1, "")
		text = stateOf(1, strings.Repeat("x", size-len(text)))
		for name, damaged := range map[string]string{
			"its end":    text[:size-10] + "y" + text[size-9:],
			"its middle": text[:size/2] + "y" + text[size/2+1:],
			"longer":     text + " ",
			"shorter":    text[:size-1],
			"as it was":  text,
			"much cut":   text[:size-2000*(size>>20)-1],
		} {
			bubble(t, func(t *testing.T, st *memstore.Store) {
				var log leasetest.Log
				var open atomic.Int64
				s := start(t, lent{st, &open}, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				s.want(http.StatusOK, "POST", "/s", text)
				if _, err := st.PutLarge(t.Context(), data(t, st)[0], strings.NewReader(damaged)); err != nil {
					t.Fatal(err)
				}
				w, aborted := httptest.NewRecorder(), any(nil)
				func() {
					defer func() { aborted = recover() }()
					s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/s", nil))
				}()
				large, whole := size > 1<<20, damaged == text
				told := strings.Contains(log.String(), `level=WARN msg="a state was not sent to its end" state=s number=1 error=`)
				switch got := w.Body.String(); {
				case whole && (w.Code != http.StatusOK || got != text || aborted != nil || told):
					t.Errorf("%d bytes, %s: %d, %d bytes, %v", size, name, w.Code, len(got), aborted)
				case !whole && large && (aborted != any(http.ErrAbortHandler) || len(got) != min(size-1024, len(damaged)) || !told):
					t.Errorf("%d bytes, %s: %v, after %d bytes; %s", size, name, aborted, len(got), log.String())
				case !whole && !large && (aborted != nil || w.Code != http.StatusInternalServerError || told):
					t.Errorf("%d bytes, %s: %d, %v", size, name, w.Code, aborted)
				}
				if n := open.Load(); n != 0 {
					t.Errorf("%d bytes, %s: %d bodies are left open", size, name, n)
				}
			})
		}
	}
}

// TestLargeStatesAtOnce: of states over 1 MiB, and of those that may be, four are in memory at a time. Others wait, and smaller states
// do not.
func TestLargeStatesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		exactly := func(n int) string { return stateOf(1, strings.Repeat("x", n-len(stateOf(1, "")))) }
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/large*/_states/*", Delay: time.Minute})
		var large []func() answer
		for _, name := range []string{"large1", "large2", "large3"} {
			large = append(large, waits(t, func() answer { return s.do("POST", "/"+name, exactly(1<<20+1)) }))
		}
		unknown := func(ctx context.Context, method, target, body string) answer {
			r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
			r.ContentLength = -1
			return s.send(r)
		}
		large = append(large, waits(t, func() answer { return unknown(t.Context(), "POST", "/large4", stateOf(1, "x")) }))
		begin := time.Now()
		if a := s.want(http.StatusOK, "POST", "/small", exactly(1<<20)); a.header.Get("Content-Length") != "0" || a.body != "" {
			t.Errorf("%+v", a)
		}
		if a := unknown(t.Context(), "LOCK", "/small", lockBody("x")); a.status != http.StatusOK {
			t.Errorf("a LOCK that does not say how long it is: %+v", a)
		}
		s.unlock("small", "x")
		for _, send := range []func(ctx context.Context) answer{
			func(ctx context.Context) answer { return unknown(ctx, "POST", "/small", stateOf(2, "x")) },
			func(ctx context.Context) answer {
				return s.send(httptest.NewRequestWithContext(ctx, "POST", "/small", strings.NewReader(exactly(1<<20+1))))
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if a := send(ctx); a.status != http.StatusServiceUnavailable || detail(t, a) != "other large states are being stored" {
				t.Errorf("%+v", a)
			}
		}
		fifth := waits(t, func() answer { return s.do("POST", "/fifth", exactly(1<<20+1)) })
		for _, wait := range append(large, fifth) {
			if a := wait(); a.status != http.StatusOK {
				t.Errorf("%+v", a)
			}
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		bounded := start(t, st, &terraform.Options{MaxState: 4 << 10})
		bounded.want(http.StatusOK, "POST", "/bounded", exactly(4<<10))
	})
}

// TestHangingStore: LOCK and UNLOCK end in half a minute where the store does not answer, and a state has five minutes. An old state
// that cannot be deleted is told of in the log, and does not keep a new one waiting for more than ten seconds.
func TestHangingStore(t *testing.T) {
	for _, tc := range []struct {
		method, target, body, op, key string
		status                        int
		took                          time.Duration
	}{
		{"LOCK", "/new", lockBody("y"), "get", "states/new/_state", http.StatusServiceUnavailable, 30 * time.Second},
		{"UNLOCK", "/s", lockBody("y"), "get", "locks/s/_lock", http.StatusServiceUnavailable, 30 * time.Second},
		{"POST", "/s?ID=x", stateOf(2, "x"), "put", "states/s/_states/*", http.StatusServiceUnavailable, 5 * time.Minute},
		{"GET", "/s", "", "get", "states/s/_states/*", http.StatusServiceUnavailable, 5 * time.Minute},
		{"POST", "/s?ID=x", stateOf(2, "x"), "delete", "states/s/_states/*", http.StatusOK, 10 * time.Second},
	} {
		bubble(t, func(t *testing.T, st *memstore.Store) {
			var log leasetest.Log
			s := start(t, st, &terraform.Options{Versions: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s.lock("s", "x")
			s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
			s.st.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: tc.op, Key: tc.key})
			begin := time.Now()
			a := s.do(tc.method, tc.target, tc.body)
			if took := time.Since(begin); a.status != tc.status || took != tc.took {
				t.Errorf("%s %s: %d after %v, want %d after %v: %s", tc.method, tc.target, a.status, took, tc.status, tc.took, a.body)
			}
			if told := strings.Contains(log.String(), `level=WARN msg="an old state was not deleted yet" state=s data=0000000001-`); told != (tc.op == "delete") {
				t.Errorf("%s %s: the log is %s", tc.method, tc.target, log.String())
			}
		})
	}
}

// TestUnlockTakesLong: an UNLOCK whose client gives up goes on, and the next one waits for it, and breaks nothing.
func TestUnlockTakesLong(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		var log leasetest.Log
		s := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.lock("s", "x")
		begin := time.Now()
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "locks/s/_lock", Nth: 1, Delay: 5 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := s.send(httptest.NewRequestWithContext(ctx, "UNLOCK", "/s", strings.NewReader(lockBody("x"))))
		if d := detail(t, a); a.status != http.StatusServiceUnavailable || !strings.HasPrefix(d, "the lock could not be released: ") {
			t.Errorf("%d %s", a.status, d)
		}
		s.unlock("s", "x")
		if took := time.Since(begin); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("the next one took until %v", took)
		}
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held || r.Ended == "broken" || strings.Contains(log.String(), "broken") {
			t.Errorf("%+v, and the log is %s", r, log.String())
		}
	})
}
