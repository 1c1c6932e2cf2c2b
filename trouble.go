package leasehold

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
)

// answered takes note of an answer, or of its absence.
func (d *driver) answered(err error) {
	if err != nil {
		d.now.failures++
		return
	}
	d.now.failures, d.now.last = 0, time.Now()
}

// noteTrouble keeps since when tries fail. A store that answers reads and refuses writes counts as
// failing, so requests in a row do not tell. A new acquisition forgets its earlier failures, which
// proves nothing: only an answer does.
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

// succeeded reports that an event is an answer of the store.
func succeeded(ev protocol.Event) bool {
	switch ev := ev.(type) {
	case protocol.ReadDone:
		return ev.Err == nil
	case protocol.WriteDone:
		return ev.Err == nil
	}
	return false
}

// untilItsContext tells of an acquisition that waits for the store how to bound that.
const untilItsContext = "the acquisition goes on until its context ends: give it a deadline"

// troubled tells the user that the store fails, and goes on to.
func (d *driver) troubled(err error) {
	if errors.Is(err, layout.ErrNotExpired) {
		return // the store works: a marker is waited for, until it may be swept
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
