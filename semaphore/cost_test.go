package semaphore_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestCostIsDocumented: docs/requests-commands.md says of semaphores what is counted, in each row.
func TestCostIsDocumented(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: 10 * time.Millisecond}}})
		rows := costRows(t)
		costs := func(what string, f func()) {
			before := st.Counts()
			f()
			after := st.Counts()
			got := fmt.Sprintf("%d|%d", after.Get-before.Get, after.Put-before.Put)
			if rows[what] != got {
				t.Errorf("%s: the document says %q GETs|PUTs, and it took %s", what, rows[what], got)
			}
			delete(rows, what)
		}
		a := newSemaphore(t, st, 100, nil)
		take := func(s *semaphore.Semaphore, n int) (all []*semaphore.Lease) {
			leases := make(chan *semaphore.Lease, n)
			for range n {
				go func() {
					l, err := s.Acquire(t.Context(), 1)
					if err != nil {
						t.Error(err)
					}
					leases <- l
				}()
			}
			for range n {
				all = append(all, <-leases)
			}
			return all
		}
		var held []*semaphore.Lease
		costs("a process's first acquisition, with its session", func() { held = take(a, 1) })
		costs("release", func() { released(t, held...) })
		costs("the next acquisition, within two seconds of the last read", func() { held = take(a, 1) })
		released(t, held...)
		time.Sleep(3 * time.Second)
		costs("a later acquisition", func() { held = take(a, 1) })
		released(t, held...)
		costs("50 acquisitions of one process at once", func() { held = take(a, 50) })
		costs("50 releases of one process at once", func() {
			var all sync.WaitGroup
			for _, l := range held {
				all.Go(func() { released(t, l) })
			}
			all.Wait()
		})
		costs("Inspect", func() {
			if _, err := a.Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		})
		full := take(a, 100)
		b := newSemaphore(t, st, 100, nil)
		costs("TryAcquire without a free slot, by a process that holds nothing", func() {
			if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		costs("a minute of holding 100 slots, TTL 15 s", func() { time.Sleep(time.Minute) })
		for _, l := range full {
			released(t, l)
		}
		costs("Close", func() { closed(t, a) })
		for what := range rows {
			t.Errorf("%s: nothing is counted", what)
		}
		closed(t, b)
	})
}

// costRows are the cells of the table.
func costRows(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/requests-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## Semaphores\n")
	if !found {
		t.Fatal("docs/requests-commands.md has nothing of semaphores")
	}
	rows := map[string]string{}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|") && len(rows) > 0:
			return rows
		case !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[0]) == "":
		default:
			rows[strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", "")] = strings.TrimSpace(cells[1]) + "|" + strings.TrimSpace(cells[2])
		}
	}
	return rows
}
