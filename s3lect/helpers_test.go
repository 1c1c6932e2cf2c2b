package s3lect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

const lockfile = "leader/my-group.json"

var (
	slept  = &leasetest.Slept
	bubble = leasetest.Bubble
)

// A storage is what a user's Storage may be, behind a network that can be made bad.
type storage struct{ net *faultstore.Store }

func newStorage(st store.Store) storage { return storage{faultstore.Wrap(st, nil)} }

func (s storage) Get(ctx context.Context, key string) ([]byte, string, error) {
	o, err := s.net.Get(ctx, key, "")
	if err != nil {
		return nil, "", plain(err)
	}
	return o.Body, string(o.Version), nil
}

func (s storage) PutIfMatch(ctx context.Context, key string, data []byte, etag string) error {
	only := store.IfAbsent()
	if etag != "" {
		only = store.IfMatch(store.Version(etag))
	}
	_, err := s.net.Put(ctx, key, data, only)
	return plain(err)
}

// plain is all that a Storage tells of an error.
func plain(err error) error {
	switch {
	case errors.Is(err, store.ErrNotExist):
		return s3lect.ErrStorageNotFound
	case errors.Is(err, store.ErrPrecondition):
		return fmt.Errorf("put: %w", s3lect.ErrStoragePrecondition)
	case err != nil:
		return errors.New(err.Error())
	}
	return nil
}

// An instance is one elector, behind a network of its own. It keeps what its hooks
// were called for.
type instance struct {
	*s3lect.S3Elector
	net *faultstore.Store
	mu  sync.Mutex
	did []event
}

type event struct {
	what string // "acquire", "lose"
	at   time.Time
}

// newInstance makes an elector on st; edit may change its configuration.
func newInstance(t *testing.T, st store.Store, id string, edit func(*s3lect.ElectorConfig)) *instance {
	t.Helper()
	at := newStorage(st)
	i := &instance{net: at.net}
	config := &s3lect.ElectorConfig{
		LockfilePath: lockfile, ServerID: id, ServerAddr: id + ":8443",
		OnAcquireLeadership: func(context.Context) error { i.note("acquire"); return nil },
		OnLoseLeadership:    func(context.Context) error { i.note("lose"); return nil },
	}
	if edit != nil {
		edit(config)
	}
	e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Config: config, Storage: at, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	i.S3Elector = e
	return i
}

var quiet = slog.New(slog.DiscardHandler)

// begin is newInstance, started, and stopped when the test ends.
func begin(t *testing.T, st store.Store, id string, edit func(*s3lect.ElectorConfig)) *instance {
	t.Helper()
	i := newInstance(t, st, id, edit)
	if err := i.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.quit(t) })
	return i
}

func (i *instance) note(what string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.did = append(i.did, event{what, time.Now()})
}

// deeds is what the hooks were called for.
func (i *instance) deeds() (what []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range i.did {
		what = append(what, e.what)
	}
	return what
}

// last is when a hook was called last.
func (i *instance) last() event {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.did) == 0 {
		return event{}
	}
	return i.did[len(i.did)-1]
}

func (i *instance) lead(t *testing.T) {
	t.Helper()
	if err := i.WaitForLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (i *instance) quit(t *testing.T) {
	t.Helper()
	if err := i.Stop(); err != nil {
		t.Error(err)
	}
}

// ruler is the one of the instances that leads; nil if none does.
func ruler(t *testing.T, all ...*instance) *instance {
	t.Helper()
	var leader *instance
	for _, i := range all {
		if !i.IsLeader() {
			continue
		}
		if leader != nil {
			t.Fatalf("%s and %s lead at once", leader.GetConfig().ServerID, i.GetConfig().ServerID)
		}
		leader = i
	}
	return leader
}

// read is the lockfile as it is.
func read(t *testing.T, st *memstore.Store) string {
	t.Helper()
	o, err := st.Get(t.Context(), lockfile, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Body)
}

// An original is an instance of the original package as far as others see it: it reads
// the lockfile at intervals, compares its time with the wall clock, and writes it on
// the condition of the ETag that it read. Like that it goes on leading when it cannot
// read.
type original struct {
	id      string
	net     *faultstore.Store
	storage s3lect.Storage
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	leader bool
	terms  int
}

// The defaults of the original package.
const (
	originalInterval = 5 * time.Second
	originalTimeout  = 15 * time.Second
)

func beginOriginal(t *testing.T, st store.Store, id string) *original {
	t.Helper()
	at := newStorage(st)
	o := &original{id: id, net: at.net, storage: at, done: make(chan struct{})}
	o.ctx, o.stop = context.WithCancel(t.Context())
	go func() {
		defer close(o.done)
		ticker := time.NewTicker(originalInterval)
		defer ticker.Stop()
		for {
			o.cycle(t)
			select {
			case <-ticker.C:
			case <-o.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(o.crash)
	return o
}

func (o *original) cycle(t *testing.T) {
	t.Helper()
	r, etag, err := o.read()
	if err != nil {
		return
	}
	if fresh := time.Since(r.LastUpdated) < originalTimeout; fresh && r.LeaderID != o.id {
		o.set(false)
		return
	}
	err = o.write(s3lect.LeaderRecord{LeaderID: o.id, LeaderAddr: o.id + ":8443", LastUpdated: time.Now()}, etag)
	o.set(err == nil)
}

func (o *original) read() (r s3lect.LeaderRecord, etag string, err error) {
	data, etag, err := o.storage.Get(o.ctx, lockfile)
	if errors.Is(err, s3lect.ErrStorageNotFound) {
		return r, "", nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, etag, err
}

func (o *original) write(r s3lect.LeaderRecord, etag string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return o.storage.PutIfMatch(o.ctx, lockfile, data, etag)
}

func (o *original) set(leader bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if leader && !o.leader {
		o.terms++
	}
	o.leader = leader
}

func (o *original) IsLeader() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leader && o.ctx.Err() == nil
}

// crash ends it without a word.
func (o *original) crash() {
	o.stop()
	<-o.done
}

// resign ends it as its Stop does: the time in the lockfile becomes zero.
func (o *original) resign(t *testing.T) {
	t.Helper()
	for {
		r, etag, err := o.read()
		if err != nil || r.LeaderID != o.id {
			break
		}
		r.LastUpdated = time.Time{}
		if err = o.write(r, etag); err == nil {
			break
		}
		if !errors.Is(err, s3lect.ErrStoragePrecondition) { // else it has just renewed
			t.Error(err)
			break
		}
	}
	o.crash()
}

func (o *original) lead(t *testing.T) {
	t.Helper()
	for !o.IsLeader() {
		time.Sleep(100 * time.Millisecond)
		if t.Context().Err() != nil {
			t.Fatalf("%s does not lead", o.id)
		}
	}
}
