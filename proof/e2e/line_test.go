//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/s3store"
)

// A line is processes that want slots of one semaphore through a network that loses answers, and what can be
// seen of them from outside: what their jobs write, and the versions of the object. TTL is long, so that
// no session is lost here on a busy machine: every process has one entry and one turn.
//
// Order is that of grants: a job that has seen its slot late begins late, which nothing forbids. So
// the tokens of jobs are compared with each version that was seen: the next ones must be those of its waiters, in
// order. Whoever came before another was in a version without it, or is before it in one.
type line struct {
	t       *testing.T
	size    int
	url     string
	env     []string
	past    store.Store // the network
	look    *semaphore.Semaphore
	log     string
	dropped *atomic.Int64 // answers to writes of the object; nil: there is no network
	runs    []*run
	names   []string

	mu       sync.Mutex
	versions []leasehold.Info
	stop     func()
}

// lines runs test with a line in a directory, and on each server behind a proxy that drops one answer in
// five to a write and one in seven to a read.
func lines(t *testing.T, size int, test func(t *testing.T, l *line)) {
	t.Helper()
	if underTest != leasetest.Object {
		t.Skip("semaphores are the same in every layout")
	}
	if _, err := command(); err != nil {
		t.Fatal(err)
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		st, err := filestore.New(dir, nil)
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, "jobs"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		test(t, newLine(t, size, st, &line{url: "file://" + dir + "/jobs/lock"}))
	})
	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, dropped := servers.Start(t, name), &atomic.Int64{}
			proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, n int) servers.Fault {
				every := map[string]int{http.MethodPut: 5, http.MethodGet: 7}[r.Method]
				if every == 0 || n%every > 0 {
					return servers.Pass
				}
				if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/jobs/lock") {
					dropped.Add(1)
				}
				return servers.DropAnswer
			}})
			bucket := server.Bucket(t)
			st, err := s3store.New(server.Client(), bucket, nil)
			if err != nil {
				t.Fatal(err)
			}
			test(t, newLine(t, size, st, &line{url: lockURL(server.URLAt(proxy.Endpoint, bucket)), env: server.Env(), dropped: dropped}))
		})
	}
}

func newLine(t *testing.T, size int, st store.Store, l *line) *line {
	t.Helper()
	l.t, l.size, l.log = t, size, filepath.Join(t.TempDir(), "log")
	l.past, l.look = st, newSemaphore(t, st, "jobs/lock", size, nil)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			if info, err := l.look.Inspect(ctx); err == nil {
				l.saw(info)
			}
			time.Sleep(3 * time.Millisecond) // so it sees what it can, and more than half of all
		}
	}()
	l.stop = func() {
		cancel()
		<-watched
	}
	t.Cleanup(l.stop)
	return l
}

// saw keeps the versions of the object that were seen.
func (l *line) saw(info leasehold.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.versions); info.Exists && (n == 0 || l.versions[n-1].Version != info.Version) {
		l.versions = append(l.versions, info)
	}
}

// last is the last version that was seen.
func (l *line) last() leasehold.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.versions) == 0 {
		return leasehold.Info{}
	}
	return l.versions[len(l.versions)-1]
}

// come starts a process that wants slots, and whose job says so when it begins and when it ends.
func (l *line) come(name string, weight int, work string, flags ...string) {
	l.t.Helper()
	job := fmt.Sprintf(`echo "begin $LEASEHOLD_TOKEN %[1]s %[2]d" >>%[3]q; %[4]s; echo "end $LEASEHOLD_TOKEN %[1]s %[2]d" >>%[3]q`, name, weight, l.log, work)
	args := append([]string{"run", "-v", "--ttl", "1m", "--holder", name}, flags...)
	l.runs = append(l.runs, start(l.t, l.env, append(args, l.url, "--", "sh", "-c", job)...))
	l.names = append(l.names, name)
}

// wait waits for the end of a process for as long as the queue moves, and returns its exit code.
func (l *line) wait(r *run) int {
	l.t.Helper()
	for {
		before := l.last()
		select {
		case <-r.done:
			return r.ProcessState.ExitCode()
		case <-time.After(2 * time.Minute):
		}
		if before.Version == l.last().Version {
			l.t.Fatalf("nothing has moved for two minutes: %+v; %v says: %s", before, r.Args, &r.stderr)
		}
	}
}

// done waits until all have had their turn, and judges what was seen.
func (l *line) done() (together, most int) {
	l.t.Helper()
	for i, r := range l.runs {
		if code := l.wait(r); code != 0 {
			l.t.Errorf("%s: exit code %d: %s", l.names[i], code, &r.stderr)
		}
	}
	l.stop()
	left := l.left()
	together, most, turns := l.jobs()
	if len(turns) != len(l.runs) {
		l.t.Errorf("%d processes had %d turns: %v", len(l.runs), len(turns), turns)
	}
	ahead := l.order(turns)
	lost := "no"
	if l.dropped != nil {
		n := l.dropped.Load()
		if n == 0 {
			l.t.Error("no answer to a write was lost: nothing was tested of that")
		}
		lost = fmt.Sprint(n)
	}
	l.t.Logf("figures: %d processes, at most %d at once; %d versions seen, with %d places in the queue compared; %s answers to writes of the object lost; %d left by the end of their session",
		len(l.runs), together, len(l.versions), ahead, lost, left)
	if ahead < len(l.runs) {
		l.t.Error("too little was seen of the queue to prove anything")
	}
	return together, most
}

// left is how many are still in the object when all are done: who could not take its entry out in time, because many
// left at once, has ended its session, so whoever comes next has all slots.
func (l *line) left() int {
	l.t.Helper()
	end, err := l.look.Inspect(l.t.Context())
	if err != nil {
		l.t.Error(err)
	}
	entries := slices.Concat(end.Holders, end.Waiters)
	for _, entry := range entries {
		s, e := layout.Heartbeat{Store: l.past, Key: entry.Session}.Look(l.t.Context(), "")
		if e != nil || s.Record.Held {
			l.t.Errorf("%s has left, and its session goes on: %+v, %v; it said %s", entry.Holder, s.Record, e, &l.runs[slices.Index(l.names, entry.Holder)].stderr)
		}
	}
	lease, err := l.look.Acquire(l.t.Context(), l.size)
	if err == nil {
		err = errors.Join(lease.Release(l.t.Context()), l.look.Close(l.t.Context()))
	}
	if err != nil {
		l.t.Errorf("the next one after all: %v", err)
	}
	return len(entries)
}

// begun is how many jobs have begun.
func (l *line) begun() int {
	text, _ := os.ReadFile(l.log) // which the first one makes
	return strings.Count(string(text), "begin")
}

// jobs reads what the jobs wrote, in the order in which they did: how many worked at once, how much weight they
// had at once, and who had which token.
func (l *line) jobs() (together, most int, turns map[leasehold.Token]string) {
	l.t.Helper()
	text, err := os.ReadFile(l.log)
	if err != nil {
		l.t.Fatal(err)
	}
	turns = map[leasehold.Token]string{}
	at, now := map[string]bool{}, 0
	for words := range strings.Lines(string(text)) {
		var what, name string
		var token, weight int
		if _, err := fmt.Sscan(words, &what, &token, &name, &weight); err != nil {
			l.t.Fatalf("a job wrote %q: %v", words, err)
		}
		switch what {
		case "begin":
			if other, taken := turns[leasehold.Token(token)]; taken {
				l.t.Errorf("%s and %s both have the token %d", other, name, token)
			}
			turns[leasehold.Token(token)], at[name] = name, true
			if now += weight; now > l.size {
				l.t.Errorf("as %s begins, %d slots of %d are taken, by %v", name, now, l.size, at)
			}
			together, most = max(together, len(at)), max(most, now)
		case "end":
			now -= weight
			delete(at, name)
		}
	}
	return together, most, turns
}

// order compares each version that was seen with the turns that came after it, and counts what it compared.
func (l *line) order(turns map[leasehold.Token]string) (compared int) {
	l.t.Helper()
	for _, v := range l.versions {
		if v.Taken() > l.size {
			l.t.Errorf("%d slots of %d are taken in %+v", v.Taken(), l.size, v)
		}
		for _, h := range v.Holders {
			if turns[h.Token] != h.Holder {
				l.t.Errorf("%s has the token %d in the object, which the job of %q had", h.Holder, h.Token, turns[h.Token])
			}
		}
		for i, w := range v.Waiters {
			compared++
			if next := v.Token + leasehold.Token(i) + 1; turns[next] != w.Holder {
				l.t.Fatalf("%q had its turn where %s was to come: %d before it at token %d, in the queue %+v", turns[next], w.Holder, i, v.Token, v.Waiters)
			}
		}
	}
	return compared
}

// many is how many processes stand in a queue: in the everyday loop few.
func many(short, long int) int {
	if !testing.Short() {
		return long
	}
	return short
}

// gate is work that lasts until it is opened.
func gate(t *testing.T) (work string, open func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	return fmt.Sprintf("while [ ! -e %q ]; do sleep 0.05; done", path), func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLineOfProcesses: processes that want one, two or all of three slots, through a network that loses
// answers, all have their turn, in order, and never take more than three.
func TestLineOfProcesses(t *testing.T) {
	t.Parallel()
	lines(t, 3, func(t *testing.T, l *line) {
		come := func(i, weight int, work string) {
			l.come(fmt.Sprintf("p%02d", i), weight, work, "--slots", "3", "--weight", fmt.Sprint(weight))
		}
		work, open := gate(t)
		for i := range 4 {
			come(i, 1, work) // so three work at once, and there is a fourth that could
		}
		until(t, "one waits for three at work", func() bool { return l.begun() > 2 && len(l.last().Waiters) > 0 })
		for i := 4; i < many(12, 64); i++ {
			come(i, []int{1, 1, 1, 2, 1, 1, 1, 3}[i%8], "sleep 0.1")
		}
		open()
		if together, _ := l.done(); together != 3 {
			t.Errorf("at most %d worked at once: whether four can was not tested", together)
		}
	})
}

// TestWriterAmongReaders: a writer that comes among readers has its turn after those that came before it, and
// before those that came after it, alone.
func TestWriterAmongReaders(t *testing.T) {
	t.Parallel()
	lines(t, semaphore.RWSize, func(t *testing.T, l *line) {
		n := many(10, 50)
		work, open := gate(t)
		read := func(i int, work string) { l.come(fmt.Sprintf("r%02d", i), 1, work, "--shared") }
		read(0, work) // until a reader stands behind the writer
		read(1, work)
		for i := 2; i < n/2; i++ {
			read(i, "sleep 0.3")
		}
		until(t, "two readers read at once", func() bool { return l.begun() > 1 })
		l.come("w", semaphore.RWSize, "sleep 0.3", "--exclusive")
		until(t, "the writer waits", func() bool {
			waits := l.last().Waiters
			return len(waits) > 0 && waits[0].Holder == "w"
		})
		for i := range n - n/2 {
			read(n/2+i, "sleep 0.3")
		}
		until(t, "a reader waits behind the writer", func() bool { return len(l.last().Waiters) > 1 })
		open()
		if together, most := l.done(); together < 2 || most != semaphore.RWSize {
			t.Errorf("%d readers at once, and at most %d slots were taken", together, most)
		}
	})
}
