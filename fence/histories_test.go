package fence_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck/histories"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

var (
	count     = flag.Int("histories", 1500, "how many histories to check")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
)

func TestObjectHistories(t *testing.T) {
	t.Parallel()
	histories.Check(t, *firstSeed, *count, linear.Object, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *histories.History) {
		var all sync.WaitGroup
		for client := range 4 {
			o := newObject(t, st, &fence.ObjectOptions{Apart: r.IntN(4) == 0})
			token := fence.Token(1 + r.IntN(4))
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			all.Go(func() {
				for range 5 {
					time.Sleep(time.Duration(own.Int64N(int64(2 * time.Second))))
					use(t, own, h, client, o, token)
				}
			})
		}
		all.Wait()
	})
}

// use does one operation. The few values come again and again, and with them the bytes.
func use(t *testing.T, r *rand.Rand, h *histories.History, client int, o *fence.Object, token fence.Token) {
	t.Helper()
	ctx := t.Context()
	value := []string{"x", "y"}[r.IntN(2)]
	read := func(v *fence.Value, err error) (string, error) {
		if errors.Is(err, store.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		b, err := v.ReadAll(ctx)
		if err != nil { // of a claim that was done
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
		return string(b), err
	}
	switch k := r.IntN(10); {
	case k < 2:
		h.Record(t, client, linear.Command{Op: "claim", Token: int64(token)}, func() (string, error) { return read(o.Claim(ctx, token)) })
	case k < 6:
		h.Record(t, client, linear.Command{Op: "put", Token: int64(token), Value: value}, func() (string, error) {
			return "", o.Put(ctx, token, strings.NewReader(value))
		})
	case k < 7:
		h.Record(t, client, linear.Command{Op: "delete", Token: int64(token)}, func() (string, error) { return "", o.Delete(ctx, token) })
	default:
		h.Record(t, client, linear.Command{Op: "get"}, func() (string, error) { return read(o.Get(ctx)) })
	}
}
