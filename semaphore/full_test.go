package semaphore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A line that is full is full, and says so; and whoever leaves can still give all of it seats. A grant
// makes an entry longer, so a writer that had as many readers behind it as there was room for could not be
// released.
func TestFull(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		l, err := semaphore.NewRWLock(st, "far/down/below/table", &semaphore.Options{Holder: strings.Repeat("h", 200)})
		if err != nil {
			t.Fatal(err)
		}
		writer, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		full, read := 0, 0
		for range 1200 {
			all.Go(func() {
				err := l.RDo(t.Context(), func(context.Context, *semaphore.Lease) error {
					mu.Lock()
					defer mu.Unlock()
					read++
					return nil
				})
				if errors.Is(err, semaphore.ErrFull) {
					mu.Lock()
					defer mu.Unlock()
					full++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		released(t, writer)
		all.Wait()
		if full == 0 || read < 500 {
			t.Errorf("%d had their turn, and for %d there was no room", read, full)
		}
		closed(t, l)
	})
}
