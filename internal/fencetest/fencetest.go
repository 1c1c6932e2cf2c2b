//go:build unix

// Package fencetest plays the sequence that fences are for, with real processes: (1)
// holder A, a process, is stopped while it writes. (2) Its lease ends, B acquires the
// lock, claims the resource, and writes. (3) A goes on. What A then tries must be
// refused by the fence, since nothing else stops it here: it writes with its token, not
// with its lease.
package fencetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A Resource is what both holders write. Claim is called once, before Write.
type Resource interface {
	Claim(ctx context.Context, h fence.Holder) error
	Write(ctx context.Context, value string) error
	// Read gives the last value, or of a log all of them, each before a space.
	Read(ctx context.Context) (string, error)
}

// An Opener opens the resource of a kind that lies at a place. From the seed come the
// answers that are lost.
type Opener func(ctx context.Context, at string, seed uint64) (Resource, error)

const variable = "LEASEHOLD_TEST_HOLDER"

// setup is what a holder has to know.
type setup struct {
	LockURL, Kind, At string
	B                 bool
	Seed              uint64
}

// said is what a holder says, one line of JSON for each.
type said struct {
	Token  leasehold.Token // it has acquired the lock and claimed the resource
	Value  string          // that it has written, or has read
	Error  string          // of that
	Newest leasehold.Token // it was refused, because of this
}

const ttl = time.Second

// Main makes this process a holder, if it is to be one, and does not return then.
func Main(openers map[string]Opener) {
	config := os.Getenv(variable)
	if config == "" {
		return
	}
	var s setup
	err := json.Unmarshal([]byte(config), &s)
	if err == nil {
		err = s.hold(context.Background(), openers[s.Kind])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "a holder of %+v: %v\n", s, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold acquires and claims. Then A writes until it is refused, and B writes once and then
// reads, for each line on stdin.
func (s setup) hold(ctx context.Context, open Opener) error {
	st, key, err := storeurl.OpenLock(ctx, s.LockURL)
	if err != nil {
		return err
	}
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{TTL: ttl})
	if err != nil {
		return err
	}
	r, err := open(ctx, s.At, s.Seed)
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := r.Claim(ctx, fence.Token(lease.Token())); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if s.B {
		return s.second(ctx, r, lease, out)
	}
	_ = out.Encode(said{Token: lease.Token()})
	for i := 0; ; i++ {
		line := said{Value: fmt.Sprint("a", i)}
		err := r.Write(ctx, line.Value)
		if fenced, ok := errors.AsType[*fence.FencedError](err); ok {
			line.Newest = fenced.Newest
		}
		if err != nil {
			line.Error = err.Error()
		}
		if out.Encode(line) != nil || line.Newest != 0 {
			return nil
		}
	}
}

func (s setup) second(ctx context.Context, r Resource, lease *leasehold.Lease, out *json.Encoder) error {
	before, err := r.Read(ctx)
	if err != nil {
		return err
	}
	if err = r.Write(ctx, "b"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_ = out.Encode(said{Token: lease.Token(), Value: before})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var line said
		if line.Value, err = r.Read(ctx); err != nil {
			line.Error = err.Error()
		}
		_ = out.Encode(line)
	}
	return nil
}

// A Sequence is where it is played.
type Sequence struct {
	LockURL string   // other for each round
	At      string   // other for each round, too
	Env     []string // that the holders need for them
	Kind    string
	Appends bool // reads show all values
	Blocks  bool // A, where it was stopped, may keep B out of the resource: then it goes on first
}

// Play plays it once. It returns what A was refused with, or "" if what B wrote is gone.
func (q Sequence) Play(t *testing.T) (refusal string) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	a := q.start(t, setup{q.LockURL, q.Kind, q.At, false, seed})
	a.next(t)
	time.Sleep(time.Duration(seed % uint64(60*time.Millisecond))) // a moment of its work, whichever
	a.signal(t, syscall.SIGSTOP)

	b := q.start(t, setup{q.LockURL, q.Kind, q.At, true, 0})
	if q.Blocks {
		wake := time.AfterFunc(3*ttl, func() { _ = a.cmd.Process.Signal(syscall.SIGCONT) })
		defer wake.Stop()
	}
	began := b.next(t)
	want := "b"
	if q.Appends {
		want = began.Value + "b "
	}
	a.signal(t, syscall.SIGCONT)
	for n := 0; ; n++ {
		line := a.next(t)
		if line.Newest == 0 && n%20 != 0 {
			continue // some are from before
		}
		fmt.Fprintln(b.in, "read")
		if now := b.next(t); now.Error != "" {
			t.Fatal(now.Error)
		} else if now.Value != want {
			t.Logf("B wrote %.200q, and there is %.200q", want, now.Value)
			return ""
		}
		if line.Newest != 0 {
			if line.Newest != began.Token {
				t.Errorf("A was refused because of token %d, want that of B, %d", line.Newest, began.Token)
			}
			return line.Error
		}
	}
}

// A holder is process A or B.
type holder struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines *json.Decoder
}

func (q Sequence) start(t *testing.T, s setup) *holder {
	t.Helper()
	config, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(append(os.Environ(), q.Env...), variable+"="+string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &holder{cmd, in, json.NewDecoder(bufio.NewReader(out))}
}

func (h *holder) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (h *holder) next(t *testing.T) (line said) {
	t.Helper()
	if err := h.lines.Decode(&line); err != nil {
		t.Fatalf("a holder has ended: %v", err)
	}
	return line
}
