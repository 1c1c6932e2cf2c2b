package chaos_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/servers"
)

// workers is how many want the lock, half of them with run and half with elect. With them
// come tenants. They want it too, and more locks, under a session each.
const workers, tenants = 6, 3

// A contest is what workers fight for.
type contest struct {
	slots int // how many may hold it at a time
	fleet int // how many want it: workers, and tenants after them
	argv  func(n int, url string) []string

	tenants string // what the processes are called that hold the lock themselves; empty: tenants
	// For how long it is attacked, and for how much longer if a fault was not reached until then; 0: not at all, and
	// it need not be.
	lasts, hopeless time.Duration
}

// For one lock, or for slots of a semaphore.
var (
	forLock  = contest{slots: 1, fleet: workers + tenants, argv: underAttack, hopeless: tooLong}
	forSlots = contest{slots: 2, fleet: workers, argv: func(n int, url string) []string { return underSlots(2, n, url) }, hopeless: tooLong}
)

// tooLong is how long a fault may take to be reached: on a machine with much else to do, minutes are needed.
const tooLong = 10 * time.Minute

// TestChaos attacks workers that want one lock, and what is between them and the store.
// Nobody may work under the lock beside its holder, unless all that could have stopped
// him is itself stopped, and then the checker refuses his token; and when it is over,
// somebody works again soon.
func TestChaos(t *testing.T) {
	everywhere(t, forLock)
}

// TestSlots does the same to workers that want one of two slots. No three may work at a time, unless all that
// could have stopped one is itself stopped; and when it is over, both slots are taken again soon.
func TestSlots(t *testing.T) {
	everywhere(t, forSlots)
}

func everywhere(t *testing.T, c contest) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: half a minute of attacks")
	}
	for _, name := range []string{"minio", "versitygw"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ahead(t, name)
			inArena(t, func(t *testing.T) { onServer(t, name, c) })
		})
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		inArena(t, func(t *testing.T) { onDisk(t, c) })
	})
	if c.slots > 1 {
		return // the table is one object like a lock, and its sessions are the same
	}
	t.Run(servers.GCS, func(t *testing.T) {
		t.Parallel()
		ahead(t, servers.GCS)
		inArena(t, func(t *testing.T) { onGCS(t, c) })
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(arenaVariable) == "" {
			servers.AzuriteAhead(t)
		}
		inArena(t, func(t *testing.T) { onAzurite(t, c) })
	})
}

// ahead builds a server while there is a network to get it from.
func ahead(t *testing.T, name string) {
	t.Helper()
	if servers.Skipped(name) {
		t.Skipf("%s: LEASEHOLD_TEST_SERVERS does not list it", name)
	}
	if _, err := servers.Binary(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func onServer(t *testing.T, name string, c contest) {
	t.Helper()
	server := servers.Start(t, name)
	s, bucket := &site{t: t, server: server, keeps: true}, server.Bucket(t)
	s.attack(c, server.Endpoint, server.Env(), func(endpoint string) string { return server.URLAt(endpoint, bucket+"/lock") })
}

func onGCS(t *testing.T, c contest) {
	t.Helper()
	server := servers.StartGCS(t)
	s, bucket := &site{t: t, server: server}, server.GCSBucket(t)
	s.attack(c, server.Endpoint, nil, func(endpoint string) string { return servers.GCSURLAt(endpoint, bucket+"/lock") })
}

func onAzurite(t *testing.T, c contest) {
	t.Helper()
	server := servers.StartAzurite(t)
	s, container := &site{t: t, server: server.Process}, server.Container(t)
	s.attack(c, server.Host(), server.Env(), func(endpoint string) string {
		return server.URLAt(endpoint+"/"+server.Account, container+"/lock")
	})
}

// attack has a fleet reach a server at an endpoint, by the URL that a lock has there, and attacks it.
func (s *site) attack(c contest, endpoint string, env []string, lock func(endpoint string) string) {
	s.t.Helper()
	s.proxy = servers.StartProxy(s.t, endpoint, &servers.ProxyOptions{Fault: s.fault})
	for n := range c.fleet {
		s.links = append(s.links, newLink(s.t, n))
	}
	target, err := url.Parse(s.proxy.Endpoint)
	if err != nil {
		s.t.Fatal(err)
	}
	port := relay(s.t, target.Host)
	s.fleet = launch(s.t, c.slots, s.links, env, func(n int) []string {
		return c.argv(n, lock("http://"+net.JoinHostPort(s.links[n].near, port)))
	})
	s.fleet.tenants = c.tenants
	attack(s.t, c, s.fleet, s.network())
}

// diskSize is that of the disk that the store in a directory has to itself.
const diskSize = 1 << 20

func onDisk(t *testing.T, c contest) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // it would go with the arena
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := launch(t, c.slots, make([]*link, c.fleet), nil, func(n int) []string {
		return c.argv(n, "file://"+filepath.Join(dir, "locks", "lock"))
	})
	attack(t, c, f, []*fault{fullDisk(t, dir)})
}

// underAttack is the command that is attacked, up to the job, or what makes a tenant of it.
func underAttack(n int, url string) []string {
	if n >= workers {
		return []string{"env", tenantVariable + "=" + url}
	}
	subcommand := []string{"run", "elect"}[n%2]
	return []string{
		os.Getenv(arenaVariable), subcommand, "--ttl", ttl.String(), "--grace", grace.String(),
		"--holder", fmt.Sprint(subcommand, n), url, "--",
	}
}

// underSlots is the command with so many slots, up to the job.
func underSlots(slots, n int, url string) []string {
	return []string{
		os.Getenv(arenaVariable), "run", "--slots", fmt.Sprint(slots), "--ttl", ttl.String(), "--grace", grace.String(),
		"--holder", fmt.Sprint("slot", n), url, "--",
	}
}

// attack lets two plagues rage at once, and judges what the fleet did meanwhile and
// whether it recovers.
func attack(t *testing.T, c contest, f *fleet, others []*fault) {
	t.Helper()
	began := time.Now()
	until := began.Add(cmp.Or(c.lasts, *long))
	hopeless := until.Add(c.hopeless)
	processes := &plague{f.processes(), rand.New(rand.NewPCG(*seed, 1))}
	rest := &plague{others, rand.New(rand.NewPCG(*seed, 2))}
	var both sync.WaitGroup
	both.Go(func() { processes.rage(until, hopeless) })
	rest.rage(until, hopeless) // here, because it may end the test
	both.Wait()

	if c.tenants != "" { // in a short time all turns may have been those of one kind
		await(time.Minute, func() bool { return f.held(true) && f.held(false) })
	}
	recovery := recovered(t, f)
	var table strings.Builder
	fmt.Fprintf(&table, "seed %d, %v\n", *seed, time.Since(began).Round(time.Second))
	faults, strikes := slices.Concat(processes.faults, rest.faults), 0
	for _, fault := range faults {
		strikes += fault.count
		fmt.Fprintf(&table, "%6d  %s\n", fault.count, fault.name)
		if fault.count == 0 && c.hopeless > 0 {
			fmt.Fprintf(&table, "        %s: never reached\n", fault.name)
			t.Fail()
		}
	}
	f.report(t, &table, recovery)
	f.summary = table.String()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("figures: %s: %d faults of %d kinds, %d terms, %d words refused by token, %d violations, the last recovery took %v",
		t.Name(), strikes, len(faults), len(f.terms), f.refused, len(f.violations), recovery.Round(time.Millisecond))
}

// held reports that a tenant has held a lock, or that a job has.
func (f *fleet) held(tenant bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.terms, func(t *term) bool { return t.tenant() == tenant })
}

// recovered kills whoever holds a lock, now that all else works, and returns how long it
// takes until somebody works under each.
func recovered(t *testing.T, f *fleet) time.Duration {
	t.Helper()
	now := clock.Now()
	for _, h := range f.holders() {
		v := victim{f.workers[h.Worker], h, f}
		v.all(syscall.SIGKILL)
	}
	most := ttl + ttl/5 + 5*time.Second // the rule, and what requests and processes take
	if len(f.workers) > workers+tenants {
		most += 5 * time.Second // of so many
	}
	if f.slots > 1 {
		// The head of the queue may have died too, and is late before the next one looks at those who held; and one
		// behind several that have died looks when the queue has stood still for half of the time that it should have
		// taken (rule T7). Turns last for up to 4 TTL on average here, and up to four wait.
		most += ttl + 5*ttl
	}
	if !await(most, func() bool { return len(f.waiting(now)) == 0 }) {
		t.Errorf("nobody works under %v %v after the last fault", f.waiting(now), most)
	}
	return clock.Now() - now
}

func (f *fleet) report(t *testing.T, table *strings.Builder, recovery time.Duration) {
	t.Helper()
	idle := f.idle(theLock)
	f.mu.Lock()
	defer f.mu.Unlock()
	var run, elect, tenant int
	for _, term := range f.terms {
		switch {
		case term.tenant():
			tenant++
		case term.Worker%2 == 0 || f.slots > 1:
			run++
		default:
			elect++
		}
	}
	who := cmp.Or(f.tenants, "tenants")
	if len(f.workers) > workers && (tenant == 0 || run == 0) {
		t.Errorf("%d times a lock was held by run, and %d times by %s", run, tenant, who)
	}
	fmt.Fprintf(table, "%6d  terms, %d of run, %d of elect and %d of %s, of %d locks\n%6d  words refused by token\n%6d  violations\n",
		len(f.terms), run, elect, tenant, who, len(f.newest), f.refused, len(f.violations))
	fmt.Fprintf(table, "longest with a slot free %v, last recovery %v\n", idle.Round(time.Millisecond), recovery.Round(time.Millisecond))
	for _, v := range f.violations {
		fmt.Fprintln(table, v)
		t.Fail()
	}
}

// TestNoLock is the control: the same jobs without leasehold must be found out, and with it where there is one
// slot more than the checker knows of.
func TestNoLock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]contest{
		"lock":  {slots: 1, fleet: workers, argv: func(int, string) []string { return nil }},
		"slots": {slots: 2, fleet: workers, argv: func(n int, url string) []string { return underSlots(3, n, url) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inArena(t, func(t *testing.T) {
				url := "file://" + filepath.Join(t.TempDir(), "lock")
				f := launch(t, c.slots, make([]*link, c.fleet), nil, func(n int) []string { return c.argv(n, url) })
				if !await(time.Minute, func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.violations) > 0
				}) {
					t.Error("too many jobs ran at a time, and the checker saw nothing wrong")
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				t.Logf("noticed, as it must be: %v", f.violations)
			})
		})
	}
}
