// Package peer_test lets thousands of followers wait on one leader.
package peer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

var long = flag.Bool("long", false, "10,000 followers instead of 500")

// key is that of the election.
const key = "leaders/scheduler"

// roleEnv makes the test binary another process of a test.
const roleEnv = "LEASEHOLD_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "followers":
		err = beFollowers(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// orders are what the followers' process is told.
type orders struct {
	Address string
	Roots   []byte
	Number  int
}

// beFollowers asks as that many followers do, each on a connection of its own, until
// each has heard that the leader is gone. Then it says when each of them has.
func beFollowers(in io.Reader, out io.Writer) error {
	var o orders
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	roots, err := peer.ParseCAs(o.Roots)
	if err != nil {
		return err
	}
	var (
		followers sync.WaitGroup
		mu        sync.Mutex
		heard     []time.Time
		failed    error
		connect   = make(chan struct{}, 50) // at once
	)
	for i := range o.Number {
		followers.Go(func() {
			when, err := beFollower(&peer.ClientOptions{RootCAs: roots, Timeout: time.Minute}, o.Address, i, connect)
			mu.Lock()
			defer mu.Unlock()
			heard, failed = append(heard, when), errors.Join(failed, err)
		})
	}
	followers.Wait()
	if failed != nil {
		return failed
	}
	return json.NewEncoder(out).Encode(heard)
}

func beFollower(opts *peer.ClientOptions, address string, i int, connect chan struct{}) (time.Time, error) {
	c, err := peer.NewClient(opts)
	if err != nil {
		return time.Time{}, err
	}
	q := peer.Question{Lock: key, Holder: fmt.Sprint("follower-", i), Waited: time.Duration(i+1) * time.Minute}
	connect <- struct{}{}
	said, err := c.Ask(context.Background(), address, q)
	<-connect
	for err == nil && said.Leading {
		q.Known, q.Wait = said.Version, time.Minute
		said, err = c.Ask(context.Background(), address, q)
	}
	when := time.Now()
	if err == nil && (!said.Free || said.Successor == "") {
		err = fmt.Errorf("%s was told %+v", q.Holder, said)
	}
	return when, errors.Join(err, c.Close())
}

// TestThousands: thousands of followers wait on one leader and hear of its resignation.
// They are another process, as a process may have too few files for both sides.
//
//	go -C proof test ./peer -run TestThousands -long -v
func TestThousands(t *testing.T) {
	number := 500
	if *long {
		number = 10_000
	}
	a := servers.NewAuthority(t)
	e, wrong := leasehold.NewElection(memstore.New(), key, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute, Address: "10.0.1.42:8443", Holder: "leader/1"}})
	if wrong != nil {
		t.Fatal(wrong)
	}
	if _, err := e.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := peer.NewHandler(nil, e)
	s, wrong := peer.NewServer(&peer.ServerOptions{Addr: "127.0.0.1:0", Certificate: a.Issue(t, "127.0.0.1"), Handler: h})
	if wrong != nil {
		t.Fatal(wrong)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	before := used()

	began := time.Now()
	followers, said := followers(t, orders{s.Addr().String(), a.PEM(), number})
	for h.Waiting() < number {
		select {
		case err := <-followers:
			t.Fatalf("%d of %d wait, and their process has ended: %v", h.Waiting(), number, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Logf("%d followers wait, %v after they began to connect", number, time.Since(began).Round(10*time.Millisecond))
	asIs := rss()
	for range 4 {
		runtime.GC() // stacks shrink by half each time
	}
	each := used().minus(before).each(number)
	t.Logf("the leader's memory for each: %d bytes RSS; after garbage collection %d bytes RSS, %d of the heap, %d of stacks",
		(asIs-before.rss)/number, each.rss, each.heap, each.stack)
	if each.heap+each.stack > 64<<10 {
		t.Errorf("that is more than 64 KiB")
	}

	if err := e.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	freed := time.Now()
	if err := <-followers; err != nil {
		t.Fatal(err)
	}
	var heard []time.Time
	if err := json.Unmarshal(said.Bytes(), &heard); err != nil || len(heard) != number {
		t.Fatalf("%d of %d have heard: %v", len(heard), number, err)
	}
	slices.SortFunc(heard, time.Time.Compare)
	t.Logf("half had heard of the release %v after it, all after %v",
		heard[number/2].Sub(freed).Round(time.Millisecond), heard[number-1].Sub(freed).Round(time.Millisecond))
	last, err := peer.Attend(t.Context(), e, peer.Question{Lock: key})
	if want := fmt.Sprint("follower-", number-1); err != nil || last.Successor != want {
		t.Errorf("the successor is %q, not %q that has waited for longest: %v", last.Successor, want, err)
	}
}

// followers starts the process of the followers. Its output can be read when it has
// ended.
func followers(t *testing.T, o orders) (ended <-chan error, said *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	said = new(bytes.Buffer)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=followers")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), said, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return end, said
}

// memory is what a process uses, in bytes.
type memory struct{ rss, heap, stack int }

func used() memory {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{rss(), int(m.HeapInuse), int(m.StackInuse)}
}

func (m memory) minus(o memory) memory {
	return memory{m.rss - o.rss, m.heap - o.heap, m.stack - o.stack}
}

func (m memory) each(n int) memory { return memory{m.rss / n, m.heap / n, m.stack / n} }

// rss is the memory of this process as Linux counts it, 0 elsewhere.
func rss() int {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kilobytes, _ := strconv.Atoi(f[1])
			return kilobytes << 10
		}
	}
	return 0
}
