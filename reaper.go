package leasehold

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// sessionReapers watch the sessions that candidates wait for: one for each session, however many
// locks are held under it.
type sessionReapers struct {
	st   store.Store
	opts *LockOptions

	mu sync.Mutex
	of map[string]*sessionReaper
}

// A sessionReaper waits until a session is over, and ends it when it was waited out.
type sessionReaper struct {
	all   *sessionReapers
	lock  *Lock // of the session's object
	stop  context.CancelFunc
	watch protocol.SessionWatch[*driver] // guarded by all.mu
}

// A sessionWatch is a candidate's part in a reaper.
type sessionWatch struct {
	session string
	reaper  *sessionReaper
}

// watchSession has the session watched that the candidate waits for.
func (d *driver) watchSession() {
	session := d.candidate.Awaits()
	if session == d.sessionWatch.session {
		return
	}
	if d.sessionWatch.reaper != nil {
		d.sessionWatch.reaper.leave(d)
	}
	if d.sessionWatch = (sessionWatch{}); session == "" {
		return
	}
	all := &sessionReapers{st: d.lock.st, opts: d.opts.quiet()} // of this candidate alone
	if s := d.opts.Session; s != nil {
		all = &s.sessionReapers
	}
	d.sessionWatch = sessionWatch{session, all.join(session, d, d.looked)}
}

// reaping makes a candidate for a heartbeat a reaper of it, which looks once soon after each
// heartbeat.
func reaping(cfg *protocol.Config) { cfg.Reaper, cfg.Follow = true, true }

// join adds a candidate that has looked at its lock at that time.
func (all *sessionReapers) join(session string, d *driver, looked time.Duration) *sessionReaper {
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.of[session]
	if r == nil {
		r = &sessionReaper{all: all}
		at := layout.Heartbeat{Store: all.st, Key: session}
		r.lock = heartbeat(at, all.opts, reaping)
		r.lock.d.beats, r.lock.d.fails = r.beat, r.fails
		var ctx context.Context
		ctx, r.stop = context.WithCancel(d.ctx)
		if all.of == nil {
			all.of = map[string]*sessionReaper{}
		}
		all.of[session] = r
		go r.run(ctx)
	}
	if r.watch.Join(d, looked) {
		go d.step(protocol.Recheck{})
	}
	return r
}

func (r *sessionReaper) leave(d *driver) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.watch.Leave(d) {
		r.removeLocked()
		r.stop()
	}
}

func (r *sessionReaper) removeLocked() {
	if r.all.of[r.lock.key] == r {
		delete(r.all.of, r.lock.key)
	}
}

// abandoned reports that the heartbeat looks as if its sender was gone: see Info.Abandoned.
func (r *sessionReaper) abandoned() bool {
	d := r.lock.d
	d.enter()
	defer d.leave()
	record, _, exists := d.candidate.Observed()
	return exists && (!record.Held || d.describe(record).Abandoned)
}

// run waits until the session is over.
func (r *sessionReaper) run(ctx context.Context) {
	for failures := 1; ; failures++ {
		err := r.lock.d.acquire(ctx, true, nil).err
		switch {
		case err == nil:
			r.over()
			return
		case hopeless(err):
			err = fmt.Errorf("the session of the holder: %w", err) // they explain it
			each(r.waiters(), func(d *driver, _ bool) { d.step(protocol.Cancel{Err: err}) })
		}
		select {
		case <-time.After(retry.Pause(failures, nil)):
		case <-ctx.Done():
			return
		}
	}
}

// waiters are those that wait for the end of the session.
func (r *sessionReaper) waiters() []*driver {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	return r.watch.Waiters()
}

// beat takes in a heartbeat.
func (r *sessionReaper) beat(record record.Record) {
	r.all.mu.Lock()
	nudged := r.watch.Beat(record, clock.Now(), func(d *driver) string { return d.lock.key })
	r.all.mu.Unlock()
	if len(nudged) > 0 {
		go each(nudged, func(d *driver, _ bool) { d.step(protocol.Recheck{}) })
	}
}

// fails takes in that the store does not say whether the session goes on. Those who wait
// for its end send nothing themselves, so it is theirs to hear.
func (r *sessionReaper) fails(err error) {
	r.all.mu.Lock()
	r.watch.Troubled(err)
	r.all.mu.Unlock()
	go each(r.waiters(), func(d *driver, _ bool) {
		d.enter()
		defer d.leave()
		d.troubled(err)
	})
}

// failing is why it is not known whether the session goes on, or nil.
func (r *sessionReaper) failing() error {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	return r.watch.Trouble()
}

// over tells the waiters that the session is over.
func (r *sessionReaper) over() {
	r.all.mu.Lock()
	r.removeLocked()
	r.all.mu.Unlock()
	session := r.lock.key
	each(r.waiters(), func(d *driver, late bool) {
		d.step(protocol.SessionExpired{Session: session, Look: late})
	})
}

// reap ends the sessions whose holders are gone. An object that cannot be read stays as it is.
func reap(ctx context.Context, st store.Store, sessions []string) {
	none, _ := (*LockOptions)(nil).withDefaults() // which are in order
	o := none.quiet()
	var all sync.WaitGroup
	gate := make(chan struct{}, maxReaped)
	for _, session := range sessions {
		at := layout.Heartbeat{Store: st, Key: session}
		d := heartbeat(at, o, reaping).d
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			d.acquire(ctx, true, nil)
		})
	}
	all.Wait()
}

// maxReaped is how many sessions are watched at a time when they are collected.
const maxReaped = 1000

// maxParallel is how many requests at a time are sent for something that concerns many locks.
const maxParallel = 32

// each calls f for each driver, in random order, so that those who want the same locks do
// not want them in the same order; no more of them have a request under way than maxParallel.
// late is true for those that did not come at once.
func each(drivers []*driver, f func(d *driver, late bool)) {
	rand.Shuffle(len(drivers), func(i, j int) { drivers[i], drivers[j] = drivers[j], drivers[i] })
	var all sync.WaitGroup
	gate := make(chan struct{}, maxParallel)
	for i, d := range drivers {
		gate <- struct{}{}
		all.Go(func() {
			f(d, i >= maxParallel)
			<-d.waitIdle()
			<-gate
		})
	}
	all.Wait()
}
