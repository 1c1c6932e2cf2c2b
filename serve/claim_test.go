package serve_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// idOf is an ID that a caller might choose.
func idOf(n int) string { return fmt.Sprintf("%032x", n) }

// with is the body of an acquisition with an ID and other members.
func with(n int, members string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(`{"id":%q%s}`, idOf(n), members)
}

// unheard makes a request whose answer is lost.
func unheard(t *testing.T, s *serve.Server, path, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(deafWriter{httptest.NewRecorder()}, r)
	synctest.Wait()
}

// A caller that lost the answer to acquire had no way to find out whether it holds the lock. With an ID of its own it asks
// again, and has the same lease, as it stands, for no request to the store.
func TestAskedAgain(t *testing.T) {
	for _, tc := range []struct{ path, key, options string }{
		{"/v1/locks/k/acquire", "k", `"ttl":"10s","holder":"me","meta":{"x":"y","z":""}`},
		{"/v1/locks/k/acquire", "k", `"ttl":"10s","holder":"me","meta":{"x":"y","z":""},"wait":"1m"`},
		{"/v1/locks/sem/acquire", "sem", `"ttl":"10s","holder":"me","slots":3,"weight":2`},
		{"/v1/locks/rw/acquire", "rw", `"ttl":"10s","holder":"me","shared":true`},
		{"/v1/elections/e/campaign", "e", `"ttl":"10s","holder":"me"`},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			inner := memstore.New()
			st := faultstore.Wrap(inner, nil)
			s := started(t, st, nil)
			body := with(1, tc.options)
			unheard(t, s, tc.path, body)
			time.Sleep(3 * time.Second)
			before := st.Counts()
			a := ask(t, s, "POST", tc.path, body)
			if a.code != 200 || a.Lease != idOf(1) || a.Key != tc.key || a.Holder != "me" || a.Token == 0 || a.TTL != 10_000 || a.Left > 7000 || a.Left < 6000 {
				t.Fatalf("%s: %d %s", tc.path, a.code, a.body)
			}
			time.Sleep(time.Second)
			other := strings.ReplaceAll(with(1, tc.options+`,"wait":"5m"`), `,"wait":"1m"`, "")
			if b := ask(t, s, "POST", tc.path, other); b.code != 200 || b.Lease != a.Lease || b.Token != a.Token || b.Left != a.Left-1000 {
				t.Errorf("a second later, with another wait: %d %s, before %s", b.code, b.body, a.body)
			}
			if after := st.Counts(); after.Put != before.Put || after.Get != before.Get || after.List != before.List {
				t.Errorf("it was sent to the store: %+v, %+v", before, after)
			}
			if leases, _, _, _ := s.Sizes(); leases != 1 || s.Claims() != 0 {
				t.Errorf("%d leases, %d claims", leases, s.Claims())
			}
			if k := ask(t, s, "POST", "/v1/leases/"+idOf(1)+"/keepalive", ""); k.code != 200 || k.Token != a.Token || k.Left < 9000 {
				t.Errorf("kept: %d %s", k.code, k.body)
			}
			if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(1), ""); d.code != 204 {
				t.Errorf("released: %d %s", d.code, d.body)
			}
			synctest.Wait()
			before = st.Counts()
			wants(t, "after its release", ask(t, s, "POST", tc.path, body), 410, "over")
			wants(t, "after its release, with another wait", ask(t, s, "POST", tc.path, other), 410, "over")
			wants(t, "for another lock", ask(t, s, "POST", "/v1/locks/other/acquire", body), 410, "over")
			if after := st.Counts(); after != before {
				t.Errorf("%s: something was acquired: %+v, %+v", tc.path, before, after)
			}
			time.Sleep(serve.KeepEnded - time.Minute)
			wants(t, "much later", ask(t, s, "POST", tc.path, body), 410, "over")
			time.Sleep(2 * time.Minute)
			if b := ask(t, s, "POST", tc.path, body); b.code != 200 || b.Lease != idOf(1) || b.Token <= a.Token {
				t.Errorf("when it is forgotten: %d %s", b.code, b.body)
			}
			stopped(t, s)
		})
	}
}

// A lease whose answer was lost, and for which nobody asks again, is over after its TTL, like that of a caller that has died;
// its ID then gives no other.
func TestNeverAskedAgain(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		unheard(t, s, "/v1/locks/k/acquire", with(1, `"ttl":"5s"`))
		gone := make(chan answer, 1) // the caller leaves as its lease comes
		ctx, leave := context.WithCancel(t.Context())
		other := acquired(t, s, "l", "")
		go func() { gone <- asking(t, ctx, s, "POST", "/v1/locks/l/acquire", with(2, `"ttl":"5s","wait":"1h"`)) }()
		time.Sleep(3 * time.Second)
		if !leasetest.RecordIn(t, st, "k").Held {
			t.Error("it was released before its TTL is over")
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+other.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		time.Sleep(2*time.Second + serve.Margin(5*time.Second) + time.Second)
		leave()
		<-gone
		if leasetest.RecordIn(t, st, "k").Held {
			t.Error("it is held after its TTL")
		}
		wants(t, "after its TTL", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"5s"`)), 410, "over")
		time.Sleep(6 * time.Second)
		if leasetest.RecordIn(t, st, "l").Held {
			t.Error("the one that was waited for is held after its TTL")
		}
		if k := ask(t, s, "POST", "/v1/locks/k/acquire", with(3, `"ttl":"5s"`)); k.code != 200 {
			t.Errorf("another ID: %d %s", k.code, k.body)
		}
		stopped(t, s)
	})
}

// A lease that was lost with the session is over for its ID too, while others go on.
func TestIDOfALostLease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		a := acquired(t, s, "k", with(1, `"ttl":"1h"`))
		waited := make(chan answer, 1)
		go func() { waited <- ask(t, s, "POST", "/v1/locks/k/acquire", with(2, `"ttl":"1h","wait":"30m"`)) }()
		synctest.Wait()
		st.Partition(true)
		time.Sleep(time.Minute)
		lost := ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h"`))
		wants(t, "without the store", lost, 410, "over")
		st.Partition(false)
		if w := <-waited; w.code != 200 || w.Lease != idOf(2) || w.Token <= a.Token {
			t.Errorf("the one that waits: %d %s", w.code, w.body)
		}
		wants(t, "when it is back", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h"`)), 410, "over")
		stopped(t, s)
	})
}

// An ID gives nothing to a request for something else, nor tells it anything, whether its lease is held or waited for.
func TestIDOfAnotherRequest(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{Holder: "server"})
		const options = `"ttl":"1h","holder":"secret-holder","meta":{"m":"secret-meta"},"wait":"1h"`
		held := acquired(t, s, "secret-key", with(1, options))
		waiting := make(chan answer, 1)
		go func() { waiting <- ask(t, s, "POST", "/v1/locks/secret-key/acquire", with(2, options)) }()
		synctest.Wait()
		chosen := acquired(t, s, "chosen", `{"ttl":"1h"}`)
		time.Sleep(time.Second)
		synctest.Wait()
		refused := func(what, path, body string) {
			t.Helper()
			before := st.Counts()
			a := ask(t, s, "POST", path, body)
			wants(t, what, a, 422, "value")
			if strings.Contains(a.body, "secret") || strings.Contains(a.body, fmt.Sprint(held.Token)) {
				t.Errorf("%s: it tells of the other lease: %s", what, a.body)
			}
			if after := st.Counts(); after != before {
				t.Errorf("%s: it was sent to the store: %+v, %+v", what, before, after)
			}
		}
		for n := 1; n <= 2; n++ {
			for what, path := range map[string]string{
				"another lock": "/v1/locks/other/acquire", "a lock below": "/v1/locks/secret-key/x/acquire", "an election": "/v1/elections/secret-key/campaign",
			} {
				refused(fmt.Sprint(what, n), path, with(n, options))
			}
			for _, change := range [][2]string{
				{`"1h","holder"`, `"59m","holder"`},
				{`"ttl":"1h",`, ``},
				{`secret-holder`, `me`},
				{`"holder":"secret-holder",`, ``},
				{`secret-meta`, `other`},
				{`"m":`, `"n":`},
				{`"meta":{"m":"secret-meta"}`, `"slots":2`},
				{`"meta":{"m":"secret-meta"}`, `"slots":2,"weight":2`},
				{`"meta":{"m":"secret-meta"}`, `"fair":true`},
				{`"meta":{"m":"secret-meta"},`, ``},
			} {
				other := strings.Replace(options, change[0], change[1], 1)
				if other == options {
					t.Fatal(change)
				}
				refused(fmt.Sprint(change, n), "/v1/locks/secret-key/acquire", with(n, other))
			}
		}
		refused("the ID of a lease that the server chose", "/v1/locks/chosen/acquire", fmt.Sprintf(`{"id":%q,"ttl":"1h"}`, chosen.Lease))
		if a := ask(t, s, "POST", "/v1/locks/secret-key/acquire", with(1, options)); a.code != 200 || a.Token != held.Token {
			t.Errorf("the lease itself: %d %s", a.code, a.body)
		}

		// Slots of one semaphore, and both sides of a reader/writer lock.
		acquired(t, s, "sem", with(3, `"slots":3,"ttl":"1h"`))
		refused("another weight", "/v1/locks/sem/acquire", with(3, `"slots":3,"weight":2,"ttl":"1h"`))
		refused("another size", "/v1/locks/sem/acquire", with(3, `"slots":4,"ttl":"1h"`))
		acquired(t, s, "rw", with(4, `"shared":true,"ttl":"1h"`))
		refused("a writer", "/v1/locks/rw/acquire", with(4, `"shared":false,"ttl":"1h"`))

		// A lease that has ended.
		if d := ask(t, s, "DELETE", "/v1/leases/"+held.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		over := ask(t, s, "POST", "/v1/locks/other/acquire", with(1, ""))
		if wants(t, "for another lock", over, 410, "over"); strings.Contains(over.body, "secret") || strings.Contains(over.body, "released") {
			t.Errorf("it tells of the other lease: %s", over.body)
		}
		if w := <-waiting; w.code != 200 || w.Lease != idOf(2) || w.Token <= held.Token {
			t.Errorf("the one that waits: %d %s", w.code, w.body)
		}
		stopped(t, s)
	})
}

// A lease that is being released, and is not yet for want of the store, gives no other either, and its ID is not taken.
func TestIDOfALeaseBeingReleased(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		acquired(t, s, "k", with(1, ""))
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "k"})
		if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(1), ""); d.code != 202 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		wants(t, "the lock", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, "")), 410, "over")
		wants(t, "another lock", ask(t, s, "POST", "/v1/locks/other/acquire", with(1, "")), 410, "over")
		st.Clear()
		stopped(t, s)
	})
}

// Requests with one ID that come at the same time have one lease, also where each by itself would get a slot.
func TestAskedAtOnce(t *testing.T) {
	for _, options := range []string{``, `"wait":"1m"`, `"slots":9`, `"slots":9,"wait":"1m"`} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := faultstore.Wrap(memstore.New(), nil)
			s := started(t, st, nil)
			acquired(t, s, "k", with(1, options)) // so that the object is there
			if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(1), ""); d.code != 204 {
				t.Fatalf("released: %d %s", d.code, d.body)
			}
			st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: 200 * time.Millisecond})
			before := st.Counts()
			var all [5]answer
			var each sync.WaitGroup
			for i := range all {
				each.Go(func() { all[i] = ask(t, s, "POST", "/v1/locks/k/acquire", with(2, options)) })
			}
			each.Wait()
			for _, a := range all {
				if a.code != 200 || a.Lease != idOf(2) || a.Token == 0 || a.Token != all[0].Token {
					t.Errorf("%s: %d %s", options, a.code, a.body)
				}
			}
			if after := st.Counts(); after.Put != before.Put+1 {
				t.Errorf("%s: %d writes", options, after.Put-before.Put)
			}
			if leases, _, _, _ := s.Sizes(); leases != 1 || s.Claims() != 0 {
				t.Errorf("%s: %d leases, %d claims", options, leases, s.Claims())
			}
			st.Clear()
			stopped(t, s)
		})
	}
}

// A caller that asks again while its first request waits shares that one's wait, and keeps its place when the first
// connection breaks.
func TestAskedAgainWhileWaiting(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		held := acquired(t, s, "k", `{"ttl":"1h","fair":true}`)
		ctx, leave := context.WithCancel(t.Context())
		first, second, again := make(chan answer, 1), make(chan answer, 1), make(chan answer, 1)
		go func() {
			first <- asking(t, ctx, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h","wait":"1h","fair":true`))
		}()
		time.Sleep(5 * time.Second)
		go func() {
			second <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"ttl":"1h","wait":"1h","fair":true}`)
		}()
		time.Sleep(5 * time.Second)
		go func() {
			again <- ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h","wait":"30m","fair":true`))
		}()
		synctest.Wait()
		leave()
		<-first
		time.Sleep(5 * time.Second)
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.Waiting != 2 || len(o.Semaphore.Waiters) != 2 || strings.Contains(o.body, idOf(1)) {
			t.Errorf("it looks like %s", o.body)
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+held.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		a := <-again
		if a.code != 200 || a.Lease != idOf(1) || a.Token <= held.Token {
			t.Fatalf("the one that came first: %d %s", a.code, a.body)
		}
		select {
		case b := <-second:
			t.Errorf("the one that came second has it too: %d %s", b.code, b.body)
		default:
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(1), ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		if b := <-second; b.code != 200 || b.Token <= a.Token {
			t.Errorf("the one that came second: %d %s", b.code, b.body)
		}
		stopped(t, s)
	})
}

// A wait that no connection is left for ends, and takes nothing; a request with its ID then begins another.
func TestAskedAgainAfterItsWait(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		held := acquired(t, s, "k", `{"ttl":"1h","holder":"first"}`)
		body := with(1, `"ttl":"1h","wait":"1h"`)
		for range 2 { // both connections break
			ctx, leave := context.WithCancel(t.Context())
			var each sync.WaitGroup
			for range 2 {
				each.Go(func() { asking(t, ctx, s, "POST", "/v1/locks/k/acquire", body) })
			}
			time.Sleep(time.Second)
			if n := s.Claims(); n != 1 {
				t.Errorf("%d claims", n)
			}
			leave()
			each.Wait()
			if n := s.Claims(); n != 0 {
				t.Errorf("%d claims are left", n)
			}
		}
		if m := scraped(t, s); m[`leasehold_serve_waiting{for="lock"}`] != 0 {
			t.Errorf("%v wait", m[`leasehold_serve_waiting{for="lock"}`])
		}
		wants(t, "a wait that ends", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h","wait":"7s"`)), 409, "held")
		if d := ask(t, s, "DELETE", "/v1/leases/"+held.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		time.Sleep(time.Minute)
		if r := leasetest.RecordIn(t, st, "k"); r.Held {
			t.Errorf("it is held, and nobody waits: %+v", r)
		}
		if a := acquired(t, s, "k", body); a.Lease != idOf(1) || a.Token <= held.Token {
			t.Errorf("asked again: %s", a.body)
		}
		stopped(t, s)
	})
}

// A request that comes while the claim of one that has left is being given up, which may take a while, does not share that
// end: it waits or tries by itself, for as long as it wants.
func TestAskedAgainAsItsWaitEnds(t *testing.T) {
	const ending = 900 * time.Millisecond
	for _, tc := range []struct {
		options string
		held    time.Duration // by another process
		code    int
		state   string
		took    time.Duration // and a poll
	}{
		{``, time.Minute, 409, "held", ending},
		{``, ending / 2, 200, "", ending},
		{`"wait":"300ms"`, time.Minute, 409, "held", ending},
		{`"wait":"300ms"`, ending / 2, 409, "free", ending},
		{`"wait":"20s"`, time.Minute, 409, "held", 20 * time.Second},
		{`"wait":"1h"`, ending / 2, 200, "", ending},
		{`"wait":"1h"`, time.Minute, 200, "", time.Minute},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			slow := true
			st := memstore.New()
			s := started(t, st, &serve.Options{Trace: &locktrace.Trace{AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
				if e.Kind == locktrace.Lock && e.Err != nil && slow {
					slow = false
					time.Sleep(ending)
				}
			}}})
			lock, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Holder: "other"})
			if err != nil {
				t.Fatal(err)
			}
			held := leasetest.Acquire(t, lock)
			ctx, leave := context.WithCancel(t.Context())
			first, again := make(chan answer, 1), make(chan answer, 1)
			go func() { first <- asking(t, ctx, s, "POST", "/v1/locks/k/acquire", with(1, `"wait":"1h"`)) }()
			synctest.Wait()
			leave()
			synctest.Wait()
			began := time.Now()
			var took time.Duration
			go func() {
				a := ask(t, s, "POST", "/v1/locks/k/acquire", with(1, tc.options))
				took = time.Since(began)
				again <- a
			}()
			time.Sleep(tc.held)
			leasetest.Release(t, held)
			<-first
			a := <-again
			if a.code != tc.code || a.State != tc.state || took < tc.took || took > tc.took+15*time.Second || a.State == "held" && a.Holder != "other" || a.code == 200 && a.Token <= int64(held.Token()) || slow {
				t.Errorf("%s, held for %v, after %v: %d %s", tc.options, tc.held, took, a.code, a.body)
			}
			stopped(t, s)
		})
	}
}

// A lease that came as the last connection broke is kept for whoever asks again, or it was given up in time and is
// acquired anew: whichever came first.
func TestIDOfALeaseThatCameTooLate(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		s := started(t, memstore.New(), &serve.Options{Trace: &locktrace.Trace{AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
			if e.Kind == locktrace.Lock && e.Err == nil {
				time.Sleep(time.Millisecond) // until the acquisition only waits for this to return
				leave()
				time.Sleep(900 * time.Millisecond)
			}
		}}})
		asking(t, ctx, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h"`))
		if a := acquired(t, s, "k", with(1, `"ttl":"1h"`)); a.Lease != idOf(1) {
			t.Errorf("%s", a.body)
		}
		ask(t, s, "DELETE", "/v1/leases/"+idOf(1), "")
		stopped(t, s)
	})
}

// A request that joins one which tries to acquire, and does not wait, is answered in time though the store is slow.
func TestAskedAgainWhileTheStoreIsSlow(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Key: "k", Delay: 12 * time.Second})
		first := make(chan answer, 1)
		go func() { first <- ask(t, s, "POST", "/v1/locks/k/acquire", with(1, "")) }()
		synctest.Wait()
		began := time.Now()
		wants(t, "the second", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"wait":"3s"`)), 503, "store")
		if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("it was answered after %v", took)
		}
		<-first
		st.Clear()
		time.Sleep(time.Minute)
		stopped(t, s)
	})
}

// A meanwhile is a client during whose request something else happens, after it was found to be the first with its ID.
type meanwhile struct {
	*httptest.ResponseRecorder
	happens func()
}

func (m *meanwhile) SetReadDeadline(time.Time) error {
	if happens := m.happens; happens != nil {
		m.happens = nil
		happens()
	}
	return nil
}

// A request that was the first with its ID is no longer when another one has been answered before it goes on.
func TestOvertaken(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		body := with(1, `"slots":9,"ttl":"1h"`)
		for what, tc := range map[string]struct {
			happens func()
			code    int
		}{
			"it is acquired":              {func() { acquired(t, s, "k", body) }, 200},
			"it is acquired and released": {func() { acquired(t, s, "k", body); ask(t, s, "DELETE", "/v1/leases/"+idOf(1), "") }, 410},
			"it is taken":                 {func() { acquired(t, s, "other", with(1, `"ttl":"1h"`)) }, 422},
		} {
			w := &meanwhile{httptest.NewRecorder(), tc.happens}
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/locks/k/acquire", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.ServeHTTP(w, r)
			if leases, _, _, _ := s.Sizes(); w.Code != tc.code || leases > 1 || w.happens != nil {
				t.Errorf("%s: %d %s, %d leases", what, w.Code, w.Body, leases)
			}
			ask(t, s, "DELETE", "/v1/leases/"+idOf(1), "")
			time.Sleep(serve.KeepEnded + time.Minute)
		}
		stopped(t, s)
	})
}

// Each request with an ID waits for as long as it wants, whichever came first.
func TestEachWaitIsItsOwn(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		for _, tc := range []struct {
			waits []string // in seconds, one after the other
			after time.Duration
			codes []int
		}{
			{[]string{"10s", "4s"}, 8 * time.Second, []int{200, 409}},
			{[]string{"4s", "10s"}, 8 * time.Second, []int{409, 200}},
			{[]string{"10s", "0s"}, 8 * time.Second, []int{200, 409}},
			{[]string{"0s", "10s"}, 8 * time.Second, []int{409, 200}},
			{[]string{"4s", "4s", "6s", "20s"}, 12 * time.Second, []int{409, 409, 409, 200}},
			{[]string{"4s", "6s"}, 12 * time.Second, []int{409, 409}},
		} {
			held := acquired(t, s, "k", `{"ttl":"1h","holder":"other"}`)
			began := time.Now()
			var each sync.WaitGroup
			for i, wait := range tc.waits {
				each.Go(func() {
					a := ask(t, s, "POST", "/v1/locks/k/acquire", with(1, fmt.Sprintf(`"wait":%q`, wait)))
					took := time.Since(began)
					if a.code != tc.codes[i] {
						t.Errorf("%q, %s: %d %s", tc.waits, wait, a.code, a.body)
					}
					d, err := time.ParseDuration(wait)
					if err != nil {
						t.Error(err)
					}
					if a.code == 409 && (a.Holder != "other" || took < d || took > d+500*time.Millisecond) {
						t.Errorf("%q, %s, after %v: %s", tc.waits, wait, took, a.body)
					}
				})
				synctest.Wait()
			}
			time.Sleep(tc.after)
			ask(t, s, "DELETE", "/v1/leases/"+held.Lease, "")
			each.Wait()
			if n := s.Claims(); n != 0 {
				t.Errorf("%q: %d claims are left", tc.waits, n)
			}
			ask(t, s, "DELETE", "/v1/leases/"+idOf(1), "")
			time.Sleep(serve.KeepEnded + time.Minute)
		}
		stopped(t, s)
	})
}

// IDs take no more than leases and waits do: requests with one ID count each, and at the limit only those are answered whose
// lease is there. The IDs of leases that have ended are bounded too.
func TestIDsAreBounded(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Leases: 5, Waiting: 3})
		held := acquired(t, s, "k", with(0, `"ttl":"1h"`))
		var waits sync.WaitGroup
		for range 3 {
			waits.Go(func() {
				wants(t, "a wait", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"wait":"1m"`)), 409, "held")
			})
		}
		synctest.Wait()
		wants(t, "one more request with the ID", ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"wait":"1m"`)), 429, "too-many")
		wants(t, "another ID", ask(t, s, "POST", "/v1/locks/other/acquire", with(2, "")), 429, "too-many")
		again := func() {
			t.Helper()
			if a := ask(t, s, "POST", "/v1/locks/k/acquire", with(0, `"ttl":"1h"`)); a.code != 200 || a.Token != held.Token {
				t.Errorf("the lease that is there: %d %s", a.code, a.body)
			}
		}
		again()
		waits.Wait()
		for i := range 4 {
			acquired(t, s, fmt.Sprintf("k%d", i), with(10+i, `"ttl":"1h"`))
		}
		wants(t, "one lease more", ask(t, s, "POST", "/v1/locks/k9/acquire", with(3, "")), 429, "too-many")
		again()
		for i := range 4 {
			ask(t, s, "DELETE", "/v1/leases/"+idOf(10+i), "")
		}
		for i := range 50 {
			acquired(t, s, "many", with(100+i, `"wait":"1m"`))
			if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(100+i), ""); d.code != 204 {
				t.Fatalf("%d %s", d.code, d.body)
			}
		}
		if leases, endings, _, _ := s.Sizes(); leases != 1 || endings != 5 || s.Claims() != 0 {
			t.Errorf("%d leases, %d endings, %d claims", leases, endings, s.Claims())
		}
		for i := 45; i < 50; i++ {
			wants(t, "of the last ones", ask(t, s, "POST", "/v1/locks/many/acquire", with(100+i, `"wait":"1m"`)), 410, "over")
		}
		stopped(t, s)
	})
}

// What cannot be an ID is refused, and what can be is taken as it is.
func TestIDs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		before := st.Counts()
		const good = "abcdefghijklmnopqrstuv" // the least that has 128 bits in base64
		for _, id := range []string{
			"", "1", good[1:], good + strings.Repeat("x", 43), good + ".", good + "/", good + "/keepalive", good + "?wait", good + " ", good + "%30", good + "+", good + "=",
			good + "é", good + `\n`, good + `\u0000`, "../" + good, strings.Repeat("x", 10_000),
		} {
			a := ask(t, s, "POST", "/v1/locks/k/acquire", `{"id":"`+id+`"}`)
			wants(t, fmt.Sprintf("%.60q", id), a, 422, "value")
			if id != "" && id != "1" && strings.Contains(a.body, id) {
				t.Errorf("%.60q is repeated: %.300s", id, a.body)
			}
		}
		for _, id := range []string{`5`, `["` + good + `"]`, `true`} {
			wants(t, id, ask(t, s, "POST", "/v1/locks/k/acquire", `{"id":`+id+`}`), 400, "body")
		}
		if after := st.Counts(); after != before {
			t.Errorf("something was sent to the store: %+v, %+v", before, after)
		}
		for i, id := range []string{good, strings.ToUpper(good), good + strings.Repeat("-", 42), "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", "AZaz09_-AZaz09_-AZaz09_-"} {
			if a := acquired(t, s, fmt.Sprint("k", i), `{"id":"`+id+`"}`); a.Lease != id {
				t.Errorf("%q became %s", id, a.body)
			}
			if d := ask(t, s, "DELETE", "/v1/leases/"+id, ""); d.code != 204 {
				t.Errorf("%q: %d %s", id, d.code, d.body)
			}
		}
		if a := acquired(t, s, "none", `{"id":null}`); len(a.Lease) != 32 {
			t.Errorf("without one: %s", a.body)
		}
		stopped(t, s)
	})
}

// When the server stops, requests with an ID are answered like others.
func TestStopWithIDs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		acquired(t, s, "k", with(1, `"ttl":"1h"`))
		var each sync.WaitGroup
		for range 2 {
			each.Go(func() {
				wants(t, "a wait", ask(t, s, "POST", "/v1/locks/k/acquire", with(2, `"wait":"1h"`)), 503, "stopping")
			})
		}
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- s.Stop(t.Context()) }()
		each.Wait()
		if a := ask(t, s, "POST", "/v1/locks/k/acquire", with(1, `"ttl":"1h"`)); a.code != 410 || !strings.Contains(a.Detail, "stops") {
			t.Errorf("the lease: %d %s", a.code, a.body)
		}
		wants(t, "another", ask(t, s, "POST", "/v1/locks/l/acquire", with(3, "")), 503, "stopping")
		if d := ask(t, s, "DELETE", "/v1/leases/"+idOf(1), ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		if err := <-done; err != nil || s.Claims() != 0 {
			t.Errorf("%v, %d claims", err, s.Claims())
		}
	})
}

// An ID that a caller has chosen is told to no other: neither by what shows a lock, nor by events, nor by metrics.
func TestIDIsShownToNobody(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{MetricKeys: []string{"*"}})
		v := subscribe(t, s)
		acquired(t, s, "k", with(1, `"ttl":"1h"`))
		acquired(t, s, "sem", with(2, `"ttl":"1h","slots":1`))
		waited := make(chan answer, 1)
		go func() { waited <- ask(t, s, "POST", "/v1/locks/sem/acquire", with(3, `"slots":1,"wait":"30s"`)) }()
		time.Sleep(10 * time.Second)
		for _, path := range []string{"/v1/locks", "/v1/locks/k", "/v1/locks/sem", "/v1/locks/k/history", "/v1/elections/k", "/metrics"} {
			if a := ask(t, s, "GET", path, ""); a.code != 200 || strings.Contains(a.body, idOf(1)[:31]) {
				t.Errorf("%s: %d %s", path, a.code, a.body)
			}
		}
		held := ask(t, s, "POST", "/v1/locks/k/acquire", "")
		if wants(t, "another caller", held, 409, "held"); strings.Contains(held.body, idOf(1)[:31]) {
			t.Errorf("%s", held.body)
		}
		wants(t, "the wait", <-waited, 409, "held")
		v.leave()
		<-v.done
		_, events := v.take()
		for _, e := range events {
			if strings.Contains(string(e.data), idOf(1)[:31]) {
				t.Errorf("%s %s", e.name, e.data)
			}
		}
		stopped(t, s)
	})
}
