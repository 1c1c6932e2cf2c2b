package serve_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A lock is broken where that is allowed, and only by the token that it has.
func TestBreak(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{AllowBreak: true})
		timid := started(t, memstore.New(), nil)
		lock, err := leasehold.NewLock(inner, "jobs/a", &leasehold.LockOptions{Holder: "other", TTL: 15 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		token := int64(lease.Token())
		body := func(token int64) string { return fmt.Sprintf(`{"token":%d}`, token) }
		const path = "/v1/locks/jobs%2Fa/break"

		for _, server := range []*serve.Server{s, timid} {
			if allowed := strings.Contains(ask(t, server, "GET", "/v1/locks", "").body, `"break":true`); allowed != (server == s) {
				t.Errorf("it is told that breaking is allowed: %t", allowed)
			}
		}
		wants(t, "not allowed", ask(t, timid, "POST", path, body(token)), 403, "break")

		st.Reset()
		a := ask(t, s, "POST", path, body(token-1))
		wants(t, "another token", a, 409, "held")
		if a.Holder != "other" || a.Token != token {
			t.Errorf("it does not say who holds it: %s", a.body)
		}
		wants(t, "no token", ask(t, s, "POST", path, "{}"), 422, "value")
		wants(t, "no body", ask(t, s, "POST", path, ""), 422, "value")
		wants(t, "a token that is none", ask(t, s, "POST", path, body(0)), 422, "value")
		wants(t, "a negative one", ask(t, s, "POST", path, body(-token)), 422, "value")
		wants(t, "a text", ask(t, s, "POST", path, `{"token":"1"}`), 400, "body")
		wants(t, "more", ask(t, s, "POST", path, `{"token":1,"force":true}`), 400, "body")
		wants(t, "no lock", ask(t, s, "POST", "/v1/locks/none/break", body(token)), 404, "unknown")
		wants(t, "no key", ask(t, s, "POST", "/v1/locks/../break", body(token)), 400, "key")
		wants(t, "another method", ask(t, s, "PUT", path, body(token)), 405, "method")
		if n := st.Counts().Put; n > 1 || !lease.Valid() { // one is the heartbeat
			t.Errorf("something was written: %d, %v", n, lease.Err())
		}

		a = ask(t, s, "POST", path, body(token))
		if a.code != 200 || !strings.Contains(a.body, `"freed":true`) || a.State != "free" {
			t.Errorf("the right token: %d %s", a.code, a.body)
		}
		a = ask(t, s, "POST", path, body(token))
		if a.code != 200 || !strings.Contains(a.body, `"freed":false`) {
			t.Errorf("again: %d %s", a.code, a.body)
		}
		time.Sleep(10 * time.Second)
		if err := lease.Err(); !errors.Is(err, leasehold.ErrBroken) {
			t.Errorf("the holder is told: %v", err)
		}
		if m := ask(t, s, "GET", "/metrics", ""); !strings.Contains(m.body, "leasehold_serve_breaks_total 1\n") {
			t.Errorf("it is not counted:\n%s", m.body)
		}
		stopped(t, s)
		stopped(t, timid)
	})
}

// Of what the server holds itself one lease is ended, and the others go on; as would not be if its session were.
func TestBreakOurs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{AllowBreak: true})
		a, b := acquired(t, s, "a", `{"ttl":"1h"}`), acquired(t, s, "b", `{"ttl":"1h"}`)
		c, d := acquired(t, s, "sem", `{"ttl":"1h","slots":2}`), acquired(t, s, "sem", `{"ttl":"1h","slots":2}`)
		waiting := make(chan answer, 1)
		go func() { waiting <- ask(t, s, "POST", "/v1/locks/sem/acquire", `{"ttl":"1h","slots":2,"wait":"1m"}`) }()
		time.Sleep(time.Second)
		for _, l := range []answer{a, c} {
			got := ask(t, s, "POST", "/v1/locks/"+l.Key+"/break", fmt.Sprintf(`{"token":%d}`, l.Token))
			if got.code != 200 || !strings.Contains(got.body, `"freed":true`) {
				t.Errorf("%s: %d %s", l.Key, got.code, got.body)
			}
			over := ask(t, s, "POST", "/v1/leases/"+l.Lease+"/keepalive", "")
			if wants(t, l.Key, over, 410, "over"); !strings.Contains(over.Detail, "by hand") {
				t.Errorf("why: %s", over.Detail)
			}
		}
		if w := <-waiting; w.code != 200 || w.Token <= d.Token {
			t.Errorf("the waiter: %d %s", w.code, w.body)
		}
		for _, l := range []answer{b, d} {
			if k := ask(t, s, "POST", "/v1/leases/"+l.Lease+"/keepalive", ""); k.code != 200 {
				t.Errorf("the lease of %s is gone too: %d %s", l.Key, k.code, k.body)
			}
		}
		stopped(t, s)
	})
}

// A slot of another process is freed by the token of its holder, and the next one has it.
func TestBreakHolder(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, &serve.Options{AllowBreak: true})
		sem, err := semaphore.New(st, "sem", 1, &semaphore.Options{Holder: "other"})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := sem.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan answer, 1)
		go func() {
			waiting <- ask(t, s, "POST", "/v1/locks/sem/acquire", `{"ttl":"1h","fair":true,"wait":"1m","holder":"next"}`)
		}()
		time.Sleep(5 * time.Second)
		wrong := ask(t, s, "POST", "/v1/locks/sem/break", `{"token":7}`)
		if wants(t, "another token", wrong, 409, "held"); wrong.Semaphore == nil || len(wrong.Semaphore.Waiters) != 1 || !lease.Valid() {
			t.Errorf("%s", wrong.body)
		}
		right := ask(t, s, "POST", "/v1/locks/sem/break", fmt.Sprintf(`{"token":%d}`, lease.Token()))
		if right.code != 200 || !strings.Contains(right.body, `"freed":true`) || len(right.Semaphore.Holders) > 0 && right.Semaphore.Holders[0].Holder != "next" {
			t.Errorf("%d %s", right.code, right.body)
		}
		if w := <-waiting; w.code != 200 || w.Holder != "next" || w.Token <= int64(lease.Token()) {
			t.Errorf("the next one: %d %s", w.code, w.body)
		}
		time.Sleep(10 * time.Second)
		if lease.Valid() {
			t.Error("the former holder still has it")
		}
		_ = lease.Release(t.Context()) // it is lost
		_ = sem.Close(t.Context())
		stopped(t, s)
	})
}

// Guessing tokens asks the store no more often than the budget of looks allows.
func TestBreakBudget(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{AllowBreak: true, Budget: 60, Limit: 10})
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		st.Reset()
		codes := map[int]int{}
		for i := range 1000 {
			codes[ask(t, s, "POST", "/v1/locks/k/break", fmt.Sprintf(`{"token":%d}`, i+1)).code]++
			time.Sleep(100 * time.Millisecond)
		}
		if n := st.Counts(); n.Get+n.List > 60*1000/600+60+10+20 || codes[429] == 0 || codes[409] == 0 || len(codes) != 2 {
			t.Errorf("%+v for a thousand guesses, which were answered %v", n, codes)
		}
		leasetest.Release(t, lease)
		stopped(t, s)
	})
}

// The token of an earlier lease breaks nothing: neither a lease that this server has given since, of a lock or of a
// slot, nor one that is beside it.
func TestBreakByAnOldToken(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{AllowBreak: true})
		for key, body := range map[string]string{"lock": `{"ttl":"1h"}`, "slots": `{"ttl":"1h","slots":2}`, "fair": `{"ttl":"1h","fair":true}`} {
			old := acquired(t, s, key, body)
			if d := ask(t, s, "DELETE", "/v1/leases/"+old.Lease, ""); d.code != 204 {
				t.Fatalf("%s: released: %d %s", key, d.code, d.body)
			}
			now := acquired(t, s, key, body)
			got := ask(t, s, "POST", "/v1/locks/"+key+"/break", fmt.Sprintf(`{"token":%d}`, old.Token))
			if key == "lock" {
				wants(t, key, got, 409, "held")
			}
			if got.code == 200 && !strings.Contains(got.body, `"freed":false`) {
				t.Errorf("%s: token %d, when it has %d: %s", key, old.Token, now.Token, got.body)
			}
			if k := ask(t, s, "POST", "/v1/leases/"+now.Lease+"/keepalive", ""); k.code != 200 || k.Token != now.Token {
				t.Errorf("%s: the lease of now: %d %s", key, k.code, k.body)
			}
		}
		stopped(t, s)
	})
}

// A lease whose release is under way is not broken as another's would be: that would end this server's session, and with it
// all other leases. Meanwhile it leads no election.
func TestBreakWhatIsBeingReleased(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{AllowBreak: true})
		beside := acquired(t, s, "beside", `{"ttl":"1h"}`)
		won := ask(t, s, "POST", "/v1/elections/e/campaign", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "e"})
		if d := ask(t, s, "DELETE", "/v1/leases/"+won.Lease, ""); d.code != 202 {
			t.Fatalf("%d %s", d.code, d.body)
		}
		if l := ask(t, s, "GET", "/v1/elections/e", ""); l.code != 200 || l.Name != "" || l.Leading {
			t.Errorf("the leader: %d %s", l.code, l.body)
		}
		got := ask(t, s, "POST", "/v1/locks/e/break", fmt.Sprintf(`{"token":%d}`, won.Token))
		if wants(t, "break", got, 503, "store"); !strings.Contains(got.Detail, "release is under way") {
			t.Errorf("why: %s", got.Detail)
		}
		st.Clear()
		if k := ask(t, s, "POST", "/v1/leases/"+beside.Lease+"/keepalive", ""); k.code != 200 {
			t.Errorf("the lease beside it: %d %s", k.code, k.body)
		}
		acquired(t, s, "e", `{"wait":"1m"}`)
		stopped(t, s)
	})
}

// A lock that its holder freed while it was being broken, and another had since, was not freed by the break: it is neither told
// nor counted as that. It was.
func TestBreakBesideARelease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{AllowBreak: true})
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other"})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "k", Nth: 2, Delay: 4 * time.Second}) // after the first look
		got := make(chan answer, 1)
		go func() { got <- ask(t, s, "POST", "/v1/locks/k/break", fmt.Sprintf(`{"token":%d}`, lease.Token())) }()
		time.Sleep(2 * time.Second)
		leasetest.Release(t, lease)
		leasetest.Release(t, leasetest.Acquire(t, lock2(t, inner)))
		if a := <-got; a.code != 200 || !strings.Contains(a.body, `"freed":false`) || a.State != "free" {
			t.Errorf("%d %s", a.code, a.body)
		}
		scraped(t, s).wants(t, "freed by its holders", scrape{"leasehold_serve_breaks_total": 0})
		stopped(t, s)
	})
}

// Four locks are broken at a time, for half a minute each at most, also when whoever asked has left; what is beyond is refused,
// and what the server cannot find out is not told as freed. It needs no session of its own.
func TestBreaksAreBounded(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		var log leasetest.Log
		s := made(t, st, &serve.Options{AllowBreak: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), URL: func(key string) string { return "mem://" + key }})
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		body := fmt.Sprintf(`{"token":%d}`, lease.Token())
		st.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "get", Key: "k"})
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		began := time.Now()
		for i := range 4 {
			all.Go(func() {
				if i == 0 { // and this one stays
					a := ask(t, s, "POST", "/v1/locks/k/break", body) //nolint:contextcheck // its own caller stays
					if wants(t, "a break", a, 503, "store"); !strings.HasPrefix(a.Detail, "the store has not said whether the lock is free: ") {
						t.Errorf("why: %s", a.Detail)
					}
				} else {
					wants(t, "a break whose caller has left", asking(t, ctx, s, "POST", "/v1/locks/k/break", body), 400, "left")
				}
				if took := time.Since(began); took != 30*time.Second {
					t.Errorf("answered after %v", took)
				}
			})
		}
		synctest.Wait()
		a := ask(t, s, "POST", "/v1/locks/k/break", body)
		if wants(t, "a fifth", a, 429, "too-many"); a.Detail != "4 locks are being broken, and no more may be at a time" {
			t.Errorf("why: %s", a.Detail)
		}
		leave()
		all.Wait()
		st.Clear()
		for i := range 6 {
			a := ask(t, s, "POST", "/v1/locks/k/break", body)
			if freed := fmt.Sprintf(`"freed":%t`, i == 0); a.code != 200 || !strings.Contains(a.body, freed) || a.State != "free" || a.Lock != "mem://k" {
				t.Errorf("%d times: %d %s, want %s", i+1, a.code, a.body, freed)
			}
		}
		if n := st.Counts().Put; n != 1 {
			t.Errorf("%d writes", n)
		}
		if want := fmt.Sprintf(`level=WARN msg="a lock was broken by hand: its holder may work on until it finds out" lock=mem://k holder=other token=%d`+"\n", lease.Token()); strings.Count(log.String(), "\n") != 1 || !strings.HasSuffix(log.String(), want) {
			t.Errorf("the log is\n%s, want\n%s", &log, want)
		}
		_ = lease.Release(t.Context()) // it is lost
		stopped(t, s)
	})
}

// A break whose writes are always overtaken is tried three times, and a lock that rests is freed from its rest.
func TestBreakIsTriedAgain(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := made(t, st, &serve.Options{AllowBreak: true})
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"token":%d}`, lease.Token())
		for kind, puts := range map[faultstore.Kind]int{faultstore.Conflict: 3, faultstore.Unavailable: 1} {
			st.Reset()
			st.Inject(faultstore.Fault{Kind: kind, Op: "put", Key: "k"})
			wants(t, kind.String(), ask(t, s, "POST", "/v1/locks/k/break", body), 503, "store")
			if n := st.Counts().Put; n != puts || !lease.Valid() {
				t.Errorf("%v: %d writes, want %d: %v", kind, n, puts, lease.Err())
			}
			st.Clear()
		}
		leasetest.Release(t, lease)
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "free" || !strings.Contains(o.body, `"rest_ms"`) {
			t.Errorf("it does not rest: %s", o.body)
		}
		if a := ask(t, s, "POST", "/v1/locks/k/break", body); a.code != 200 || a.State != "free" || strings.Contains(a.body, `"rest_ms"`) {
			t.Errorf("it rests on: %d %s", a.code, a.body)
		}
		leasetest.Release(t, leasetest.Acquire(t, lock))
		stopped(t, s)
	})
}

// A renewal that is faster than the break does not keep the lock from being broken; and what is seen at once is free.
func TestBreakBesideARenewal(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{AllowBreak: true})
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other"})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "held" {
			t.Errorf("before: %s", o.body)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "k", Nth: 1, Delay: 6 * time.Second}) // it is renewed meanwhile
		got := ask(t, s, "POST", "/v1/locks/k/break", fmt.Sprintf(`{"token":%d}`, lease.Token()))
		if got.code != 200 || !strings.Contains(got.body, `"freed":true`) {
			t.Fatalf("broken: %d %s", got.code, got.body)
		}
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "free" {
			t.Errorf("after: %s", o.body)
		}
		next := leasetest.Acquire(t, lock2(t, inner))
		time.Sleep(2 * time.Second)
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "held" || o.Holder != "second" {
			t.Errorf("when the second has it: %s", o.body)
		}
		if o := ask(t, s, "POST", "/v1/locks/k/break", fmt.Sprintf(`{"token":%d}`, next.Token())); o.code != 200 {
			t.Errorf("broken again: %d %s", o.code, o.body)
		}
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "free" {
			t.Errorf("after the second one: %s", o.body)
		}
		time.Sleep(time.Minute)
		_ = lease.Release(t.Context()) // both are lost
		_ = next.Release(t.Context())
		stopped(t, s)
	})
}

func lock2(t *testing.T, st store.Store) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Holder: "second"})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}
