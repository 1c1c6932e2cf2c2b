package leasetusd_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tusstore "github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasetusd "github.com/leasehold/leasehold/adapter/tusd"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// open makes a locker that is closed when the test ends.
func open(t testing.TB, st store.Store, o leasetusd.Options) *leasetusd.Locker {
	t.Helper()
	l, err := leasetusd.New(st, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func newLock(t testing.TB, l *leasetusd.Locker, id string) handler.Lock {
	t.Helper()
	lock, err := l.NewLock(id)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// never is for a lock that nobody else is to want.
func never(t testing.TB) func() {
	t.Helper()
	return func() { t.Error("a request is told to stop, and nobody wants its upload") }
}

// A request that waits on another server has the holder stop: within Look, and it has the upload at once when that lets
// go. What requests this costs is what the README says.
func TestWishReachesTheOtherServer(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var reads, writes atomic.Int32
		st := &brokenstore.Store{Store: memstore.New()}
		a, b := open(t, st, leasetusd.Options{}), open(t, st, leasetusd.Options{})
		held, other := newLock(t, a, "up+load"), newLock(t, b, "up+load")
		st.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			reads.Add(1)
			return st.Store.Get(ctx, key, unless)
		}
		st.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			writes.Add(1)
			return st.Store.Put(ctx, key, body, only)
		}
		if err := errors.Join(held.Lock(t.Context(), never(t)), held.Unlock()); err != nil {
			t.Fatal(err)
		}
		if reads.Load() > 1 || writes.Load() != 2 {
			t.Errorf("a short request costs %d reads and %d writes, want 1 and 2", reads.Load(), writes.Load())
		}
		told := make(chan time.Time, 1)
		if err := held.Lock(t.Context(), func() { told <- time.Now() }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of heartbeats and looks
		if len(told) > 0 {
			t.Fatal("it is told to stop, and nobody wants its upload")
		}
		came := time.Now()
		go func() {
			at := <-told
			if took := at.Sub(came); took > 1100*time.Millisecond {
				t.Errorf("it hears of the wish after %v", took)
			}
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
		}()
		if err := other.Lock(t.Context(), never(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(came); took > 2*time.Second {
			t.Errorf("the other server has the upload after %v", took)
		}
		t.Logf("the other server has the upload after %v", time.Since(came))
		if err := other.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
}

// A wait that ends says that it timed out, and by whom the upload is held; the wish in one process is told at once.
func TestTimeout(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		l := open(t, memstore.New(), leasetusd.Options{})
		told := false
		held := newLock(t, l, "u")
		if err := held.Lock(t.Context(), func() { told = true }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := newLock(t, l, "u").Lock(ctx, never(t))
		var said handler.Error
		if !errors.Is(err, handler.ErrLockTimeout) || !errors.As(err, &said) || !errors.Is(err, context.DeadlineExceeded) || !told {
			t.Errorf("%v, told %t", err, told)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := newLock(t, l, "u").Lock(ctx, never(t)); !errors.Is(err, handler.ErrLockTimeout) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("it does not say that the upload is held: %v", err)
		}
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := held.Unlock(); err == nil {
			t.Error("it unlocks what it does not have")
		}
	})
}

// The holder is cut off from the store: it is told to stop a third of the TTL before its lease ends, once, and the other
// has the upload after that. The locker goes on when the store is back.
func TestLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		shared := memstore.New()
		var cut atomic.Bool
		st := &brokenstore.Store{Store: shared}
		gone := &store.Error{Op: "put", Key: "k", Kind: store.ErrUnavailable}
		st.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			if cut.Load() {
				return nil, gone
			}
			return shared.Get(ctx, key, unless)
		}
		st.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if cut.Load() {
				<-ctx.Done()
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: ctx.Err()}
			}
			return shared.Put(ctx, key, body, only)
		}
		a, b := open(t, st, leasetusd.Options{}), open(t, shared, leasetusd.Options{})
		var told []time.Time
		held := newLock(t, a, "u")
		if err := held.Lock(t.Context(), func() { told = append(told, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cut.Store(true)
		other := newLock(t, b, "u")
		if err := other.Lock(t.Context(), never(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // nothing else says that the one who was told has returned
		if len(told) != 1 || time.Since(told[0]) < ttl/3 {
			t.Fatalf("the holder was told to stop at %v, and the other has the upload at %v", told, time.Now())
		}
		if err := held.Unlock(); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		if err := other.Unlock(); err != nil {
			t.Error(err)
		}
		cut.Store(false)
		if err := held.Lock(t.Context(), never(t)); err != nil {
			t.Fatal(err)
		}
		if err := held.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Close waits for those that have uploads; nothing is locked from then on, and who waits hears of it.
func TestClose(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		l, err := leasetusd.New(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		lock := newLock(t, l, "u")
		if err := lock.Lock(t.Context(), func() {}); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error)
		go func() { waits <- newLock(t, l, "u").Lock(t.Context(), never(t)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close does not wait: %v", err)
		}
		if err := <-waits; !errors.Is(err, leasehold.ErrClosed) {
			t.Errorf("a Lock that waits while it is closed: %v", err)
		}
		if err := errors.Join(lock.Unlock(), l.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if err := lock.Lock(t.Context(), never(t)); !errors.Is(err, leasehold.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
	})
}

// IDs of any kind have locks of their own, and no ID is refused but the empty one.
func TestIDs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		l := open(t, memstore.New(), leasetusd.Options{})
		if _, err := l.NewLock(""); err == nil {
			t.Error("an upload without an ID has a lock")
		}
		long := strings.Repeat("x", 4000)
		var locks []handler.Lock
		for _, id := range []string{
			"a", "A", "a/b", "a%2Fb", "a//b", "/", ".", "..", "../a", "a\\b", "a\x00b", "a\nb", "\xff", "\xfe", "ü", "a b", "a+b", "u-a",
			long, long + "y", "sha256-" + strings.Repeat("0", 64), "../sha256-", strings.Repeat("/", 200), strings.Repeat("%", 200),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			lock := newLock(t, l, id)
			if err := lock.Lock(ctx, never(t)); err != nil {
				t.Errorf("%.20q: %v", id, err)
			} else {
				locks = append(locks, lock)
			}
			cancel()
		}
		for _, lock := range locks {
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []leasetusd.Options{
		{Look: time.Millisecond},
		{Look: -1},
		{LockOptions: leasehold.LockOptions{TTL: time.Millisecond}},
		{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutMarker}},
	} {
		if _, err := leasetusd.New(memstore.New(), &o); err == nil || !strings.HasPrefix(err.Error(), "leasetusd: ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Two servers on each store: one request at a time has the upload.
func TestEverywhere(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		var inside, turns atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			l := open(t, p.Open(t), leasetusd.Options{Look: 50 * time.Millisecond})
			wg.Go(func() {
				for range 3 {
					lock, err := l.NewLock("an/upload")
					if err != nil {
						t.Error(err)
						return
					}
					wanted := make(chan struct{})
					if err := lock.Lock(t.Context(), func() { close(wanted) }); err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two requests have the upload")
					}
					if turns.Add(1) < 3 { // while the other has turns of its own before it
						<-wanted
					}
					inside.Add(-1)
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// A stale request of a client whose connection broke holds an upload on a server of tusd, and the client resumes on
// another one, as in tusd's own test of one server.
func TestResumeElsewhere(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		dir, st := t.TempDir(), memstore.New()
		defer time.Sleep(time.Minute) // tusd has timers left, of its requests' contexts
		var servers []http.Handler
		for range 2 {
			composer := handler.NewStoreComposer()
			tusstore.New(dir).UseIn(composer)
			config := handler.Config{BasePath: "/", StoreComposer: composer}
			open(t, st, leasetusd.Options{}).Configure(&config)
			h, err := handler.NewHandler(config)
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, h)
		}
		upload := strings.TrimPrefix(send(t, servers[0], "POST", "/", nil, "Upload-Length", "11").Header().Get("Location"), "http://example.com")
		body, client := io.Pipe()
		stale := make(chan *httptest.ResponseRecorder)
		go func() { stale <- send(t, servers[0], "PATCH", upload, body, "Upload-Offset", "0") }()
		if _, err := client.Write([]byte("hello ")); err != nil { // and then the connection is silent
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		came := time.Now()
		at := send(t, servers[1], "HEAD", upload, nil).Header().Get("Upload-Offset")
		if took := time.Since(came); at != "6" || took > 2*time.Second {
			t.Errorf("the other server says %q after %v", at, took)
		}
		if w := <-stale; w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "ERR_UPLOAD_INTERRUPTED") {
			t.Errorf("the stale request: %d %s", w.Code, w.Body)
		}
		if w := send(t, servers[1], "PATCH", upload, strings.NewReader("world"), "Upload-Offset", at); w.Code != http.StatusNoContent {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func send(t testing.TB, h http.Handler, method, path string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	return sendIn(ctx, h, method, path, body, header...)
}

func sendIn(ctx context.Context, h http.Handler, method, path string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequestWithContext(ctx, method, path, body), httptest.NewRecorder()
	r.Header.Set("Tus-Resumable", "1.0.0")
	r.Header.Set("Content-Type", "application/offset+octet-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

// works is a data store whose uploads do work in the place of writing.
type works struct {
	handler.Upload
	work func(ctx context.Context)
	mu   *sync.Mutex
}

func (w works) NewUpload(context.Context, handler.FileInfo) (handler.Upload, error) { return w, nil }

func (w works) GetUpload(context.Context, string) (handler.Upload, error) { return w, nil }

func (w works) GetInfo(context.Context) (handler.FileInfo, error) {
	return handler.FileInfo{ID: "contended", Size: 100}, nil
}

func (w works) WriteChunk(ctx context.Context, _ int64, _ io.Reader) (int64, error) {
	w.mu.Lock()   // orders what tusd wrote of the request before what the end of the request reads of it: see ordered
	w.mu.Unlock() //nolint:staticcheck // it is empty on purpose
	w.work(ctx)
	return 0, nil
}

// ordered is a locker for the race detector: tusd has no order of its own between the start of a write and requestUnlock.
type ordered struct {
	handler.Locker
	mu *sync.Mutex
}

func (o ordered) NewLock(id string) (handler.Lock, error) {
	lock, err := o.Locker.NewLock(id)
	return orderedLock{lock, o.mu}, err
}

type orderedLock struct {
	inner
	mu *sync.Mutex
}

type inner = handler.Lock // whose name is also that of a method

func (o orderedLock) Lock(ctx context.Context, requestUnlock func()) error {
	return o.inner.Lock(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		requestUnlock()
	})
}

// blind is a store in which nobody sees that an upload is wanted.
type blind struct{ store.Store }

func (b blind) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if strings.HasPrefix(key, "wanted/") {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	}
	return b.Store.Get(ctx, key, unless)
}

// TestRounds: what a data store does under the context that tusd gives it has ended before another server's begins.
// Nobody hears of waiters there, so that it is the loss that ends the work; and whoever has worked lets the other go first,
// should a renewal have been late on this machine.
func TestRounds(t *testing.T) {
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func()) {
		l, err := leasetusd.New(blind{st}, &leasetusd.Options{
			LockOptions: leasehold.LockOptions{TTL: adaptertest.TTL, Holder: name}, Look: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		composer := handler.NewStoreComposer()
		mu := new(sync.Mutex)
		composer.UseCore(works{work: work, mu: mu})
		config := handler.Config{BasePath: "/", StoreComposer: composer}
		l.Configure(&config)
		composer.UseLocker(ordered{l, mu})
		h, err := handler.NewHandler(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				request, end := context.WithCancel(ctx)
				sendIn(request, h, "PATCH", "/contended", strings.NewReader("x"), "Upload-Offset", "0")
				end()
				time.Sleep(adaptertest.TTL / 4)
			}
		}()
		return func() {
			cancel()
			<-done
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRow: tusd's tests of its lockers hold for this one, within a process and between processes, and those of its handler
// hold with it: behind the mocks of lockers, and in each handler that would have none.
func TestRow(t *testing.T) {
	row := adaptertest.Row{Module: "github.com/tus/tusd/v2", LeftOut: map[string]string{
		"TestFileLocker_DirectoryNotFound": "it tests missing directories",
		"TestLockRelease of internal/e2e":  "it needs tusd's command and toxiproxy; TestResumeElsewhere does the same with two servers",
	}}
	for _, u := range []adaptertest.Upstream{{
		Package: "memorylocker",
		Files:   map[string]string{"memorylocker.go": "testdata/memorylocker.go"},
	}, {
		Package: "filelocker",
		Files:   map[string]string{"filelocker.go": "testdata/filelocker.go"},
		LeftOut: map[string]string{"TestFileLocker_DirectoryNotFound": ""},
	}, {
		Package:  "handler",
		Subtests: true,
		Files:    map[string]string{"ours_test.go": "testdata/handler.go"},
		Edits: []adaptertest.Edit{{
			File: "subtest_test.go", Old: "composer.UseCore(store)\n", New: "composer.UseCore(store)\n\t\tcomposer.UseLocker(ours(subT))\n",
		}, {
			File: "handler_mock_test.go", Old: "ret0, _ := ret[0].(handler.Lock)", New: "ret0 := behind(m.ctrl.T, id, ret[0])",
		}},
	}} {
		name := u.Package
		u.Package, u.Dir, u.Run = "github.com/tus/tusd/v2/pkg/"+name, "testdata/upstream", "."
		results := u.Test(t)
		for _, test := range results.Ran {
			row.Ran = append(row.Ran, name+"."+test)
		}
		row.Passed += results.Passed
	}
	row.Check(t)
}

// TestExample: the README has the program that is run here.
func TestExample(t *testing.T) {
	adaptertest.Readme(t, "example/main.go")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./example", t.TempDir())
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err != nil || string(out) != "the other server goes on at 11\n" {
		t.Errorf("%v: %s", err, out)
	}
}
