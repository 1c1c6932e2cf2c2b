package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A words is a network over which processes tell each other of changes.
type words struct {
	mu   sync.Mutex
	at   map[string]interface{ Changed(store.Version) } // by address
	said []string
	take time.Duration // for how long each word is on its way
	err  error         // what becomes of each
}

// options are those of a process, which hears at its name if there are peers.
//
//nolint:unparam // the runs at length have no peers too
func (w *words) options(peers bool, name string) *semaphore.Options {
	opts := &semaphore.Options{Holder: name}
	if peers {
		opts.Peers, opts.Address = w, name
	}
	return opts
}

func (w *words) join(name string, l interface{ Changed(store.Version) }) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = map[string]interface{ Changed(store.Version) }{}
	}
	w.at[name] = l
}

func (w *words) Changed(ctx context.Context, address, key string, version store.Version) error {
	select {
	case <-time.After(w.take):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	to := w.at[address]
	w.said = append(w.said, address+" "+key)
	w.mu.Unlock()
	if to == nil || w.err != nil {
		return errors.Join(errors.New("nobody hears"), w.err)
	}
	to.Changed(version)
	return nil
}

// Whoever joins tells the holder, and whoever leaves the process that has the slot now, and nobody else; that one looks
// at once. A word that does not arrive costs time, and each process complains of it once.
func TestPeers(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		net := &words{take: 5 * time.Millisecond}
		var logged leasetest.Log
		locks := map[string]*semaphore.Lock{}
		for _, name := range []string{"a", "b", "c"} {
			opts := net.options(true, name)
			opts.TTL, opts.Logger = time.Hour, slog.New(slog.NewTextHandler(&logged, nil))
			l, err := semaphore.NewLock(st, "slots", opts)
			if err != nil {
				t.Fatal(err)
			}
			locks[name] = l
			net.join(name, l)
		}
		next := func(name string) chan *leasehold.Lease {
			got := make(chan *leasehold.Lease, 1)
			go func() {
				l, err := locks[name].Acquire(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			time.Sleep(time.Minute)
			return got
		}
		held := <-next("a")
		b, c := next("b"), next("c")
		time.Sleep(2 * time.Hour) // by now the head looks every ten seconds, and no more seldom later
		began := time.Now()
		released(t, held)
		lease := <-b
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("it heard after %v", took)
		}
		time.Sleep(net.take) // a look of its own may have come first
		if fmt.Sprint(net.said) != "[a slots a slots b slots]" {
			t.Errorf("said: %q", net.said)
		}
		// A liar is heeded once until the table changes.
		before := st.Counts().Get
		for range 1000 {
			locks["c"].Changed("a lie")
		}
		time.Sleep(time.Millisecond)
		if looks := st.Counts().Get - before; looks > 2 {
			t.Errorf("1000 lies made it look %d times", looks)
		}
		// Nobody hears any more.
		net.err = errors.New("the network is down")
		released(t, lease)
		lease = <-c
		a := next("a")
		released(t, lease)
		lease, c = <-a, next("c") // which has complained of this address, as a has of c's
		released(t, lease)
		released(t, <-c)
		closed(t, locks["a"], locks["b"], locks["c"])
		if n := strings.Count(logged.String(), "finds out by looking"); n != 3 || !strings.Contains(logged.String(), "the network is down") {
			t.Errorf("logged %d times: %s", n, logged.String())
		}
	})
}

// Close waits for the words that are on their way, or the process that has the slot would look for it.
func TestCloseWaitsForWords(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := &words{take: 2 * time.Second}
		a := newSemaphore(t, st, 1, net.options(true, "a"))
		b := newSemaphore(t, st, 1, net.options(true, "b"))
		net.join("b", b)
		held := acquired(t, a, 1)
		got := make(chan *leasehold.Lease)
		go func() { got <- acquired(t, b, 1) }()
		time.Sleep(time.Minute)
		released(t, held)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed: %v", err)
		}
		closed(t, a)
		if fmt.Sprint(net.said) != "[a slots b slots]" {
			t.Errorf("said: %q", net.said)
		}
		released(t, <-got)
		closed(t, b)
	})
}

// slowly brings each word in so many seconds, by address.
type slowly map[string]time.Duration

func (s slowly) Changed(_ context.Context, address, _ string, _ store.Version) error {
	time.Sleep(s[address] * time.Second)
	return nil
}

// Close waits for the last of several words that are on their way.
func TestCloseWaitsForAllWords(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := slowly{"b": 1, "c": 3}
		all := map[string]*semaphore.Semaphore{}
		for _, name := range []string{"a", "b", "c"} {
			all[name] = newSemaphore(t, st, 2, &semaphore.Options{Holder: name, Peers: net, Address: name})
		}
		held := acquired(t, all["a"], 2)
		var turns sync.WaitGroup
		for _, name := range []string{"b", "c"} {
			turns.Go(func() { released(t, acquired(t, all[name], 1)) })
			time.Sleep(time.Minute)
		}
		released(t, held)
		began := time.Now()
		closed(t, all["a"])
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		turns.Wait()
		closed(t, all["b"], all["c"])
	})
}

// Close waits for a process that does not answer for as long as for a request, whatever time it has.
func TestCloseBesideADeafPeer(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := &words{take: 24 * time.Hour}
		a := newSemaphore(t, st, 1, net.options(true, "a"))
		b := newSemaphore(t, st, 1, net.options(true, "b"))
		held := acquired(t, a, 1)
		got := make(chan *leasehold.Lease)
		go func() { got <- acquired(t, b, 1) }()
		time.Sleep(time.Minute)
		released(t, held)
		began := time.Now()
		closed(t, a)
		if took := time.Since(began); took > protocol.MaxRequest {
			t.Errorf("it took %v", took)
		}
		released(t, <-got)
		closed(t, b)
	})
}

// A holder that hears of those who join looks while it holds, and not for each of many, so its release is one write.
// That such a look fails is no trouble of its user's, and then the release looks.
func TestHolderLooksAhead(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const many = 25
		var fails atomic.Bool
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.DelayAfter, Delay: 10 * time.Millisecond},
		}})
		ours := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.Unavailable, Op: "get", Key: "slots", When: func(faultstore.Call) bool { return fails.Load() }},
		}})
		net := &words{take: time.Millisecond}
		opts := net.options(true, "holder")
		opts.TTL, opts.Trace = time.Hour, leasetest.OnTrouble(func(err error) { t.Errorf("told of %v", err) })
		l, err := semaphore.NewLock(ours, "slots", opts)
		if err != nil {
			t.Fatal(err)
		}
		net.join("holder", l)
		hold := func() *leasehold.Lease {
			lease, err := l.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		sent := func() (all int) {
			for _, e := range ours.Log() {
				if e.Key == "slots" {
					all++
				}
			}
			return all
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		come := func(n int) {
			for i := range n {
				name := fmt.Sprint(i)
				opts := net.options(true, name)
				opts.TTL = time.Hour
				other, err := semaphore.NewLock(st, "slots", opts)
				if err != nil {
					t.Fatal(err)
				}
				net.join(name, other)
				all.Go(func() {
					if lease, err := other.Acquire(ctx); err == nil {
						released(t, lease) //nolint:contextcheck // it is to be released when ctx has ended, too
					}
					closed(t, other) //nolint:contextcheck // and so is this
				})
			}
		}
		lease, before := hold(), sent()
		come(many)
		time.Sleep(time.Minute)
		if looks, words := sent()-before, len(net.said); words < many || looks > 4 {
			t.Errorf("it looked %d times for %d words", looks, words)
		}
		before = sent()
		released(t, lease)
		if n := sent() - before; n != 1 {
			t.Errorf("its release sent %d requests", n)
		}
		giveUp()
		all.Wait()

		lease = hold()
		ctx = t.Context()
		fails.Store(true)
		before = sent()
		come(1)
		time.Sleep(time.Hour)
		if looks := sent() - before; looks != 1 {
			t.Errorf("it looked %d times while the store fails", looks)
		}
		fails.Store(false)
		before = sent()
		released(t, lease)
		if n := sent() - before; n != 2 {
			t.Errorf("its release sent %d requests", n)
		}
		all.Wait()
		closed(t, l)
	})
}

// An address that is not for a queue of many is refused, and only where entries would carry it.
func TestLongAddress(t *testing.T) {
	t.Parallel()
	opts := (&words{}).options(true, strings.Repeat("x", 513))
	opts.Holder = "h"
	if _, err := semaphore.New(memstore.New(), "slots", 1, opts); err == nil || !strings.Contains(err.Error(), "513 bytes, more than 512") {
		t.Errorf("made: %v", err)
	}
	opts.Address = strings.Repeat("x", 512)
	if _, err := semaphore.New(memstore.New(), "slots", 1, opts); err != nil {
		t.Error(err)
	}
	opts.Peers, opts.Address = nil, strings.Repeat("x", 513)
	if _, err := semaphore.New(memstore.New(), "slots", 1, opts); err != nil {
		t.Error(err)
	}
}
