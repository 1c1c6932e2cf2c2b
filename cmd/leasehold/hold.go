package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
)

// acquire waits for the lock as --wait says.
func (j *job) acquire(ctx context.Context) (*leasehold.Lease, error) {
	switch {
	case j.wait.forever:
		return j.await(ctx, j.lock.Acquire)
	case j.wait.limit > 0:
		limited, cancel := context.WithTimeout(ctx, j.wait.limit)
		defer cancel()
		return j.await(limited, j.lock.Acquire)
	}
	lease, err := j.await(ctx, j.lock.TryAcquire)
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !held.Info.Abandoned {
		return lease, err
	}
	// Not to wait for a live holder must not mean to be locked out for ever by
	// a dead one: with --wait 0 in every candidate, nobody would ever watch it
	// for long enough to take over.
	limit := takeover(held.Info.TTL)
	j.talk.warn("%s looks to be gone: watching for up to %v to take %s over", held.Info.Holder, limit.Round(time.Second), j.place.name)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return j.await(limited, j.lock.Acquire)
}

// takeover is how long it takes at most to take a lock over from a holder that
// is gone: its TTL and margin, the jitter, and the requests.
func takeover(ttl time.Duration) time.Duration {
	return ttl + ttl/12 + ttl/10 + 3*time.Second
}

type acquisition struct {
	lease *leasehold.Lease
	err   error
}

// await lets a signal end the acquisition, and shows on a terminal who is waited
// for.
func (j *job) await(ctx context.Context, acquire func(context.Context) (*leasehold.Lease, error)) (*leasehold.Lease, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan acquisition, 1)
	go func() {
		lease, err := acquire(waiting)
		done <- acquisition{lease, err}
	}()
	defer j.talk.show("")
	second := time.NewTicker(time.Second)
	defer second.Stop()
	began := time.Now()
	var holder *leasehold.Info
	for {
		select {
		case a := <-done:
			return a.lease, j.refused(a.err)
		case sig := <-j.signals:
			cancel()
			return nil, j.interrupted(ctx, <-done, sig)
		case i := <-j.holders:
			holder = &i
			j.talk.note("waiting for %s, held by %s, token %d", j.place.name, i.Holder, i.Token)
		case <-second.C:
		}
		if holder != nil && j.talk.interactive() {
			j.talk.show(fmt.Sprintf("leasehold: waiting for %s, held by %s: %v",
				j.place.name, holder.Holder, time.Since(began).Round(time.Second)))
		}
	}
}

// refused says what the end of an acquisition means to the user.
func (j *job) refused(err error) error {
	held, ok := errors.AsType[*leasehold.HeldError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return &exit{j.heldCode, heldBy{j.place.name, j.wait, held}}
	case errors.Is(err, context.DeadlineExceeded) && codeOf(err) == exitUnavailable:
		return &exit{exitUnavailable, fmt.Errorf("the store of %s did not answer within --wait %v: %w", j.place.name, j.wait.String(), err)}
	}
	return failed(err)
}

// A heldBy is a HeldError as the command says it.
type heldBy struct {
	name string
	wait wait
	*leasehold.HeldError
}

func (h heldBy) Error() string {
	text := fmt.Sprintf("%s is held by %s (token %d)", h.name, h.Info.Holder, h.Info.Token)
	if h.wait.limit > 0 {
		text += fmt.Sprintf(", and --wait %s ran out", h.wait.String())
	}
	return text
}

func (h heldBy) Unwrap() error { return h.HeldError }

func (j *job) interrupted(ctx context.Context, a acquisition, sig os.Signal) error {
	if a.lease != nil {
		j.release(ctx, a.lease)
	}
	number, _ := sig.(syscall.Signal) // as every signal that is asked for
	return &exit{exitSignal + int(number), fmt.Errorf("%v: gave up waiting for %s", sig, j.place.name)}
}

// supervise runs the command for as long as the lease lasts.
func (j *job) supervise(lease *leasehold.Lease) (guardian.Status, error) {
	p, err := guardian.Start(guardian.Options{
		Argv: j.argv,
		Env: append(os.Environ(),
			"LEASEHOLD_LOCK="+j.place.url, storeVariable+"="+j.place.storeURL,
			"LEASEHOLD_HOLDER="+lease.Holder(), "LEASEHOLD_TOKEN="+strconv.FormatInt(int64(lease.Token()), 10)),
		Deadline: reading(lease),
		Grace:    j.grace,
	})
	if err != nil {
		return guardian.Status{}, err
	}
	lost := lease.Done()
	for {
		select {
		case <-p.Done():
			return p.Wait(), nil
		case <-j.renewed:
			p.Extend(reading(lease))
		case <-lost:
			lost = nil
			p.Stop()
		case sig := <-j.signals:
			_ = p.Signal(sig) // it has ended, which shows at once
		}
	}
}

// reading is the lease's deadline as the guardian counts it. The clock is read
// first: whatever pauses this process in between makes the deadline early.
func reading(lease *leasehold.Lease) time.Duration {
	now := clock.Now()
	return now + time.Until(lease.Deadline())
}
