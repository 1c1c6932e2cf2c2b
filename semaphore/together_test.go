package semaphore_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// soonSeated bounds how long it takes those who have been given seats together with the head of the line to
// find out.
const soonSeated = leasehold.DefaultTTL/3*5/4 + time.Second

// Readers who wait for a writer get their seats by one write, and know it soon. Where seats are held for long all
// but the first used to find out two minutes later.
func TestReadersTogether(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		newLock := func(name string) *semaphore.RWLock {
			l, err := semaphore.NewRWLock(st, "table", &semaphore.Options{Holder: name})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		w := newLock("writer")
		all := []closer{w}
		for range 2 { // the first one shows for how long writers write
			held, err := w.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			const n = 20
			late := make(chan *semaphore.Lease, n)
			for i := range n {
				r := newLock(fmt.Sprint("reader", i))
				all = append(all, r)
				go func() {
					l, err := r.RLock(t.Context())
					if err != nil {
						t.Error(err)
					}
					late <- l
				}()
			}
			time.Sleep(10 * time.Minute)
			released(t, held)
			began := time.Now()
			for range n {
				released(t, <-late)
			}
			if took := time.Since(began); took > soonSeated {
				t.Errorf("after the writer's release it took %v until the last reader had its seat", took)
			}
		}
		closed(t, all...)
	})
}

// Seats of several that die at one moment are in use again together. Each waiter in turn used to become the head and
// to begin to wait for the next one's end then, and three seats took three TTLs and longer.
func TestDeadTogether(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := faultstore.Wrap(st, nil)
		first := newSemaphore(t, st, 3, nil)
		held := acquired(t, first, 3)
		time.Sleep(10 * time.Minute) // so seats are held for long
		released(t, held)
		closed(t, first)
		for range 3 {
			acquired(t, newSemaphore(t, net, 3, nil), 1)
		}
		got := make(chan *semaphore.Lease, 3)
		for range 3 {
			s := newSemaphore(t, st, 3, nil)
			go func() {
				l, err := s.Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		net.Partition(true)
		leases := []*semaphore.Lease{<-got, <-got, <-got}
		// The one that is watched is late by two thirds of a TTL, and then all are watched for a TTL and margin.
		const dead = leasehold.DefaultTTL*2/3 + leasehold.DefaultTTL*13/12 + leasehold.DefaultTTL/3
		if took := time.Since(began); took > dead+soonSeated {
			t.Errorf("it took %v until all three seats were in use", took)
		}
		released(t, leases...)
	})
}

// TestManyDeadTogether: when the holder and all before a waiter die at one moment, it has the seat in a time that
// does not depend on how many they were. It took up to 13 minutes: a waiter far behind looked every few minutes, and began
// to watch anew with each dead one that was given the seat.
func TestManyDeadTogether(t *testing.T) {
	for _, dead := range []int{3, 10, 40} {
		t.Run(strconv.Itoa(dead), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := memstore.New()
				net := faultstore.Wrap(st, nil)
				first := newSemaphore(t, st, 1, nil)
				held := acquired(t, first, 1)
				time.Sleep(time.Minute) // a turn
				released(t, held)
				closed(t, first)
				acquired(t, newSemaphore(t, net, 1, nil), 1)
				ctx, giveUp := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range dead {
					s := newSemaphore(t, net, 1, nil)
					all.Go(func() {
						if _, err := s.Acquire(ctx, 1); err == nil {
							t.Error("one of the dead has the seat")
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				got := make(chan *semaphore.Lease)
				own := faultstore.Wrap(st, nil)
				s := newSemaphore(t, own, 1, nil)
				go func() { got <- acquired(t, s, 1) }()
				time.Sleep(45 * time.Second)
				began, asked := time.Now(), len(own.Log())
				net.Partition(true)
				lease := <-got
				// Two looks find the one before it dead, and then all are watched for a TTL and margin.
				const most = leasehold.DefaultTTL*8/5*2*5/4 + leasehold.DefaultTTL*13/12 + leasehold.DefaultTTL/3
				took, requests := time.Since(began), len(own.Log())-asked
				t.Logf("%d dead: %v, %d requests", dead, took, requests)
				if took > most+soonSeated {
					t.Errorf("it took %v, more than %v", took, most)
				}
				if limit := 100 + 20*dead; requests > limit {
					t.Errorf("%d requests, more than %d", requests, limit)
				}
				released(t, lease)
				giveUp()
				all.Wait()
			})
		})
	}
}
