package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/tty"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/store"
)

// live reports whether watch can show a view instead of lines.
func (a *app) live() bool {
	out, ok := a.stdout.(*os.File)
	return ok && a.output == "text" && tty.Usable(os.Stdin, out, os.Getenv("TERM"))
}

// liveLock is the view of one lock. It ends when there was none and then a semaphore, which it returns.
func (a *app) liveLock(ctx context.Context, p target, info leasehold.Info, opts *leasehold.LockOptions, chosen bool) (other admin.Entry, err error) {
	view := watchview.NewLock(p.url, info, time.Now())
	view.Renewals = a.verbose
	err = a.onScreen(ctx, view, func(ctx context.Context, tell func(watchview.Event)) (err error) {
		other, err = a.lockEvents(ctx, p, opts, info.Exists, chosen, tell)
		return err
	})
	return other, err
}

// lockEvents tells a view of a lock what happens to it. It looks at the lock exactly as often as the lines do. Where the
// layout is not known yet, it is found out when the lock appears; a semaphore that does is returned.
func (a *app) lockEvents(ctx context.Context, p target, opts *leasehold.LockOptions, exists, chosen bool, tell func(watchview.Event)) (admin.Entry, error) {
	p.store = reportingStore{p.store, tell, a.message}
	if !exists && !chosen {
		e, err := a.appears(ctx, &p, opts, func(c leasehold.Change) error {
			tell(watchview.Changed{Change: c, Trouble: oneLine(c.Err)})
			return nil
		})
		if err != nil || e.Size > 0 {
			return e, err
		}
	}
	el, err := leasehold.NewElection(p.store, p.key, &leasehold.ElectionOptions{
		LockOptions: leasehold.LockOptions{Layout: opts.Layout, NoIfMatch: opts.NoIfMatch, Logger: a.console.logger()}, Renewals: true,
	})
	if err != nil {
		return admin.Entry{}, &exit{exitUsage, err}
	}
	for c := range el.Observe(ctx) {
		ev := watchview.Changed{Change: c}
		if c.Err != nil {
			ev.Trouble = oneLine(c.Err)
		}
		tell(ev)
	}
	return admin.Entry{}, context.Cause(ctx)
}

// onScreen shows a view until a key or a signal ends it. Meanwhile work tells it what happens;
// it ends with its context.
func (a *app) onScreen(ctx context.Context, view watchview.View, work func(ctx context.Context, tell func(watchview.Event)) error) error {
	out, _ := a.stdout.(*os.File) // see live
	screen, err := tty.Open(os.Stdin, out, watchview.Enter, watchview.Leave)
	if err != nil {
		return &exit{exitInternal, fmt.Errorf("cannot take over the terminal: %w", err)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	defer listen(signals)()
	events, done := make(chan watchview.Event, 64), make(chan error, 1)
	tell := func(ev watchview.Event) {
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	}
	back := a.console.divert(tell)
	defer func() {
		cancel(nil)
		back()
		_ = screen.Close() // there is no better terminal to say it on
	}()
	go func() { done <- work(ctx, tell) }()
	d := drawing{screen: screen, view: view, frame: watchview.NewFrame(os.Getenv("NO_COLOR") == "")}
	second := time.NewTicker(time.Second) // ages grow
	defer second.Stop()
	for {
		if err := d.draw(); err != nil {
			return written(err)
		}
		select {
		case ev := <-events:
			d.take(ev, events)
		case text, ok := <-screen.Typed():
			if !ok {
				return stopped(syscall.SIGHUP, nil)
			}
			if end, err := d.typed(text); end {
				return err
			}
		case <-screen.Changed():
			d.frame.Reset()
		case <-second.C:
		case sig := <-signals:
			return stopped(sig, nil)
		case err := <-done:
			return err
		}
	}
}

// A drawing is a view on a terminal.
type drawing struct {
	screen *tty.Terminal
	view   watchview.View
	frame  *watchview.Frame
	rest   []byte // of what was typed
}

func (d *drawing) draw() error {
	width, height, err := d.screen.Size()
	if err != nil {
		return err
	}
	return d.screen.Write(d.frame.Draw(d.view.Lines(time.Now(), width, height), width, height))
}

// take takes in an event, and those that wait behind it: it is drawn once for all.
func (d *drawing) take(ev watchview.Event, more <-chan watchview.Event) {
	for range cap(more) {
		d.view.Take(ev, time.Now())
		select {
		case ev = <-more:
		default:
			return
		}
	}
	d.view.Take(ev, time.Now())
}

// typed takes in keys, and says whether one of them is the end.
func (d *drawing) typed(text []byte) (end bool, err error) {
	var keys []watchview.Key
	keys, d.rest = watchview.Decode(append(d.rest, text...))
	for _, k := range keys {
		switch k {
		case watchview.Quit:
			return true, nil
		case watchview.Interrupt:
			return true, stopped(os.Interrupt, nil)
		case watchview.Suspend:
			if err := d.screen.Suspend(); err != nil { // afterwards all is drawn anew: see Changed
				return true, written(err)
			}
		case watchview.Redraw:
			d.frame.Reset()
		case watchview.None:
		default:
			d.view.Take(watchview.Pressed{Key: k}, time.Now())
		}
	}
	return false, nil
}

// divert has the view show the messages that would be written over it, until the returned
// function is called. Where stderr is no terminal they go there as ever.
func (t *console) divert(tell func(watchview.Event)) (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.w
	if !isTerminal(before) {
		return func() {}
	}
	t.w = toView(tell)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.w = before
	}
}

// toView passes messages on to a view.
type toView func(watchview.Event)

var _ io.Writer = toView(nil)

func (tell toView) Write(text []byte) (int, error) {
	tell(watchview.Said{Text: strings.TrimSuffix(strings.TrimPrefix(string(text), "leasehold: "), "\n")})
	return len(text), nil
}

// A reportingStore tells a view of each request, so that a store that does not answer shows
// also while the lock does not change.
type reportingStore struct {
	store.Store
	tell    func(watchview.Event)
	message func(error) string
}

// Proves passes the question on: see store.Proof.
func (s reportingStore) Proves(storeName, use string) error {
	return store.Proves(s.Store, storeName, use)
}

func (s reportingStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.tell(watchview.Asked{})
	obj, err := s.Store.Get(ctx, key, unless)
	s.answered(ctx, err)
	return obj, err
}

func (s reportingStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		s.tell(watchview.Asked{})
		var failure error
		defer func() { s.answered(ctx, failure) }()
		for entry, err := range s.Store.List(ctx, prefix, after) {
			failure = err
			if !yield(entry, err) {
				return
			}
		}
	}
}

// answered tells of the end of a request. That there is no object, or none that is new, or
// one that is too large, is an answer.
func (s reportingStore) answered(ctx context.Context, err error) {
	var ev watchview.Answered
	switch {
	case errors.Is(err, store.ErrNotExist), errors.Is(err, store.ErrNotModified), errors.Is(err, store.ErrTooLarge):
	case ctx.Err() != nil: // it was given up
	case err != nil:
		ev.Trouble = s.message(err)
	}
	s.tell(ev)
}
