package chaos_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/servers"
)

// A fault does one kind of harm, undoes it, and reports whether it was reached: there
// was somebody whom it hit.
type fault struct {
	name   string
	strike func(r *rand.Rand) (reached bool)
	count  int
}

// A plague strikes with one fault after another.
type plague struct {
	faults []*fault
	r      *rand.Rand // of one goroutine
}

// rage strikes in rounds, each in an order of its own, until the time is over and each fault
// was reached, or until it is hopeless. A fault that was not reached yet may need the
// others: a job that ignores SIGTERM holds the lock until it is killed. So they go on when
// the time is over, but less often.
func (p *plague) rage(until, hopeless time.Time) {
	for {
		for _, i := range p.r.Perm(len(p.faults)) {
			now, f := time.Now(), p.faults[i]
			missing := slices.ContainsFunc(p.faults, func(f *fault) bool { return f.count == 0 })
			if now.After(hopeless) || now.After(until) && !missing {
				return
			}
			if now.After(until) && f.count > 0 && p.r.IntN(3) > 0 {
				continue
			}
			if f.strike(p.r) {
				f.count++
			}
			time.Sleep(upTo(p.r, ttl/2))
		}
	}
}

// awhile is how long a fault lasts whose length is left to chance.
func awhile(r *rand.Rand) time.Duration { return ttl/4 + upTo(r, ttl*3/2) }

// upTo is a time shorter than d.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// processes are the faults that befall the processes of workers.
func (f *fleet) processes() []*fault {
	job, tenant := func(t term) bool { return !t.tenant() }, term.tenant
	end := func(whom func(victim, syscall.Signal) bool, sig syscall.Signal) func(victim, *rand.Rand) bool {
		return func(v victim, _ *rand.Rand) bool { return whom(v, sig) && await(ttl, v.gone) }
	}
	stop := func(whom func(victim, syscall.Signal) bool, least, more time.Duration) func(victim, *rand.Rand) bool {
		return func(v victim, r *rand.Rand) bool {
			defer whom(v, syscall.SIGCONT)
			reached := whom(v, syscall.SIGSTOP)
			time.Sleep(least + upTo(r, more))
			return reached
		}
	}
	faults := []*fault{
		{name: "SIGKILL leasehold", strike: f.upon(job, end(victim.leasehold, syscall.SIGKILL))},
		{name: "SIGKILL guardian", strike: f.upon(job, end(victim.guardian, syscall.SIGKILL))},
		{name: "SIGKILL watcher", strike: f.upon(job, func(v victim, _ *rand.Rand) bool { return v.watcher(syscall.SIGKILL) })},
		{name: "SIGKILL leasehold and guardian", strike: f.upon(job, end(victim.both, syscall.SIGKILL))},
		{name: "SIGKILL job", strike: f.upon(job, end(victim.job, syscall.SIGKILL))},
		{name: "SIGKILL all four", strike: f.upon(job, end(victim.all, syscall.SIGKILL))},
		{name: "SIGKILL a follower", strike: f.follower},
		{name: "SIGTERM leasehold", strike: f.upon(job, end(victim.leasehold, syscall.SIGTERM))},
		{name: "SIGSTOP leasehold, < TTL/3", strike: f.upon(job, stop(victim.leasehold, 0, ttl/3))},
		{name: "SIGSTOP leasehold, until succeeded", strike: f.upon(job, victim.hang)},
		{name: "SIGSTOP leasehold and guardian, until succeeded", strike: f.upon(job, victim.abandon)},
		{name: "SIGSTOP guardian, > TTL", strike: f.upon(job, stop(victim.guardian, ttl, ttl))},
		{name: "SIGSTOP job, > TTL", strike: f.upon(job, stop(victim.job, ttl, ttl))},
		{name: "SIGSTOP all four, until succeeded", strike: f.upon(job, victim.sleep)},
	}
	if f.workers[0].link != nil {
		faults = append(faults, &fault{name: "SIGSTOP guardian and watcher, partition, until succeeded", strike: f.upon(job, victim.forsake)})
	}
	if len(f.workers) > workers {
		faults = append(
			faults,
			&fault{name: "SIGKILL tenant", strike: f.upon(tenant, end(victim.leasehold, syscall.SIGKILL))},
			&fault{name: "SIGTERM tenant", strike: f.upon(tenant, end(victim.leasehold, syscall.SIGTERM))},
			&fault{name: "SIGSTOP tenant, < TTL/3", strike: f.upon(tenant, stop(victim.leasehold, 0, ttl/3))},
			&fault{name: "SIGSTOP tenant, until succeeded", strike: f.upon(tenant, victim.doze)},
		)
	}
	return faults
}

// A victim is a holder's processes. A tenant is one, which is all three.
type victim struct {
	*worker
	term

	fleet *fleet
}

// upon makes a strike at such a holder, waiting for one.
func (f *fleet) upon(whom func(term) bool, strike func(v victim, r *rand.Rand) bool) func(*rand.Rand) bool {
	return func(r *rand.Rand) bool {
		for limit := time.Now().Add(3 * ttl); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
			holders := slices.DeleteFunc(f.holders(), func(t term) bool { return !whom(t) })
			if len(holders) > 0 {
				t := holders[r.IntN(len(holders))]
				v := victim{f.workers[t.Worker], t, f}
				time.Sleep(upTo(r, ttl/4)) // not always as soon as it begins
				return !v.gone() && strike(v, r)
			}
		}
		return false
	}
}

func (f *fleet) follower(r *rand.Rand) bool {
	n, holders := r.IntN(len(f.workers)), f.holders()
	for slices.ContainsFunc(holders, func(t term) bool { return t.Lock == theLock && t.Worker == n }) {
		n = (n + 1) % len(f.workers)
	}
	return f.workers[n].signal(syscall.SIGKILL)
}

func (v victim) leasehold(sig syscall.Signal) bool { return v.signal(sig) }
func (v victim) guardian(sig syscall.Signal) bool  { return syscall.Kill(v.Guardian, sig) == nil }
func (v victim) watcher(sig syscall.Signal) bool {
	return v.Watcher > 1 && syscall.Kill(v.Watcher, sig) == nil
}
func (v victim) job(sig syscall.Signal) bool { return syscall.Kill(v.PID, sig) == nil }

func (v victim) all(sig syscall.Signal) bool {
	w, b, j := v.watcher(sig), v.both(sig), v.job(sig)
	return w && b && j
}

func (v victim) both(sig syscall.Signal) bool {
	l, g := v.leasehold(sig), v.guardian(sig)
	return l && g
}

// gone reports that the job has ended.
func (v victim) gone() bool { return v.fleet.now(v.term).ended }

// succeeded reports that another has what the victim had, which takes a TTL and a margin
// if there is a store to be reached.
func (v victim) succeeded() bool {
	since := clock.Now()
	return !v.gone() && await(4*ttl, func() bool { return v.fleet.replaced(v.term, since) })
}

// found waits until the job is gone, or its next word has told on it.
func (v victim) found() bool {
	return await(ttl, func() bool { t := v.fleet.now(v.term); return t.ended || t.denied })
}

// abandon stops leasehold and the guardian until another has begun: the watcher alone has
// to end the job. Where an earlier fault has killed it there is nobody to do so.
func (v victim) abandon(*rand.Rand) bool {
	defer v.both(syscall.SIGCONT)
	return parent(v.Guardian) == v.Watcher && v.both(syscall.SIGSTOP) && v.succeeded() && v.found()
}

// hang stops leasehold until another has begun: the guardian has to end the job.
func (v victim) hang(*rand.Rand) bool {
	defer v.leasehold(syscall.SIGCONT)
	return v.leasehold(syscall.SIGSTOP) && v.succeeded() && v.found()
}

// forsake leaves leasehold alone, without guardian, watcher and store: it has to end the
// job.
func (v victim) forsake(*rand.Rand) bool {
	defer v.guardian(syscall.SIGCONT)
	defer v.watcher(syscall.SIGCONT)
	defer v.link.heal() //nolint:errcheck // if it fails, nothing goes on
	return v.watcher(syscall.SIGSTOP) && v.guardian(syscall.SIGSTOP) && v.link.loseBoth() == nil && v.succeeded() && v.found()
}

// sleep stops all four until another has begun, and wakes the job first: it works on
// for a moment, as it has every reason to, and only its token can keep it from harm.
func (v victim) sleep(*rand.Rand) bool {
	v.fleet.freeze(v.term)
	defer v.all(syscall.SIGCONT)
	if !v.all(syscall.SIGSTOP) {
		return false
	}
	if !v.succeeded() {
		v.all(syscall.SIGKILL) // whatever it did later would be excused
		return false
	}
	v.job(syscall.SIGCONT)
	if v.fleet.room(v.Lock) > 1 { // no token is refused: it works until the others wake up
		woken := clock.Now()
		return await(ttl, func() bool { t := v.fleet.now(v.term); return t.ended || t.At > woken })
	}
	return v.found()
}

// doze stops a tenant until another has begun. When it wakes up, no lease is valid any more
// and it knows it: nothing that it does is excused.
func (v victim) doze(*rand.Rand) bool {
	stopped := v.leasehold(syscall.SIGSTOP)
	succeeded := stopped && v.succeeded()
	return v.leasehold(syscall.SIGCONT) && succeeded && v.found()
}

// await reports whether it became true within the limit.
func await(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// A site is a store on a server, with all that stands between it and the workers.
type site struct {
	t      *testing.T
	server *servers.Server
	keeps  bool // what it was told outlives it
	proxy  *servers.Proxy
	links  []*link
	fleet  *fleet

	mu   sync.Mutex
	mode func(r *http.Request, n int) servers.Fault // what becomes of the n-th of its method
	hits atomic.Int64
}

// network are the faults that befall the store and the ways to it.
func (s *site) network() []*fault {
	all := func(fault servers.Fault) func(*rand.Rand) bool {
		return s.during(func(*http.Request, int) servers.Fault { return fault })
	}
	second := func(fault servers.Fault) func(*rand.Rand) bool {
		return s.during(func(_ *http.Request, n int) servers.Fault { return []servers.Fault{servers.Pass, fault}[n%2] })
	}
	writes := func(fault servers.Fault) func(*rand.Rand) bool {
		return s.during(func(r *http.Request, _ int) servers.Fault {
			if r.Method == http.MethodPut || r.Method == http.MethodPost { // which is an upload to Google
				return fault
			}
			return servers.Pass
		})
	}
	faults := []*fault{
		{name: "partition: requests lost", strike: s.cut((*link).loseRequests)},
		{name: "partition: answers lost", strike: s.cut((*link).loseAnswers)},
		{name: "partition: both ways", strike: s.cut((*link).loseBoth)},
		{name: "store stopped and continued", strike: s.stop},
		{name: "store slow", strike: func(r *rand.Rand) bool { return all(servers.Delay(ttl/10 + upTo(r, ttl/2)))(r) }},
		{name: "requests held, then all delivered", strike: s.hang},
		{name: "connection closed after landing", strike: second(servers.DropAnswer)},
		{name: "connection closed before landing", strike: second(servers.DropRequest)},
		{name: "500 after landing", strike: second(servers.StatusAfter(http.StatusInternalServerError))},
		{name: "503 before landing", strike: second(servers.Status(http.StatusServiceUnavailable))},
		{name: "409 before landing", strike: writes(servers.Status(http.StatusConflict))},
	}
	if s.keeps { // a store that forgets is none, and no lock is safe on it
		faults = append(faults, &fault{name: "store killed and restarted", strike: s.restart})
	}
	return faults
}

// cut partitions some workers from the store, the holder more often than others.
func (s *site) cut(lose func(*link) error) func(*rand.Rand) bool {
	return func(r *rand.Rand) bool {
		holder, _ := s.fleet.holder(theLock)
		reached := false
		for n, l := range s.links {
			if r.IntN(3) == 0 || n == holder.Worker && r.IntN(3) > 0 {
				reached = true
				if err := lose(l); err != nil {
					s.t.Error(err)
				}
			}
		}
		time.Sleep(awhile(r))
		for _, l := range s.links {
			if err := l.heal(); err != nil {
				s.t.Error(err)
			}
		}
		return reached
	}
}

func (s *site) restart(r *rand.Rand) bool {
	s.server.Stop()
	time.Sleep(upTo(r, ttl))
	s.server.Restart(s.t)
	return true
}

func (s *site) stop(r *rand.Rand) bool {
	s.server.Pause(s.t)
	time.Sleep(awhile(r))
	s.server.Resume(s.t)
	return true
}

func (s *site) hang(r *rand.Rand) bool {
	before := total(s.proxy.Counts())
	s.proxy.Hang()
	time.Sleep(awhile(r))
	s.proxy.Restore(s.t)
	return total(s.proxy.Counts()) > before
}

// during has the proxy do something to requests for a while.
func (s *site) during(mode func(r *http.Request, n int) servers.Fault) func(*rand.Rand) bool {
	return func(r *rand.Rand) bool {
		before := s.hits.Load()
		s.set(mode)
		time.Sleep(awhile(r))
		s.set(nil)
		return s.hits.Load() > before
	}
}

func (s *site) set(mode func(r *http.Request, n int) servers.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

// fault is what becomes of a request.
func (s *site) fault(r *http.Request, n int) servers.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == nil {
		return servers.Pass
	}
	f := s.mode(r, n)
	if f != servers.Pass {
		s.hits.Add(1)
	}
	return f
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// fullDisk fills the file system that a directory is on.
func fullDisk(t *testing.T, dir string) *fault {
	t.Helper()
	return &fault{name: "disk full", strike: func(r *rand.Rand) bool {
		path := filepath.Join(dir, "filler")
		defer os.Remove(path) //nolint:errcheck // the next one writes over it
		err := os.WriteFile(path, make([]byte, 2*diskSize), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the disk is not full: %v", err)
		}
		time.Sleep(awhile(r))
		return errors.Is(err, syscall.ENOSPC)
	}}
}
