// Package leasetest has what the tests of several packages need to take locks: virtual time,
// leases that must come and go, and looks at what lies in a store.
package leasetest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
	_ "github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// Slept is how long the machine of a bubble was suspended: the clock has counted it, and no
// timer has.
var Slept atomic.Int64

// Bubble runs f in virtual time, which the clock of leases follows. Whatever f leaves running
// fails the test. What the default logger gets is part of the test's log.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Setenv("VIRTUAL_CLOCK", "1") // panics in a parallel test: others would read its clock
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Slept.Store(0)
		// The clock stays virtual until the last Cleanup has run, because cleanups close locks.
		t.Cleanup(clock.Set(func() time.Duration {
			return time.Since(start) + time.Duration(Slept.Load()) + time.Hour
		}))
		LogByDefault(t, t.Output())
		f(t)
	})
}

// LogByDefault has the default logger write to w until the end of the test.
func LogByDefault(t *testing.T, w io.Writer) {
	t.Helper()
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out) // which SetDefault has changed
		log.SetFlags(flags)
	})
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
}

// Log is a log that may be read while it is written. What a timer logs is in no order with a
// test that has read the log before: of a plain buffer that is a data race.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A Way is how a lock is stored.
type Way struct {
	Layout    leasehold.Layout
	NoIfMatch bool
}

// The ways that there are.
var (
	Object          = Way{Layout: leasehold.LayoutObject}
	Epochs          = Way{Layout: leasehold.LayoutEpochs}
	EpochsNoIfMatch = Way{leasehold.LayoutEpochs, true}
	Marker          = Way{Layout: leasehold.LayoutMarker}
	MarkerNoIfMatch = Way{leasehold.LayoutMarker, true}

	Ways = []Way{Object, Epochs, EpochsNoIfMatch, Marker, MarkerNoIfMatch}
)

func (w Way) String() string { return layout.Way(string(w.Layout), w.NoIfMatch) }

// ParseWay undoes String.
func ParseWay(name string) Way {
	l, noIfMatch := layout.SplitWay(name)
	return Way{leasehold.Layout(l), noIfMatch}
}

// Options are those of a lock that is stored in this way.
func (w Way) Options() *leasehold.LockOptions {
	return &leasehold.LockOptions{Layout: w.Layout, NoIfMatch: w.NoIfMatch}
}

// URL returns a store's URL with which commands store their locks in this way.
func (w Way) URL(store string) string {
	switch {
	case !w.NoIfMatch:
		return store
	case strings.Contains(store, "?"):
		return store + "&if_match=false"
	}
	return store + "?if_match=false"
}

// Args returns a command's arguments, in which the URLs before "--" are those of locks in this way.
func (w Way) Args(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if strings.Contains(arg, "://") && !strings.Contains(arg, "if_match=") {
			args[i] = w.URL(arg)
		}
	}
	return args
}

// UnderTest returns the way that tests of commands run over: LEASEHOLD_LAYOUT, which is the default of
// commands too, and without If-Match if LEASEHOLD_TEST_NO_IF_MATCH is set.
func UnderTest() Way {
	return Way{leasehold.Layout(cmp.Or(os.Getenv("LEASEHOLD_LAYOUT"), string(leasehold.LayoutObject))), os.Getenv("LEASEHOLD_TEST_NO_IF_MATCH") != ""}
}

// Tokens reports whether its leases have tokens.
func (w Way) Tokens() bool { return w.Layout.Tokens() }

// Renews reports whether its leases are renewed.
func (w Way) Renews() bool { return w != MarkerNoIfMatch }

// Here is the way that a test runs over: see layout.Default.
func Here() Way { return ParseWay(layout.Default) }

// SetHere changes it, and returns a function that changes it back.
func SetHere(w Way) (undo func()) {
	before := layout.Default
	layout.Default = w.String()
	return func() { layout.Default = before }
}

// HasEpochs reports whether that makes an object for each acquisition.
func HasEpochs() bool { return Here().Layout == leasehold.LayoutEpochs }

// EveryWay runs tests over all other ways.
func EveryWay(t *testing.T, tests []func(*testing.T)) {
	t.Helper()
	for _, w := range Ways {
		if w == Here() {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			if times == 1 && (w == Epochs || w == Marker) {
				t.Skip("differs from the same layout without If-Match in few writes: make layouts runs it")
			}
			defer SetHere(w)()
			for _, test := range tests {
				name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
				t.Run(name[strings.LastIndex(name, ".Test")+len(".Test"):], test)
			}
		})
	}
}

// Needs leaves a test out that makes no sense over a layout.
func Needs(t *testing.T, ok bool, reason string) {
	t.Helper()
	if !ok {
		t.Skip(reason)
	}
}

// Patient returns options with which a candidate takes over from a dead holder. Markers that cannot be
// overwritten must be swept for that.
func Patient(o leasehold.LockOptions) *leasehold.LockOptions {
	o.Sweep = Here() == MarkerNoIfMatch
	return &o
}

// Acquire acquires a lock, whose lease must be valid then.
func Acquire(t *testing.T, lock *leasehold.Lock) *leasehold.Lease {
	t.Helper()
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Valid() || lease.Err() != nil || lease.Context().Err() != nil {
		t.Fatalf("the lease is not valid: %v", lease.Err())
	}
	return lease
}

// Lead waits until a campaigning candidate leads. If ctx ends first, it returns ctx.Err().
func Lead(ctx context.Context, e *leasehold.Election) error {
	for range e.Observe(ctx) {
		if e.IsLeader() {
			return nil
		}
	}
	return ctx.Err()
}

// Release releases a lease, which must be over then.
func Release(t *testing.T, lease *leasehold.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lease.Valid() || !errors.Is(lease.Err(), leasehold.ErrReleased) || lease.Context().Err() == nil {
		t.Fatalf("the lease goes on after its release: %v", lease.Err())
	}
}

// RecordIn returns the record under a key.
func RecordIn(t *testing.T, st store.Store, key string) record.Record {
	t.Helper()
	obj, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.DecodeIn(record.AnyLayout, obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Objects are the keys of all that there is.
func Objects(t *testing.T, st store.Store) (keys []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

// RequestsFor counts what was sent about one object.
func RequestsFor(st *faultstore.Store, key string) (n int) {
	for _, e := range st.Log() {
		if e.Key == key {
			n++
		}
	}
	return n
}

// Held returns those of the locks that are held.
func Held(t *testing.T, st store.Store, keys ...string) (held []string) {
	t.Helper()
	for _, key := range keys {
		lock, err := leasehold.NewLock(st, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := lock.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Held {
			held = append(held, key)
		}
	}
	return held
}

// EndSession releases the leases under a session, and then closes it. The session may be lost.
func EndSession(t *testing.T, s *leasehold.Session) {
	t.Helper()
	if err := multilock.ReleaseAll(t.Context(), s.Leases()); err != nil && !errors.Is(err, leasehold.ErrLost) {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
		t.Error(err)
	}
}

// CloseSession closes a session before its leases are released, so that their records still name it.
func CloseSession(t *testing.T, s *leasehold.Session) {
	t.Helper()
	leases := s.Leases()
	closed := make(chan error)
	go func() { closed <- s.Close(t.Context()) }()
	select {
	case <-s.Done():
	case <-time.After(time.Hour):
		t.Fatal("the session does not end")
	}
	for _, lease := range leases {
		_ = lease.Release(t.Context()) // it is lost
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
