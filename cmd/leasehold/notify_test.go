package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The watchdog hears of this process twice in its interval while that is fit, and not otherwise;
// the status is told when it has changed, and each other state once.
func TestNotifier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			mu     sync.Mutex
			heard  []string
			fit    atomic.Bool
			status atomic.Pointer[string]
		)
		is := func(text string) { status.Store(&text) }
		send := func(_ context.Context, messages ...string) error {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, strings.Join(messages, " "))
			return nil
		}
		is("waiting")
		fit.Store(true)
		n := newNotifier(send, 20*time.Second, &console{}, func() string { return *status.Load() }, fit.Load)
		go n.run(t.Context())
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(heard, want) {
				t.Errorf("%s: told %q, want %q", what, heard, want)
			}
			heard = nil
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
		}
		expect("at first", "STATUS=waiting")
		n.changed()
		expect("nothing has changed")
		is("leading")
		n.begins()
		expect("it begins", "READY=1 STATUS=leading")
		n.begins() // each term does
		expect("it began before")
		pass(35 * time.Second)
		expect("35 s of an interval of 20 s", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
		fit.Store(false)
		pass(time.Minute)
		expect("a minute without fitness")
		is("failing") // of which nobody tells
		pass(statusPeriod)
		expect("a status that was found", "STATUS=failing")
		fit.Store(true)
		pass(10 * time.Second)
		expect("fit again", "WATCHDOG=1")
		n.stops()
		expect("it stops", "STOPPING=1")
		is("over")
		n.end()
		expect("at the end", "STATUS=over")
	})
}

// A manager that is not reached is complained of once, and does not keep this process.
func TestNotifierIsNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		tries := 0
		n := newNotifier(func(context.Context, ...string) error {
			tries++
			return errors.New("nobody listens")
		}, time.Second, &console{w: &said}, func() string { return "" }, func() bool { return true })
		go n.run(t.Context())
		time.Sleep(10 * time.Second)
		n.end()
		if got := said.String(); tries < 20 || got != "leasehold: the service manager was not told: nobody listens\n" {
			t.Errorf("after %d tries it said %q", tries, got)
		}
	})
}

// A message that the manager has not got is sent again, as soon as it can be.
func TestNotifierTellsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Pointer[string]
		var full atomic.Bool
		full.Store(true)
		n := newNotifier(func(_ context.Context, messages ...string) error {
			if full.Load() {
				return errors.New("the queue is full")
			}
			text := strings.Join(messages, " ")
			told.Store(&text)
			return nil
		}, 0, &console{w: &strings.Builder{}}, func() string { return "leading" }, nil)
		go n.run(t.Context())
		n.begins()
		synctest.Wait()
		full.Store(false)
		time.Sleep(statusPeriod)
		synctest.Wait()
		if got := told.Load(); got == nil || *got != "READY=1 STATUS=leading" {
			t.Errorf("told %v", got)
		}
		n.end()
	})
}

// Without a manager there is nobody to be told, and all of it is harmless.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := notify(t.Context(), &console{}, nil, nil)
	if n != nil {
		t.Fatal("there is a notifier")
	}
	n.changed()
	n.begins()
	n.stops()
	n.end()
}

// TestManagerInVain: what the environment says of the service manager and cannot be is told; without a socket nobody is told.
func TestManagerInVain(t *testing.T) {
	var said strings.Builder
	t.Setenv("NOTIFY_SOCKET", "no-path")
	t.Setenv("WATCHDOG_USEC", "1")
	if n := notify(t.Context(), &console{w: &said}, nil, nil); n != nil {
		t.Error("there is a notifier")
	}
	if want := "leasehold: the service manager is not told, or not all: NOTIFY_SOCKET=\"no-path\" is neither the path of a socket nor an abstract one, which begins with @\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}
