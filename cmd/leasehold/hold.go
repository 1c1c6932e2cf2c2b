package main

import (
	"os"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/plain"
)

// supervise runs the command for as long as the lease lasts.
func (j *job) supervise(lease held) (guardian.Status, error) {
	j.passedOn = nil
	for len(j.relayed) > 0 {
		<-j.relayed // it came before the command: one that comes while that starts is for it
	}
	p, err := guardian.Start(guardian.Options{
		Argv: j.argv, Env: j.environment(lease),
		Deadline: reading(lease), Grace: j.grace,
		Left: func(l guardian.Leftover) {
			j.console.tell("the command of %s has ended and left process %d (%s) behind, which is ended before the lock is released", j.target.name, l.PID, plain.Word(l.Name))
		},
	})
	if err != nil {
		return guardian.Status{}, err
	}
	j.started(lease, p)
	j.notifier.begins()
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
			j.passOn(p, lease, sig)
		case sig := <-j.relayed:
			j.passOn(p, lease, sig)
		}
	}
}

// passOn gives a signal to the command.
func (j *job) passOn(p *guardian.Process, lease held, sig os.Signal) {
	if !slices.Contains(relayable, sig) { // the command may die of it
		j.passedOn = append(j.passedOn, number(sig))
	}
	_ = p.Signal(sig) // it has ended, which shows at once
	j.signalled(lease, sig)
}

// reading is the lease's deadline as the guardian counts it. The clock is read
// first: whatever pauses this process in between makes the deadline early.
func reading(lease held) time.Duration {
	now := clock.Now()
	return now + time.Until(lease.Deadline())
}
