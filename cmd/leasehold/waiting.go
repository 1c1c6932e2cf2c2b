package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
)

const (
	// minutely is how often a waiter says so where no terminal shows it.
	minutely = time.Minute
	// shortly is how long the end of an attempt may take without a word.
	shortly = 300 * time.Millisecond
)

type acquisition struct {
	lease held
	err   error
}

// A waiting is the state of a wait for a lock, for people.
type waiting struct {
	began time.Time
	on    *blocker // nil: nobody is known
}

// line says whom the wait is for, and for how long it has lasted.
func (w *waiting) line(lock string, now time.Time) string {
	text := w.on.waitingFor(lock)
	if waited := now.Sub(w.began).Round(time.Second); waited > 0 {
		text += fmt.Sprintf(": %v", waited)
	}
	return text
}

// event is the wait as a program is told of it.
func (w *waiting) event(message string, now time.Time) event {
	e := event{Event: eventWaiting, Waited: milliseconds(now.Sub(w.began)), Message: message}
	if w.on != nil {
		e.party, e.Ahead = w.on.party, w.on.ahead
	}
	return e
}

// await lets a signal end the acquisition. Meanwhile it says who is waited for, and what
// is wrong with the store: on a terminal in a line that goes on, else at once and, except
// in an election, whose followers have nothing else to do, once a minute.
func (j *job) await(ctx context.Context, acquire func(context.Context) (held, error)) (held, error) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan acquisition, 1)
	go func() {
		lease, err := acquire(limited)
		done <- acquisition{lease, err}
	}()
	defer j.console.show("")
	second := time.NewTicker(time.Second)
	defer second.Stop()
	w := waiting{began: time.Now()}
	_, follows := j.candidate.(*leasehold.Election)
	for {
		select {
		case a := <-done:
			if a.err != nil && !fullDisk(a.err) {
				j.settle(ctx, ending{})
			}
			return a.lease, a.err
		case sig := <-j.signals:
			e := ending{time.Now()}
			cancel()
			return nil, j.interrupted(ctx, <-done, sig, e)
		case b := <-j.blockers:
			first := !w.on.known() && !j.announced
			w.on = b
			j.waitsNow(&w, first)
		case <-second.C:
			// Trouble with the store is told once a minute too, by itself.
			now := time.Now()
			if silent := min(j.console.silence(now), now.Sub(w.began)); !follows && silent >= minutely+time.Second && !j.console.interactive() {
				j.console.event(levelNotice, w.event(w.line(j.target.name, now), now))
			}
		}
		if w.on.known() && j.console.interactive() {
			j.console.show("leasehold: " + w.line(j.target.name, time.Now()))
		}
	}
}

// waitsNow says whom the wait is for from now on.
func (j *job) waitsNow(w *waiting, first bool) {
	level := slog.LevelInfo
	if first && !j.console.interactive() {
		level = levelNotice
	}
	j.console.event(level, w.event(w.on.inFull(j.target.name), time.Now()))
}

// settle lets a claim that was given up come to its end, so that the lock is not left
// to nobody for a TTL.
func (j *job) settle(ctx context.Context, e ending) {
	err := j.last(ctx, e, "waiting for the answer to a claim of "+j.target.name+", so that nobody has to wait for a lock that nobody holds", j.candidate.Settle)
	if err != nil {
		j.console.warn("a claim of %s is still under way: if it lands, others wait for up to %v", j.target.name, takeover(j.opts.TTL).Round(time.Second))
	}
}

// fullDisk reports that a directory had no room for the claim. Nothing of it has landed, and nothing can be written that
// would confirm it.
func fullDisk(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lastTime is for how long what is done last may take. Where it fails others wait for up to a TTL, so with a long one
// it may take longer.
func (j *job) lastTime() time.Duration {
	return min(j.opts.TTL, max(5*time.Second, min(j.opts.TTL/3, 30*time.Second)))
}

// last does what is to be done before the end. It says so if it takes long. It is bounded:
// by time, and by the second signal of all that have come. Those that come meanwhile are
// still there afterwards: this may not be the end, as after an elected leader's release.
func (j *job) last(ctx context.Context, e ending, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.lastTime())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	silence := time.NewTimer(shortly)
	defer silence.Stop()
	var heard []os.Signal
	defer func() {
		for _, sig := range heard {
			select {
			case j.signals <- sig:
			default: // as many wait already as ever do
			}
		}
	}()
	said := false
	say := func() {
		if !said {
			j.console.tell("%s: for %v at most; a signal more ends that", what, j.lastTime().Round(time.Second))
		}
		said = true
	}
	for {
		select {
		case err := <-done:
			return err
		case <-silence.C:
			say()
		case sig := <-j.signals:
			heard = append(heard, sig)
			if e.again() {
				cancel()
				return <-done
			}
			say()
		}
	}
}

func (j *job) interrupted(ctx context.Context, a acquisition, sig os.Signal, e ending) error {
	j.notifier.stops()
	if a.lease != nil {
		j.release(ctx, a.lease, e)()
	} else {
		j.settle(ctx, e)
	}
	return stopped(sig, fmt.Errorf("%v: gave up waiting for %s", sig, j.target.name))
}
