package s3lect_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

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
