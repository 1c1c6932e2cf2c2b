package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestWatchSemaphore: what watch says of a semaphore, from its first holder until its object is deleted, at one read each 5 s.
// A failure is reported once until the store answers again. A failure after the object has vanished shows no former holders.
func TestWatchSemaphore(t *testing.T) {
	text := watchSemaphore(t, "text")
	got := regexp.MustCompile(`token \d+`).ReplaceAllString(text, "token N")
	got = regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  `).ReplaceAllString(got, "")
	got = regexp.MustCompile(`(?m)^(unreadable  ).*?denied.*?((?:  (?:\d+ of|age) .*)?)$`).ReplaceAllString(got, "$1…$2")
	if want := strings.Join([]string{
		"elected     1 of 2 taken by a  token N  age 0s",
		"changed     2 of 2 taken by a and 1 more  token N",
		"unreadable  …  2 of 2 taken by a and 1 more  token N",
		"unreadable  …  2 of 2 taken by a and 1 more  token N",
		"changed     1 of 2 taken by a  token N",
		"resigned    0 of 2 taken  last token N",
		"unreadable  …  0 of 2 taken  last token N",
		"vanished    0 of 2 taken  last token N",
		"unreadable  …",
		"elected     1 of 2 taken by a  token N",
		"",
	}, "\n"); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}

	var events []string
	gone := false
	for line := range strings.Lines(watchSemaphore(t, "json")) {
		var e struct {
			Event string
			report
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Layout != layoutTable || (e.Version == "") != gone || (e.Semaphore == nil) != gone || e.Lock != "mem:///s" {
			t.Fatalf("%v: %s", err, line)
		}
		holders := 0
		if gone = e.Event == "vanished"; e.Semaphore != nil {
			holders = len(e.Semaphore.Holders)
		}
		if (e.Age != nil) != (events == nil) { // which only the first look tells
			t.Errorf("the age is %v in %s", e.Age, line)
		}
		events = append(events, fmt.Sprintf("%s %s %d", e.Event, e.State, holders))
	}
	if got, want := strings.Join(events, ", "), "elected held 1, changed held 2, unreadable unknown 2, unreadable unknown 2, changed held 1, resigned free 0, unreadable unknown 0, vanished absent 0, unreadable unknown 0, elected held 1"; got != want {
		t.Errorf("the events are %s, want %s", got, want)
	}
}

// watchSemaphore is what watch prints of a semaphore in the course of a life.
func watchSemaphore(t *testing.T, output string) string {
	t.Helper()
	var out leasetest.Log
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		sem, err := semaphore.New(inner, "s", 2, &semaphore.Options{Holder: "a"})
		if err != nil {
			t.Fatal(err)
		}
		take := func() *leasehold.Lease {
			lease, wrong := sem.Acquire(t.Context(), 1)
			if wrong != nil {
				t.Fatal(wrong)
			}
			return lease
		}
		give := func(l *leasehold.Lease) {
			if wrong := l.Release(t.Context()); wrong != nil {
				t.Fatal(wrong)
			}
		}
		first := take()
		entry, err := admin.Inspect(t.Context(), inner, "s")
		if err != nil {
			t.Fatal(err)
		}
		a := &app{stdout: &out, console: console{w: io.Discard}}
		a.output = output
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- a.watchSemaphore(ctx, target{store: st, key: "s", url: "mem:///s", layout: layoutTable}, entry.Info)
		}()
		looks := 0
		next := func() {
			looks++
			time.Sleep(appearance)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		next()
		second := take()
		next()
		next()
		for range 2 {
			st.Inject(faultstore.Fault{Kind: faultstore.Denied})
			next()
			next()
			st.Clear()
			next()
		}
		give(second)
		next()
		give(first)
		next()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		next()
		st.Clear()
		if err = inner.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		next()
		next()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		next()
		st.Clear()
		third := take()
		next()
		if n := st.Counts(); n.Put+n.Delete+n.List > 0 || n.Get != looks {
			t.Errorf("it has sent %+v in %d looks", n, looks)
		}
		over := errors.New("it is over")
		cancel(over)
		if err = <-ended; !errors.Is(err, over) {
			t.Errorf("it ends with %v", err)
		}
		// It also ends if it cannot write its first line, or a later one.
		a.stdout = shut{}
		if entry, err = admin.Inspect(t.Context(), inner, "s"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err = a.watchSemaphore(t.Context(), target{store: st, key: "s", url: "mem:///s", layout: layoutTable}, entry.Info); err == nil || !strings.Contains(err.Error(), "it is shut") || time.Since(began) != 0 {
			t.Errorf("without a stdout it ends with %v after %v", err, time.Since(began))
		}
		if err = a.watchSemaphore(t.Context(), target{store: st, key: "s", url: "mem:///s", layout: layoutTable}, leasehold.Info{Size: 2}); err == nil || !strings.Contains(err.Error(), "it is shut") || time.Since(began) != appearance {
			t.Errorf("without a stdout for a change it ends with %v after %v", err, time.Since(began))
		}
		give(third)
		if err = sem.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return out.String()
}

// TestWatchAppears: a lock that there is none of yet is looked for each 5 s. A failure meanwhile is told once for each
// reason, and again when it comes back.
func TestWatchAppears(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		a := &app{console: console{w: io.Discard}}
		p, opts := target{name: "l", store: st, key: "l"}, &leasehold.LockOptions{}
		var told []leasehold.Change
		type found struct {
			admin.Entry
			err error
		}
		ended := make(chan found, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := func(tell func(leasehold.Change) error) {
			go func() {
				e, err := a.appears(ctx, &p, opts, tell)
				ended <- found{e, err}
			}()
		}
		begin(func(c leasehold.Change) error {
			told = append(told, c)
			return nil
		})
		began := time.Now()
		next := func() {
			time.Sleep(appearance)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		for _, faults := range [][]faultstore.Fault{nil, {{Kind: faultstore.Denied}}, {{Kind: faultstore.Denied}}, {{Kind: faultstore.Throttled}}, nil, {{Kind: faultstore.Throttled}}} {
			st.Clear()
			st.Inject(faults...)
			next()
		}
		st.Clear()
		lock, err := leasehold.NewLock(inner, "l", &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next()
		f := <-ended
		if f.err != nil || !f.Held || f.Token != lease.Token() || p.layout != leasehold.LayoutEpochs || opts.Layout != leasehold.LayoutEpochs || !opts.NoIfMatch {
			t.Errorf("it finds %+v, %v, in the layouts %q and %q", f.Entry, f.err, p.layout, opts.Layout)
		}
		var seen []string
		for _, c := range told {
			if c.Kind != leasehold.Unreadable || c.Info.Age != -1 || c.Err == nil {
				t.Errorf("it tells of %+v", c)
			}
			seen = append(seen, c.Time.Sub(began).String()+" "+regexp.MustCompile(`denied|throttle`).FindString(strings.ToLower(c.Err.Error())))
		}
		if got, want := strings.Join(seen, ", "), "10s denied, 20s throttle, 30s throttle"; got != want {
			t.Errorf("it tells of %s, want %s", got, want)
		}
		if err = lease.Release(t.Context()); err != nil {
			t.Error(err)
		}

		// It ends with its context, and when a line cannot be written.
		p.key = "m"
		over, broken := errors.New("it is over"), errors.New("stdout is broken")
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		begin(func(leasehold.Change) error { return broken })
		next()
		if f = <-ended; !errors.Is(f.err, broken) {
			t.Errorf("it ends with %v", f.err)
		}
		begin(func(leasehold.Change) error { return nil })
		time.Sleep(time.Second)
		cancel(over)
		if f = <-ended; !errors.Is(f.err, over) {
			t.Errorf("it ends with %v", f.err)
		}
	})
}

// TestWatchGivenUp: a read that is given up because watch ends says nothing of the store.
func TestWatchGivenUp(t *testing.T) {
	for name, watch := range map[string]func(ctx context.Context, a *app, p target) error{
		"a lock that is absent": func(ctx context.Context, a *app, p target) error {
			_, err := a.appears(ctx, &p, &leasehold.LockOptions{}, func(c leasehold.Change) error { return a.change(p, c) })
			return err
		},
		"a semaphore": func(ctx context.Context, a *app, p target) error {
			return a.watchSemaphore(ctx, p, leasehold.Info{})
		},
		"a prefix": func(ctx context.Context, a *app, p target) error {
			w := &prefixWatch{app: a, at: p, every: appearance, limit: 1, requests: new(atomic.Int64)}
			lines := prefixLines{watch: w}
			return w.again(ctx, func() {}, func(s watchview.Snapshot) error { return lines.show(s, time.Now()) })
		},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			var out, said leasetest.Log
			a := &app{stdout: &out, console: console{w: &said, least: levelNotice}}
			ctx, cancel := context.WithCancelCause(t.Context())
			over := errors.New("it is over")
			time.AfterFunc(appearance+time.Second, func() { cancel(over) })
			began := time.Now()
			err := watch(ctx, a, target{name: "l", key: "l", url: "mem:///l", storeURL: "mem:///", store: sleepy{memstore.New(), time.Hour}})
			if !errors.Is(err, over) || time.Since(began) != appearance+time.Second {
				t.Errorf("%s: it ends with %v after %v", name, err, time.Since(began))
			}
			if out.String()+said.String() != "" {
				t.Errorf("%s: it writes %q and says %q", name, out.String(), said.String())
			}
		})
	}
}
