//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/servers"
)

// withoutSessions is why a test is not run over markers.
const withoutSessions = "a marker has no record that can name a session"

// A lodger is a tenant, as the test sees it, with a proxy of its own.
type lodger struct {
	*exec.Cmd
	ledger

	holder string
	in     io.Writer
	says   chan account
	got    chan account // leases that were waited for
}

// A ledger is the requests that one process has sent.
type ledger struct {
	mu   sync.Mutex
	sent []request
}

// A request is what arrived at the proxy.
type request struct {
	at          time.Duration // by the clock that all processes share
	method, key string
}

func (l *ledger) note(r *http.Request, _ int) servers.Fault {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, request{clock.Now(), r.Method, key})
	return servers.Pass
}

// since gives the requests from an instant on.
func (l *ledger) since(at time.Duration) []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.sent, at, func(r request, at time.Duration) int { return cmp.Compare(r.at, at) })
	return slices.Clone(l.sent[i:])
}

// writes are those of one object.
func (l *ledger) writes(key string) []time.Duration {
	var at []time.Duration
	for _, r := range l.since(0) {
		if r.method == http.MethodPut && r.key == key {
			at = append(at, r.at)
		}
	}
	return at
}

// lodge starts a tenant.
func lodge(t *testing.T, server *servers.Server, bucket string, what tenancy) *lodger {
	t.Helper()
	l := &lodger{holder: what.Holder, says: make(chan account, 1), got: make(chan account, what.Locks)}
	proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: l.note})
	what.URL = lockURL(server.URLAt(proxy.Endpoint, bucket))
	config, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	l.Cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	l.Env = append(append(os.Environ(), server.Env()...), tenantVariable+"="+string(config))
	l.Stderr = os.Stderr
	if l.in, err = l.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Process.Kill()
		_ = l.Wait()
	})
	go l.listen(out)
	return l
}

func (l *lodger) listen(out io.Reader) {
	defer close(l.says)
	lines := json.NewDecoder(out)
	for {
		var a account
		switch {
		case lines.Decode(&a) != nil:
			return
		case a.Of == "":
			l.got <- a
		default:
			l.says <- a
		}
	}
}

// patience only bounds the wait for what never comes.
const patience = 10 * time.Minute

// do tells the tenant to do something, and waits for its answer.
func (l *lodger) do(t *testing.T, what string) account {
	t.Helper()
	fmt.Fprintln(l.in, what)
	select {
	case a, ok := <-l.says:
		switch {
		case !ok:
			t.Fatalf("%s has ended", l.holder)
		case a.Error != "":
			t.Fatalf("%s: %s: %s", l.holder, what, a.Error)
		}
		return a
	case <-time.After(patience):
		t.Fatalf("%s does not %s", l.holder, what)
		panic("unreachable")
	}
}

// onServers runs test on each server: at once, unless what is measured would suffer.
func onServers(t *testing.T, test func(t *testing.T, server *servers.Server)) {
	t.Helper()
	if !underTest.Tokens() {
		t.Skip(withoutSessions)
	}
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) {
			together(t)
			test(t, servers.Start(t, name))
		})
	}
}

func together(t *testing.T) {
	t.Helper()
	if !*long {
		t.Parallel()
	}
}

// look is the longest pause between two looks at a session, so what a look should show may
// be that old.
func look(ttl time.Duration) time.Duration { return protocol.Renewal(ttl) * 5 / 4 }

// A succession is the end of a process with a session, and what came after it.
type succession struct {
	ttl         time.Duration
	before      account       // of who held the locks
	began       time.Duration // the end of the process
	beat        time.Duration // the last heartbeat before it, as it arrived
	over        time.Duration // the end of the session, as it arrived
	waiters     []*lodger
	after       map[string]tenure // the next leases
	first, last time.Duration     // of these
	spent       map[string]int    // requests, until all waiters knew
}

// TestSessionEnds: a process that holds many locks under one session is killed, or closes
// its session, while three others wait for all of them. Each lock gets one new holder,
// and not while the former one could still hold it.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	n, ttl := 50, 6*time.Second
	if *long {
		n, ttl = 1000, protocol.DefaultTTL
	}
	takeovers := time.Second + time.Duration(n)*10*time.Millisecond
	onServers(t, func(t *testing.T, server *servers.Server) {
		t.Run("killed", func(t *testing.T) {
			together(t)
			s := bequeath(t, server, n, ttl, func(gone *lodger) {
				_ = gone.Process.Signal(syscall.SIGKILL)
				_, _ = gone.Process.Wait()
			})
			// The former holder sent its last heartbeat before it arrived, and the next one
			// saw it after that.
			if s.first < s.beat+protocol.Patience(ttl) {
				t.Errorf("the first lock was taken over %v after the last heartbeat, within TTL and margin", s.first-s.beat)
			}
			limit := look(ttl) + protocol.Patience(ttl) + ttl/10 + takeovers
			if idle := s.last - s.beat; *long && idle > limit {
				t.Errorf("the last lock was idle for %v, longer than %v", idle, limit)
			}
			s.report(t)
		})
		t.Run("closed", func(t *testing.T) {
			together(t)
			s := bequeath(t, server, n, ttl, func(gone *lodger) {
				end := gone.do(t, "end")
				for _, lease := range end.Leases {
					if lease.Until == 0 {
						t.Errorf("the lease of %s was lost before", lease.Key)
					}
				}
				if sent := gone.since(end.At); len(sent) > 2 { // a heartbeat may have been on its way
					t.Errorf("the end of a session cost %v", sent)
				}
			})
			if idle := s.last - s.over; *long && idle > look(ttl)+takeovers {
				t.Errorf("the last lock was idle for %v, longer than %v", idle, look(ttl)+takeovers)
			}
			s.report(t)
		})
	})
}

func bequeath(t *testing.T, server *servers.Server, n int, ttl time.Duration, end func(*lodger)) *succession {
	t.Helper()
	bucket := server.Bucket(t)
	gone := lodge(t, server, bucket, tenancy{Holder: "gone", Locks: n, TTL: ttl})
	s := &succession{ttl: ttl, before: gone.do(t, "hold"), after: map[string]tenure{}}
	for i := range 3 {
		s.waiters = append(s.waiters, lodge(t, server, bucket, tenancy{Holder: fmt.Sprint("waiter ", i), Locks: n, TTL: ttl}))
	}
	for _, w := range s.waiters {
		w.do(t, "want")
	}
	beats := len(gone.writes(s.before.Session))
	until(t, "three more heartbeats", func() bool { return len(gone.writes(s.before.Session)) >= beats+3 })

	s.began = clock.Now()
	end(gone)
	beat := gone.writes(s.before.Session)
	s.beat = beat[len(beat)-1]
	s.taken(t, n)
	for _, w := range s.waiters {
		if at := w.writes(s.before.Session); len(at) > 0 && (s.over == 0 || at[0] < s.over) {
			s.over = at[0]
		}
	}
	if s.over == 0 { // nobody had to end it
		s.over = s.beat
	}
	s.tally(t)
	s.settle(t)
	return s
}

// taken waits until all locks have new holders.
func (s *succession) taken(t *testing.T, n int) {
	t.Helper()
	all := make(chan account)
	for _, w := range s.waiters {
		go func() {
			for a := range w.got {
				all <- a
			}
		}()
	}
	for len(s.after) < n {
		var a account
		select {
		case a = <-all:
		case <-time.After(patience):
			t.Fatalf("%d of %d locks have new holders", len(s.after), n)
		}
		if a.Error != "" {
			t.Fatal(a.Error)
		}
		lease := a.Leases[0]
		if other, ok := s.after[lease.Key]; ok {
			t.Errorf("two have got %s: %+v, %+v", lease.Key, other, lease)
		}
		s.after[lease.Key] = lease
	}
	times := slices.SortedFunc(maps.Values(s.after), func(a, b tenure) int { return cmp.Compare(a.From, b.From) })
	s.first, s.last = times[0].From, times[n-1].From
	for _, lease := range s.before.Leases {
		if next := s.after[lease.Key]; next.Token <= lease.Token {
			t.Errorf("%s: token %v after %v", lease.Key, next.Token, lease.Token)
		}
	}
}

// tally waits until all of the waiters have looked, and counts what they have spent.
func (s *succession) tally(t *testing.T) {
	t.Helper()
	lock := func(r request) bool { return !strings.HasPrefix(r.key, "sessions/") }
	until(t, "all have looked, and nobody asks for a lock", func() bool {
		recent := clock.Now() - look(s.ttl) - time.Second
		return recent > s.last && !slices.ContainsFunc(s.waiters, func(w *lodger) bool { return slices.ContainsFunc(w.since(recent), lock) })
	})
	s.spent = map[string]int{}
	for _, w := range s.waiters {
		for _, r := range w.since(s.began) {
			switch what := r.method + " of locks"; {
			case lock(r):
				s.spent[what]++
			case r.method == http.MethodPut && r.key == s.before.Session:
				s.spent["ends of the session"]++
			case r.method == http.MethodPut:
				s.spent["heartbeats"]++
			default:
				s.spent["looks at sessions"]++
			}
		}
	}
}

// settle ends the waiters: each has held its locks until now, and alone.
func (s *succession) settle(t *testing.T) {
	t.Helper()
	for _, w := range s.waiters { // or they would get what the others leave
		w.do(t, "want no more")
	}
	held := map[string]int{}
	for _, w := range s.waiters {
		for _, lease := range w.do(t, "end").Leases {
			held[lease.Key]++
			if lease.Until <= lease.From || lease.Token != s.after[lease.Key].Token {
				t.Errorf("%s has %+v at the end, which began as %+v", w.holder, lease, s.after[lease.Key])
			}
		}
	}
	for key, n := range held {
		if n != 1 {
			t.Errorf("%s is held by %d", key, n)
		}
	}
	if len(held) != len(s.after) {
		t.Errorf("%d locks are held at the end, not %d", len(held), len(s.after))
	}
}

func (s *succession) report(t *testing.T) {
	t.Helper()
	in := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	t.Logf("figures: %s: %d locks acquired in %v; TTL %v; the last heartbeat was %v before the end of the process", t.Name(),
		len(s.after), in(s.before.Took), s.ttl, in(s.began-s.beat))
	t.Logf("figures: %s: from the end of the process to the end of the session %v, to the first new holder %v, to the last %v; "+
		"from the last heartbeat to the last new holder %v; from the end of the session to the last new holder %v; %v", t.Name(),
		in(s.over-s.began), in(s.first-s.began), in(s.last-s.began), in(s.last-s.beat), in(s.last-s.over), s.spent)
}
