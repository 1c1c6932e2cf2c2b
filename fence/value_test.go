package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

const (
	largestInline = store.MaxBody - 394 // bytes of a value, and of its seal
	apartData     = "state.json.data/*"
)

// The largest value that fits beside its seal is written there, and one of a byte more apart.
// No test noticed when the border was elsewhere.
func TestLargestValueInline(t *testing.T) {
	st := newStore()
	for size, apart := range map[int]int{largestInline: 0, largestInline + 1: 1} {
		value := strings.Repeat("x", size)
		put(t, newObject(t, st, nil), fence.Token(1), value)
		holds(t, st, value)
		if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != apart {
			t.Errorf("of a value of %d bytes there lies apart: %q", size, keys)
		}
	}
}

// A store that keeps no large bodies says so, for a value that is written and for one that
// another has written. No test noticed when it did not.
func TestStoreWithoutLargeValues(t *testing.T) {
	st := newStore()
	large := strings.Repeat("x", largestInline+1)
	put(t, newObject(t, st, nil), fence.Token(1), large)
	o := newObject(t, struct{ store.Store }{st}, nil)
	v, err := o.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.Reset()
	_, open := v.Open(t.Context())
	for _, err := range []error{open, o.Put(t.Context(), fence.Token(2), strings.NewReader(large))} {
		e, ok := errors.AsType[*store.Error](err)
		if !ok || !errors.Is(err, store.ErrTooLarge) || e.Op != "put" || e.Key != "state.json" || !strings.Contains(err.Error(), fmt.Sprintf("keeps no bodies over %d bytes", largestInline)) {
			t.Errorf("%v, want that it keeps no such bodies", err)
		}
	}
	if n := st.Counts(); n != (faultstore.Counts{}) {
		t.Errorf("it sent %+v", n)
	}
}

// A Put that is refused, or whose reader fails, sends no large value first. No test
// noticed when it did.
func TestNoLargeValueIsSentInVain(t *testing.T) {
	large := strings.Repeat("x", largestInline+1)
	for name, c := range map[string]struct {
		prepare func(st *faultstore.Store)
		r       io.Reader
		want    error
	}{
		"fenced": {func(st *faultstore.Store) { put(t, newObject(t, st, nil), fence.Token(8), "newer") }, strings.NewReader(large), fence.ErrFenced},
		"foreign": {func(st *faultstore.Store) {
			_, _ = st.Put(t.Context(), "state.json", []byte("plain"), store.IfAbsent())
		}, strings.NewReader(large), fence.ErrForeign},
		"denied":              {func(st *faultstore.Store) { st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get"}) }, strings.NewReader(large), store.ErrDenied},
		"its reader fails":    {func(*faultstore.Store) {}, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errBroken)), errBroken},
		"its reader is cut":   {func(*faultstore.Store) {}, iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(large))), iotest.ErrTimeout},
		"its reader is large": {func(*faultstore.Store) {}, io.MultiReader(strings.NewReader(large), iotest.ErrReader(errBroken)), errBroken},
	} {
		st := newStore()
		c.prepare(st)
		st.Reset()
		err := newObject(t, st, nil).Put(t.Context(), fence.Token(7), c.r)
		if n := st.Counts(); !errors.Is(err, c.want) || n.Put > 0 {
			t.Errorf("%s: %v, want %v; and it sent %+v", name, err, c.want, n)
		}
	}
	st := newStore()
	never := iotest.ErrReader(errors.New("it was read"))
	if err := newObject(t, st, nil).Put(t.Context(), fence.Token(0), never); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("without a token: %v", err)
	}
}

var errBroken = errors.New("the disk is broken")

// The store is away for a moment while a large value is put: that is tried again. No test
// noticed when it was not.
func TestLargeValueInAMomentOfTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Nth: 1})
		large := strings.Repeat("x", largestInline+1)
		put(t, newObject(t, st, nil), fence.Token(1), large)
		holds(t, st, large)
	})
}

// A write that is refused leaves the value that it was to replace, also where that lies apart.
func TestRefusedWriteKeepsTheLargeValue(t *testing.T) {
	large := strings.Repeat("x", largestInline+1)
	denied := faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "state.json"}
	for name, c := range map[string]struct {
		faults []faultstore.Fault
		write  func(o *fence.Object, old *fence.Value) error
		want   error
	}{
		"by an older token": {nil, func(o *fence.Object, _ *fence.Value) error {
			return o.Put(t.Context(), fence.Token(6), strings.NewReader("small"))
		}, fence.ErrFenced},
		"over an older value": {nil, func(o *fence.Object, old *fence.Value) error {
			return o.PutOver(t.Context(), fence.Token(7), old, strings.NewReader("small"))
		}, fence.ErrReplaced},
		"by the store": {[]faultstore.Fault{denied}, func(o *fence.Object, _ *fence.Value) error {
			return o.Put(t.Context(), fence.Token(7), strings.NewReader("small"))
		}, store.ErrDenied},
		"by the store, a large one": {[]faultstore.Fault{denied}, func(o *fence.Object, _ *fence.Value) error {
			return o.Put(t.Context(), fence.Token(7), strings.NewReader(large))
		}, store.ErrDenied},
		"by the store, to be deleted": {[]faultstore.Fault{denied}, func(o *fence.Object, _ *fence.Value) error { return o.Delete(t.Context(), fence.Token(7)) }, store.ErrDenied},
		"by an older token, a claim": {nil, func(o *fence.Object, _ *fence.Value) error {
			_, err := o.Claim(t.Context(), fence.Token(6))
			return err
		}, fence.ErrFenced},
		"by an older token, a removal": {nil, func(o *fence.Object, _ *fence.Value) error { return o.Delete(t.Context(), fence.Token(6)) }, fence.ErrFenced},
	} {
		for _, fresh := range []bool{false, true} {
			st := newStore()
			o := newObject(t, st, nil)
			put(t, o, fence.Token(7), "first")
			old, err := o.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			put(t, o, fence.Token(7), large)
			if fresh {
				o = newObject(t, st, nil)
			}
			st.Inject(c.faults...)
			if err := c.write(o, old); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			st.Clear()
			holds(t, st, large)
		}
	}
}

// A large value that could not be pointed to is removed, unless a pointer to it may yet land.
// No test noticed when it stayed, nor when it was removed although it may be in use.
func TestLargeValueThatNothingPointsTo(t *testing.T) {
	for name, c := range map[string]struct {
		faults []faultstore.Fault
		newer  bool // a newer token comes while the value is sent
		want   error
		open   bool // whether the value may have been written
		left   int
	}{
		"its own answer is lost": {[]faultstore.Fault{{Kind: faultstore.LostAnswer, Op: "put", Key: apartData}}, false, store.ErrUnavailable, false, 0},
		"its own is denied":      {[]faultstore.Fault{{Kind: faultstore.Denied, Op: "put", Key: apartData}}, false, store.ErrDenied, false, 0},
		"the pointer is denied":  {[]faultstore.Fault{{Kind: faultstore.Denied, Op: "put", Key: "state.json"}}, false, store.ErrDenied, false, 0},
		"fenced meanwhile":       {[]faultstore.Fault{{Kind: faultstore.DelayBefore, Op: "put", Key: apartData, Delay: 5 * time.Second}}, true, fence.ErrFenced, false, 0},
		"no answer to the pointer": {[]faultstore.Fault{
			{Kind: faultstore.LostAnswer, Op: "put", Key: "state.json", Nth: 1}, {Kind: faultstore.Denied, Op: "get", Nth: 2},
		}, false, store.ErrUnknownOutcome, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				slow := faultstore.Wrap(st, &faultstore.Options{Faults: c.faults})
				failed := make(chan error)
				go func() {
					failed <- newObject(t, slow, nil).Put(t.Context(), fence.Token(1), strings.NewReader(strings.Repeat("x", largestInline+1)))
				}()
				time.Sleep(time.Second)
				if c.newer {
					put(t, newObject(t, st, nil), fence.Token(2), "newer")
				}
				err := <-failed
				if !errors.Is(err, c.want) || errors.Is(err, store.ErrUnknownOutcome) != c.open {
					t.Errorf("%v, want %v", err, c.want)
				}
				if e, ok := errors.AsType[*store.Error](err); errors.Is(c.want, store.ErrUnavailable) && (!ok || e.Op != "put" || !strings.HasPrefix(e.Key, "state.json.data/") || !strings.Contains(err.Error(), "faultstore: ")) {
					t.Errorf("%v, want the key and the reason", err)
				}
				if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != c.left {
					t.Errorf("left behind: %q, want %d", keys, c.left)
				}
			})
		})
	}
}

// TestDeleteIsNeverAnswered: Put does not wait long for the deletion of bytes that nothing points to, and tells what may be left: by its error,
// or where it has landed by the log.
func TestDeleteIsNeverAnswered(t *testing.T) {
	value := strings.Repeat("x", largestInline+1)
	for name, c := range map[string]struct {
		fault faultstore.Fault
		most  time.Duration
		want  error
	}{
		"the pointer is denied": {faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "state.json"}, 10 * time.Second, store.ErrDenied},
		"the upload is cut off": {faultstore.Fault{Kind: faultstore.Hang, Op: "put", Key: apartData}, 70 * time.Second, store.ErrUnavailable},
		"it has landed":         {faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put"}, 10 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				var log bytes.Buffer
				o := newObject(t, st, &fence.ObjectOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				put(t, o, fence.Token(1), value)
				before := fencecheck.Keys(t, st, "state.json.data/")[0]
				st.Inject(c.fault, faultstore.Fault{Kind: faultstore.Hang, Op: "delete"})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if c.want == nil {
					ctx = t.Context() // which has no end
				}
				done, began := make(chan error, 1), time.Now()
				go func() { done <- o.Put(ctx, fence.Token(1), strings.NewReader(value)) }()
				select {
				case err := <-done:
					if took := time.Since(began); took > c.most || !errors.Is(err, c.want) || errors.Is(err, store.ErrUnknownOutcome) {
						t.Errorf("after %v: %v, want %v after %v at most", took, err, c.want, c.most)
					}
					if c.want == nil && !strings.Contains(log.String(), "left="+before) {
						t.Errorf("the log has %q, which does not say that %s is left", log.String(), before)
					}
					if c.want != nil && (!strings.Contains(err.Error(), "left at state.json.data/") || strings.Contains(err.Error(), before) || log.Len() > 0) {
						t.Errorf("%v, log %q, want what is left", err, log.String())
					}
				case <-time.After(time.Hour):
					t.Error("it waits for an hour")
					st.Close()
					t.Log(<-done)
				}
			})
		})
	}
}

// The network delivers a write twice, and the writer gets the answer to the second copy: a refusal of a write
// that has landed. The data of a large value used to be deleted then, so every later read failed, and the writer of
// a small one was told that nothing had changed.
func TestRefusedWriteHasLanded(t *testing.T) {
	for name, value := range map[string]string{"small": "value", "large": strings.Repeat("x", largestInline+1)} {
		reads := 1 // of the object before it is written: that of Get
		if name == "large" {
			reads++ // before the data is sent
		}
		for _, c := range []struct {
			title  string
			faults []faultstore.Fault // beside the second answer
			newer  bool               // a newer token claims before the writer reads again
			want   error
		}{
			{"nothing else happens", nil, false, nil},
			{"a claim comes first", []faultstore.Fault{{Kind: faultstore.DelayBefore, Op: "get", Key: "state.json", Nth: reads + 1, Delay: 5 * time.Second}}, true, fence.ErrFenced},
			{"the store is away from then on", []faultstore.Fault{{Kind: faultstore.Denied, Op: "get", Key: "state.json", When: after(reads)}}, false, store.ErrDenied},
		} {
			t.Run(name+", "+c.title, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st := newStore()
					bad := faultstore.Wrap(st, &faultstore.Options{Faults: append(c.faults, faultstore.Fault{Kind: faultstore.SecondAnswer, Op: "put", Key: "state.json", Nth: 1})})
					failed := make(chan error)
					go func() {
						o := newObject(t, bad, nil)
						if _, err := o.Get(t.Context()); !errors.Is(err, store.ErrNotExist) {
							t.Error(err)
						}
						failed <- o.Put(t.Context(), fence.Token(1), strings.NewReader(value))
					}()
					time.Sleep(time.Second)
					if c.newer {
						if _, err := newObject(t, st, nil).Claim(t.Context(), fence.Token(2)); err != nil {
							t.Error(err)
						}
					}
					if err := <-failed; !errors.Is(err, c.want) || errors.Is(err, store.ErrUnknownOutcome) != (c.want != nil) {
						t.Errorf("%v, want %v, and that the value may have been written", err, c.want)
					}
					holds(t, st, value)
				})
			})
		}
	}
}

// after is true of all calls but the first n that it is asked about.
func after(n int) func(faultstore.Call) bool {
	return func(faultstore.Call) bool {
		n--
		return n < 0
	}
}

// TestRefusedPutOverHasLanded: the same for a write over a value that is replaced by another writer with that token
// before it reads again. Two writers with one token never point to data that one of them has deleted.
func TestRefusedPutOverHasLanded(t *testing.T) {
	for reads, value := range []string{"value", strings.Repeat("x", largestInline+1)} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			put(t, newObject(t, st, nil), fence.Token(1), "first")
			bad := faultstore.Wrap(st, nil)
			o := newObject(t, bad, nil)
			first, err := o.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			bad.Inject(
				faultstore.Fault{Kind: faultstore.SecondAnswer, Op: "put", Key: "state.json", Nth: 1},
				faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "state.json", Nth: reads + 1, Delay: 5 * time.Second},
			)
			failed := make(chan error)
			go func() { failed <- o.PutOver(t.Context(), fence.Token(1), first, strings.NewReader(value)) }()
			time.Sleep(time.Second)
			put(t, newObject(t, st, nil), fence.Token(1), "another")
			if err := <-failed; !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%.200v, want that it may have been written", err)
			}
			holds(t, st, "another")
		})
	}
}

// TestRefusedWriteBetweenTwoWriters: the pointer to a large value lands, its writer is refused, and another writer
// with the same token replaces it and deletes its data. The first must not point to that data again.
func TestRefusedWriteBetweenTwoWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		bad := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.SecondAnswer, Op: "put", Key: "state.json", Nth: 1},
			{Kind: faultstore.DelayBefore, Op: "get", Key: "state.json", Nth: 2, Delay: 5 * time.Second},
		}})
		failed := make(chan error)
		go func() {
			failed <- newObject(t, bad, nil).Put(t.Context(), fence.Token(1), strings.NewReader(strings.Repeat("x", largestInline+1)))
		}()
		time.Sleep(time.Second)
		put(t, newObject(t, st, nil), fence.Token(1), "another")
		if err := <-failed; !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%v, want that it may have been written", err)
		}
		holds(t, st, "another")
	})
}

// TestPointerLandsLate: nobody answers the write of a pointer, and the lease ends before it lands. Its data must be
// there when it does.
func TestPointerLandsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, lease := newStore(), fencecheck.Lease(t)
		large := strings.Repeat("x", largestInline+1)
		st.Inject(
			faultstore.Fault{Kind: faultstore.LateLanding, Op: "put", Key: "state.json", Nth: 1, Delay: time.Minute},
			faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Key: "state.json", Nth: 2, Delay: 2 * time.Second},
		)
		failed := make(chan error)
		go func() { failed <- newObject(t, st, nil).Put(t.Context(), lease, strings.NewReader(large)) }()
		time.Sleep(time.Second)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%v, want that it may be written", err)
		}
		st.Wait()
		holds(t, st, large)
	})
}

// TestDataOfALostPointer: a write of a pointer was lost, and a newer holder has claimed the object and written a large
// value of its own. Nothing can point to the first one's data then, so it is deleted.
func TestDataOfALostPointer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		bad := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.LostRequest, Op: "put", Key: "state.json", Nth: 1},
			{Kind: faultstore.DelayBefore, Op: "get", Key: "state.json", Nth: 2, Delay: 5 * time.Second},
		}})
		large := strings.Repeat("x", largestInline+1)
		failed := make(chan error)
		go func() { failed <- newObject(t, bad, nil).Put(t.Context(), fence.Token(1), strings.NewReader(large)) }()
		time.Sleep(time.Second)
		newer := newObject(t, st, nil)
		if _, err := newer.Claim(t.Context(), fence.Token(2)); err != nil {
			t.Fatal(err)
		}
		put(t, newer, fence.Token(2), large+"y")
		if err := <-failed; !errors.Is(err, fence.ErrFenced) || !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%v, want that it is fenced, and may have been written before", err)
		}
		holds(t, st, large+"y")
		if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != 1 {
			t.Errorf("there is the data of %q, want that of the newer value alone", keys)
		}
	})
}

// Collect reports an object that it cannot read, list or delete, and leaves one that it
// does not know. No test noticed when it did not.
func TestCollectInTrouble(t *testing.T) {
	st := newStore()
	opts := &fence.ObjectOptions{Apart: true}
	o := newObject(t, st, opts)
	put(t, o, fence.Token(20), "value")
	const orphan, another, older = "state.json.data/0000000000000000019-x", "state.json.data/0000000000000000020-x", "state.json.data/x-1"
	for _, key := range []string{orphan, another, older} {
		if _, err := st.Put(t.Context(), key, []byte("x"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []string{"get", "list", "delete"} {
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: op})
		if n, err := newObject(t, st, opts).Collect(t.Context()); n != 0 || !errors.Is(err, store.ErrDenied) {
			t.Errorf("each %s is denied: %d collected, %v", op, n, err)
		}
		st.Clear()
	}
	if n, err := o.Collect(t.Context()); n != 1 || err != nil || len(fencecheck.Keys(t, st, "state.json.data/")) != 3 {
		t.Errorf("%d collected, %v; left are %q", n, err, fencecheck.Keys(t, st, "state.json.data/"))
	}
	holds(t, st, "value")
}

// An object that is larger than any of ours is not one of ours. No test noticed when its
// error was another.
func TestObjectThatIsTooLarge(t *testing.T) {
	st := newStore()
	if _, err := st.PutLarge(t.Context(), "state.json", bytes.NewReader(make([]byte, store.MaxBody+1))); err != nil {
		t.Fatal(err)
	}
	if _, err := newObject(t, st, nil).Get(t.Context()); !errors.Is(err, fence.ErrForeign) || !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("%v, want that it is foreign, being too large", err)
	}
}

// An object that has not changed is not sent again. No test noticed when it was.
func TestGetAgain(t *testing.T) {
	var unless []store.Version
	st := newStore()
	put(t, newObject(t, st, nil), fence.Token(1), "value")
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", When: func(c faultstore.Call) bool {
		unless = append(unless, c.Unless)
		return false
	}})
	o := newObject(t, st, nil)
	for range 2 {
		v, err := o.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.ReadAll(t.Context()); string(got) != "value" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if len(unless) != 2 || unless[0] != "" || unless[1] == "" {
		t.Errorf("it was asked for unless its version is %q", unless)
	}
	none, err := fence.NewObject(st, "none.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = none.Get(t.Context())
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Op != "get" || e.Key != "none.json" || !errors.Is(err, store.ErrNotExist) {
		t.Errorf("%v, want that there is no such object", err)
	}
}

// The writes of one Object go one after the other, and so do not get in each other's way. No
// test noticed when two were under way.
func TestWritesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		o := newObject(t, st, nil)
		put(t, o, fence.Token(1), "before")
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Delay: time.Second})
		st.Reset()
		done := make(chan error)
		for i := range 5 {
			go func() { done <- o.Put(t.Context(), fence.Token(1), strings.NewReader(fmt.Sprint(i))) }()
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := st.Counts(); n != (faultstore.Counts{Put: 5}) {
			t.Errorf("five writes sent %+v", n)
		}
	})
}

// seen is a store that keeps the contexts of its requests.
type seen struct {
	store.Store
	all []context.Context //nolint:containedctx // to be looked at
}

func (s *seen) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.all = append(s.all, ctx)
	return s.Store.Get(ctx, key, unless)
}

func (s *seen) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	s.all = append(s.all, ctx)
	return s.Store.Put(ctx, key, body, only)
}

// A request has ten seconds, and the next follows within a tenth of one; with each its context
// ends. No test noticed when it was longer, or when nothing ended them.
func TestTimeOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for kind, least := range map[faultstore.Kind]time.Duration{faultstore.Unavailable: 0, faultstore.DelayBefore: 10 * time.Second} {
			st := &seen{Store: newStore(faultstore.Fault{Kind: kind, Op: "get", Nth: 1, Delay: time.Hour})}
			begin := time.Now()
			put(t, newObject(t, st, nil), fence.Token(1), "x")
			least += 50 * time.Millisecond
			if d := time.Since(begin); d < least || d >= least+50*time.Millisecond {
				t.Errorf("%v: with one failure it took %v, want %v and a pause", kind, d, least)
			}
			for _, ctx := range st.all {
				if ctx.Err() == nil {
					t.Error("the context of a request goes on after it")
				}
			}
		}
	})
}

// A store that answers a conditional write of what has gone with that it does not exist.
type gone struct{ store.Store }

func (s gone) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, only)
	if errors.Is(err, store.ErrPrecondition) {
		if _, missing := s.Get(ctx, key, ""); errors.Is(missing, store.ErrNotExist) {
			err = &store.Error{Op: "put", Key: key, Kind: store.ErrNotExist}
		}
	}
	return o, err
}

// An object that somebody has deleted past its fence is written anew at once. No test noticed
// when the same condition was tried again and again.
func TestObjectThatWasDeletedPastItsFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		o := newObject(t, gone{st}, nil)
		put(t, o, fence.Token(1), "before")
		if err := st.Delete(t.Context(), "state.json"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		put(t, o, fence.Token(1), "after")
		if d := time.Since(begin); d > 0 {
			t.Errorf("it took %v", d)
		}
		holds(t, st, "after")
	})
}

// A value may look like what a fence writes of one that lies apart. No test noticed when it
// was believed, and what it names deleted.
func TestValueThatLooksLikeAPointer(t *testing.T) {
	const other = "state.json.data/0000000000000000001-x"
	st := newStore()
	o := newObject(t, st, nil)
	if _, err := st.Put(t.Context(), other, []byte("x"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	value := `{"data":"` + other + `","size":1,"sha256":""}`
	put(t, o, fence.Token(1), value)
	holds(t, st, value)
	put(t, o, fence.Token(1), "next")
	if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != 1 {
		t.Errorf("%q is left of %s", keys, other)
	}
}

// A pointer names what lies beside its object, by the last part of the key alone: so all of it
// can be copied to another prefix. No test noticed when it named more.
func TestPointerIsRelative(t *testing.T) {
	st := newStore()
	o, err := fence.NewObject(st, "a/b/state.json", &fence.ObjectOptions{Apart: true})
	if err != nil {
		t.Fatal(err)
	}
	put(t, o, fence.Token(1), "value")
	body, err := st.Get(t.Context(), "a/b/state.json", "")
	if err != nil || !strings.HasPrefix(string(body.Body), `{"data":"state.json.data/`) {
		t.Fatalf("%s, %v", body.Body, err)
	}
	v, err := o.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.ReadAll(t.Context()); err != nil || string(got) != "value" {
		t.Errorf("%q, %v", got, err)
	}
}
