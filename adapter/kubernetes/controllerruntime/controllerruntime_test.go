package leasemanager_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasehold/leasehold"
	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	leasemanager "github.com/leasehold/leasehold/adapter/kubernetes/controllerruntime"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// TestRow: controller-runtime's own specs of its managers pass when Elect has each manager with leader election elected.
func TestRow(t *testing.T) {
	const (
		isLease  = "the adapter's lock is not a LeaseLock"
		noServer = "it reads events from an API server"
	)
	leftOut := map[string]string{
		"should default to LeasesResourceLock":                                                        isLease,
		"should use the specified ResourceLock":                                                       isLease,
		"should set the leaselocks's label field when LeaderElectionLabels is set":                    isLease,
		"should use the custom LeaderElectionResourceLockInterface":                                   "it compares pointers, and Elect wraps the lock",
		"should return an error if leader election param incorrect":                                   "Elect sets the parameters",
		"should not leak goroutines if the default event broadcaster is used & events are emitted":    noServer,
		"should not leak goroutines if the deprecated event broadcaster is used & events are emitted": noServer,
	}
	t.Setenv("LEFT_OUT", strings.Join(slices.Collect(maps.Keys(leftOut)), "\n")) // read by manager_suite_test.go
	results := adaptertest.Upstream{
		Package: "sigs.k8s.io/controller-runtime/pkg/manager", Dir: "testdata/upstream", Run: ".", Subtests: true,
		Files: map[string]string{
			"manager_suite_test.go": "testdata/manager_suite_test.go",
			"ours_test.go":          "testdata/ours_test.go",
		},
		Edits: []adaptertest.Edit{{
			File: "manager.go", Old: "\t// Create the metrics server.\n",
			New: "\tif resourceLock != nil {\n\t\tresourceLock = Ours(&options, resourceLock)\n\t}\n\n",
		}, {
			File: "manager.go", Old: "// New returns a new Manager for",
			New: "var Ours func(*Options, resourcelock.Interface) resourcelock.Interface\n\n// New returns a new Manager for",
		}},
	}.Test(t)
	for _, spec := range []string{
		"should be called before leader election runnables if warmup is enabled",
		"should not leak goroutines when manager is stopped with warmup runnable and with leader election enabled",
	} {
		leftOut["pkg/internal/controller: "+spec] = "it starts an API server; specs in pkg/manager cover such elections"
	}
	adaptertest.Row{Module: "sigs.k8s.io/controller-runtime", Ran: results.Ran, Passed: results.Passed, LeftOut: leftOut}.Check(t)
}

func candidate(t testing.TB, st store.Store, name string, ttl time.Duration) *leasekubernetes.Lock {
	t.Helper()
	lock, err := leasekubernetes.New(st, "contended", &leasehold.LockOptions{TTL: ttl}, resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lock
}

// run runs a manager with the work as its Runnable, and returns when that has returned too. The API server's address is
// one that nothing is sent to.
func run(ctx context.Context, t testing.TB, lock *leasekubernetes.Lock, options manager.Options, work func(context.Context)) error {
	t.Helper()
	options.Metrics = server.Options{BindAddress: "0"}
	leasemanager.Elect(&options, lock)
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, options)
	if err != nil {
		t.Error(err)
		return err
	}
	var mu sync.Mutex // held by the work
	if err = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		work(ctx)
		return nil
	})); err != nil {
		t.Error(err)
		return err
	}
	err = m.Start(ctx)
	mu.Lock()
	defer mu.Unlock()
	return err
}

// TestRounds: the context of a Runnable ends before another manager's begins.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		lock := candidate(t, st, name, adaptertest.TTL)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				err := run(ctx, t, lock, manager.Options{LeaderElectionReleaseOnCancel: true}, func(ctx context.Context) {
					work(ctx)
					if ctx.Err() == nil {
						cancel()
					}
				})
				if err != nil && !strings.Contains(err.Error(), "leader election lost") {
					t.Error(err)
				}
			}
		}()
		return func() {
			cancel()
			<-done
		}
	})
}

// TestLoss: when the lease is lost the Runnable's context ends with it as its cause, and the manager with an error.
func TestLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		lock := candidate(t, st, "a", 12*time.Second)
		type key struct{}
		base := func() context.Context { return context.WithValue(context.Background(), key{}, "ours") }
		err := run(t.Context(), t, lock, manager.Options{BaseContext: base}, func(ctx context.Context) {
			if ctx.Value(key{}) != "ours" {
				t.Error("the BaseContext is not the parent")
			}
			lock.Lease().Abandon(nil)
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took != 0 {
				t.Errorf("the context of the Runnable goes on for %v", took)
			}
		})
		if err == nil || err.Error() != "leader election lost" {
			t.Error(err)
		}
	})
}

// TestRelease: a manager that is shut down frees the lock when its Runnables have returned, however long they take.
func TestRelease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := candidate(t, st, "a", 12*time.Second), candidate(t, st, "b", 12*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var ended time.Time
		err := run(ctx, t, a, manager.Options{LeaderElectionReleaseOnCancel: true}, func(ctx context.Context) {
			cancel()
			<-ctx.Done()
			time.Sleep(time.Minute)
			if ended = time.Now(); !a.Lease().Valid() {
				t.Error("the lease has ended before the Runnable")
			}
		})
		if err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		if err = run(ctx, t, b, manager.Options{}, func(context.Context) { cancel() }); err != nil {
			t.Error(err)
		}
		if took := time.Since(ended); took > 2*time.Second {
			t.Errorf("another leads %v after the Runnable has ended", took)
		}
	})
}

// TestReadme: the program in the README is the Example.
func TestReadme(t *testing.T) { adaptertest.Readme(t, "example_test.go") }
