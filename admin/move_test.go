package admin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// named is a store with a name of its own, whatever faults lie before it.
type named struct {
	*faultstore.Store
	name string
}

func (n named) String() string { return n.name }

// ways are a process's own ways to the two stores of a move.
type ways struct{ old, new named }

func waysTo(old, to store.Store, seed uint64, faults ...faultstore.Fault) ways {
	return ways{
		named{faultstore.Wrap(old, &faultstore.Options{Seed: 2 * seed, Faults: faults}), "s3://old"},
		named{faultstore.Wrap(to, &faultstore.Options{Seed: 2*seed + 1, Faults: faults}), "gs://new"},
	}
}

// cut ends whatever the process says to its stores.
func (w ways) cut() {
	w.old.Partition(true)
	w.new.Partition(true)
}

func (w ways) from(t *testing.T) *leasehold.Lock {
	t.Helper()
	return lockOf(t, w.old, "jobs/a", nil)
}

func (w ways) to(t *testing.T) *leasehold.Lock {
	t.Helper()
	return lockOf(t, w.new, "jobs/b", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
}

func (w ways) move(ctx context.Context, t *testing.T) (leasehold.Info, error) {
	t.Helper()
	return admin.Move(ctx, w.from(t), w.to(t), nil)
}

// moved is the error that says where the lock is.
func moved(t *testing.T, what string, err error, to, from string) {
	t.Helper()
	m, ok := errors.AsType[*leasehold.MovedError](err)
	if !ok || m.To != to || m.From != from || !errors.Is(err, leasehold.ErrMoved) || !errors.Is(err, leasehold.ErrForeignObject) || !leasehold.Final(err) {
		t.Errorf("%s: %v, want the place %s%s", what, err, to, from)
	}
}

// TestMove: whoever waits for the old lock, or comes there, is told where it is now; the tokens go on; and to
// move it again changes nothing.
func TestMove(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	bubble(t, func(t *testing.T) {
		old, to := memstore.New(), memstore.New()
		w := waysTo(old, to, 1)
		lease := acquire(t, w.from(t))
		before := lease.Token()

		// While somebody holds the lock the new place is closed.
		done := make(chan error, 1)
		go func() { _, err := w.move(t.Context(), t); done <- err }()
		time.Sleep(time.Minute)
		_, err := w.to(t).TryAcquire(t.Context())
		moved(t, "the new place", err, "", "s3://old/jobs/a")
		if !lease.Valid() {
			t.Fatalf("the holder: %v", lease.Err())
		}
		waiter := make(chan error, 1)
		go func() {
			for { // others may come first
				l, failure := w.from(t).Acquire(t.Context())
				if failure != nil {
					waiter <- failure
					return
				}
				if l.Release(t.Context()) != nil {
					t.Error("not released")
				}
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(time.Minute)
		release(t, lease)
		if err = <-done; err != nil {
			t.Fatal(err)
		}
		moved(t, "a waiter", <-waiter, "gs://new/jobs/b", "")
		_, err = w.from(t).Acquire(t.Context())
		moved(t, "one who comes", err, "gs://new/jobs/b", "")
		if !strings.Contains(err.Error(), "the lock s3://old/jobs/a has moved to gs://new/jobs/b: use that name") {
			t.Errorf("it says %q", err)
		}
		_, err = w.from(t).Inspect(t.Context())
		moved(t, "one who looks", err, "gs://new/jobs/b", "")
		_, err = admin.Inspect(t.Context(), w.old, "jobs/a")
		moved(t, "one who does not know the layout", err, "gs://new/jobs/b", "")
		for e, err := range admin.List(t.Context(), w.old, "") {
			if !errors.Is(err, leasehold.ErrMoved) || !strings.Contains(err.Error(), "has moved to gs://new/jobs/b") {
				t.Errorf("the list of %s: %v", e.Key, err)
			}
		}
		for c, err := range admin.Collect(t.Context(), w.old, "", nil) {
			t.Errorf("collected: %+v, %v", c, err)
		}

		next := acquire(t, w.to(t))
		if next.Token() <= before+1 {
			t.Errorf("token %v follows %v and that of the move", next.Token(), before)
		}
		release(t, next)
		known := false
		for term, err := range admin.History(t.Context(), w.to(t)) {
			if err != nil {
				t.Error(err)
			}
			known = known || term.Token == before
		}
		if !known {
			t.Error("the new place knows nothing of the first lease")
		}
		w.old.Reset()
		w.new.Reset()
		info, err := w.move(t.Context(), t)
		if err != nil || info.Token != next.Token() || w.old.Counts().Put+w.new.Counts().Put != 0 {
			t.Errorf("moved again: %+v, %v; %+v, %+v", info, err, w.old.Counts(), w.new.Counts())
		}
	})
}

// TestMoveCosts is what docs/requests-commands.md says.
func TestMoveCosts(t *testing.T) {
	for l, lists := range map[leasetest.Way]int{leasetest.Object: 0, leasetest.EpochsNoIfMatch: 5, leasetest.Epochs: 4} {
		bubble(t, func(t *testing.T) {
			w := waysTo(memstore.New(), memstore.New(), 1)
			from := func() *leasehold.Lock { return lockOf(t, w.old, "jobs/a", l.Options()) }
			release(t, acquire(t, from()))
			w.old.Reset()
			if _, err := admin.Move(t.Context(), from(), w.to(t), nil); err != nil {
				t.Fatal(err)
			}
			if got, want := w.old.Counts(), (faultstore.Counts{Get: 3, Put: 2, List: lists}); got != want {
				t.Errorf("%s: the old place: %+v, want %+v", l, got, want)
			}
			if got, want := w.new.Counts(), (faultstore.Counts{Get: 1, Put: 2}); got != want {
				t.Errorf("%s: the new place: %+v, want %+v", l, got, want)
			}
		})
	}
}

// TestMoveRefuses: what is not there, or is another lock, is left as it is.
func TestMoveRefuses(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	bubble(t, func(t *testing.T) {
		needs(t, here() == leasetest.Object, "what is refused is the same in every layout")
		lock := func(st store.Store, key string, layout leasehold.Layout) *leasehold.Lock {
			return lockOf(t, st, key, &leasehold.LockOptions{Layout: layout})
		}
		st := memstore.New()
		for _, key := range []string{"a", "b", "c", "d"} {
			release(t, acquire(t, lock(st, key, leasehold.LayoutObject)))
		}
		done := func(from, to string) {
			t.Helper()
			if _, err := admin.Move(t.Context(), lock(st, from, ""), lock(st, to, leasehold.LayoutObject), nil); err != nil {
				t.Fatal(err)
			}
		}
		done("b", "moved")
		for what, c := range map[string]struct {
			from, to *leasehold.Lock
			kind     error
			says     string
		}{
			"nothing":                {lock(st, "none", leasehold.LayoutObject), lock(st, "x", leasehold.LayoutObject), store.ErrNotExist, "no lock to move at mem:///none"},
			"over a lock":            {lock(st, "a", leasehold.LayoutObject), lock(st, "c", leasehold.LayoutObject), admin.ErrOccupied, "a lock at mem:///c already"},
			"elsewhere":              {lock(st, "b", leasehold.LayoutObject), lock(st, "x", leasehold.LayoutObject), admin.ErrMovedElsewhere, "from mem:///b to mem:///moved, and not to mem:///x"},
			"to where one was":       {lock(st, "a", leasehold.LayoutObject), lock(st, "b", leasehold.LayoutObject), admin.ErrOccupied, "a lock was at mem:///b, and has moved to mem:///moved"},
			"to itself":              {lock(st, "a", leasehold.LayoutObject), lock(st, "a", leasehold.LayoutObject), nil, "cannot be moved to where it is"},
			"a marker":               {lock(st, "a", leasehold.LayoutMarker), lock(st, "x", leasehold.LayoutObject), admin.ErrNoTokens, "stop all that use it"},
			"to a marker":            {lock(st, "a", leasehold.LayoutObject), lock(st, "x", leasehold.LayoutMarker), nil, "cannot be moved to a lock in the layout marker"},
			"to epochs":              {lock(st, "a", leasehold.LayoutObject), lock(st, "x", leasehold.LayoutEpochs), nil, "cannot be moved to a lock in the layout epochs,"},
			"to epochs, no If-Match": {lock(st, "a", leasehold.LayoutObject), lockOf(t, st, "x", leasetest.EpochsNoIfMatch.Options()), nil, "use the layout object there"},
		} {
			before := objects(t, st)
			versions := versionsIn(t, st)
			_, err := admin.Move(t.Context(), c.from, c.to, nil)
			if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", what, err)
			}
			if after := objects(t, st); !slices.Equal(before, after) || !slices.Equal(versions, versionsIn(t, st)) {
				t.Errorf("%s: of %v it made %v", what, before, after)
			}
		}
		// A lock that has moved twice: each place names the next.
		done("moved", "further")
		_, err := admin.Move(t.Context(), lock(st, "b", ""), lock(st, "moved", ""), nil)
		moved(t, "moved on", err, "mem:///further", "")

		// An object that is no lock is left as it is.
		if _, err = st.Put(t.Context(), "x", []byte("7"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if _, err = admin.Move(t.Context(), lock(st, "a", ""), lock(st, "x", ""), nil); !errors.Is(err, leasehold.ErrForeignObject) || errors.Is(err, leasehold.ErrMoved) {
			t.Errorf("over something else: %v", err)
		}
		// The caller gives up: what is closed is told, and the old lock goes on.
		lease := acquire(t, lock(st, "d", ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = admin.Move(ctx, lock(st, "d", ""), lock(st, "y", ""), nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) || !strings.Contains(err.Error(), "mem:///d is as it was, and mem:///y stays closed") || !lease.Valid() {
			t.Errorf("given up: %v; %v", err, lease.Err())
		}
		release(t, lease)
		done("d", "y")
	})
}

func versionsIn(t *testing.T, st store.Store) (all []store.Version) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Version)
	}
	return all
}

// TestMoveInterrupted: a mover dies at each of its requests, before it arrives and after it has landed, and
// the next one goes on. Nobody has the lock meanwhile but whoever may, and its tokens grow.
func TestMoveInterrupted(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	stops := 0
	for n := 1; ; n++ {
		finished := false
		for _, kind := range []faultstore.Kind{faultstore.LostAnswer, faultstore.LostRequest} {
			bubble(t, func(t *testing.T) {
				old, to := memstore.New(), memstore.New()
				whole := waysTo(old, to, 1)
				lease := acquire(t, whole.from(t))
				before := lease.Token()
				release(t, lease)

				w := waysTo(old, to, 1)
				ctx, cancel := context.WithCancel(t.Context())
				calls := 0
				die := faultstore.Fault{Kind: kind, When: func(faultstore.Call) bool {
					if calls++; calls == n {
						go func() { w.cut(); cancel() }()
					}
					return calls >= n
				}}
				w.old.Inject(die)
				w.new.Inject(die)
				_, err := w.move(ctx, t)
				finished = err == nil && calls < n
				if err != nil {
					stops++
				}
				time.Sleep(time.Minute) // what it holds runs out
				info, err := whole.move(t.Context(), t)
				if err != nil || info.Held || info.Token <= before {
					t.Fatalf("after a mover that died at request %d (%v): %+v, %v", n, kind, info, err)
				}
				_, err = whole.from(t).TryAcquire(t.Context())
				moved(t, "the old place", err, "gs://new/jobs/b", "")
				next := acquire(t, whole.to(t))
				if next.Token() <= info.Token {
					t.Errorf("token %v follows %v", next.Token(), info.Token)
				}
				release(t, next)
				cancel()
			})
		}
		if finished {
			break
		}
	}
	if stops < 14 {
		t.Errorf("it was stopped %d times", stops)
	}
}

// TestMoveIsBounded: a store that never answers as it should is asked a few times.
func TestMoveIsBounded(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	for _, kind := range []faultstore.Kind{faultstore.Unavailable, faultstore.Throttled, faultstore.LostAnswer, faultstore.Conflict} {
		bubble(t, func(t *testing.T) {
			w := waysTo(memstore.New(), memstore.New(), 1)
			release(t, acquire(t, w.from(t)))
			w.new.Inject(faultstore.Fault{Kind: kind, Op: "put"})
			began := time.Now()
			_, err := w.move(t.Context(), t)
			if kind == faultstore.LostAnswer { // each has landed, and is found
				if err != nil {
					t.Errorf("%v: %v", kind, err)
				}
				return
			}
			if puts, took := w.new.Counts().Put, time.Since(began); err == nil || puts != 6 || took < 10*time.Second || took > 20*time.Second {
				t.Errorf("%v: %d writes in %v, %v", kind, puts, took, err)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		w.new.Inject(faultstore.Fault{Kind: faultstore.Denied})
		if _, err := w.move(t.Context(), t); !errors.Is(err, store.ErrDenied) || w.new.Counts() != (faultstore.Counts{Get: 1}) {
			t.Errorf("denied: %v, %+v", err, w.new.Counts())
		}
		// The seal is refused: the old lock is free again, at once.
		w = waysTo(w.old.Store, memstore.New(), 1)
		w.old.Inject(faultstore.Fault{Kind: faultstore.Denied, When: func(c faultstore.Call) bool { return strings.Contains(string(c.Body), `"sealed"`) }})
		if _, err := w.move(t.Context(), t); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "s3://old/jobs/a is as it was") {
			t.Errorf("denied: %v", err)
		}
		lease, err := w.from(t).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
	})
}

// TestMoveSealsItsOwn: a mover whose lease has run out, and that does not know it, seals no lease of
// another.
func TestMoveSealsItsOwn(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	bubble(t, func(t *testing.T) {
		old, to := memstore.New(), memstore.New()
		w, other := waysTo(old, to, 1), waysTo(old, to, 2)
		release(t, acquire(t, w.from(t)))
		// The seal arrives two minutes late, and another has the lock by then.
		w.old.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Nth: 1, Delay: 2 * time.Minute, When: func(c faultstore.Call) bool {
			return strings.Contains(string(c.Body), `"sealed"`)
		}})
		done := make(chan error, 1)
		go func() { _, err := w.move(t.Context(), t); done <- err }()
		time.Sleep(time.Second)
		lease := acquire(t, other.from(t))
		time.Sleep(5 * time.Minute)
		if !lease.Valid() {
			t.Fatalf("the lease was sealed: %v", lease.Err())
		}
		release(t, lease)
		if err := <-done; err != nil {
			t.Error(err)
		}
		next := acquire(t, w.to(t))
		if next.Token() <= lease.Token() {
			t.Errorf("token %v follows %v", next.Token(), lease.Token())
		}
		release(t, next)
	})
}

// TestMoveLosesTheLock: a mover learns that another has the lock, as one of its six failures, and leaves it alone.
func TestMoveLosesTheLock(t *testing.T) {
	needs(t, here() == leasetest.Object, "it counts the requests for one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		old, to := memstore.New(), memstore.New()
		w, other := waysTo(old, to, 1), waysTo(old, to, 2)
		release(t, acquire(t, w.from(t)))
		var lease *leasehold.Lease
		seals := 0
		w.old.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", When: func(c faultstore.Call) bool {
			if !strings.Contains(string(c.Body), `"sealed"`) {
				return false
			}
			if seals++; seals == 5 {
				breakLock(t, other.from(t))
				lease = acquire(t, other.from(t))
			}
			return true
		}})
		w.old.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := w.move(ctx, t)
		if err == nil || !strings.Contains(err.Error(), "another has taken the lock over before it was sealed") || !strings.Contains(err.Error(), "s3://old/jobs/a is as it was") {
			t.Errorf("it says %v", err)
		}
		// Three reads until the first seal, and one after each. There is nothing to release.
		if got := w.old.Counts(); got != (faultstore.Counts{Get: 3 + 5, Put: 1 + 5}) {
			t.Errorf("requests: %+v", got)
		}
		if !lease.Valid() {
			t.Errorf("the other: %v", lease.Err())
		}
		release(t, lease)
	})
}

// TestMoveSaysWhatIsLeft: an error says in which state both places are, and what is in order is not asked twice.
func TestMoveSaysWhatIsLeft(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	const sealed = "s3://old/jobs/a is sealed and gs://new/jobs/b is closed: nobody can use the lock until the move is run again"
	bubble(t, func(t *testing.T) {
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		open := faultstore.Fault{Kind: faultstore.Denied, Op: "put", When: func(c faultstore.Call) bool { return !strings.Contains(string(c.Body), `"closed"`) }}
		w.new.Inject(open)
		_, err := w.move(t.Context(), t)
		if !errors.Is(err, store.ErrDenied) || !strings.HasSuffix(err.Error(), "; "+sealed) {
			t.Errorf("it cannot be opened: %v", err)
		}
		w.old.Reset()
		w.new.Reset()
		if _, err = w.move(t.Context(), t); !errors.Is(err, store.ErrDenied) || !strings.HasSuffix(err.Error(), "; "+sealed) {
			t.Errorf("once more: %v", err)
		}
		// Nothing is freed that has moved.
		if w.old.Counts().Put != 0 || w.new.Counts() != (faultstore.Counts{Get: 1, Put: 1}) {
			t.Errorf("requests: %+v, %+v", w.old.Counts(), w.new.Counts())
		}
		w.new.Clear()
		if _, err = w.move(t.Context(), t); err != nil {
			t.Error(err)
		}
		// Somebody has deleted what it has opened.
		if err = w.new.Delete(t.Context(), "jobs/b"); err != nil {
			t.Fatal(err)
		}
		w.new.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put"})
		if _, err = w.move(t.Context(), t); !errors.Is(err, store.ErrDenied) || strings.Contains(err.Error(), "is closed") {
			t.Errorf("there is nothing to open: %v", err)
		}
	})
	bubble(t, func(t *testing.T) {
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		release(t, acquire(t, w.to(t)))
		w.old.Reset()
		w.new.Reset()
		_, err := w.move(t.Context(), t)
		if !errors.Is(err, admin.ErrOccupied) || strings.Contains(err.Error(), "closed") || w.new.Counts() != (faultstore.Counts{Get: 1}) {
			t.Errorf("the place is taken: %v, %+v", err, w.new.Counts())
		}
	})
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lock := func(key string) *leasehold.Lock {
			return lockOf(t, st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		}
		release(t, acquire(t, lock("a")))
		if _, err := admin.Move(t.Context(), lock("a"), lock("b"), nil); err != nil {
			t.Fatal(err)
		}
		w := named{faultstore.Wrap(st, nil), "mem://"}
		there := func(key string) *leasehold.Lock {
			return lockOf(t, w, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		}
		_, err := admin.Move(t.Context(), there("a"), there("c"), nil)
		if !errors.Is(err, admin.ErrMovedElsewhere) || strings.Contains(err.Error(), "closed") || w.Counts().Get != 2 {
			t.Errorf("it has moved elsewhere: %v, %+v", err, w.Counts())
		}
	})
	bubble(t, func(t *testing.T) {
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		elsewhere := lockOf(t, w.new, "jobs/c", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		_, err := admin.Move(t.Context(), w.from(t), w.to(t), &admin.MoveOptions{Acquire: func(ctx context.Context) (*leasehold.Lease, error) {
			if _, err := admin.Move(ctx, w.from(t), elsewhere, nil); err != nil {
				t.Error(err)
			}
			return w.from(t).Acquire(ctx)
		}})
		if !errors.Is(err, admin.ErrMovedElsewhere) || !strings.Contains(err.Error(), "; gs://new/jobs/b was closed for this move and stays closed: if nothing else is to come there, delete its object") {
			t.Errorf("another moves it elsewhere: %v", err)
		}
	})
}

// TestMoveAcquires: how the lock is acquired is the caller's choice, and its failure ends the move.
func TestMoveAcquires(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	bubble(t, func(t *testing.T) {
		w := waysTo(memstore.New(), memstore.New(), 1)
		lease := acquire(t, w.from(t))
		calls := 0
		try := &admin.MoveOptions{Acquire: func(ctx context.Context) (*leasehold.Lease, error) {
			calls++
			return w.from(t).TryAcquire(ctx)
		}}
		_, err := admin.Move(t.Context(), w.from(t), w.to(t), try)
		if !errors.Is(err, leasehold.ErrHeld) || calls != 1 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		release(t, lease)
		if _, err = admin.Move(t.Context(), w.from(t), w.to(t), try); err != nil || calls != 2 {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
	bubble(t, func(t *testing.T) { // its failures are final, whatever they are
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		down, calls := &store.Error{Op: "get", Key: "jobs/a", Kind: store.ErrUnavailable, Cause: errors.New("down")}, 0
		_, err := admin.Move(t.Context(), w.from(t), w.to(t), &admin.MoveOptions{Acquire: func(context.Context) (*leasehold.Lease, error) { calls++; return nil, down }})
		if !errors.Is(err, store.ErrUnavailable) || calls != 1 || !strings.Contains(err.Error(), "gs://new/jobs/b stays closed") {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
	bubble(t, func(t *testing.T) { // failures count in a row
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		for _, word := range []string{`"closed"`, `"sealed"`, `"free"`} {
			for n := range 5 {
				w.old.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Nth: n + 1, When: func(c faultstore.Call) bool { return strings.Contains(string(c.Body), word) }})
				w.new.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Nth: n + 1, When: func(c faultstore.Call) bool { return strings.Contains(string(c.Body), word) }})
			}
		}
		if _, err := admin.Move(t.Context(), w.from(t), w.to(t), &admin.MoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T) { // another run has moved it meanwhile: nothing is left to write
		old, to := memstore.New(), memstore.New()
		w, other := waysTo(old, to, 1), waysTo(old, to, 2)
		release(t, acquire(t, w.from(t)))
		w.old.Reset()
		_, err := admin.Move(t.Context(), w.from(t), w.to(t), &admin.MoveOptions{Acquire: func(ctx context.Context) (*leasehold.Lease, error) {
			if _, err := other.move(ctx, t); err != nil {
				t.Error(err)
			}
			return w.from(t).Acquire(ctx)
		}})
		if err != nil || w.old.Counts().Put != 0 || w.new.Counts() != (faultstore.Counts{Get: 2, Put: 1}) {
			t.Errorf("%v: %+v, %+v", err, w.old.Counts(), w.new.Counts())
		}
	})
	bubble(t, func(t *testing.T) { // a lease that cannot be detached is released, and not asked for again
		w := waysTo(memstore.New(), memstore.New(), 1)
		release(t, acquire(t, w.from(t)))
		s := newSession(t, w.old, nil)
		under, calls := lockOf(t, w.old, "jobs/a", &leasehold.LockOptions{Session: s}), 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := admin.Move(ctx, w.from(t), w.to(t), &admin.MoveOptions{Acquire: func(ctx context.Context) (*leasehold.Lease, error) {
			calls++
			return under.Acquire(ctx)
		}})
		if err == nil || calls != 1 || !strings.Contains(err.Error(), "a lease under a session cannot be detached") {
			t.Errorf("after %d calls: %v", calls, err)
		}
		lease, err := w.from(t).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		if err = s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A contest is one lock in two places, and what all who use it have seen.
type contest struct {
	t       *testing.T
	mu      sync.Mutex
	holders int
	last    leasehold.Token
	turns   [2]int // in the old place, and in the new one
}

// hold has the lock for a while, and checks that nobody else has.
func (c *contest) hold(ctx context.Context, lease *leasehold.Lease, place int, d time.Duration) {
	enter := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.holders += n; c.holders > 1 {
			c.t.Errorf("%d hold the lock", c.holders)
		}
		if n > 0 {
			if lease.Token() <= c.last {
				c.t.Errorf("token %v follows %v", lease.Token(), c.last)
			}
			c.last = lease.Token()
			c.turns[place]++
		}
	}
	if !lease.Valid() {
		return
	}
	enter(1)
	select {
	case <-lease.Done():
	case <-ctx.Done():
	case <-time.After(d):
	}
	enter(-1)
}

// use acquires the lock again and again, until it has moved from its place, or enough is done.
func (c *contest) use(ctx context.Context, lock *leasehold.Lock, place int, r *rand.Rand) error {
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return err
		}
		c.hold(ctx, lease, place, time.Duration(r.IntN(3000))*time.Millisecond)
		_ = lease.Release(ctx)
		time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
	}
	return ctx.Err()
}

// TestMoveContended: a lock moves while others take turns in both places, over networks that lose and delay, and
// while movers die. At no moment do two hold it, its tokens grow from one place to the other, and the move comes
// to its end.
func TestMoveContended(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to go on with")
	var turns [2]int
	var deaths [2]atomic.Int64
	for seed := uint64(1); seed <= leasetest.Seeds(12); seed++ {
		bubble(t, func(t *testing.T) { moveContended(t, seed, &turns, &deaths) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d turns in the old place, %d in the new one; of %d movers %d died", turns[0], turns[1], deaths[0].Load(), deaths[1].Load())
	if turns[0] == 0 || turns[1] == 0 || deaths[1].Load() == 0 {
		t.Error("it is not the contest that it should be")
	}
}

func moveContended(t *testing.T, seed uint64, turns *[2]int, deaths *[2]atomic.Int64) {
	t.Helper()
	old, to := memstore.New(), memstore.New()
	faults := []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Probability: .05},
		{Kind: faultstore.LostRequest, Probability: .05},
		{Kind: faultstore.Unavailable, Probability: .05},
		{Kind: faultstore.LateLanding, Op: "put", Probability: .05, Delay: time.Second, Jitter: time.Minute},
		{Kind: faultstore.LateDuplicate, Op: "put", Probability: .05, Delay: time.Second, Jitter: time.Minute},
		{Kind: faultstore.DelayAfter, Probability: .2, Jitter: time.Second},
	}
	release(t, acquire(t, waysTo(old, to, 0).from(t)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &contest{t: t}
	var all []ways
	process := func(n uint64) (ways, *rand.Rand) {
		w := waysTo(old, to, seed*100+n, faults...)
		all = append(all, w)
		return w, rand.New(rand.NewPCG(seed, n))
	}
	var users, movers sync.WaitGroup
	for n := range uint64(2) {
		w, r := process(n)
		users.Go(func() {
			err := c.use(ctx, w.from(t), 0, r)
			moved(t, "a user of the old place", err, "gs://new/jobs/b", "")
		})
		later, r2 := process(10 + n)
		users.Go(func() {
			for ctx.Err() == nil {
				lock := lockOf(t, later.new, "jobs/b", &leasehold.LockOptions{Layout: leasehold.LayoutObject, Existing: true})
				if err := c.use(ctx, lock, 1, r2); ctx.Err() == nil && !errors.Is(err, leasehold.ErrMoved) && !errors.Is(err, store.ErrNotExist) {
					t.Errorf("a user of the new place: %v", err)
				}
				time.Sleep(time.Second)
			}
		})
	}
	time.Sleep(10 * time.Second)
	var arrived atomic.Bool
	for n := range uint64(2) {
		movers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 50+n))
			for try := uint64(0); !arrived.Load(); try++ {
				w := waysTo(old, to, seed*100+20+n*10+try, faults...)
				mctx, stop := context.WithCancel(ctx)
				deaths[0].Add(1)
				if r.IntN(2) == 0 {
					time.AfterFunc(time.Duration(r.IntN(10_000))*time.Millisecond, func() { w.cut(); stop(); deaths[1].Add(1) })
				}
				_, err := w.move(mctx, t)
				final := leasehold.Final(err) || errors.Is(err, admin.ErrOccupied) || errors.Is(err, admin.ErrMovedElsewhere)
				if err == nil || final {
					arrived.Store(true)
				}
				if final {
					t.Errorf("a mover: %v", err)
				}
				stop()
				w.old.Wait()
				w.new.Wait()
			}
		})
	}
	movers.Wait()
	time.Sleep(time.Minute)
	cancel()
	users.Wait()
	time.Sleep(time.Minute) // until what they have begun is over
	for _, w := range all {
		w.old.Wait()
		w.new.Wait()
	}
	if c.turns[1] == 0 {
		t.Error("nobody had the lock in the new place")
	}
	turns[0] += c.turns[0]
	turns[1] += c.turns[1]
	if got := leasetest.Objects(t, to); !slices.Equal(got, []string{"jobs/b"}) {
		t.Error(fmt.Sprint(got))
	}
}
