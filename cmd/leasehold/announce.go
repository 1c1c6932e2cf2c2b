package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/guardian"
)

// happened says what happened to a lease, or under it.
func (j *job) happened(level slog.Level, lease held, e event, format string, args ...any) {
	e.party = party{Holder: lease.Holder(), Address: j.opts.Address, Token: lease.Token()}
	e.Message = fmt.Sprintf(format, args...)
	j.console.event(level, e)
}

// troubled says that the store fails.
func (a *app) troubled(err error) {
	cause := a.message(err)
	a.console.event(slog.LevelWarn, event{Event: eventTrouble, Cause: cause, Message: "the store fails, and is tried again: " + cause})
}

// ended says what became of the command, and of the lease under it. It is said when the lease was
// released: a terminal or a pipe that takes no more must not keep others from the lock.
func (j *job) ended(lease held, r run, at time.Time) {
	if r.err == nil {
		code := r.Code
		j.happened(slog.LevelInfo, lease, event{Event: eventEnded, Time: at, ExitCode: &code, Signal: int(r.Signal)},
			"the command of %s ended with code %d", j.target.name, code)
	}
	if r.lost != nil {
		j.happened(slog.LevelInfo, lease, event{Event: eventLost, Time: at, Cause: r.lost.Error()},
			"the lease on %s was lost: %v", j.target.name, r.lost)
	}
}

// started says that the command runs.
func (j *job) started(lease held, p *guardian.Process) {
	j.happened(slog.LevelInfo, lease, event{Event: eventStarted}, "the command of %s is %s", j.target.name, p.Means())
}

// signalled says that a signal was passed on.
func (j *job) signalled(lease held, sig os.Signal) {
	j.happened(slog.LevelInfo, lease, event{Event: eventSignalled, Signal: int(number(sig))},
		"signal %d (%v) was passed on to the command of %s", number(sig), sig, j.target.name)
}

// released says what became of the release. Of a lease that was lost there is none.
func (j *job) released(lease held, ends time.Time, err error) {
	switch {
	case err == nil:
		j.happened(slog.LevelInfo, lease, event{Event: eventReleased}, "released %s", j.target.name)
	case !errors.Is(err, leasehold.ErrLost):
		wait := fmt.Sprintf("up to %v longer", max(time.Until(ends), 0).Round(time.Second))
		if j.unrenewed() {
			wait = "until its marker is deleted: see --sweep and leasehold gc"
		}
		cause := j.message(err)
		j.happened(slog.LevelWarn, lease, event{Event: eventUnreleased, Cause: cause},
			"could not release %s: %s: others may have to wait %s", j.target.name, cause, wait)
	}
}

// again says that a candidate campaigns once more, after a pause.
func (c *electCmd) again(level slog.Level, pause time.Duration, cause string, format string, args ...any) {
	c.console.event(level, event{Event: eventCampaign, Pause: milliseconds(pause), Cause: cause, Message: fmt.Sprintf(format, args...)})
}

// failure is the event of an error that ends the program.
func failure(end *exit, message string) event {
	e := event{Event: eventFailed, Message: message, ExitCode: &end.code, Docs: explained(end)}
	if held, ok := errors.AsType[*leasehold.HeldError](end.err); ok {
		e.party = firstOf(held.Info)
	}
	return e
}
