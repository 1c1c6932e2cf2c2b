package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const first = 5 * time.Second
	for _, tc := range []struct{ last, first, ran, want time.Duration }{
		{0, first, 0, first},
		{0, first, time.Hour, first},
		{first, first, 0, 2 * first},
		{2 * first, first, time.Minute, 4 * first},
		{8 * first, first, time.Second, time.Minute},
		{time.Minute, first, time.Second, time.Minute},
		{time.Minute, first, time.Minute + 1, first},
		// With a TTL of more than three minutes, the first pause is the longest.
		{time.Hour, time.Hour, time.Minute, time.Hour},
	} {
		if got := backoff(tc.last, tc.first, tc.ran); got != tc.want {
			t.Errorf("after a pause of %v and a command that ran for %v: a pause of %v, want %v", tc.last, tc.ran, got, tc.want)
		}
	}
}

// TestEndOfTerm: which ends of the command end the candidate too, with which code, and what it says; after all others it
// campaigns again.
func TestEndOfTerm(t *testing.T) {
	t.Parallel()
	const (
		hup, in, term = syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM
		goesOn        = -1
	)
	coded := func(code int) run { return run{Status: guardian.Status{Code: code}} }
	down := &store.Error{Op: "get", Key: "l", Kind: store.ErrUnavailable}
	lost := run{Status: guardian.Status{Code: 143}, lost: errors.New("no renewal came through in time")}
	for name, tt := range map[string]struct {
		run    run
		once   bool
		passed []syscall.Signal
		code   int
		says   string
	}{
		"it ended":                       {coded(3), false, nil, goesOn, ""},
		"it ended well":                  {coded(0), false, nil, goesOn, ""},
		"it ended, once":                 {coded(3), true, nil, 3, "no longer leading l: the command ended with code 3"},
		"it failed, once":                {coded(1), true, nil, 1, "no longer leading l: the command ended with code 1"},
		"it ended well, once":            {coded(0), true, nil, 0, "no longer leading l: the command ended with code 0"},
		"the lease was lost":             {lost, false, nil, goesOn, ""},
		"the lease was lost, once":       {lost, true, nil, 9, ""},
		"told to end, and well":          {coded(0), false, []syscall.Signal{term}, 0, "no longer leading l: the command ended with code 0 after signal 15 (terminated)"},
		"told to end, and not well":      {coded(143), false, []syscall.Signal{term}, 143, "no longer leading l: the command ended with code 143 after signal 15 (terminated)"},
		"the last signal counts":         {coded(1), false, []syscall.Signal{term, in}, 130, "no longer leading l: the command ended with code 1 after signal 2 (interrupt)"},
		"told to end, once":              {coded(5), true, []syscall.Signal{term}, 5, "no longer leading l: the command ended with code 5"},
		"^C came to the command alone":   {coded(130), false, nil, 130, "no longer leading l: the command ended with code 130 after signal 2 (interrupt)"},
		"^\\ came to the command alone":  {coded(131), false, nil, 131, "no longer leading l: the command ended with code 131 after signal 3 (quit)"},
		"it read its files again":        {coded(0), false, []syscall.Signal{hup}, goesOn, ""},
		"it died of SIGHUP":              {coded(129), false, []syscall.Signal{hup}, 129, "no longer leading l: the command ended with code 129 after signal 1 (hangup)"},
		"SIGHUP from elsewhere":          {coded(129), false, nil, goesOn, ""},
		"killed by another":              {coded(143), false, nil, goesOn, ""},
		"not found":                      {run{err: &guardian.CommandError{Command: "x", Code: 127, Reason: "not found"}}, false, nil, 127, ""},
		"the claim failed for now":       {run{err: down, idle: true}, false, nil, goesOn, ""},
		"the claim failed for now, once": {run{err: down, idle: true}, true, nil, exitUnavailable, ""},
		"the claim was refused":          {run{err: fmt.Errorf("x: %w", fence.ErrFenced), idle: true}, false, nil, exitFenced, ""},
		"it was too late to start, once": {run{err: guardian.ErrTooLate, lost: errors.New("no renewal came through in time")}, true, nil, 9, ""},
		"it was too late to start":       {run{err: guardian.ErrTooLate, lost: errors.New("no renewal came through in time")}, false, nil, goesOn, ""},
	} {
		j, said := newWaiter()
		c := &electCmd{job: *j, once: tt.once}
		c.lostCode, c.passedOn = 9, tt.passed
		err := c.end(tt.run)
		code := goesOn
		if end, is := errors.AsType[*exit](err); is {
			code = end.code
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.TrimSpace(strings.TrimPrefix(said.String(), "leasehold: ")); code != tt.code || got != tt.says {
			t.Errorf("%s: it ends with %d, want %d, and says %q, want %q", name, code, tt.code, got, tt.says)
		}
	}
}

// TestRestAfterTerm: how long a candidate lets others lead first, and what it says; a signal ends it.
func TestRestAfterTerm(t *testing.T) {
	t.Parallel()
	down := &store.Error{Op: "get", Key: "l", Kind: store.ErrUnavailable}
	for name, tt := range map[string]struct {
		run   run
		pause time.Duration // the last
		ran   time.Duration
		want  time.Duration
		says  string
	}{
		"it ended":       {run{Status: guardian.Status{Code: 3}}, 0, time.Second, 7500 * time.Millisecond, "the command ended with code 3; campaigning again in 7.5s"},
		"it ended again": {run{}, 7500 * time.Millisecond, time.Second, 15 * time.Second, "the command ended with code 0; campaigning again in 15s"},
		"it was lost":    {run{lost: errors.New("no answer")}, 0, 0, 0, "the lease was lost, and the command was ended: no answer; campaigning again"},
		"no claim":       {run{err: down, idle: true}, 0, 0, 7500 * time.Millisecond, "store unavailable (get \"l\"); campaigning again in 7.5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, said := newWaiter()
			c := &electCmd{job: *j, pause: tt.pause}
			began := time.Now()
			err := c.rest(t.Context(), tt.run, tt.ran)
			if got, want := said.String(), "leasehold: no longer leading l: "+tt.says+"\n"; err != nil || time.Since(began) != tt.want || got != want {
				t.Errorf("%s: it rests for %v, %v, and says %q, want %v and %q", name, time.Since(began), err, got, tt.want, want)
			}
			if tt.want == 0 {
				return
			}
			go func() {
				time.Sleep(time.Second)
				c.signals <- syscall.SIGTERM
			}()
			began = time.Now()
			err = c.rest(t.Context(), tt.run, tt.ran)
			if end, is := errors.AsType[*exit](err); !is || end.code != 143 || time.Since(began) != time.Second {
				t.Errorf("%s: after a signal it ends with %v in %v", name, err, time.Since(began))
			}
		})
	}
}

// TestElectRefuses: elect and run reject invalid flags before they create anything.
func TestElectRefuses(t *testing.T) {
	for _, command := range []string{"elect", "run"} {
		for flags, says := range map[string]string{
			"--holder " + strings.Repeat("x", 1<<17): "more than 65536",
			"--proof none":                           "leasehold: --proof: open none: ",
			"--claim ftp://x/y":                      "ftp",
			"--claim a//b":                           "a//b",
		} {
			var said bytes.Buffer
			dir := t.TempDir()
			code := exec(t.Context(), append(append([]string{command}, strings.Fields(flags)...), "file://"+dir+"/l", "--", "touch", dir+"/ran"), io.Discard, &said)
			if code != exitUsage || !strings.Contains(said.String(), says) {
				t.Errorf("%s %.40s ends with %d, and says %.200q", command, flags, code, &said)
			}
			if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
				t.Errorf("%s %.40s has made %v, %v", command, flags, made, err)
			}
		}
	}
}

// slowness makes writes land without an answer in time, and reads take their time.
var slowness = []faultstore.Fault{
	{Kind: faultstore.DelayAfter, Op: "put", Delay: time.Hour},
	{Kind: faultstore.DelayBefore, Op: "get", Delay: 4 * time.Second},
}

// TestFirstCampaignFails: elect fails if the store is too slow for the first campaign.
func TestFirstCampaignFails(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		j, said := newWaiter()
		c := &electCmd{job: *j}
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: slowness})
		var err error
		if c.election, err = leasehold.NewElection(st, "l", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me"}}); err != nil {
			t.Fatal(err)
		}
		c.candidate = c.election
		time.AfterFunc(time.Hour, func() { c.signals <- syscall.SIGTERM })
		err = c.campaign(t.Context())
		time.Sleep(time.Minute) // what is under way comes to its end
		if end, is := errors.AsType[*exit](err); !is || end.code != exitUnavailable || !passing(end.err) || strings.Contains(said.String(), "goes on") {
			t.Errorf("it ends with %v, and says %q", err, said)
		}
	})
}

// A listener is a writer that calls itself with each message.
type listener func(message string)

func (l listener) Write(b []byte) (int, error) {
	l(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// TestCampaignGoesOn: if the store was too slow for a candidate that has led before, it campaigns again after the announced
// backoff. If the store denies access, it exits.
func TestCampaignGoesOn(t *testing.T) {
	denied := []faultstore.Fault{{Kind: faultstore.Denied, Op: "get"}, {Kind: faultstore.Denied, Op: "put"}}
	for _, tt := range []struct {
		faults     []faultstore.Fault // after the first term
		json, goes bool
		says       string
		code       int
	}{
		{slowness, false, true, " failed, and goes on in 5s: the lock mem://", 143},
		{slowness, true, true, `"pause_ms":5000}`, 143},
		{denied, false, false, "", exitDenied},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			down := failingStore{memstore.New(), errors.New("it is not known why")}
			o, err := fence.NewObject(down, "state", nil)
			if err != nil {
				t.Fatal(err)
			}
			st := faultstore.Wrap(memstore.New(), nil)
			j, _ := newWaiter()
			c := &electCmd{job: *j}
			c.claims = claims{names: []string{"state"}, objects: []*fence.Object{o}}
			c.monitor.job, c.console.json = &c.job, tt.json
			var failed time.Time
			c.console.w = listener(func(message string) {
				t.Log(time.Now(), message)
				switch {
				case strings.Contains(message, "campaigning for l failed"):
					if !tt.goes {
						c.signals <- syscall.SIGTERM // at once, not after the backoff
					} else if !strings.Contains(message, tt.says) {
						t.Errorf("it says %q, want %q", message, tt.says)
					}
					failed = time.Now()
					st.Clear()
				case strings.Contains(message, "leading l as me") && !failed.IsZero():
					if took := time.Since(failed); took != 5*time.Second {
						t.Errorf("it leads %v later", took)
					}
					c.signals <- syscall.SIGTERM
				case strings.Contains(message, "campaigning again in"):
					st.Inject(tt.faults...)
				}
			})
			if c.election, err = leasehold.NewElection(st, "l", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me"}}); err != nil {
				t.Fatal(err)
			}
			c.candidate = c.election
			err = c.campaign(t.Context())
			time.Sleep(time.Minute) // what is under way comes to its end
			if end, is := errors.AsType[*exit](err); !is || end.code != tt.code || failed.IsZero() == tt.goes {
				t.Errorf("it ends with %v, want code %d", err, tt.code)
			}
			terms := int64(1)
			if tt.goes {
				terms = 2
			}
			if m := &c.monitor; m.terms.acquired.Load() != terms || m.terms.lost.Load() != 0 || m.lease.Load() != nil {
				t.Errorf("%d terms, of which %d were lost, and a lease is held: %v", m.terms.acquired.Load(), m.terms.lost.Load(), m.lease.Load() != nil)
			}
		})
	}
}

// TestPassing: after which failures of a campaign a candidate that has led tries again.
func TestPassing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&store.Error{Kind: store.ErrUnavailable}, true},
		{&store.Error{Kind: store.ErrThrottled}, true},
		{errors.New("what nobody knows"), true},
		{&store.Error{Kind: store.ErrDenied}, false},
		{&store.Error{Kind: store.ErrRefused}, false}, // it is final, though its code is that of an outage
		{leasehold.ErrForeignObject, false},
		{fence.ErrFenced, false},
		{&exit{exitUnavailable, errors.New("a signal")}, false},
	} {
		if got := passing(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}
