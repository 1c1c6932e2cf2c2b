package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
)

type acquisition struct {
	lease *leasehold.Lease
	err   error
}

// await lets a signal end the acquisition, and shows on a terminal who is waited
// for.
func (j *job) await(ctx context.Context, acquire func(context.Context, ...leasehold.AcquireOption) (*leasehold.Lease, error)) (*leasehold.Lease, error) {
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
			if a.err != nil {
				j.settle(ctx)
			}
			return a.lease, a.err
		case sig := <-j.signals:
			cancel()
			return nil, j.interrupted(ctx, <-done, sig)
		case i := <-j.holders:
			holder = &i
			j.talk.note("waiting for %s, held by %s%s", j.place.name, i.Holder, withToken(i.Token))
		case <-second.C:
		}
		if holder != nil && j.talk.interactive() {
			j.talk.show(fmt.Sprintf("leasehold: waiting for %s, held by %s: %v",
				j.place.name, holder.Holder, time.Since(began).Round(time.Second)))
		}
	}
}

// settle lets a claim that was given up come to its end, so that the lock is not left
// to nobody for a TTL.
func (j *job) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(5*time.Second, j.opts.TTL))
	defer cancel()
	_ = j.candidate.Settle(ctx)
}

func (j *job) interrupted(ctx context.Context, a acquisition, sig os.Signal) error {
	if a.lease != nil {
		j.release(ctx, a.lease)
	} else {
		j.settle(ctx)
	}
	return stopped(sig, fmt.Errorf("%v: gave up waiting for %s", sig, j.place.name))
}

// supervise runs the command for as long as the lease lasts.
func (j *job) supervise(lease *leasehold.Lease) (guardian.Status, error) {
	p, err := guardian.Start(guardian.Options{
		Argv: j.argv, Env: j.environment(lease),
		Deadline: reading(lease), Grace: j.grace,
	})
	if err != nil {
		return guardian.Status{}, err
	}
	j.talk.note("the command of %s is %s", j.place.name, p.Means())
	j.passedOn = nil
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
			j.passedOn = append(j.passedOn, number(sig))
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
