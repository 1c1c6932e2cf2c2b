//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// candidateVariable makes this binary a candidate in place of the tests.
const candidateVariable = "LEASEHOLD_TEST_CANDIDATE"

// A member is what a candidate that is a process of its own has to know.
type member struct {
	URL, Holder string
	Certs       string // directory with me.pem, me.key, ca.pem
	TTL         time.Duration
}

// told is what a candidate says, one line of JSON for each.
type told struct {
	Leads   bool            // it has begun to lead
	Leading leasehold.Token // with this token
	Asked   bool            // it is about to resign, as it was told to
	Put     time.Duration   // how long a conditional PUT took, as it was told to make one
	Status  *leasehold.Status
	At      time.Time
}

// candidate is a process that campaigns, with peers, and does what its stdin says.
func candidate(config string) error {
	var m member
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	ctx := context.Background()
	st, key, err := storeurl.OpenLock(ctx, m.URL)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(m.Certs, "me.pem"), filepath.Join(m.Certs, "me.key"))
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(filepath.Join(m.Certs, "ca.pem"))
	if err != nil {
		return err
	}
	cas, err := peer.ParseCAs(pem)
	if err != nil {
		return err
	}
	client, err := peer.NewClient(&peer.ClientOptions{RootCAs: cas, Certificate: cert})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(line told) {
		mu.Lock()
		defer mu.Unlock()
		line.At = time.Now()
		_ = out.Encode(line)
	}
	e, err := leasehold.NewElection(st, key, &leasehold.ElectionOptions{
		TTL: m.TTL, Holder: m.Holder, Address: l.Addr().String(), Peers: client,
		Layout: underTest, Sweep: !renewals(),
	})
	if err != nil {
		return err
	}
	server, err := peer.NewServer(&peer.ServerOptions{Certificate: cert, ClientCAs: cas}, e)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(l) }()
	go func() {
		_ = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			say(told{Leads: true, Leading: lease.Token()})
			<-ctx.Done()
			return nil
		})
	}()
	return obey(ctx, e, st, key, say)
}

// obey does what stdin says until its end.
func obey(ctx context.Context, e *leasehold.Election, st store.Store, key string, say func(told)) error {
	lines := bufio.NewScanner(os.Stdin)
	for n := 0; lines.Scan(); n++ {
		switch lines.Text() {
		case "resign":
			say(told{Asked: true})
			if err := e.Resign(ctx); err != nil {
				return err
			}
		case "put": // as large as a release, on a condition
			began := time.Now()
			body := strings.Repeat("x", 400)
			if _, err := st.Put(ctx, fmt.Sprintf("%s-probe/%d-%d", key, os.Getpid(), n), []byte(body), store.IfAbsent()); err != nil {
				return err
			}
			say(told{Put: time.Since(began)})
		case "status":
			s := e.Status()
			say(told{Status: &s})
		}
	}
	return lines.Err()
}

// A citizen is a candidate in a process of its own, as the test sees it.
type citizen struct {
	*exec.Cmd
	holder string
	in     io.Writer
	says   chan told
}

// An electorate is candidates in processes, with peers.
type electorate struct {
	citizens []*citizen
	leading  chan beginnings
}

type beginnings struct {
	told
	by *citizen
}

func newElectorate(t *testing.T, at site, n int) *electorate {
	t.Helper()
	certs := t.TempDir()
	servers.NewAuthority(t).Write(t, certs, "127.0.0.1")
	e := &electorate{leading: make(chan beginnings, 16)}
	for i := range n {
		config, err := json.Marshal(member{URL: at.url, Holder: fmt.Sprint("citizen ", i), Certs: certs, TTL: electionTTL})
		if err != nil {
			t.Fatal(err)
		}
		c := &citizen{
			Cmd:    exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]),
			holder: fmt.Sprint("citizen ", i), says: make(chan told, 16),
		}
		c.Env = append(append(os.Environ(), at.env...), candidateVariable+"="+string(config))
		c.Stderr = os.Stderr
		c.in, err = c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		go e.listen(c, out)
		e.citizens = append(e.citizens, c)
	}
	return e
}

func (e *electorate) listen(c *citizen, out io.Reader) {
	defer close(c.says)
	lines := json.NewDecoder(out)
	for {
		var line told
		if lines.Decode(&line) != nil {
			return
		}
		if line.Leads {
			e.leading <- beginnings{line, c}
		} else {
			c.says <- line
		}
	}
}

// next waits for the next leader.
func (e *electorate) next(t *testing.T) beginnings {
	t.Helper()
	select {
	case b := <-e.leading:
		return b
	case <-time.After(time.Minute):
		t.Fatal("nobody leads within a minute")
		panic("unreachable")
	}
}

// do tells the citizen to do something, and waits for its answer.
func (c *citizen) do(t *testing.T, what string) told {
	t.Helper()
	fmt.Fprintln(c.in, what)
	select {
	case line, ok := <-c.says:
		if !ok {
			t.Fatalf("%s has ended", c.holder)
		}
		return line
	case <-time.After(time.Minute):
		t.Fatalf("%s does not %s", c.holder, what)
		panic("unreachable")
	}
}

// attentive waits until all followers have heard from the leader.
func (e *electorate) attentive(t *testing.T, leader beginnings) {
	t.Helper()
	for _, c := range e.citizens {
		until(t, c.holder+" hears from the leader", func() bool {
			return c == leader.by || c.do(t, "status").Status.LastHeard.After(leader.At)
		})
	}
}

// TestHandOverWithPeers: a resignation reaches the followers at once. From before it
// until the next leader's work begins, as a multiple of the time that one PUT takes.
func TestHandOverWithPeers(t *testing.T) {
	t.Parallel()
	rounds := 2
	if *long {
		rounds = 50
	}
	sites(t, func(t *testing.T, at site) {
		e := newElectorate(t, at, 3)
		var took, puts []time.Duration
		leader := e.next(t)
		for range rounds {
			e.attentive(t, leader)
			for range 3 {
				puts = append(puts, leader.by.do(t, "put").Put)
			}
			before := map[*citizen]int64{}
			for _, c := range e.citizens {
				before[c] = c.do(t, "status").Status.Requests.Reads
			}
			asked := leader.by.do(t, "resign")
			next := e.next(t)
			if next.by == leader.by || !later(next.Leading, leader.Leading) {
				t.Errorf("%s leads with token %v, after %s with %v", next.by.holder, next.Leading, leader.by.holder, leader.Leading)
			}
			took = append(took, next.At.Sub(asked.At))
			// The word of the release proved itself, so nobody had to look.
			if reads := next.by.do(t, "status").Status.Requests.Reads; reads != before[next.by] {
				t.Errorf("%s read %d times to take over", next.by.holder, reads-before[next.by])
			}
			leader = next
		}
		slices.Sort(took)
		slices.Sort(puts)
		put := puts[len(puts)/2]
		t.Logf("%d hand-overs: median %v, p99 %v; one PUT %v; so %.2f and %.2f times a PUT", rounds,
			took[rounds/2], took[rounds*99/100], put, float64(took[rounds/2])/float64(put), float64(took[rounds*99/100])/float64(put))
	})
}

// TestLeaderKilledWithPeers: the end of the leader's process breaks what its followers
// wait for. They look at the store, and one leads when the lease is over, not before.
func TestLeaderKilledWithPeers(t *testing.T) {
	t.Parallel()
	sites(t, func(t *testing.T, at site) {
		e := newElectorate(t, at, 3)
		leader := e.next(t)
		e.attentive(t, leader)
		before := map[*citizen]int64{}
		for _, c := range e.citizens {
			before[c] = c.do(t, "status").Status.Requests.Reads
		}
		if err := leader.by.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		for _, c := range e.citizens {
			until(t, c.holder+" looks at the store", func() bool {
				return c == leader.by || c.do(t, "status").Status.Requests.Reads > before[c]
			})
		}
		noticed := time.Since(killed)
		next := e.next(t)
		if next.by == leader.by || !later(next.Leading, leader.Leading) {
			t.Errorf("%s leads with token %v, after %s with %v", next.by.holder, next.Leading, leader.by.holder, leader.Leading)
		}
		// It renewed its lease less than TTL/3 before it was killed, or was about to; or
		// it does not renew it, and had it for as long as it led.
		left := protocol.Validity(electionTTL) - protocol.Renewal(electionTTL)
		if !renewals() {
			left = protocol.Validity(electionTTL) - killed.Sub(leader.At) - time.Second
		}
		if idle := next.At.Sub(killed); idle < left {
			t.Errorf("the next leader began %v after the kill, within the lease", idle)
		} else {
			t.Logf("followers looked within %v, the next leader began after %v, TTL %v", noticed, idle, electionTTL)
		}
	})
}
