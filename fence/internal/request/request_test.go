package request_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/fence/internal/request"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A failure that may pass is tried again, and no other is.
func TestTransient(t *testing.T) {
	for err, want := range map[error]bool{
		store.ErrUnavailable: true, store.ErrThrottled: true, store.ErrConflict: true,
		store.ErrUnknownOutcome: true, store.ErrPrecondition: true, store.ErrNotExist: true,
		store.ErrDenied: false, store.ErrRefused: false, context.Canceled: false, errors.New("another"): false,
	} {
		if got := request.Transient(fmt.Errorf("put: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// An operation is tried for half a minute. The pauses grow, and stay within two seconds: so
// there are tries enough, and no storm of them.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shortest := time.Hour
		for range 50 { // the last pause is drawn, and may end soon after the half minute or late
			shortest = min(shortest, triedFor(t))
		}
		if shortest >= 31*time.Second {
			t.Errorf("it was never tried for less than %v", shortest)
		}
	})
}

// triedFor is how long an operation is tried that never succeeds.
func triedFor(t *testing.T) time.Duration {
	t.Helper()
	begin, last, tries := time.Now(), time.Duration(0), 0
	for pause := range request.Pauses(t.Context()) {
		before := time.Now()
		if tries++; !pause() {
			t.Fatal("it did not wait")
		}
		last = time.Since(before)
		if tries == 1 && last >= 2*protocol.MinPause {
			t.Errorf("the first pause takes %v already", last)
		}
		if last <= 0 || last > 2*time.Second {
			t.Errorf("pause %d takes %v", tries, last)
		}
	}
	if last < time.Second {
		t.Errorf("the last pause took %v, and all that come before it are shorter", last)
	}
	took := time.Since(begin)
	if took < 30*time.Second || took > 32*time.Second {
		t.Errorf("it was tried for %v", took)
	}
	if tries < 18 || tries > 60 {
		t.Errorf("it was tried %d times", tries)
	}
	return took
}

// A pause ends with the context.
func TestPauseIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		for pause := range request.Pauses(ctx) {
			if pause() {
				t.Error("it waited")
			}
			break
		}
		if time.Since(begin) > 0 {
			t.Errorf("it waited for %v", time.Since(begin))
		}
	})
}

// silent never answers.
type silent struct{ store.Store }

func (silent) Get(ctx context.Context, _ string, _ store.Version) (*store.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Put(ctx context.Context, _ string, _ []byte, _ store.Condition) (*store.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A server may never answer one request, and the next at once.
func TestTimeOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, do := range map[string]func() (*store.Object, error){
			"get": func() (*store.Object, error) { return request.Get(t.Context(), silent{}, "x", "") },
			"put": func() (*store.Object, error) { return request.Put(t.Context(), silent{}, "x", nil, store.IfAbsent()) },
		} {
			begin := time.Now()
			_, err := do()
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
	})
}

// keeps the context of each request.
type keeps struct {
	store.Store
	ctx context.Context
}

func (k *keeps) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	k.ctx = ctx
	return k.Store.Get(ctx, key, unless)
}

func (k *keeps) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	k.ctx = ctx
	return k.Store.Put(ctx, key, body, only)
}

// A request that was answered leaves no timer behind.
func TestAnsweredRequest(t *testing.T) {
	st := &keeps{Store: memstore.New()}
	if _, err := request.Put(t.Context(), st, "x", []byte("1"), store.IfAbsent()); err != nil || st.ctx.Err() == nil {
		t.Error("put:", err, st.ctx.Err())
	}
	if _, err := request.Get(t.Context(), st, "x", ""); err != nil || st.ctx.Err() == nil {
		t.Error("get:", err, st.ctx.Err())
	}
}

// No two attempts have the same mark.
func TestIDs(t *testing.T) {
	if a, b := request.NewID(), request.NewID(); a == b || len(a.String()) != 32 || a.String() == b.String() {
		t.Error(a, b)
	}
}
