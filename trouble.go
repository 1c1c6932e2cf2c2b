package leasehold

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// answered counts consecutive failed requests.
func (d *driver) answered(err error) {
	if err != nil {
		d.now.failures++
		return
	}
	d.now.failures, d.now.last = 0, time.Now()
}

// noteTrouble keeps the time since which tries fail. A store may answer reads but refuse
// writes, so counting consecutive requests is not enough. Only a successful answer ends the
// failure: a new acquisition clears the candidate's error but proves nothing.
func (d *driver) noteTrouble(ev protocol.Event) {
	err := d.Candidate().Trouble()
	switch {
	case err != nil && !errors.Is(err, layout.ErrNotExpired):
		if d.now.failing.IsZero() {
			d.now.failing = time.Now()
		}
	case succeeded(ev):
		d.now.failing = time.Time{}
	}
}

// succeeded reports whether ev is a successful answer of the store.
func succeeded(ev protocol.Event) bool {
	switch ev := ev.(type) {
	case candidate.ReadDone:
		return ev.Err == nil
	case candidate.WriteDone:
		return ev.Err == nil
	}
	return false
}

// untilItsContext is the advice for an acquisition that waits for the store.
const untilItsContext = "the acquisition goes on until its context ends: give it a deadline"

// troubled tells the user that the store keeps failing.
func (d *driver) troubled(err error) {
	if errors.Is(err, layout.ErrNotExpired) {
		return // the store works: a marker is not old enough to sweep yet
	}
	d.traceTrouble(err)
	if d.opts.OnTrouble != nil {
		d.call("OnTrouble", func() { d.opts.OnTrouble(err) })
		return
	}
	log := d.opts.Logger.With("lock", d.at.String(), "error", err)
	if d.now.waiter != nil {
		log = log.With("advice", untilItsContext)
	}
	log.Warn("the store fails, and is tried again")
}
