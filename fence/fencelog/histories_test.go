package fencelog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/fencecheck/histories"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

var (
	count     = flag.Int("histories", 500, "how many histories to check")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
)

func TestLogHistories(t *testing.T) {
	t.Parallel()
	histories.Check(t, *firstSeed, *count, linear.Log, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *histories.History) {
		var all sync.WaitGroup
		for client := range 3 {
			own := rand.New(rand.NewPCG(r.Uint64(), 3))
			all.Go(func() { lead(t, own, st, h, client) })
		}
		all.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				h.Record(t, 9, linear.Command{Op: "read"}, func() (string, error) { return replay(t.Context(), newLog(t, st)) })
			}
		})
		all.Wait()
	})
}

// lead is one client of the log: it claims, and then appends, checkpoints and trims.
func lead(t *testing.T, r *rand.Rand, st store.Store, h *histories.History, client int) {
	t.Helper()
	ctx := t.Context()
	for term := range 2 {
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
		token := fence.Token(1 + client + 3*term) // a token claims once
		l := newLog(t, st)
		var a *fencelog.Appender
		open := func() (_ string, err error) {
			a, err = l.Claim(ctx, token)
			return "", err
		}
		if h.Record(t, client, linear.Command{Op: "open", Token: int64(token)}, open) != linear.Done {
			continue
		}
		var calls sync.WaitGroup
		for i := range 3 {
			for j := range 1 + r.IntN(2) {
				value := fmt.Sprintf("%d.%d.%d", token, i, j)
				calls.Go(func() {
					h.Record(t, 10*client+j, linear.Command{Op: "append", Token: int64(token), Value: value}, func() (string, error) {
						_, err := a.Append(ctx, []byte(value))
						return "", err
					})
				})
			}
			calls.Wait()
			if r.IntN(2) == 0 {
				compact(ctx, l, a)
			}
		}
		time.Sleep(time.Minute) // for what is stuck
		a.Close()
	}
}

// compact makes a checkpoint of the log so far, and trims it. That must change
// nothing for readers.
func compact(ctx context.Context, l *fencelog.Log, a *fencelog.Appender) {
	last := a.Last()
	state, at, err := restore(ctx, l, last)
	if err != nil || at == 0 || a.Checkpoint(ctx, at, strings.NewReader(state)) != nil {
		return
	}
	_, _ = a.Trim(ctx)
}

// replay reads the whole log.
func replay(ctx context.Context, l *fencelog.Log) (string, error) {
	state, _, err := restore(ctx, l, math.MaxInt64)
	return state, err
}

// restore reads the log up to an entry: the checkpoint, and what comes after it.
func restore(ctx context.Context, l *fencelog.Log, to fencelog.Position) (string, fencelog.Position, error) {
	for {
		state, at, err := fencecheck.Restore(ctx, l, to)
		if !errors.Is(err, fencelog.ErrTrimmed) && !errors.Is(err, fence.ErrReplaced) {
			return state, at, err
		}
	}
}
