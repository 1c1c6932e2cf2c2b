package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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

// A lease is acquired, kept, looked at and released, and a replay of the release changes nothing.
func TestLease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, &serve.Options{Holder: "server", Prefix: "p/"})
		a := acquired(t, s, "a/b", `{"ttl":"10s","holder":"me","meta":{"x":"y"}}`)
		if a.Holder != "me" || a.TTL != 10_000 || a.Left > 10_000 || a.Left < 9_000 || time.Until(a.Deadline) > 10*time.Second || len(a.Lease) != 32 {
			t.Errorf("%s", a.body)
		}
		if r := leasetest.RecordIn(t, st, "p/a/b"); r.Holder != "me" || r.Meta["x"] != "y" || r.Token != a.Token || !strings.HasPrefix(r.Session, "../../sessions/") {
			t.Errorf("the record: %+v", r)
		}
		for _, path := range []string{"a/b", "a%2Fb"} {
			held := ask(t, s, "POST", "/v1/locks/"+path+"/acquire", "{}")
			wants(t, path, held, 409, "held")
			if held.Holder != "me" || held.Token != a.Token || held.State != "held" || held.Lock != st.String()+"p/a/b" || held.Meta["x"] != "y" || held.Session == "" {
				t.Errorf("who holds it: %s", held.body)
			}
			if strings.Contains(held.body, "expires_at") { // which would be in the past soon: the session is renewed
				t.Errorf("it is told when the record expires: %s", held.body)
			}
		}
		time.Sleep(6 * time.Second)
		kept := ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", "")
		if kept.code != 200 || kept.Token != a.Token || kept.Left <= a.Left-6000 || kept.Left > 10_000 {
			t.Errorf("kept: %d %s", kept.code, kept.body)
		}
		if seen := ask(t, s, "GET", "/v1/leases/"+a.Lease, ""); seen.code != 200 || seen.Left != kept.Left {
			t.Errorf("seen: %d %s", seen.code, seen.body)
		}
		began, told := time.Now(), make(chan answer, 1)
		go func() { told <- ask(t, s, "GET", "/v1/leases/"+a.Lease+"?wait=1h", "") }()
		synctest.Wait()
		if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		wants(t, "the one who waits for the end", <-told, 410, "over")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it was told after %v", took)
		}
		if r := leasetest.RecordIn(t, st, "p/a/b"); r.Held {
			t.Errorf("it is held: %+v", r)
		}
		b := acquired(t, s, "a/b", "")
		if b.Token <= a.Token || b.Holder != "server" || b.TTL != 15_000 {
			t.Errorf("the next: %s after token %d", b.body, a.Token)
		}
		for _, replay := range [][2]string{{"DELETE", ""}, {"POST", "/keepalive"}, {"GET", ""}, {"GET", "?wait=1h"}} {
			wants(t, "a replay", ask(t, s, replay[0], "/v1/leases/"+a.Lease+replay[1], ""), 410, "over")
		}
		keeping(t, s, b, serve.KeepEnded+time.Minute)
		wants(t, "much later", ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""), 404, "unknown")
		if _, endings, _, _ := s.Sizes(); endings != 0 {
			t.Errorf("%d endings are remembered", endings)
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+b.Lease, "{}"); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		stopped(t, s)
	})
}

// keeping sends keepalives for so long.
func keeping(t *testing.T, s *serve.Server, a answer, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Duration(a.TTL) * time.Millisecond / 3) {
		if k := ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", ""); k.code != 200 {
			t.Fatalf("the keepalive: %d %s", k.code, k.body)
		}
	}
}

// Hundreds of callers cost one heartbeat each third of the TTL, and their keepalives nothing at all.
func TestManyCallers(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const callers = 200
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		var all [callers]answer
		before := st.Counts()
		for i := range all {
			all[i] = acquired(t, s, fmt.Sprintf("k%d", i), `{"ttl":"20s"}`)
		}
		got := st.Counts()
		if puts, gets := got.Put-before.Put, got.Get-before.Get; puts != callers || gets > callers {
			t.Errorf("%d acquisitions took %d writes and %d reads", callers, puts, gets)
		}
		before = got
		began := time.Now()
		for range 15 {
			for i := range all {
				if k := ask(t, s, "POST", "/v1/leases/"+all[i].Lease+"/keepalive", ""); k.code != 200 {
					t.Fatalf("the keepalive: %d %s", k.code, k.body)
				}
			}
			time.Sleep(4 * time.Second)
		}
		got = st.Counts()
		minutes := time.Since(began).Minutes()
		if puts := float64(got.Put - before.Put); puts > 12*minutes+1 || puts < 12*minutes-1 || got.Get != before.Get || got.List != before.List {
			t.Errorf("in %v minutes %+v requests, want 12 writes a minute and nothing else", minutes, got)
		}
		before = got
		var each sync.WaitGroup
		for _, a := range all {
			each.Go(func() {
				if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
					t.Errorf("released: %d %s", d.code, d.body)
				}
			})
		}
		each.Wait()
		if puts := st.Counts().Put - before.Put; puts < callers || puts > callers+2 {
			t.Errorf("%d releases took %d writes", callers, puts)
		}
		if leases, _, usages, _ := s.Sizes(); leases != 0 || usages != 0 {
			t.Errorf("%d leases and %d keys are remembered", leases, usages)
		}
		stopped(t, s)
	})
}

// A caller that is not heard of loses its lock after its own TTL and a margin, not before, and whoever waits has it
// then.
func TestSilentCaller(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		a := acquired(t, s, "k", `{"ttl":"5s"}`)
		began := time.Now()
		next := make(chan answer, 1)
		go func() { next <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"1m","ttl":"2s"}`) }()
		b := <-next
		if took := time.Since(began); b.code != 200 || b.Token <= a.Token || took < 5*time.Second+serve.Margin(5*time.Second) || took > 6*time.Second {
			t.Errorf("after %v: %d %s", took, b.code, b.body)
		}
		wants(t, "the silent one", ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", ""), 410, "over")
		for range 30 {
			time.Sleep(2 * time.Second) // which is its TTL, and not the margin
			if k := ask(t, s, "POST", "/v1/leases/"+b.Lease+"/keepalive", ""); k.code != 200 {
				t.Fatalf("one that is heard of: %d %s", k.code, k.body)
			}
		}
		time.Sleep(3 * time.Second)
		wants(t, "a late one", ask(t, s, "GET", "/v1/leases/"+b.Lease, ""), 410, "over")
		stopped(t, s)
	})
}

// After the machine was suspended for longer than its TTL a lease is over for whoever asks first, though no timer
// has run.
func TestSuspended(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{TTL: 10 * time.Minute})
		a, b := acquired(t, s, "a", `{"ttl":"5s"}`), acquired(t, s, "b", `{"ttl":"10m"}`)
		st.Partition(true) // or the session would be renewed as soon as it is seen
		leasetest.Slept.Add(int64(7 * time.Second))
		wants(t, "the short one", ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", ""), 410, "over")
		kept := ask(t, s, "GET", "/v1/leases/"+b.Lease, "")
		if kept.code != 200 || kept.Left > b.Left-7000 {
			t.Errorf("the long one: %d %s, before %s", kept.code, kept.body, b.body)
		}
		leasetest.Slept.Add(int64(10 * time.Minute))
		wants(t, "ready", ask(t, s, "GET", "/readyz", ""), 503, "stopping") // nor is there a session, though nobody was told
		wants(t, "the long one", ask(t, s, "GET", "/v1/leases/"+b.Lease, ""), 410, "over")
		st.Partition(false)
		time.Sleep(time.Minute)
		stopped(t, s)
	})
}

// What a caller is told never reaches beyond what the session allows, at whatever moment it asks. So when the store
// cannot be reached, nobody else has the lock before the end that its caller was told.
func TestToldNoMoreThanTheSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{TTL: 6 * time.Second})
		a := acquired(t, s, "k", `{"ttl":"1h"}`)
		if a.Left > 6000 {
			t.Errorf("of a session of 6 s it was told %s", a.body)
		}
		other, err := leasehold.NewLock(inner, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		var until time.Time
		ask1 := func() bool {
			k := ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", "")
			if k.code == 200 {
				if end := time.Now().Add(time.Duration(k.Left) * time.Millisecond); end.After(until) {
					until = end
				}
			}
			return k.code == 200
		}
		for range 40 {
			if !ask1() {
				t.Fatal("it is over while all is well")
			}
			time.Sleep(317 * time.Millisecond)
		}
		st.Partition(true)
		got := make(chan time.Time, 1)
		go func() {
			lease, err := other.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			got <- time.Now()
			_ = lease.Release(t.Context())
		}()
		cut := time.Now()
		for ask1() {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(cut); took > 6*time.Second || time.Now().Before(until.Add(-200*time.Millisecond)) {
			t.Errorf("it was over %v after the cut, and its caller had been told of %v", took, until.Sub(cut))
		}
		if at := <-got; at.Before(until) {
			t.Errorf("another had the lock %v before the end that its caller was told", until.Sub(at))
		}
		st.Partition(false)
		time.Sleep(time.Minute)
		stopped(t, s)
	})
}

// When the session is lost all leases are, which those hear at once who wait for that; those who wait for a lock go
// on waiting; and there is another session soon after the store is back, without many requests meanwhile.
func TestSessionLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		var all [100]answer
		for i := range all {
			all[i] = acquired(t, s, fmt.Sprintf("k%d", i), `{"ttl":"1h"}`)
		}
		var told sync.WaitGroup
		for _, a := range all {
			told.Go(func() { wants(t, "the end", ask(t, s, "GET", "/v1/leases/"+a.Lease+"?wait=1h", ""), 410, "over") })
		}
		waited := make(chan answer, 1)
		go func() { waited <- ask(t, s, "POST", "/v1/locks/k0/acquire", `{"wait":"30m"}`) }()
		fair := make(chan answer, 1)
		go func() { fair <- ask(t, s, "POST", "/v1/locks/f/acquire", `{"wait":"30m","fair":true}`) }()
		synctest.Wait()
		f := <-fair
		if f.code != 200 {
			t.Fatalf("%d %s", f.code, f.body)
		}
		st.Partition(true)
		cut := time.Now()
		told.Wait()
		if took := time.Since(cut); took > 15*time.Second {
			t.Errorf("they were told after %v", took)
		}
		wants(t, "ready", ask(t, s, "GET", "/readyz", ""), 503, "stopping")
		if h := ask(t, s, "GET", "/healthz", ""); h.code != 200 {
			t.Errorf("healthy: %d %s", h.code, h.body)
		}
		refused := ask(t, s, "POST", "/v1/locks/other/acquire", "")
		wants(t, "acquire without a session", refused, 503, "stopping")
		if refused.header.Get("Retry-After") == "" || !strings.Contains(refused.Detail, "no session") {
			t.Errorf("it is not told what to do: %v %s", refused.header, refused.body)
		}
		began := time.Now()
		wants(t, "acquire that waits", ask(t, s, "POST", "/v1/locks/other/acquire", `{"wait":"20s"}`), 503, "stopping")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("it waited %v", took)
		}
		before := st.Counts()
		time.Sleep(5 * time.Minute)
		after := st.Counts()
		if n := after.Get + after.Put - before.Get - before.Put; n > 5*60/2 {
			t.Errorf("%d requests in 5 minutes without the store", n)
		}
		st.Partition(false)
		began = time.Now()
		w := <-waited
		if took := time.Since(began); w.code != 200 || w.Token <= all[0].Token || took > 40*time.Second {
			t.Errorf("the one that waits, %v after the store is back: %d %s", took, w.code, w.body)
		}
		if r := ask(t, s, "GET", "/readyz", ""); r.code != 200 {
			t.Errorf("ready again: %d %s", r.code, r.body)
		}
		again := ask(t, s, "POST", "/v1/locks/f/acquire", `{"wait":"5m","fair":true}`)
		if again.code != 200 || again.Token <= f.Token {
			t.Errorf("the fair one again: %d %s", again.code, again.body)
		}
		for i := 1; i < len(all); i++ { // whose record names a session that is over
			if b := acquired(t, s, fmt.Sprintf("k%d", i), `{"wait":"1m"}`); b.Token <= all[i].Token {
				t.Errorf("again: %s", b.body)
			}
		}
		stopped(t, s)
	})
}

// When thousands of leases end at once while the store fails or does not answer, lost with the session or since their
// callers are silent, they are cleared away within moments of the session's end, for few requests, and hold up neither
// those who come next nor a stop.
func TestManyLost(t *testing.T) {
	for _, tc := range []struct {
		name, ttl string
		fault     faultstore.Fault
		most      int // requests
	}{
		{"lost, with errors", "1h", faultstore.Fault{Kind: faultstore.Unavailable}, 50},
		{"lost, without answers", "1h", faultstore.Fault{Kind: faultstore.Hang}, 50},
		{"silent, with errors", "3s", faultstore.Fault{Kind: faultstore.Unavailable}, 400},
		{"silent, without answers", "3s", faultstore.Fault{Kind: faultstore.Hang}, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := faultstore.Wrap(memstore.New(), nil)
				s := started(t, st, nil)
				for i := range 500 {
					acquired(t, s, fmt.Sprintf("k%d", i), `{"ttl":"`+tc.ttl+`"}`)
				}
				st.Inject(tc.fault)
				cut, before := time.Now(), st.Counts()
				for leases := 1; leases > 0; leases, _, _, _ = s.Sizes() {
					time.Sleep(time.Second)
					if time.Since(cut) > 40*time.Second {
						t.Fatalf("%d leases are left %v after the cut", leases, time.Since(cut))
					}
				}
				took, after := time.Since(cut), st.Counts()
				n := after.Get + after.Put - before.Get - before.Put
				t.Logf("they were gone %v after the cut, for %d requests", took, n)
				if n > tc.most {
					t.Errorf("that took %d requests", n)
				}
				st.Clear()
				time.Sleep(time.Minute)
				acquired(t, s, "another", "")
				stopped(t, s)
			})
		})
	}
}

// When the server stops, nobody gets a lock before its caller has released it, or the time is over that the caller
// was told.
func TestStop(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, &serve.Options{TTL: 12 * time.Second})
		quick, slow := acquired(t, s, "quick", ""), acquired(t, s, "slow", `{"ttl":"1h"}`)
		time.Sleep(time.Second)
		slow = ask(t, s, "POST", "/v1/leases/"+slow.Lease+"/keepalive", "")
		until := time.Now().Add(time.Duration(slow.Left) * time.Millisecond)
		acquisition, end := make(chan answer, 1), make(chan answer, 1)
		go func() { acquisition <- ask(t, s, "POST", "/v1/locks/slow/acquire", `{"wait":"1h"}`) }()
		go func() { end <- ask(t, s, "GET", "/v1/leases/"+quick.Lease+"?wait=1h", "") }()
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- s.Stop(t.Context()) }()
		wants(t, "who waits for a lock", <-acquisition, 503, "stopping")
		wants(t, "who waits for the end", <-end, 410, "over")
		wants(t, "acquire", ask(t, s, "POST", "/v1/locks/new/acquire", ""), 503, "stopping")
		wants(t, "keepalive", ask(t, s, "POST", "/v1/leases/"+slow.Lease+"/keepalive", ""), 410, "over")
		wants(t, "events", ask(t, s, "GET", "/v1/events", ""), 503, "stopping")
		time.Sleep(time.Second)
		if d := ask(t, s, "DELETE", "/v1/leases/"+quick.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		for name, held := range map[string]bool{"quick": false, "slow": true} {
			if r := leasetest.RecordIn(t, st, name); r.Held != held {
				t.Errorf("%s: %+v", name, r)
			}
		}
		other, err := leasehold.NewLock(st, "slow", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, other)
		if early := time.Until(until); early > 0 {
			t.Errorf("another had it %v before the end that its caller was told", early)
		}
		// Who waits for a lock that is held under a session looks each third of the TTL.
		if late := time.Since(until); late > serve.Margin(12*time.Second)+5*time.Second {
			t.Errorf("another had it %v after", late)
		}
		leasetest.Release(t, lease)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, key := range leasetest.Objects(t, st) {
			if leasetest.RecordIn(t, st, key).Held {
				t.Errorf("%s is held after the end", key)
			}
		}
		if err := s.Start(t.Context()); err == nil {
			t.Error("it can be started again")
		}
	})
}

// When the server stops, a lock is freed no earlier than its caller was told, and a margin: the caller's clock may run
// slower than this one.
func TestStopKeepsTheMargin(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, &serve.Options{TTL: 12 * time.Second})
		a := acquired(t, s, "k", `{"ttl":"10s"}`)
		left := time.Duration(a.Left) * time.Millisecond
		told := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Stop(t.Context()) }()
		for leasetest.RecordIn(t, st, "k").Held {
			pause := time.Millisecond
			if time.Since(told) < left-time.Second {
				pause = 100 * time.Millisecond // too early, whenever it is
			}
			time.Sleep(pause)
		}
		if after := time.Since(told); after < left+serve.Margin(left) || after > left+serve.Margin(left)+time.Second {
			t.Errorf("it was freed after %v, and its caller was told %v", after, left)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A release that the store has not taken is answered with 202, and not as if the lock were free; and it goes on.
func TestReleaseUnderWay(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, nil)
		a := acquired(t, s, "k", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "k"})
		began := time.Now()
		d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, "")
		if took := time.Since(began); d.code != 202 || d.body != "" || took != serve.ReleaseWithin {
			t.Errorf("after %v: %d %s", took, d.code, d.body)
		}
		if !leasetest.RecordIn(t, inner, "k").Held {
			t.Error("it is free")
		}
		wants(t, "the caller", ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", ""), 410, "over")
		wants(t, "another caller", ask(t, s, "POST", "/v1/locks/k/acquire", ""), 409, "held")
		st.Clear()
		acquired(t, s, "k", `{"wait":"1m"}`)
		stopped(t, s)
	})
}

// No ID of a lease is in the log, whatever becomes of it: an ID is the right to a lease.
func TestLogHasNoID(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var log leasetest.Log
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{AllowBreak: true, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		var all []answer
		take := func(key, body string) answer {
			t.Helper()
			a := acquired(t, s, key, body)
			all = append(all, a)
			return a
		}
		released := take("released", "")
		for range 2 {
			ask(t, s, "DELETE", "/v1/leases/"+released.Lease, "")
		}
		ask(t, s, "POST", "/v1/leases/"+released.Lease+"/keepalive", "")
		ask(t, s, "GET", "/v1/leases/"+released.Lease+"?wait=soon", "")
		ask(t, s, "PUT", "/v1/leases/"+released.Lease, "")
		broken := take("broken", `{"ttl":"1h"}`)
		ask(t, s, "POST", "/v1/locks/broken/break", fmt.Sprintf(`{"token":%d}`, broken.Token))
		take("silent", `{"ttl":"1s"}`)
		take("slot", `{"ttl":"1s","slots":2}`)
		time.Sleep(3 * time.Second)
		failing := take("failing", `{"ttl":"1h"}`)
		take("lost", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "failing"})
		ask(t, s, "DELETE", "/v1/leases/"+failing.Lease, "")
		st.Clear()
		st.Partition(true)
		time.Sleep(time.Minute)
		st.Partition(false)
		time.Sleep(time.Minute)
		take("chosen", `{"id":"0123456789abcdefghijklmnopqrstuv","ttl":"1h"}`)
		ask(t, s, "POST", "/v1/locks/other/acquire", `{"id":"0123456789abcdefghijklmnopqrstuv"}`)
		ask(t, s, "POST", "/v1/locks/chosen/acquire", `{"id":"0123456789abcdefghijklmnopqrstuv","ttl":"1h"}`)
		ask(t, s, "POST", "/v1/locks/chosen/acquire", `{"id":"0123456789abcdefghijklmnopqrstuv!"}`)
		take("last", `{"ttl":"1h","wait":"1m"}`)
		stopped(t, s)
		text := log.String()
		for _, a := range all {
			if strings.Contains(text, a.Lease) {
				t.Errorf("the ID of the lease of %s is in the log", a.Key)
			}
		}
		for _, said := range []string{"refused", "broken", "not released", "session is lost"} {
			if !strings.Contains(text, said) {
				t.Errorf("the log does not say %q:\n%s", said, text)
			}
		}
	})
}

// A server that is stopped before it has a session, or cannot have one, ends.
func TestStopUnstarted(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		unstarted := made(t, memstore.New(), nil)
		stopped(t, unstarted)
		if err := unstarted.Start(t.Context()); err == nil || err.Error() != "the server was started before" {
			t.Errorf("it is started after it has stopped: %v", err)
		}
		st := faultstore.Wrap(memstore.New(), nil)
		st.Partition(true)
		s := made(t, st, nil)
		failed := make(chan error, 1)
		go func() { failed <- s.Start(t.Context()) }()
		time.Sleep(time.Minute)
		wants(t, "ready", ask(t, s, "GET", "/readyz", ""), 503, "stopping")
		stopped(t, s)
		if err := <-failed; err == nil {
			t.Error("it started")
		}
		denied := made(t, faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.Denied}}}), nil)
		if err := denied.Start(t.Context()); err == nil || !leasehold.Final(err) {
			t.Errorf("where access is denied: %v", err)
		}
		stopped(t, denied)
		time.Sleep(time.Minute)
	})
}

// A second stop that cannot wait ends at once.
func TestStopCutShort(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		acquired(t, s, "k", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped: %v", err)
		}
		stopped(t, s)
	})
}

// A wait ends with who holds the lock; and one whose caller leaves takes nothing.
func TestWaits(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		a := acquired(t, s, "k", `{"ttl":"1h","holder":"first"}`)
		for _, body := range []string{`{"wait":"7s"}`, `{"wait":"0s"}`} {
			began := time.Now()
			held := ask(t, s, "POST", "/v1/locks/k/acquire", body)
			wants(t, body, held, 409, "held")
			if took := time.Since(began); held.Holder != "first" || strings.Contains(body, "7s") && took != 7*time.Second {
				t.Errorf("%s: after %v %s", body, took, held.body)
			}
		}
		began := time.Now()
		seen := ask(t, s, "GET", "/v1/leases/"+a.Lease+"?wait=9s", "")
		if took := time.Since(began); seen.code != 200 || took != 9*time.Second {
			t.Errorf("after %v: %d %s", took, seen.code, seen.body)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan answer, 1)
		go func() { left <- asking(t, ctx, s, "POST", "/v1/locks/k/acquire", `{"wait":"1h"}`) }()
		synctest.Wait()
		leave()
		wants(t, "its caller has left", <-left, 400, "left") // and not that the store fails
		if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		time.Sleep(time.Minute)
		if r := leasetest.RecordIn(t, st, "k"); r.Held {
			t.Errorf("it is held: %+v", r)
		}
		stopped(t, s)
	})
}

// A caller that closes the sending half of its connection looks to a server like one that has left: it used to be told
// that the store fails.
func TestHalfClosed(t *testing.T) {
	s := started(t, memstore.New(), nil)
	server := httptest.NewServer(s)
	defer server.Close()
	first := acquired(t, s, "k", `{"ttl":"1h"}`)
	for _, body := range []string{`{"wait":"1h"}`, `{"wait":"1h","id":"0123456789012345678901"}`} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/locks/k/acquire", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if err = errors.Join(r.Write(conn), conn.(*net.TCPConn).CloseWrite()); err != nil { //nolint:errcheck,forcetypeassert // it was dialed
			t.Fatal(err)
		}
		a, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || a.StatusCode != 400 || !strings.Contains(string(text), "problem:left") {
			t.Errorf("%s: %d %s, %v", body, a.StatusCode, text, err)
		}
	}
	if d := ask(t, s, "DELETE", "/v1/leases/"+first.Lease, ""); d.code != 204 {
		t.Errorf("released: %d %s", d.code, d.body)
	}
	last := acquired(t, s, "k", "") // at once: neither of them has taken it
	if last.Token != first.Token+1 {
		t.Errorf("token %d follows %d", last.Token, first.Token)
	}
	if d := ask(t, s, "DELETE", "/v1/leases/"+last.Lease, ""); d.code != 204 {
		t.Errorf("released: %d %s", d.code, d.body)
	}
	stopped(t, s)
}

// A wait that is over is answered with who holds the lock, also if it was too short for a read, or the lock changes hands at
// that moment; the store fails only if it does.
func TestWaitsThatAreOver(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, nil)
		lock, err := leasehold.NewLock(inner, "k", &leasehold.LockOptions{Holder: "other"})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Delay: 300 * time.Millisecond})
		for _, key := range []string{"k", "k"} {
			held := ask(t, s, "POST", "/v1/locks/"+key+"/acquire", `{"wait":"100ms"}`)
			if wants(t, "a short wait", held, 409, "held"); held.State != "held" || held.Holder != "other" || held.Token != int64(lease.Token()) || held.Detail != "the wait of 100ms is over: the lock is held by other" {
				t.Errorf("who holds it: %s", held.body)
			}
			time.Sleep(5 * time.Second)
		}
		leasetest.Release(t, lease)
		free := ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"100ms"}`)
		if wants(t, "a short wait for what is free", free, 409, "held"); free.State != "free" || free.Detail != "the wait of 100ms is over: the lock is free by now: ask again" {
			t.Errorf("it is told %s", free.body)
		}
		st.Clear()

		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		began := time.Now()
		wants(t, "while the store does not answer", ask(t, s, "POST", "/v1/locks/another/acquire", `{"wait":"3s"}`), 503, "store")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was answered after %v", took)
		}
		st.Clear()
		time.Sleep(time.Minute)
		stopped(t, s)
	})
}

// Of many short waits for one lock, through two servers and over a slow network, each is answered with the lease or with who
// holds it.
func TestWaitsInTurmoil(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		var servers []*serve.Server
		for range 2 {
			st := faultstore.Wrap(inner, nil)
			st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Jitter: 200 * time.Millisecond})
			servers = append(servers, started(t, st, nil))
		}
		var callers sync.WaitGroup
		var given, refused atomic.Int64
		for i := range 8 {
			s, body := servers[i%2], `{"wait":"%dms","holder":"%d"}`
			if i >= 4 {
				body = `{"wait":"%dms","holder":"%d","fair":true}`
			}
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 2)) //nolint:gosec // a seed that is to be repeated
				for range 40 {
					path := fmt.Sprintf("/v1/locks/k%d", i/4)
					switch a := ask(t, s, "POST", path+"/acquire", fmt.Sprintf(body, 1+r.IntN(600), i)); {
					case a.code == 200:
						given.Add(1)
						time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						ask(t, s, "DELETE", "/v1/leases/"+a.Lease, "")
					case a.code == 409 && a.State != "" && (a.State != "held" || a.Holder != "" || a.Semaphore != nil):
						refused.Add(1)
					default:
						t.Errorf("%d %s", a.code, a.body)
					}
				}
			})
		}
		callers.Wait()
		if given.Load() < 20 || refused.Load() < 20 {
			t.Errorf("%d leases, %d refusals", given.Load(), refused.Load())
		}
		for _, s := range servers {
			stopped(t, s)
		}
	})
}

// deafWriter is a client that has gone, of which the server does not know until it writes.
type deafWriter struct{ *httptest.ResponseRecorder }

func (deafWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A lease of which its caller could not be told is released at once, and not after its TTL.
func TestAnswerIsLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		for _, body := range []string{`{"ttl":"1h"}`, `{"ttl":"1h","wait":"1m"}`} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/locks/k/acquire", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.ServeHTTP(deafWriter{httptest.NewRecorder()}, r)
			synctest.Wait()
			if r := leasetest.RecordIn(t, st, "k"); r.Held || r.Token == 0 {
				t.Errorf("it is held, or never was: %+v", r)
			}
		}
		stopped(t, s)
	})
}

// A plainWriter cannot flush, and does not know whether its client is there.
type plainWriter struct{ http.ResponseWriter }

// A brokenFlush finds out that its client has gone when it flushes.
type brokenFlush struct{ http.ResponseWriter }

func (brokenFlush) FlushError() error { return errors.New("broken pipe") }

// A lease is kept where the connection does not say whether its answer came, and released where it says that it did not.
func TestAnswerMayBeLost(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		for held, of := range map[bool]func(http.ResponseWriter) http.ResponseWriter{
			true:  func(w http.ResponseWriter) http.ResponseWriter { return plainWriter{w} },
			false: func(w http.ResponseWriter) http.ResponseWriter { return brokenFlush{w} },
		} {
			key := fmt.Sprintf("held-%t", held)
			w := httptest.NewRecorder()
			s.ServeHTTP(of(w), httptest.NewRequestWithContext(t.Context(), "POST", "/v1/locks/"+key+"/acquire", nil))
			synctest.Wait()
			if r := leasetest.RecordIn(t, st, key); w.Code != 200 || r.Held != held {
				t.Errorf("%s: %d %s, and %+v", key, w.Code, w.Body, r)
			}
		}
		stopped(t, s)
	})
}

// A lease that comes as the server stops is not given, and others have it soon.
func TestStopAsALeaseComes(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		for _, body := range []string{`{"ttl":"1h"}`, `{"ttl":"1h","fair":true}`} {
			st := memstore.New()
			var s *serve.Server
			stops := make(chan struct{})
			s = started(t, st, &serve.Options{Trace: &locktrace.Trace{AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
				if e.Kind == locktrace.Session {
					return
				}
				time.Sleep(time.Millisecond) // until the acquisition only waits for this to return
				close(stops)
				time.Sleep(500 * time.Millisecond)
			}}})
			answered := make(chan answer, 1)
			go func() { answered <- ask(t, s, "POST", "/v1/locks/k/acquire", body) }()
			<-stops
			began := time.Now()
			stopped(t, s)
			a := <-answered
			if wants(t, body, a, 503, "stopping"); time.Since(began) > 2*time.Second || a.Detail != "the server stops" {
				t.Errorf("%s: after %v: %s", body, time.Since(began), a.body)
			}
			next := started(t, st, nil)
			began = time.Now()
			acquired(t, next, "k", strings.Replace(body, `"1h"`, `"1s","wait":"1m"`, 1))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: another had it after %v", body, took)
			}
			stopped(t, next)
		}
	})
}

// While no session can be begun the log says why, once a minute, and not each time that it is tried, as it did; whoever asks is
// told the reason of now; and it is tried each few seconds. Leases of semaphores end with the session as those of locks do,
// though the store does not answer.
func TestLogOfALostSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var log leasetest.Log
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		acquired(t, s, "slot", `{"ttl":"1h","slots":2}`)
		acquired(t, s, "lock", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		time.Sleep(50 * time.Second)
		if leases, _, usages, _ := s.Sizes(); leases != 0 || usages != 0 {
			t.Errorf("%d leases and %d keys are left", leases, usages)
		}
		said := func(message string) int { return strings.Count(log.String(), `msg="`+message) }
		for _, kind := range []faultstore.Kind{faultstore.Denied, faultstore.Unavailable, faultstore.Denied} {
			st.Clear()
			st.Inject(faultstore.Fault{Kind: kind})
			time.Sleep(time.Minute)
			before := st.Counts()
			time.Sleep(time.Minute)
			after := st.Counts()
			if n := after.Get + after.Put - before.Get - before.Put; n < 10 || n > 60 {
				t.Errorf("%v: %d requests in a minute", kind, n)
			}
			r := ask(t, s, "GET", "/readyz", "")
			if wants(t, "ready", r, 503, "stopping"); !strings.HasPrefix(r.Detail, "there is no session now: ") || !strings.Contains(r.Detail, kind.String()) {
				t.Errorf("%v: %s", kind, r.Detail)
			}
			a := ask(t, s, "POST", "/v1/locks/other/acquire", `{"wait":"5s"}`)
			if wants(t, "acquire", a, 503, "stopping"); !strings.HasPrefix(a.Detail, "there is no session now: ") || !strings.Contains(a.Detail, kind.String()) {
				t.Errorf("%v: %s", kind, a.Detail)
			}
		}
		st.Clear()
		time.Sleep(10 * time.Second)
		if r := ask(t, s, "GET", "/readyz", ""); r.code != 200 || r.body != "ok\n" {
			t.Errorf("ready: %d %s", r.code, r.body)
		}
		if lost, again := said("the session is lost, and with it all leases: another is begun"), said("there is a session again"); lost != 1 || again != 1 {
			t.Errorf("lost %d times, again %d times\n%s", lost, again, &log)
		}
		if n := said("no session can be begun: it is tried again"); n < 4 || n > 6 {
			t.Errorf("it is said %d times in five minutes that there is no session\n%s", n, &log)
		}
		if said("the store fails, and is tried again") == 0 || said("the session that was lost is not settled") > 0 {
			t.Errorf("the log is\n%s", &log)
		}
		acquired(t, s, "slot", `{"slots":2}`)
		stopped(t, s)
	})
}

// A lease that came as its caller left is released.
func TestLeavesAsItComes(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		ctx, leave := context.WithCancel(t.Context())
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Key: "k", Delay: time.Second})
		go func() {
			time.Sleep(time.Second / 2)
			leave()
		}()
		asking(t, ctx, s, "POST", "/v1/locks/k/acquire", "")
		time.Sleep(10 * time.Second)
		if r := leasetest.RecordIn(t, inner, "k"); r.Held {
			t.Errorf("it is held: %+v", r)
		}
		if leases, _, _, _ := s.Sizes(); leases != 0 {
			t.Errorf("%d leases are left", leases)
		}
		stopped(t, s)
	})
}

// A lease that came just before its caller left, and was not told of yet, is released at once, and not after its TTL.
func TestLeavesAfterItCame(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		ctx, leave := context.WithCancel(t.Context())
		s := started(t, st, &serve.Options{Trace: &locktrace.Trace{AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
			if e.Kind == locktrace.Lock {
				leave()
			}
		}}})
		asking(t, ctx, s, "POST", "/v1/locks/k/acquire", `{"ttl":"1h"}`)
		synctest.Wait()
		if r := leasetest.RecordIn(t, st, "k"); r.Held || r.Token == 0 {
			t.Errorf("it is held, or never was: %+v", r)
		}
		if leases, _, _, _ := s.Sizes(); leases != 0 {
			t.Errorf("%d leases are left", leases)
		}
		stopped(t, s)
	})
}

// Semaphores, fair locks and reader/writer locks are taken by what the body says.
func TestSemaphore(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		first := acquired(t, s, "sem", `{"slots":3,"weight":2,"holder":"first","ttl":"1h"}`)
		second := acquired(t, s, "sem", `{"slots":3,"holder":"second","ttl":"1h"}`)
		if second.Holder != "second" || second.Token <= first.Token {
			t.Errorf("%s", second.body)
		}
		held := ask(t, s, "POST", "/v1/locks/sem/acquire", `{"slots":3}`)
		wants(t, "the fourth slot", held, 409, "held")
		if held.Semaphore == nil || held.Semaphore.Size != 3 || held.Semaphore.Taken != 3 || len(held.Semaphore.Holders) != 2 || held.Semaphore.Holders[0].Holder != "first" {
			t.Errorf("who holds it: %s", held.body)
		}
		wants(t, "another size", ask(t, s, "POST", "/v1/locks/sem/acquire", `{"slots":4}`), 422, "foreign")
		wants(t, "as a lock", ask(t, s, "POST", "/v1/locks/sem/acquire", ``), 422, "foreign")
		next := make(chan answer, 1)
		go func() {
			next <- ask(t, s, "POST", "/v1/locks/sem/acquire", `{"slots":3,"weight":2,"wait":"1h","holder":"third"}`)
		}()
		time.Sleep(3 * time.Second)
		o := ask(t, s, "GET", "/v1/locks/sem", "")
		if o.code != 200 || o.Kind != "semaphore" || o.Here != 2 || o.Waiting != 1 || len(o.Semaphore.Waiters) != 1 || o.Semaphore.Waiters[0].Holder != "third" {
			t.Errorf("it looks like %s", o.body)
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+first.Lease, ""); d.code != 204 {
			t.Errorf("released: %d %s", d.code, d.body)
		}
		if n := <-next; n.code != 200 || n.Token <= second.Token {
			t.Errorf("the next: %d %s", n.code, n.body)
		}

		reader := acquired(t, s, "rw", `{"shared":true,"ttl":"1h"}`)
		acquired(t, s, "rw", `{"shared":true,"ttl":"1h"}`)
		wants(t, "a writer", ask(t, s, "POST", "/v1/locks/rw/acquire", `{"shared":false}`), 409, "held")
		fair := acquired(t, s, "fair", `{"fair":true,"ttl":"1h"}`)
		wants(t, "the second", ask(t, s, "POST", "/v1/locks/fair/acquire", `{"fair":true}`), 409, "held")
		time.Sleep(2 * time.Second)
		for key, kind := range map[string]string{"rw": "rw_lock", "fair": "fair_lock"} {
			if o := ask(t, s, "GET", "/v1/locks/"+key, ""); o.code != 200 || o.Kind != kind {
				t.Errorf("%s looks like %s", key, o.body)
			}
		}
		for _, a := range []answer{reader, fair} {
			if k := ask(t, s, "POST", "/v1/leases/"+a.Lease+"/keepalive", ""); k.code != 200 {
				t.Errorf("%d %s", k.code, k.body)
			}
		}
		stopped(t, s)
	})
}

// An election is a lock; who leads is answered as `leasehold elect --http` does.
func TestElection(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		a, b := started(t, st, &serve.Options{Holder: "a", Address: "here"}), started(t, st, &serve.Options{Holder: "b"})
		if l := ask(t, a, "GET", "/v1/elections/e", ""); l.code != 200 || l.Name != "" || l.Leading || l.Lock != st.String()+"/e" {
			t.Errorf("before: %d %s", l.code, l.body)
		}
		won := ask(t, a, "POST", "/v1/elections/e/campaign", `{"ttl":"1h"}`)
		if won.code != 200 {
			t.Fatalf("%d %s", won.code, won.body)
		}
		time.Sleep(2 * time.Second)
		before := st.Counts()
		for range 100 { // the leader's own server needs no look, and the other's one for all
			if l := ask(t, a, "GET", "/v1/elections/e", ""); l.Name != "a" || !l.Leading || l.Address != "here" || l.Token != won.Token {
				t.Fatalf("the leader: %s", l.body)
			}
			if l := ask(t, b, "GET", "/v1/elections/e", ""); l.Name != "a" || l.Leading || l.Token != won.Token {
				t.Fatalf("the follower: %s", l.body)
			}
		}
		if n := st.Counts().Get - before.Get; n > 2 {
			t.Errorf("%d reads", n)
		}
		if o := ask(t, a, "GET", "/v1/locks/e", ""); o.Kind != "election" {
			t.Errorf("it looks like %s", o.body)
		}
		next := make(chan answer, 1)
		go func() { next <- ask(t, b, "POST", "/v1/elections/e/campaign", `{"wait":"1h"}`) }()
		synctest.Wait()
		if d := ask(t, a, "DELETE", "/v1/leases/"+won.Lease, ""); d.code != 204 {
			t.Errorf("resigned: %d %s", d.code, d.body)
		}
		if n := <-next; n.code != 200 || n.Token <= won.Token {
			t.Errorf("the next: %d %s", n.code, n.body)
		}
		time.Sleep(2 * time.Second)
		if l := ask(t, a, "GET", "/v1/elections/e", ""); l.Name != "b" || l.Leading {
			t.Errorf("the former leader: %s", l.body)
		}
		stopped(t, a)
		stopped(t, b)
	})
}

// A leader that has been dead for long is not named: neither one with a heartbeat of its own, nor one under the session of
// another server.
func TestDeadLeader(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		cut := faultstore.Wrap(st, nil)
		dead, s := started(t, cut, &serve.Options{Holder: "dead"}), started(t, st, nil)
		if won := ask(t, dead, "POST", "/v1/elections/served/campaign", `{"ttl":"1h"}`); won.code != 200 {
			t.Fatalf("%d %s", won.code, won.body)
		}
		lock, err := leasehold.NewLock(cut, "alone", &leasehold.LockOptions{Holder: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		lease := leasetest.Acquire(t, lock)
		time.Sleep(2 * time.Second)
		for _, key := range []string{"served", "alone"} {
			if l := ask(t, s, "GET", "/v1/elections/"+key, ""); l.Name != "dead" || l.Token == 0 {
				t.Errorf("%s, while it leads: %s", key, l.body)
			}
		}
		cut.Partition(true)
		time.Sleep(10 * time.Minute)
		for _, key := range []string{"served", "alone"} {
			if l := ask(t, s, "GET", "/v1/elections/"+key, ""); l.code != 200 || l.Name != "" || l.Token != 0 || l.Address != "" {
				t.Errorf("%s, ten minutes after its death: %d %s", key, l.code, l.body)
			}
		}
		cut.Partition(false)
		time.Sleep(time.Minute)
		_ = lease.Release(t.Context()) // it is lost
		stopped(t, dead)
		stopped(t, s)
	})
}

// Of two servers whose callers always want one lock none keeps it among its own for long: two turns in a row, or a third of
// the TTL, before the lock is left to others for a while. One took 62 turns in a row, while the waits at the other expired.
func TestServersTakeTurns(t *testing.T) {
	for _, turn := range []time.Duration{100 * time.Millisecond, 1600 * time.Millisecond, 4 * time.Second} {
		t.Run(turn.String(), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := memstore.New()
				servers := []*serve.Server{started(t, st, nil), started(t, st, nil)}
				end := time.Now().Add(3 * time.Minute)
				var mu sync.Mutex
				var turns [2]int
				var row time.Duration // how long one server's turns went on
				began, last, expired := time.Now(), -1, 0
				var callers sync.WaitGroup
				for i := range 4 {
					callers.Go(func() {
						s := servers[i%2]
						for time.Now().Before(end) {
							a := ask(t, s, "POST", "/v1/locks/k/acquire", `{"ttl":"15s","wait":"30s"}`)
							if a.code != 200 {
								mu.Lock()
								expired++
								mu.Unlock()
								continue
							}
							mu.Lock()
							if turns[i%2]++; last != i%2 {
								last, began = i%2, time.Now()
							}
							mu.Unlock()
							time.Sleep(turn)
							mu.Lock()
							row = max(row, time.Since(began))
							mu.Unlock()
							ask(t, s, "DELETE", "/v1/leases/"+a.Lease, "")
						}
					})
				}
				callers.Wait()
				if longest := 5*time.Second + turn; row > longest || expired > 0 || min(turns[0], turns[1]) < (turns[0]+turns[1])/3 {
					t.Errorf("%v turns, one server's in a row for up to %v, want %v at most; %d waits expired", turns, row, longest, expired)
				}
				for _, s := range servers {
					stopped(t, s)
				}
			})
		})
	}
}
