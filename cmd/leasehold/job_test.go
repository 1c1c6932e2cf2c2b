package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A sham is a lease that ends when it was renewed once, though its deadline is far away.
type sham struct {
	held
	ends     chan struct{}
	asked    int
	released int
}

func (*sham) Holder() string          { return "sham" }
func (*sham) Token() leasehold.Token  { return 7 }
func (s *sham) Done() <-chan struct{} { return s.ends }
func (s *sham) Deadline() time.Time {
	if s.asked++; s.asked == 2 && s.ends != nil {
		close(s.ends)
	}
	return time.Now().Add(48 * time.Hour) // later by far than the grace, which begins before it
}

func (s *sham) Err() error { return fmt.Errorf("%w: another has it", leasehold.ErrLost) }

func (s *sham) Release(context.Context) error {
	s.released++
	return nil
}

// endsEarly runs a command under a lease that is lost once the command has got more time, since it was renewed. A signal that came before
// is not passed on. It is a program of its own, since it has to be the parent of the command.
func endsEarly() {
	var said bytes.Buffer
	j := (&app{console: console{w: &said, json: true}}).newJob()
	j.argv, j.grace = os.Args[1:], 24*time.Hour
	lease := &sham{ends: make(chan struct{})}
	j.relayed <- syscall.SIGINT
	poke(j.renewed)
	r := j.hold(context.Background(), lease)
	if strings.Contains(said.String(), string(eventSignalled)) || r.err != nil || !r.Expired || r.Signal != syscall.SIGTERM || r.lost == nil || r.lost.Error() != "another has it" || lease.released != 1 {
		os.Exit(1)
	}
}

// A signal that comes together with the lock frees it.
func TestSignalWithTheLock(t *testing.T) {
	t.Parallel()
	j, _ := newWaiter()
	lease := &sham{}
	j.signals <- syscall.SIGTERM
	got, err := j.await(t.Context(), func(ctx context.Context) (held, error) {
		<-ctx.Done() // and the lock is there all the same
		return lease, nil
	})
	end, ok := errors.AsType[*exit](err)
	if got != nil || !ok || end.code != exitSignal+15 {
		t.Errorf("%v, %v; want an exit with code 143", got, err)
	}
	if lease.released != 1 {
		t.Errorf("the lease was released %d times, want once", lease.released)
	}
}

// A lease file gets its name when all of it is on the disk, and only then.
func TestLeaseFileIsDurable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	temp, err := os.Create(filepath.Join(dir, "temp"))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	for _, fails := range []string{"", "write", "sync", "close", "rename"} {
		var did []string
		if fails == "write" {
			_ = temp.Close()
		}
		do := func(what string) error {
			did = append(did, what)
			if what == fails {
				return full
			}
			return nil
		}
		err = durably(temp, "lease", filepath.Join(dir, "lease"),
			func(*os.File) error {
				if text, wrong := os.ReadFile(temp.Name()); wrong != nil || string(text) != "lease" {
					t.Errorf("what is synced is %q, %v", text, wrong)
				}
				if fails == "close" {
					_ = temp.Close() // and not a second time
				}
				return do("sync")
			}, func(string, string) error { return do("rename") }, func(string) error { return do("syncDir") })
		want := []string{"sync", "rename", "syncDir"}
		switch fails {
		case "":
		case "write":
			want = nil
		case "close":
			want = want[:1]
		default:
			want = want[:slices.Index(want, fails)+1]
		}
		if !slices.Equal(did, want) || (err != nil) != (fails != "") {
			t.Errorf("if %q fails: %v, %v; want %v", fails, did, err, want)
		}
		if temp, err = os.Create(filepath.Join(dir, "temp")); err != nil {
			t.Fatal(err)
		}
	}
	_ = temp.Close()
}

// TestRenewalIsTold: a renewal extends the command's deadline, and a store outage is reported. Neither delays the lease.
func TestRenewalIsTold(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	j := (&app{console: console{w: &said}}).newJob()
	for range 2 {
		j.opts.Trace.Renewed(t.Context(), locktrace.Renewed{})
	}
	if n := len(j.renewed); n != 1 {
		t.Errorf("%d renewals are to be looked at, want 1", n)
	}
	j.opts.Trace.Trouble(t.Context(), locktrace.Trouble{Err: errors.New("no answer")})
	if want := "leasehold: the store fails, and is tried again: no answer\n"; said.String() != want {
		t.Errorf("it says %q, want %q", &said, want)
	}
}

// TestTimesOfJob: the bounds of --ttl, --grace and --lost-exit-code. With a short TTL the default grace is shorter, or no time
// would be left to run.
func TestTimesOfJob(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                              "5s",
		"--ttl 1s":                      "333.333333ms",
		"--ttl 3s":                      "1s",
		"--ttl 24h":                     "5s",
		"--ttl 24h --grace 8h":          "8h0m0s",
		"--ttl 24h --grace 28800001ms":  "exit code 64: --grace 8h0m0.001s is more than a third of --ttl 24h0m0s, which leaves too little time for renewals: use --ttl 24h0m0.003s or more",
		"--ttl 3s --grace 0":            "0s",
		"--ttl 3s --grace 5s":           "exit code 64: --grace 5s is more than a third of --ttl 3s, which leaves too little time for renewals: use --ttl 15s or more",
		"--grace -1ns":                  "exit code 64: --grace -1ns is less than 0",
		"--ttl 999ms":                   "exit code 64: --ttl 999ms is not between 1s and 24h0m0s",
		"--ttl 24h1ns":                  "exit code 64: --ttl 24h0m0.000000001s is not between 1s and 24h0m0s",
		"--lost-exit-code 0":            "5s",
		"--lost-exit-code 255":          "5s",
		"--lost-exit-code -1":           "exit code 64: --lost-exit-code -1 is not between 0 and 255",
		"--lost-exit-code 256 --ttl 1s": "exit code 64: --lost-exit-code 256 is not between 0 and 255",
	} {
		j := (&app{}).newJob()
		cmd := &cobra.Command{}
		j.flags(cmd.Flags())
		if err := cmd.ParseFlags(append(strings.Fields(args), "l", "--", "true")); err != nil {
			t.Fatal(err)
		}
		err := j.check(cmd, cmd.Flags().Args())
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && j.grace.String() != want {
			t.Errorf("%q: %v and a grace of %v, want %s", args, err, j.grace, want)
		}
	}
}

// A quirkyStore is on a server that compares ETags without their quotes.
type quirkyStore struct{ *memstore.Store }

func (s quirkyStore) Inspect() store.Inspection { return quirk{st: s.Store} }

type quirk struct {
	store.Inspection
	st store.Store
}

func (q quirk) Unquoted() store.Store { return q.st }

// TestProve: --proof of run, elect and serve reads a report, and says what is wrong with one.
func TestProve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good":    `{"format": 1, "store": "s3://b", "verdicts": [{"use": "object", "safe": true}]}`,
		"garbage": "garbage",
		"quirk":   `{"format": 1, "store": "s3://b", "unquoted_etags": true, "verdicts": [{"use": "object", "safe": true}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"": "", "good": "", "quirk": "", "none": "--proof: open " + filepath.Join(dir, "none"), "garbage": "--proof " + filepath.Join(dir, "garbage") + ": no report of a probe",
	} {
		file := name
		if name != "" {
			file = filepath.Join(dir, name)
		}
		j := &job{app: &app{}, proof: file, target: target{store: quirkyStore{Store: memstore.New()}}}
		c := &serveCmd{app: j.app, proof: file, target: j.target, states: states{prefix: "s3://b/tf", target: j.target}}
		for what, err := range map[string]error{"run": j.prove(), "serve": c.prove()} {
			if end, is := errors.AsType[*exit](err); is != (want != "") || is && (end.code != exitUsage || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %q: %v, want %q", what, name, err, want)
			}
		}
		for what, st := range map[string]store.Store{"run": j.target.store, "serve": c.target.store, "states": c.states.target.store} {
			if _, adapted := st.(*memstore.Store); adapted != (name == "quirk") {
				t.Errorf("with %q the store of %s is %T", name, what, st)
			}
		}
		if proves := name == "good" || name == "quirk"; (j.opts.Proof != nil) != proves || (c.opts.Proof != nil) != proves {
			t.Errorf("with %q: %v, %v", name, j.opts.Proof, c.opts.Proof)
		}
	}
}

// An endedLease is a lease of which it is known how it has ended, and when it would have.
type endedLease struct {
	heldLease
	err           error
	deadline, end time.Time
}

func (l endedLease) Err() error          { return l.err }
func (l endedLease) Deadline() time.Time { return l.deadline }

// TestWhatBecameOfTheLease: whether the lease was lost while the command ran, and why, or whether only its time was up. By that
// the exit code is chosen.
func TestWhatBecameOfTheLease(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fenced := fmt.Errorf("cannot claim x: %w", fence.ErrFenced)
	lost := fmt.Errorf("%w: another has it", leasehold.ErrLost)
	const late, marker = "no renewal came through in time", "its TTL of 15s was over, and a marker is not renewed"
	for name, tt := range map[string]struct {
		expired bool
		err     error // of the start
		lease   endedLease
		layout  leasehold.Layout
		ifMatch bool
		over    bool
		lost    string
	}{
		"it ended":                         {},
		"it was not started":               {err: &guardian.CommandError{Code: 127}},
		"it was ended by the guardian":     {expired: true, lost: late},
		"it was too late":                  {err: guardian.ErrTooLate, lost: late},
		"it was lost":                      {lease: endedLease{err: lost}, lost: "another has it"},
		"it was lost, and ended":           {expired: true, lease: endedLease{err: lost}, lost: "another has it"},
		"it was fenced":                    {err: fenced, lease: endedLease{err: lost}},
		"its time was up":                  {lease: endedLease{err: leasehold.ErrTimeUp}, over: true, lost: leasehold.ErrTimeUp.Error()},
		"its time was up, and it ended":    {expired: true, lease: endedLease{deadline: now, end: now}, over: true, lost: leasehold.ErrTimeUp.Error()},
		"its time was up, nearly":          {expired: true, lease: endedLease{deadline: now, end: now.Add(time.Millisecond)}, over: true, lost: leasehold.ErrTimeUp.Error()},
		"it ended before its time":         {lease: endedLease{deadline: now, end: now}},
		"a renewal was to come":            {expired: true, lease: endedLease{deadline: now, end: now.Add(2 * time.Millisecond)}, lost: late},
		"a marker was lost":                {lease: endedLease{err: lost}, layout: leasehold.LayoutMarker, lost: marker},
		"a marker's command was ended":     {expired: true, layout: leasehold.LayoutMarker, lost: marker},
		"a marker's command ended":         {layout: leasehold.LayoutMarker},
		"a marker's time was up":           {lease: endedLease{err: leasehold.ErrTimeUp}, layout: leasehold.LayoutMarker, over: true, lost: leasehold.ErrTimeUp.Error()},
		"another marker's lease was lost":  {lease: endedLease{err: lost}, layout: leasehold.LayoutMarker, ifMatch: true, lost: "another has it"},
		"it was released, which is no end": {lease: endedLease{err: leasehold.ErrReleased}},
	} {
		j := &job{opts: leasehold.LockOptions{TTL: 15 * time.Second, Layout: tt.layout, NoIfMatch: !tt.ifMatch}}
		r := run{Status: guardian.Status{Expired: tt.expired}, err: tt.err}
		j.judge(&r, tt.lease, tt.lease.end)
		why := ""
		if r.lost != nil {
			why = r.lost.Error()
		}
		if r.over != tt.over || why != tt.lost {
			t.Errorf("%s: over %v, lost %q; want %v, %q", name, r.over, why, tt.over, tt.lost)
		}
	}
}

// A hangingStore answers no request before two seconds after the end of its context.
type hangingStore struct{ *memstore.Store }

func (s hangingStore) Get(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
	<-ctx.Done()
	time.Sleep(2 * time.Second)
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
}

type claimingLease struct {
	heldLease
	ctx context.Context
}

func (l claimingLease) Context() context.Context { return l.ctx }
func (claimingLease) Err() error                 { return nil }

// TestSignalEndsClaim: a signal ends a claim that gets no answer, and waits for its end; the exit code is the signal's.
func TestSignalEndsClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := fence.NewObject(hangingStore{memstore.New()}, "state", nil)
		if err != nil {
			t.Fatal(err)
		}
		j, _ := newWaiter()
		j.signals <- syscall.SIGTERM
		if err = j.claim(claimingLease{ctx: t.Context()}); err != nil || len(j.signals) != 1 {
			t.Errorf("with nothing to claim, a signal is not left for the command: %v", err)
		}
		<-j.signals
		j.claims = claims{names: []string{"state"}, objects: []*fence.Object{o}}
		go func() {
			time.Sleep(10 * time.Second)
			j.signals <- syscall.SIGTERM
		}()
		began := time.Now()
		err = j.claim(claimingLease{ctx: t.Context()})
		if end, is := errors.AsType[*exit](err); !is || end.Error() != "exit code 143: terminated: gave up before the command began" || time.Since(began) != 12*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestLeaseFileIsReplacedOrLeft: a lease that cannot be written leaves the file as it was, and none of its own beside it.
func TestLeaseFileIsReplacedOrLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := filepath.Join(dir, "lease")
	if err := os.MkdirAll(filepath.Join(at, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := leaseFile(at).write(detached.Lease{Key: "l"}); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "lease" {
		t.Errorf("there are %v, %v", left, err)
	}
}
