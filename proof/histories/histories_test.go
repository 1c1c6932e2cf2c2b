//go:build unix

package histories_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/internal/servers"
)

var (
	histories = flag.Int("histories", 1, "how many histories of each kind to check in each store")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history; the operations of the processes come from it, but not their speed")
)

// variable makes this binary a process of a history in place of the tests.
const variable = "LEASEHOLD_TEST_WORKER"

func TestMain(m *testing.M) {
	config := os.Getenv(variable)
	if config == "" {
		flag.Parse()
		if err := flag.Set("test.parallel", "6"); err != nil { // they wait most of the time
			panic(err)
		}
		os.Exit(m.Run())
	}
	var w worker
	err := json.Unmarshal([]byte(config), &w)
	if err == nil {
		err = w.run(context.Background(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "process %+v: %v\n", w, err)
		os.Exit(1)
	}
}

// A place is where histories are played.
type place struct {
	url func(key string) string
	env []string
}

func directory(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	return place{url: func(key string) string { return "file://" + dir + "/" + key }}
}

// behind is a new bucket of a server, reached through a proxy.
func behind(t *testing.T, server *servers.Server, opts *servers.ProxyOptions) place {
	t.Helper()
	endpoint, bucket := servers.StartProxy(t, server.Endpoint, opts).Endpoint, server.Bucket(t)
	return place{func(key string) string { return server.URLAt(endpoint, bucket+"/"+key) }, server.Env()}
}

// behindGCS and behindAzurite are the same for the emulators of other clouds.
func behindGCS(t *testing.T, opts *servers.ProxyOptions) place {
	t.Helper()
	server := servers.StartGCS(t)
	endpoint, bucket := servers.StartProxy(t, server.Endpoint, opts).Endpoint, server.GCSBucket(t)
	return place{url: func(key string) string { return servers.GCSURLAt(endpoint, bucket+"/"+key) }}
}

func behindAzurite(t *testing.T, opts *servers.ProxyOptions) place {
	t.Helper()
	server := servers.StartAzurite(t)
	endpoint, container := servers.StartProxy(t, server.Host(), opts).Endpoint+"/"+server.Account, server.Container(t)
	return place{func(key string) string { return server.URLAt(endpoint, container+"/"+key) }, server.Env()}
}

// played is how much TestHistories has played.
var played struct{ histories, operations atomic.Int64 }

// TestHistories: the answers that processes get are linearizable, whatever happens to
// the processes and to their requests.
func TestHistories(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() {
		t.Logf("figures: %d histories of %d operations, all linearizable: %t", played.histories.Load(), played.operations.Load(), !t.Failed())
	})
	everyKind := func(t *testing.T, at place) {
		for name := range kinds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				thin := 0
				for seed, left := *firstSeed, *histories; left > 0; seed++ {
					proves, err := play(t, name, at, seed, true)
					switch {
					case err != nil:
						t.Fatalf("the history of -seed %d: %v", seed, err)
					case proves:
						left--
					default: // the store had too much to do; another one is played instead
						if thin++; thin > 3+*histories/10 {
							t.Fatalf("in %d histories too little was done to prove anything", thin)
						}
					}
				}
			})
		}
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		everyKind(t, directory(t))
	})
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyKind(t, behind(t, servers.Start(t, name), &servers.ProxyOptions{Fault: badNetwork}))
		})
	}
	for name, place := range map[string]func(*testing.T, *servers.ProxyOptions) place{servers.GCS: behindGCS, "azurite": behindAzurite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyKind(t, place(t, &servers.ProxyOptions{Fault: badNetwork}))
		})
	}
	for name, of := range quorums {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyKind(t, quorum(t, of))
		})
	}
}

// badNetwork lets one request in ten be lost, answered wrong or late.
func badNetwork(r *http.Request, _ int) servers.Fault {
	all := []servers.Fault{
		servers.DropAnswer, servers.DropRequest, servers.Status(http.StatusServiceUnavailable),
		servers.StatusAfter(http.StatusInternalServerError), servers.Delay(rand.N(100 * time.Millisecond)),
	}
	if i := rand.IntN(10 * len(all)); i < len(all) && r.Method != http.MethodDelete {
		return all[i]
	}
	return servers.Pass
}

// TestControl: without conditions a store is no register, and a lock in it is none. If
// that were not noticed, the test above would prove nothing.
func TestControl(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"register", "lock", "session", "slots"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := behind(t, servers.Start(t, "gofakes3"), &servers.ProxyOptions{DropConditions: true})
			for seed := range uint64(10) {
				if _, err := play(t, name, at, seed, false); err != nil {
					t.Logf("noticed, as it must be: %.200s", err)
					return
				}
			}
			t.Error("ten histories without any condition are taken for those of the model")
		})
	}
}

// A history is what its processes do.
type history struct {
	worker // what they have in common
	env    []string

	mu      sync.Mutex
	clients int
	lines   map[string]line
}

// play runs three processes to their end and checks what they told. If there are to be
// faults, one of the processes is killed, and replaced, and one is stopped for a while.
// With -artifacts, go test keeps the page that shows a history which is wrong. It
// reports whether enough was done for the history to prove something.
func play(t *testing.T, name string, at place, seed uint64, faulty bool) (proves bool, err error) {
	t.Helper()
	h := &history{
		worker: worker{Kind: name, URL: at.url(fmt.Sprintf("%s-%d", name, seed)), Seed: seed, Faulty: faulty, Start: clock.Now()},
		env:    at.env, lines: map[string]line{},
	}
	r := rand.New(rand.NewPCG(seed, 0))
	var all sync.WaitGroup
	for _, sig := range []os.Signal{nil, syscall.SIGKILL, syscall.SIGSTOP} {
		i := interruption{after: 2 + r.IntN(40), signal: sig, pause: time.Duration(r.Int64N(int64(kinds[name].stop)))}
		if !faulty {
			i.signal = nil
		}
		all.Go(func() {
			if err := h.process(t.Context(), i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var ops []linear.Op
	count := map[string]int{}
	for _, l := range h.lines {
		ops = append(ops, l.Op)
		verdict, _, _ := strings.Cut(l.Told.String(), ",")
		count[l.Asked.Op+" "+verdict]++
	}
	t.Logf("seed %d: %v", seed, count)
	played.histories.Add(1)
	played.operations.Add(int64(len(ops)))
	return count[kinds[name].writes+" done"] >= 5, linear.Check(kinds[name].model, linear.Leases(ops), t.ArtifactDir())
}

// An interruption is what a process meets when it has said so many lines.
type interruption struct {
	after  int
	signal os.Signal // nil: nothing; after a SIGSTOP comes a pause, and SIGCONT
	pause  time.Duration
}

// process runs one process to its end, and another one if it was killed.
func (h *history) process(ctx context.Context, i interruption) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // it only bounds what would never end
	defer cancel()
	config, err := json.Marshal(h.next())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), h.env...), variable+"="+string(config))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	killed := false
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		if err := h.take(lines.Bytes()); err != nil {
			break // it was cut off, or Wait says why
		}
		if n != i.after || i.signal == nil {
			continue
		}
		if err := cmd.Process.Signal(i.signal); err != nil {
			return err
		}
		if killed = i.signal == syscall.SIGKILL; !killed {
			defer time.AfterFunc(i.pause, func() { _ = cmd.Process.Signal(syscall.SIGCONT) }).Stop()
		}
	}
	switch err := cmd.Wait(); {
	case killed:
		return h.process(ctx, interruption{})
	case err != nil:
		return fmt.Errorf("process %s: %w", config, err)
	}
	return nil
}

// next is the worker of the next process.
func (h *history) next() worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients++
	w := h.worker
	w.Client = h.clients
	w.Seed = w.Seed<<8 + uint64(h.clients)
	return w
}

// take takes in a line. The last line about an operation counts.
func (h *history) take(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines[fmt.Sprintf("%d.%d", l.Client, l.N)] = l
	return nil
}
