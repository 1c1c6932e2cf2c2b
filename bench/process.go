package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/multilock"
)

// A holding is what a child process is to hold.
type holding struct {
	Endpoint  string        `json:"endpoint"`
	AccessKey string        `json:"access_key"`
	SecretKey string        `json:"secret_key"`
	Bucket    string        `json:"bucket"`
	Leases    int           `json:"leases"`
	Session   bool          `json:"session"`
	TTL       time.Duration `json:"ttl"`
}

// A state is what a child says of itself.
type state struct {
	Heap int64   `json:"heap"` // bytes that are in use after a collection
	RSS  int64   `json:"rss"`
	CPU  float64 `json:"cpu"` // seconds since it began
}

// holdingVariable tells a child what to hold.
const holdingVariable = "LEASEHOLD_BENCH_HOLDING"

// child runs as one of the processes that an experiment starts, if it is one.
func child(ctx context.Context) (is bool, err error) {
	if os.Getenv(leadingVariable) != "" {
		return true, lead(ctx)
	}
	text := os.Getenv(holdingVariable)
	if text == "" {
		return false, nil
	}
	var h holding
	if err = json.Unmarshal([]byte(text), &h); err != nil {
		return true, err
	}
	return true, h.hold(ctx)
}

// hold acquires the leases, and says how it stands for each line that it reads.
func (h holding) hold(ctx context.Context) error {
	p := &place{server: &servers.Server{AccessKey: h.AccessKey, SecretKey: h.SecretKey}, bucket: h.Bucket, endpoint: h.Endpoint}
	st, err := p.store()
	if err != nil {
		return err
	}
	opts := &leasehold.LockOptions{TTL: h.TTL}
	if h.Session {
		s, err := leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: h.TTL})
		if err != nil {
			return err
		}
		opts.Session = s
	}
	var locks []*leasehold.Lock
	for i := range h.Leases {
		l, err := leasehold.NewLock(st, fmt.Sprintf("process/%05d", i), opts)
		if err != nil {
			return err
		}
		locks = append(locks, l)
	}
	leases, err := multilock.AcquireAll(ctx, locks)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); ; {
		if err = json.NewEncoder(os.Stdout).Encode(ownState()); err != nil || !lines.Scan() {
			break
		}
	}
	for _, l := range leases {
		if !l.Valid() {
			return fmt.Errorf("the lease of %s was lost: %w", l.Key(), l.Err())
		}
	}
	return err
}

// ownState is that of this process.
func ownState() state {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	s := state{Heap: int64(m.HeapAlloc)}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if kb, found := strings.CutPrefix(line, "VmRSS:"); found {
				s.RSS, _ = strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
				s.RSS *= 1024
			}
		}
	}
	s.CPU = cpuTime()
	return s
}

// A process is a child of this one, which says how it stands when it is asked.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *json.Decoder
}

// start starts this program again, as what the variable says, and takes in its first word.
func start(ctx context.Context, variable, value string, first any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &process{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), variable+"="+value)
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.said = json.NewDecoder(out)
	if err = c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, c.said.Decode(first)
}

// ask has the child say how it stands.
func (c *process) ask() (s state, err error) {
	if _, err = io.WriteString(c.stdin, "\n"); err != nil {
		return s, err
	}
	return s, c.said.Decode(&s)
}

func (c *process) end() error {
	_ = c.stdin.Close()
	return c.cmd.Wait()
}

// processes measures what a process needs that holds leases, and how many locks are held
// for each request.
func processes(ctx context.Context, b *bench) error {
	p := b.near()[0]
	s := b.section("A process that holds leases")
	const interval = defaultTTL / 3
	length, most := 3*interval, 10_000
	if b.short {
		length, most = interval, 100
	}
	s.say("A process that holds so many leases for %v at the default TTL of %v. The heap is after a collection; that for a lease is what the process has more than one with one lease, for each lease more. Requests are counted at a proxy, for a whole number of renewal intervals (a third of the TTL). The count begins at a moment that is drawn evenly over one of them: if it began with a renewal, chance would decide whether it ends before the last one or after it. 10,000 leases with a heartbeat each would be 2,000 writes a second, more than this server and the rest can do on this machine, so that row is missing.", length, defaultTTL)
	rows := [][]string{{p.name, "RSS, MB", "heap, MB", "heap for a lease, bytes", "CPU, s a minute", "requests a second", "locks held for one request a second"}}
	var base float64
	for _, h := range []holding{
		{Leases: 1}, {Leases: 1, Session: true}, {Leases: 100}, {Leases: 100, Session: true}, {Leases: 10_000, Session: true},
	} {
		if h.Leases > most {
			continue
		}
		h.TTL = defaultTTL
		h.Endpoint, h.AccessKey, h.SecretKey = p.counted.endpoint, p.server.AccessKey, p.server.SecretKey
		name := fmt.Sprintf("%d leases", h.Leases)
		if h.Leases == 1 {
			name = "1 lease"
		}
		if h.Session {
			name += ", one session"
		}
		rounds := min(b.rounds, 2)
		begin := draw(b.chance("process", name), rounds, interval)
		for round := range rounds {
			h.Bucket = p.server.Bucket(b.host)
			text, err := json.Marshal(h)
			if err != nil {
				return err
			}
			var first state
			c, err := start(ctx, holdingVariable, string(text), &first)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			time.Sleep(begin[round])
			if first, err = c.ask(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			before := p.counted.count()
			time.Sleep(length)
			sent := float64(p.counted.count() - before)
			last, err := c.ask()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err = c.end(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			b.add("process", p.name, name, "RSS MB", round, float64(last.RSS)/1e6)
			b.add("process", p.name, name, "heap MB", round, float64(last.Heap)/1e6)
			b.add("process", p.name, name, "CPU s", round, (last.CPU-first.CPU)/length.Minutes())
			b.add("process", p.name, name, "requests", round, sent/length.Seconds())
		}
		of := func(metric string) spread { return b.of("process", p.name, name, metric) }
		if h.Leases == 1 {
			base = of("heap MB").median
		}
		each := "–"
		if h.Leases > 1 {
			each = number((of("heap MB").median - base) * 1e6 / float64(h.Leases))
		}
		rows = append(rows, []string{
			name, of("RSS MB").String(), number(of("heap MB").median), each, of("CPU s").String(), of("requests").String(),
			number(float64(h.Leases) / of("requests").median),
		})
	}
	s.table(rows)
	return nil
}
