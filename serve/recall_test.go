package serve_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// Watching a thousand locks costs one listing for each look, and reads of what has changed only.
func TestLooksReadWhatChanged(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const many = 100
		inner := memstore.New()
		plant(t, inner, many)
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{Limit: 2 * many})
		st.Reset()
		v := subscribe(t, s)
		time.Sleep(time.Second)
		first := st.Counts()
		if first.List != 1 || first.Get < many || first.Get > many+5 {
			t.Errorf("the first look: %+v", first)
		}
		_, events := v.take()
		if all := as[serve.Snapshot](t, events[0]); len(all.Objects) != many+1 { // its own session
			t.Fatalf("%d objects", len(all.Objects))
		}

		// Minutes in which nobody does anything.
		st.Reset()
		time.Sleep(2 * time.Minute)
		idle := st.Counts()
		if looks := 120 / 5; idle.List < looks*9/10 || idle.List > looks+1 || idle.Get > idle.List {
			t.Errorf("two minutes of nothing: %+v", idle)
		}
		if _, events = v.take(); len(events) == 0 {
			t.Error("its own session is not renewed")
		}
		for _, e := range events {
			if e.name != "change" || as[serve.Change](t, e).Object.Kind != serve.KindSession {
				t.Errorf("of nothing: %s %s", e.name, e.data)
			}
		}

		// Another process takes two of them, and one is deleted. Two are read, and nothing of what was known is lost.
		lock, err := leasehold.NewLock(inner, "k017", &leasehold.LockOptions{Holder: "somebody", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		if err := inner.Delete(t.Context(), "k018"); err != nil {
			t.Fatal(err)
		}
		if _, err := inner.Put(t.Context(), "k0185", []byte("no lock"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		st.Reset()
		time.Sleep(6 * time.Second)
		changes := map[string]string{}
		_, events = v.take()
		for _, e := range events {
			if e.name == "gone" {
				changes[as[serve.Gone](t, e).Key] = "gone"
			} else if c := as[serve.Change](t, e); c.Object.Kind != serve.KindSession {
				changes[c.Object.Key] = c.Change + " " + c.Object.Holder
			}
		}
		if fmt.Sprint(changes) != "map[k017:elected somebody k018:gone k0185:unreadable ]" {
			t.Errorf("%v", changes)
		}
		if n := st.Counts(); n.Get > 2*n.List+2 {
			t.Errorf("for two changes: %+v", n)
		}

		// An object that is not read again grows older all the same.
		time.Sleep(time.Minute)
		a := ask(t, s, "GET", "/v1/locks", "")
		for _, o := range a.Objects {
			if o.Key == "k017" && (o.Age == nil || *o.Age < 60_000 || *o.Age > 80_000 || o.Left == nil || *o.Left > 3_540_000) {
				t.Errorf("after a minute: age %v, left %v", *o.Age, *o.Left)
			}
			if o.Key == "k018" {
				t.Error("what was deleted is remembered")
			}
		}

		// A store that fails in the middle of a look, and answers again, is seen as it is.
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Probability: 0.5}, faultstore.Fault{Kind: faultstore.Unavailable, Op: "list", Probability: 0.5})
		leasetest.Release(t, lease)
		time.Sleep(time.Minute)
		st.Clear()
		time.Sleep(10 * time.Second)
		for _, o := range ask(t, s, "GET", "/v1/locks", "").Objects {
			if o.Key == "k017" && (o.State != "free" || o.LastHolder != "somebody") {
				t.Errorf("when the store is back: %+v", o)
			}
		}
		v.leave()
		<-v.done
		stopped(t, s)
	})
}

// A look that begins when one that takes more than the budget has ended waits, and the budget holds.
func TestFirstLookIsGiven(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		plant(t, inner, 500)
		s := started(t, faultstore.Wrap(inner, nil), &serve.Options{Budget: 60})
		v := subscribe(t, s)
		time.Sleep(12 * time.Second)
		looked := 0
		v.mu.Lock()
		for _, e := range v.events {
			if e.name == "looked" {
				looked++
			}
		}
		v.mu.Unlock()
		if looked < 2 {
			t.Errorf("%d looks in 12 s: the first puts off those that cost next to nothing", looked)
		}
		v.leave()
		<-v.done
		stopped(t, s)
	})
}

// A stream tells of callers that wait here, although nothing has changed in the store.
func TestWaitingIsTold(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		lock, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Holder: "other", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		v := subscribe(t, s)
		time.Sleep(time.Second)
		v.take()
		done := make(chan answer, 1)
		go func() { done <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"20s"}`) }()
		time.Sleep(8 * time.Second)
		told := func() (waiting []int) {
			_, events := v.take()
			for _, e := range events {
				if c := as[serve.Change](t, e); c.Object.Key == "k" && c.Change == "changed" {
					waiting = append(waiting, c.Object.Waiting)
				}
			}
			return waiting
		}
		if got := fmt.Sprint(told()); got != "[1]" {
			t.Errorf("while one waits: %s", got)
		}
		wants(t, "the wait", <-done, 409, "held")
		time.Sleep(8 * time.Second)
		if got := fmt.Sprint(told()); got != "[0]" {
			t.Errorf("when nobody waits: %s", got)
		}
		leasetest.Release(t, lease)
		if err := lease.Err(); !errors.Is(err, leasehold.ErrReleased) {
			t.Error(err)
		}
		v.leave()
		<-v.done
		stopped(t, s)
	})
}
