package leasevault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/sdk/physical"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasevault "github.com/leasehold/leasehold/adapter/vault"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

func backend(t testing.TB, st store.Store) *leasevault.Backend {
	t.Helper()
	b, err := leasevault.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func lockWith(t testing.TB, b *leasevault.Backend, value string) physical.Lock {
	t.Helper()
	l, err := b.LockWith("core/lock", value)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRow runs the SDK's exercises everywhere.
func TestRow(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		b, other := backend(t, p.Open(t)), backend(t, p.Open(t))
		physical.ExerciseHABackend(t, b, other)
		physical.ExerciseBackend(t, b) // where locks lie, no entry is seen
		physical.ExerciseBackend_ListPrefix(t, b)
	})
	row := adaptertest.Row{
		Module: "github.com/hashicorp/vault/sdk",
		Ran:    []string{"physical.ExerciseBackend", "physical.ExerciseBackend_ListPrefix", "physical.ExerciseHABackend"},
		LeftOut: map[string]string{
			"physical.ExerciseTransactionalBackend": "object storage cannot write several objects at once",
		},
	}
	if !t.Failed() {
		row.Passed = len(row.Ran)
	}
	row.Check(t)
}

// TestStop: the channel ends a wait, nothing of which is left.
func TestStop(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := lockWith(t, backend(t, st), "a"), lockWith(t, backend(t, st), "b")
		if lost, err := a.Lock(nil); lost == nil || err != nil {
			t.Fatal(lost, err)
		}
		if lost, err := a.Lock(nil); lost != nil || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("a second time: %v, %v", lost, err)
		}
		for range 2 { // in the middle of a wait, and before it
			stop := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(stop) })
			began := time.Now()
			if lost, err := b.Lock(stop); lost != nil || err != nil || time.Since(began) != time.Minute {
				t.Errorf("stopped after %v: %v, %v", time.Since(began), lost, err)
			}
		}
		if err := errors.Join(b.Unlock(), a.Unlock(), a.Unlock()); err != nil {
			t.Error(err)
		}
		if held, value, err := b.Value(); held || value != "" || err != nil {
			t.Errorf("%v, %q, %v", held, value, err)
		}
		for range 2 { // a Lock can be used again
			lost, err := a.Lock(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err = a.Unlock(); err != nil {
				t.Error(err)
			}
			<-lost
		}
	})
}

// TestLoss: the channel of a server that is cut off closes before another has the lock.
func TestLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		cut := faultstore.Wrap(inner, nil)
		a, b := lockWith(t, backend(t, cut), "a"), lockWith(t, backend(t, inner), "b")
		lost, err := a.Lock(nil)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		var both sync.WaitGroup
		both.Go(func() { <-lost; note("a has lost it") })
		both.Go(func() {
			if _, err := b.Lock(nil); err != nil {
				t.Error(err)
			}
			note("b has it")
		})
		time.Sleep(time.Minute)
		cut.Partition(true)
		both.Wait()
		if want := []string{"a has lost it", "b has it"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		cut.Partition(false)
		if err := a.Unlock(); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("Unlock of a lock that was lost: %v", err)
		}
		if held, value, err := a.Value(); !held || value != "b" || err != nil {
			t.Errorf("%v, %q, %v", held, value, err)
		}
		if err := b.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// An answering store loses the answer to each second write, as a connection that breaks does.
type answering struct {
	store.Store
	writes int
}

func (a *answering) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := a.Store.Put(ctx, key, body, only)
	if a.writes++; err == nil && a.writes%2 == 1 {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
	}
	return o, err
}

// TestPut: a write lands whatever rivals do, and although answers are lost; and the same value is never the same body,
// which a late write could land over.
func TestPut(t *testing.T) {
	ctx, st := t.Context(), memstore.New()
	b, lossy := backend(t, st), backend(t, &answering{Store: st})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			if err := b.Put(ctx, &physical.Entry{Key: "k", Value: fmt.Append(nil, i)}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	var versions []store.Version
	for range 3 {
		if err := lossy.Put(ctx, &physical.Entry{Key: "k", Value: []byte("v")}); err != nil {
			t.Error(err)
		}
		for e, err := range st.List(ctx, "", "") {
			if err != nil || slices.Contains(versions, e.Version) {
				t.Errorf("%v, again a version of %v: %v", e.Version, versions, err)
			}
			versions = append(versions, e.Version)
		}
	}
	if e, err := b.Get(ctx, "k"); err != nil || string(e.Value) != "v" {
		t.Errorf("%v, %v", e, err)
	}
	large := &physical.Entry{Key: "large", Value: bytes.Repeat([]byte("v"), store.MaxBody)}
	if err := b.Put(ctx, large); !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), physical.ErrValueTooLarge) {
		t.Error(err)
	}
	large.Value = large.Value[17:]
	if err := b.Put(ctx, large); err != nil {
		t.Error(err)
	}
	if _, err := st.Put(ctx, "data/foreign=", nil, store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if e, err := b.Get(ctx, "foreign"); e != nil || err == nil {
		t.Errorf("%v, %v", e, err)
	}
}

// TestNames: any name that can be kept is one of its own, of entries and of locks; others are refused.
func TestNames(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx, b := t.Context(), backend(t, p.Open(t))
		keys := []string{"a", "a/b", "a/b/c", "a+", "a=", "a+/b", "a=/b", "a%2Fb", "..", "../a", "./a", "a//b", "a/", "a\x00b", "é", "\xff", " "}
		for _, key := range keys {
			if err := b.Put(ctx, &physical.Entry{Key: key, Value: []byte(key)}); err != nil {
				t.Errorf("%q: %v", key, err)
			}
		}
		var locks []physical.Lock
		for _, key := range keys {
			if e, err := b.Get(ctx, key); err != nil || e == nil || string(e.Value) != key {
				t.Errorf("%q: %v, %v", key, e, err)
			}
			l, err := b.LockWith(key, "server")
			if err != nil {
				t.Fatal(err)
			}
			if key == ".." { // no store has such a segment
				if lost, err := l.Lock(nil); lost != nil || err == nil {
					t.Errorf("%q: %v, %v", key, lost, err)
				}
				continue
			}
			if lost, err := l.Lock(nil); lost == nil || err != nil {
				t.Errorf("%q: %v, %v", key, lost, err)
			}
			locks = append(locks, l)
		}
		if l, err := b.LockWith("text", "\xff"); err != nil {
			t.Error(err)
		} else if lost, err := l.Lock(nil); lost != nil || err == nil { // a record is UTF-8
			t.Errorf("%v, %v", lost, err)
		}
		for _, l := range locks {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}
		for prefix, want := range map[string][]string{
			"a":  {"", "/", "b", "b/"},
			"a/": {"", "/", "b", "b/"},
			"a+": {"b"}, "..": {"a"}, "": {" ", ".", "..", "../", "./", "a", "a+", "a+/", "a/", "a=", "a=/", "a%2Fb", "a\x00b", "é", "\xff"},
		} {
			got, err := b.List(ctx, prefix)
			want = slices.DeleteFunc(want, func(name string) bool { return name == "." })
			slices.Sort(want)
			if slices.Sort(got); err != nil || !slices.Equal(got, want) {
				t.Errorf("List(%q): %q, %v, want %q", prefix, got, err, want)
			}
		}
		long := strings.Repeat("k", 1000)
		if err := b.Put(ctx, &physical.Entry{Key: long}); !errors.Is(err, store.ErrInvalid) {
			t.Error(err)
		}
		l, err := b.LockWith(long, "v")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = l.Lock(nil); err == nil || len(err.Error()) > 2000 {
			t.Error(err)
		}
		if _, _, err = l.Value(); err == nil {
			t.Error("there is a lock with a name that no store can keep")
		}
		if l, err = b.LockWith("", "v"); err != nil {
			t.Fatal(err)
		}
		if lost, err := l.Lock(nil); lost != nil || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, %v", lost, err)
		}
	})
}

// TestRounds: a server works until the channel of its lock is closed.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		b, err := leasevault.New(st, &leasehold.LockOptions{TTL: adaptertest.TTL})
		if err != nil {
			t.Fatal(err)
		}
		l := lockWith(t, b, name)
		stopped, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				lost, err := l.Lock(stopped)
				if err == nil && lost == nil {
					return // it was stopped
				}
				if err != nil {
					continue
				}
				ctx, cancel := context.WithCancel(context.Background())
				go func() { <-lost; cancel() }()
				work(ctx)
				_ = l.Unlock()
			}
		}()
		return func() {
			close(stopped)
			<-done
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReadme: the program in the README is the example, which is run.
func TestReadme(t *testing.T) { adaptertest.Readme(t, "example_test.go") }
