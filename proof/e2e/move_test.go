//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// A mover's stop is one place of a lock that goes around, with the URL that the command has for it.
type stop struct {
	name, url string
	store     store.Store
}

// tour is a lock that moves from stop to stop, each time to a new name, and those who follow it.
type tour struct {
	t     *testing.T
	stops []stop

	mu      sync.Mutex
	holders int
	last    leasehold.Token
	turns   int
	at      map[string]int // turns, by the name of the stop
}

func key(n int) string { return fmt.Sprintf("moves/%03d", n) }

func (r *tour) stop(n int) stop { return r.stops[n%len(r.stops)] }

func (r *tour) url(n int) string {
	place, query, _ := strings.Cut(r.stop(n).url, "?")
	return place + "/" + key(n) + "?" + query
}

func (r *tour) lock(n int, holder string) *leasehold.Lock {
	r.t.Helper()
	lock, err := leasehold.NewLock(r.stop(n).store, key(n), &leasehold.LockOptions{
		TTL: 2 * time.Second, Holder: holder, Layout: leasehold.LayoutObject, Existing: true,
	})
	if err != nil {
		r.t.Error(err)
	}
	return lock
}

// follow acquires and releases the lock wherever it is. It begins ahead of the lock, or where the lock is.
func (r *tour) follow(ctx context.Context, n int, holder string, random *rand.Rand) {
	lock := r.lock(n, holder)
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		moved, _ := errors.AsType[*leasehold.MovedError](err)
		switch {
		case ctx.Err() != nil:
			if lease != nil {
				_ = lease.Release(context.WithoutCancel(ctx))
			}
			return
		case moved != nil && moved.To != "":
			n++
			lock = r.lock(n, holder)
			continue
		case moved != nil || errors.Is(err, store.ErrNotExist): // it is to come
			time.Sleep(50 * time.Millisecond)
			continue
		case err != nil:
			r.t.Errorf("%s at %s: %v", holder, r.url(n), err)
			return
		}
		if lease.Valid() {
			r.hold(n, 1, lease.Token())
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			r.hold(n, -1, lease.Token())
		}
		_ = lease.Release(context.WithoutCancel(ctx))
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
	}
}

func (r *tour) hold(n, by int, token leasehold.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders += by; r.holders > 1 {
		r.t.Errorf("%d hold the lock", r.holders)
	}
	if by < 0 {
		return
	}
	if token <= r.last {
		r.t.Errorf("at %s token %v follows %v", r.url(n), token, r.last)
	}
	r.last = token
	r.turns++
	r.at[r.stop(n).name]++
}

func minioStore(t *testing.T, server *servers.Server, bucket string) store.Store {
	t.Helper()
	st, err := s3store.New(server.Client(), bucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestMoves: a lock that six fight for goes around MinIO and the emulators of Google Cloud Storage and Azure. The
// command that moves it is killed at random and run again. Nobody holds the lock beside another, its
// tokens grow, and it arrives everywhere.
func TestMoves(t *testing.T) {
	t.Parallel()
	if underTest != leasetest.Object {
		t.Skip("the new place of a lock is the same in every layout")
	}
	moves := 9
	if !testing.Short() {
		moves = 100
	}
	minio, gcs, azurite := servers.Start(t, "minio"), servers.StartGCS(t), servers.StartAzurite(t)
	bucket, gs, container := minio.Bucket(t), gcs.GCSURL(gcs.GCSBucket(t)), azurite.Container(t)
	r := &tour{t: t, at: map[string]int{}, stops: []stop{
		{"minio", minio.URL(bucket), minioStore(t, minio, bucket)},
		{servers.GCS, gs, opens(gs)(t)},
		{"azurite", azurite.URL(container), azuriteStore(t, azurite, azurite.Endpoint+"/"+container)},
	}}
	env := append(minio.Env(), azurite.Env()...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	first, err := leasehold.NewLock(r.stop(0).store, key(0), &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := first.Acquire(t.Context())
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { r.follow(ctx, i%2, fmt.Sprintf("follower-%d", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	random, kills, longest := rand.New(rand.NewPCG(seed, 100)), 0, time.Duration(0)
	for n := range moves {
		began := time.Now()
		for try := 0; ; try++ {
			p := start(t, env, "move", "--ttl", "1s", r.url(n), r.url(n+1))
			killed := false
			if try < 3 && random.IntN(2) == 0 {
				select {
				case <-p.done:
				case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
					killed = p.Process.Kill() == nil
				}
			}
			<-p.done
			if killed && p.ProcessState.ExitCode() < 0 {
				kills++
				continue
			}
			if code := p.ProcessState.ExitCode(); code != 0 {
				t.Errorf("move %d, try %d: code %d: %s", n, try, code, p.stderr.String())
			}
			break
		}
		longest = max(longest, time.Since(began))
		if t.Failed() {
			break
		}
	}
	// Each of the followers has the lock in the last place, too.
	deadline := time.Now().Add(30 * time.Second)
	r.mu.Lock()
	before := r.turns
	r.mu.Unlock()
	for {
		r.mu.Lock()
		more := r.turns - before
		r.mu.Unlock()
		if more > 6 || t.Failed() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lock is stuck in its last place")
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	all.Wait()
	t.Logf("%d moves, %d of the movers killed, the longest move %v; %d turns: %v", moves, kills, longest.Round(time.Millisecond), r.turns, r.at)
	for _, s := range r.stops {
		if r.at[s.name] == 0 {
			t.Errorf("nobody had the lock at %s", s.name)
		}
	}
	if moves >= 50 && kills < moves/4 {
		t.Errorf("only %d movers were killed", kills)
	}
	for n := range moves {
		if _, err := r.lock(n, "late").TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrMoved) {
			t.Errorf("at %s, where the lock is no more: %v", r.url(n), err)
		}
	}
}
