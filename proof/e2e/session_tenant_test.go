package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// tenantVariable makes this binary a tenant in place of the tests.
const tenantVariable = "LEASEHOLD_TEST_TENANT"

// A tenancy is what a process that has one session has to know.
type tenancy struct {
	URL, Holder string
	Locks       int // URL/00000 and so on
	TTL         time.Duration
}

// A tenure is one lease, as its holder knows it, by the clock that all processes share.
type tenure struct {
	Key   string
	Token leasehold.Token
	From  time.Duration // it was held by then
	Until time.Duration // and was last seen to be valid
}

// An account is what a tenant says, one line of JSON for each.
type account struct {
	Of         string // the command that it answers; "": a lease that was waited for came
	Session    string
	At         time.Duration // before the command was done
	Took       time.Duration
	Leases     []tenure
	Heap       int // bytes, after a collection
	Goroutines int
	Valid      int // leases
	Error      string
}

// A household is what a tenant has.
type household struct {
	tenancy
	st      store.Store
	key     string
	session *leasehold.Session
	locks   []*leasehold.Lock

	mu   sync.Mutex
	held map[*leasehold.Lease]time.Duration // since when
	out  *json.Encoder

	waiting sync.WaitGroup
	stop    context.CancelFunc // of waiting
}

// tenant is a process that holds its leases under one session, and does what its stdin
// says.
func tenant(config string) error {
	h := &household{held: map[*leasehold.Lease]time.Duration{}, out: json.NewEncoder(os.Stdout), stop: func() {}}
	if err := json.Unmarshal([]byte(config), &h.tenancy); err != nil {
		return err
	}
	ctx := context.Background()
	st, key, err := storeurl.OpenLock(ctx, h.URL)
	if err != nil {
		return err
	}
	h.st, h.key = st, key
	h.session, err = leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: h.TTL, Holder: h.Holder})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer := account{Of: lines.Text(), Session: h.session.Key(), At: clock.Now()}
		if err := h.obey(ctx, &answer); err != nil {
			answer.Error = err.Error()
		}
		answer.Took = clock.Now() - answer.At
		h.say(answer)
	}
	return lines.Err()
}

func (h *household) obey(ctx context.Context, answer *account) error {
	switch answer.Of {
	case "hold": // all of the locks, at once
		if err := h.make(nil); err != nil {
			return err
		}
		leases, err := multilock.AcquireAll(ctx, h.locks)
		for _, lease := range leases {
			answer.Leases = append(answer.Leases, h.got(lease))
		}
		return err
	case "want": // all of the locks, and go on
		return h.want(ctx)
	case "want no more":
		h.stop()
		h.waiting.Wait()
		return nil
	case "look":
		for lease := range h.held {
			if lease.Valid() {
				answer.Valid++
			}
		}
		runtime.GC()
		runtime.GC() // what lay in pools is there for one more
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		answer.Heap, answer.Goroutines = int(m.HeapAlloc), runtime.NumGoroutine()
		return nil
	case "end":
		var err error
		answer.Leases, err = h.end(ctx)
		return err
	}
	return fmt.Errorf("what is %q?", answer.Of)
}

// make makes the locks. waits is told that the wait for one has begun.
func (h *household) make(waits func(key string)) error {
	for i := range h.Locks {
		opts := &leasehold.LockOptions{TTL: h.TTL, Holder: h.Holder, Layout: underTest.Layout, NoIfMatch: underTest.NoIfMatch, Session: h.session}
		if waits != nil {
			opts.Trace = &locktrace.Trace{Waiting: func(_ context.Context, e locktrace.Waiting) { waits(e.Key) }}
		}
		lock, err := leasehold.NewLock(h.st, fmt.Sprintf("%s/%05d", h.key, i), opts)
		if err != nil {
			return err
		}
		h.locks = append(h.locks, lock)
	}
	return nil
}

func (h *household) say(a account) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.out.Encode(a)
}

func (h *household) got(lease *leasehold.Lease) tenure {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := clock.Now()
	h.held[lease] = now
	return tenure{Key: lease.Key(), Token: lease.Token(), From: now}
}

// want returns when each wait has begun. So many waits begin at a time as AcquireAll
// sends requests.
func (h *household) want(ctx context.Context) error {
	ctx, h.stop = context.WithCancel(ctx)
	const abreast = 32
	gate := make(chan struct{}, abreast)
	begun := map[string]func(){}
	if err := h.make(func(key string) { begun[key]() }); err != nil {
		return err
	}
	for _, lock := range h.locks {
		begun[lock.Key()] = sync.OnceFunc(func() { <-gate })
	}
	for _, lock := range h.locks {
		gate <- struct{}{}
		h.waiting.Go(func() {
			lease, err := lock.Acquire(ctx)
			begun[lock.Key()]()
			switch {
			case err == nil:
				h.say(account{Session: h.session.Key(), Leases: []tenure{h.got(lease)}})
			case !errors.Is(err, context.Canceled):
				h.say(account{Session: h.session.Key(), Error: err.Error()})
			}
		})
	}
	for range abreast {
		gate <- struct{}{}
	}
	return nil
}

// end closes the session in order: its leases end, their work stops, and they are
// released.
func (h *household) end(ctx context.Context) (leases []tenure, err error) {
	var all []*leasehold.Lease
	for lease, from := range h.held {
		now := clock.Now()
		if !lease.Valid() {
			now = 0
		}
		leases = append(leases, tenure{lease.Key(), lease.Token(), from, now})
		all = append(all, lease)
	}
	closed := make(chan error)
	go func() { closed <- h.session.Close(ctx) }()
	<-h.session.Done()
	for _, lease := range all {
		if lease.Valid() || lease.Context().Err() == nil {
			err = fmt.Errorf("the lease of %s is valid when its session is closed", lease.Key())
		}
	}
	if lost := multilock.ReleaseAll(ctx, all); !errors.Is(lost, leasehold.ErrLost) && len(all) > 0 {
		err = errors.Join(err, fmt.Errorf("a release after the end of the session: %w", lost))
	}
	return leases, errors.Join(err, <-closed)
}
