package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestSemaphores: slots go on in the order in which their holders came, those of one that is gone too; and a
// reader/writer lock is shared by readers alone.
func TestSemaphores(t *testing.T) {
	if underTest != leasetest.Object {
		t.Skip("semaphores are the same in every layout")
	}
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		for name, test := range map[string]func(t *testing.T, p place){
			"order": slotsInOrder, "dead": slotsOfTheDead, "shared": slotsOfReaders, "try": slotsAtOnce,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, p)
			})
		}
	})
}

// A queuer is one that wants slots, with a semaphore of its own, as in another process.
type queuer struct {
	name  string
	close func(context.Context) error
	waits chan locktrace.Waiting
	got   chan *leasehold.Lease
}

func newQueuer(name string) (*queuer, *semaphore.Options) {
	q := &queuer{name: name, waits: make(chan locktrace.Waiting, 100), got: make(chan *leasehold.Lease, 1)}
	return q, &semaphore.Options{Holder: name, Trace: &locktrace.Trace{Waiting: func(_ context.Context, e locktrace.Waiting) { q.waits <- e }}}
}

// queue has somebody acquire, and waits until it has its slot or its place in the queue.
func (q *queuer) queue(t *testing.T, acquire func(context.Context) (*leasehold.Lease, error)) (ahead int) {
	t.Helper()
	go func() {
		l, err := acquire(t.Context())
		if err != nil {
			t.Errorf("%s: %v", q.name, err)
			close(q.got)
			return
		}
		q.got <- l
	}()
	select {
	case p := <-q.waits:
		return p.Ahead
	case l := <-q.got:
		q.got <- l
		return -1
	}
}

// lease waits for its turn.
func (q *queuer) lease(t *testing.T) *leasehold.Lease {
	t.Helper()
	l := <-q.got
	if l == nil {
		t.Fatalf("%s has no slot", q.name)
	}
	if !l.Valid() {
		t.Fatalf("%s has a lease that is not valid: %v", q.name, l.Err())
	}
	return l
}

func vacate(t *testing.T, l *leasehold.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("%s: %v", l.Holder(), err)
	}
}

func (q *queuer) leave(t *testing.T) {
	t.Helper()
	if err := q.close(t.Context()); err != nil {
		t.Errorf("%s: %v", q.name, err)
	}
}

func newSemaphore(t *testing.T, st store.Store, key string, size int, opts *semaphore.Options) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(st, key, size, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func slotsInOrder(t *testing.T, p place) {
	t.Helper()
	const size, n = 2, 6
	var all []*queuer
	var s *semaphore.Semaphore
	for i := range n {
		q, opts := newQueuer(fmt.Sprint("q", i))
		s = newSemaphore(t, p.open(t), "slots/order", size, opts)
		q.close = s.Close
		if ahead := q.queue(t, func(ctx context.Context) (*leasehold.Lease, error) { return s.Acquire(ctx, 1) }); ahead != max(i-size, -1) {
			t.Errorf("%s came with %d before it", q.name, ahead)
		}
		all = append(all, q)
	}
	var held []*leasehold.Lease
	var last leasehold.Token
	for i, q := range all {
		if i >= size {
			vacate(t, held[0])
			held = held[1:]
		}
		l := q.lease(t)
		if l.Token() <= last {
			t.Errorf("%s has the token %d after %d", q.name, l.Token(), last)
		}
		last, held = l.Token(), append(held, l)
		if info, err := s.Inspect(t.Context()); err != nil || info.Taken() > size || i >= size && (len(info.Waiters) != n-1-i || info.Taken() != size) {
			t.Errorf("with %s it looks like %+v, %v", q.name, info, err)
		}
	}
	for _, l := range held {
		vacate(t, l)
	}
	for _, q := range all {
		q.leave(t)
	}
}

func slotsOfTheDead(t *testing.T, p place) {
	t.Helper()
	net := faultstore.Wrap(p.open(t), nil)
	q, opts := newQueuer("dead")
	opts.TTL = 3 * time.Second
	gone := newSemaphore(t, net, "slots/dead", 1, opts)
	q.queue(t, func(ctx context.Context) (*leasehold.Lease, error) { return gone.Acquire(ctx, 1) })
	dead := q.lease(t)
	q, opts = newQueuer("next")
	s := newSemaphore(t, p.open(t), "slots/dead", 1, opts)
	q.close = s.Close
	if ahead := q.queue(t, func(ctx context.Context) (*leasehold.Lease, error) { return s.Acquire(ctx, 1) }); ahead != 0 {
		t.Fatalf("it waits with %d before it", ahead)
	}
	net.Partition(true)
	l := q.lease(t)
	if dead.Valid() || l.Token() <= dead.Token() {
		t.Errorf("the token %d after %d, whose lease is valid: %t", l.Token(), dead.Token(), dead.Valid())
	}
	<-dead.Done()
	if !errors.Is(dead.Err(), leasehold.ErrLost) {
		t.Errorf("the dead lease: %v", dead.Err())
	}
	if err := dead.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
		t.Errorf("the dead lease, released: %v", err)
	}
	net.Partition(false)
	vacate(t, l)
	q.leave(t)
	_ = gone.Close(t.Context()) // its session was lost
}

func slotsOfReaders(t *testing.T, p place) {
	t.Helper()
	lock := func(name string) (*queuer, *semaphore.RWLock) {
		q, opts := newQueuer(name)
		l, err := semaphore.NewRWLock(p.open(t), "slots/shared", opts)
		if err != nil {
			t.Fatal(err)
		}
		q.close = l.Close
		return q, l
	}
	r1, first := lock("r1")
	r2, second := lock("r2")
	w, writer := lock("w")
	r3, third := lock("r3")
	for _, c := range []struct {
		q       *queuer
		acquire func(context.Context) (*leasehold.Lease, error)
		ahead   int
	}{{r1, first.RLock, -1}, {r2, second.RLock, -1}, {w, writer.Lock, 0}, {r3, third.RLock, 1}} {
		if ahead := c.q.queue(t, c.acquire); ahead != c.ahead {
			t.Errorf("%s came with %d before it, and not %d", c.q.name, ahead, c.ahead)
		}
	}
	if _, err := first.TryRLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
		t.Errorf("a reader that does not wait passes the writer: %v", err)
	}
	vacate(t, r1.lease(t))
	if info, err := first.Inspect(t.Context()); err != nil || len(info.Holders) != 1 || len(info.Waiters) != 2 {
		t.Errorf("with one reader it looks like %+v, %v", info, err)
	}
	vacate(t, r2.lease(t))
	l := w.lease(t)
	if info, err := first.Inspect(t.Context()); err != nil || info.Taken() != semaphore.RWSize || len(info.Waiters) != 1 {
		t.Errorf("with the writer it looks like %+v, %v", info, err)
	}
	vacate(t, l)
	vacate(t, r3.lease(t))
	for _, q := range []*queuer{r1, r2, w, r3} {
		q.leave(t)
	}
}

func slotsAtOnce(t *testing.T, p place) {
	t.Helper()
	a := newSemaphore(t, p.open(t), "slots/try", 3, &semaphore.Options{Holder: "a"})
	b := newSemaphore(t, p.open(t), "slots/try", 3, &semaphore.Options{Holder: "b"})
	held, err := a.TryAcquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.TryAcquire(t.Context(), 2)
	if who, is := errors.AsType[*leasehold.HeldError](err); !is || who.Info.Holders[0].Holder != "a" || len(who.Info.Waiters) != 0 {
		t.Errorf("there is one slot, and two are wanted: %v", err)
	}
	other, err := b.TryAcquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	vacate(t, held)
	if held, err = b.TryAcquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	vacate(t, held)
	vacate(t, other)
	for _, s := range []*semaphore.Semaphore{a, b} {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
