package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/store"
)

// prefixHelp is the part of watch's help that is about more than one lock.
const prefixHelp = `Prefixes: a name or URL that ends in a slash is a prefix. All locks under it are
watched, up to --limit, and each line has the name too. They are polled every
--every, with the requests of one leasehold list: about 100 reads every 5 s for
100 locks, by default. A change that is undone between two polls is not seen.
"appeared" is a new lock without a holder.

Terminals: a terminal gets a live view instead of lines. q exits, arrows and
page keys scroll. TERM=dumb, a pipe or --output json select lines, and NO_COLOR
turns colours off.`

const (
	leastEvery = time.Second
	// repeated is how often a line says again that the store does not answer.
	repeated = time.Minute
)

// A prefixWatch watches all locks under a prefix.
type prefixWatch struct {
	every time.Duration
	limit int

	app      *app
	at       target
	name     string
	requests *atomic.Int64
	last     *watchview.Snapshot
}

// prefixFlags adds the flags that are for prefixes.
func (a *app) prefixFlags(cmd *cobra.Command) *prefixWatch {
	w := &prefixWatch{app: a, requests: new(atomic.Int64)}
	cmd.Flags().DurationVar(&w.every, "every", 5*time.Second, "with a prefix: `interval` between polls, at least 1s")
	cmd.Flags().IntVar(&w.limit, "limit", 200, "with a prefix: read at most `N` locks")
	return w
}

// isPrefix reports that what is to be watched is not one lock.
func isPrefix(name string) bool {
	if scheme, path, isURL := strings.Cut(name, "://"); isURL {
		if i := strings.IndexAny(path, "?#"); i >= 0 {
			path = path[:i]
		}
		return scheme != "" && strings.HasSuffix(path, "/")
	}
	return strings.HasSuffix(name, "/")
}

// onCommandLine reports that a flag was given, and not by its variable: that may be meant for
// other commands.
func onCommandLine(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) && os.Getenv(variableOf(flag)) == ""
}

// refuse refuses flags that are for prefixes with one lock, and the other way round.
func (w *prefixWatch) refuse(cmd *cobra.Command, name string) error {
	if !isPrefix(name) {
		for _, flag := range []string{"every", "limit"} {
			if onCommandLine(cmd, flag) {
				return usage("--%s is for a prefix, and %s is one lock: a prefix ends in a slash", flag, name)
			}
		}
		return nil
	}
	switch {
	case onCommandLine(cmd, "layout"):
		return usage("--layout is for one lock, and %s is a prefix: all layouts are shown", name)
	case w.every < leastEvery:
		return usage("--every %v is less than %v", w.every, leastEvery)
	case w.limit < 1:
		return usage("--limit %d is less than 1", w.limit)
	}
	return nil
}

// watch shows the locks under a prefix until a signal comes. A fault from the beginning is an
// error.
func (w *prefixWatch) watch(ctx context.Context, name string) (err error) {
	if w.at, err = w.app.locatePrefix(ctx, name); err != nil {
		return err
	}
	w.name, w.at.store = name, countingStore{w.at.store, w.requests}
	first, err := w.refresh(ctx)
	if err != nil {
		return err
	}
	if w.app.live() {
		view := &watchview.Table{Name: name, Every: w.every, Limit: w.limit}
		return w.app.onScreen(ctx, view, func(ctx context.Context, tell func(watchview.Event)) error {
			tell(watchview.Listed{Snapshot: first})
			return w.again(ctx, func() { tell(watchview.Asked{}) }, func(s watchview.Snapshot) error {
				tell(watchview.Listed{Snapshot: s})
				return nil
			})
		})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	defer listen(signals)()
	go func() { cancel(stopped(<-signals, nil)) }() // or until the program ends
	w.app.console.tell("watching %s: a refresh each %v, of %d requests now", name, w.every, first.Requests)
	lines := prefixLines{watch: w}
	if err := lines.show(first, time.Now()); err != nil {
		return err
	}
	return w.again(ctx, func() {}, func(s watchview.Snapshot) error { return lines.show(s, time.Now()) })
}

// again refreshes until the context ends. The pause begins when a refresh is over, so that
// no two overlap, however slow the store is.
func (w *prefixWatch) again(ctx context.Context, begins func(), show func(watchview.Snapshot) error) error {
	for {
		pause := time.NewTimer(w.every)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
		begins()
		s, err := w.refresh(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if end, ok := errors.AsType[*exit](err); ok { // which it is not
				err = end.err
			}
			s = watchview.Snapshot{Trouble: w.app.message(err)}
		}
		if err := show(s); err != nil {
			return err
		}
	}
}

// errEnough ends a listing.
var errEnough = errors.New("there are more locks than are read")

// refresh reads the locks.
func (w *prefixWatch) refresh(ctx context.Context) (watchview.Snapshot, error) {
	w.requests.Store(0)
	var s watchview.Snapshot
	err := w.app.eachLock(ctx, w.at, func(e admin.Entry, foreign error) error {
		if len(s.Rows) == w.limit {
			s.Cut = true
			return errEnough
		}
		r := watchview.Row{Info: e.Info}
		if foreign != nil {
			r.Foreign = oneLine(foreign)
		}
		s.Rows = append(s.Rows, r)
		return nil
	})
	s.Requests = int(w.requests.Load())
	if err != nil && !errors.Is(err, errEnough) {
		return watchview.Snapshot{}, err
	}
	return s, nil
}

// prefixLines are the lines for a pipe.
type prefixLines struct {
	watch   *prefixWatch
	trouble string
	since   time.Time // when a line last told of it
	cut     bool
}

// show writes what has changed.
func (l *prefixLines) show(s watchview.Snapshot, now time.Time) error {
	w := l.watch
	if s.Trouble != "" {
		if s.Trouble == l.trouble && now.Sub(l.since) < repeated {
			return nil
		}
		l.trouble, l.since = s.Trouble, now
		return w.app.seenChange(now, leasehold.Unreadable.String(), w.name, report{Lock: w.name}, leasehold.Info{Age: -1}, errors.New(s.Trouble))
	}
	if l.trouble != "" {
		l.trouble = ""
		w.app.console.tell("%s can be read again", w.name)
	}
	if s.Cut && !l.cut {
		w.app.console.warn("there are more than %d locks under %s, and the others are not watched: give a longer prefix, or a larger --limit", w.limit, w.name)
	}
	l.cut = s.Cut
	for _, c := range watchview.Diff(w.last, s, w.app.verbose) {
		at := w.at
		url, err := urlOf(at.storeURL, c.Row.Info.Key)
		if err != nil {
			return failed(err)
		}
		at.url = url
		r := describe(at, c.Row.Info)
		var foreign error
		if c.Row.Foreign != "" {
			r.State, foreign = notLock, errors.New(c.Row.Foreign)
		}
		if err := w.app.seenChange(now, c.Kind, c.Row.Info.Key, r, c.Row.Info, foreign); err != nil {
			return err
		}
	}
	w.last = &s
	return nil
}

// A countingStore counts the requests of a refresh, a page of a listing as one.
type countingStore struct {
	store.Store
	n *atomic.Int64
}

func (s countingStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.n.Add(1)
	return s.Store.Get(ctx, key, unless)
}

// entriesOnPage is how many entries an answer of S3 has.
const entriesOnPage = 1000

func (s countingStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		entries := 0
		for entry, err := range s.Store.List(ctx, prefix, after) {
			if entries%entriesOnPage == 0 {
				s.n.Add(1)
			}
			entries++
			if !yield(entry, err) {
				return
			}
		}
		if entries == 0 {
			s.n.Add(1)
		}
	}
}
