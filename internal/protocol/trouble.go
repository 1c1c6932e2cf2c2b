package protocol

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/retry"
)

// Trouble counts the failures of a machine whose store fails. A try is a write and the reads
// that tell whether it landed. After a failure there is always a pause before the next try,
// whatever the answer was and whatever made the next one due, so requests are bounded under
// every failure that lasts.
type Trouble struct {
	Reads    int           // failed looks, in a row
	Writes   int           // failed writes, in a row
	slow     int           // claims in a row that came too late to be used
	LookAt   time.Duration // no look is sent before this
	TryAt    time.Duration // and no write
	Err      error         // why the last try failed; nil: none has since the last success
	reported time.Duration // Troubled is not sent again before this
}

// forget begins anew: the user's next request need not wait for earlier failures.
func (t *Trouble) forget() { *t = Trouble{reported: t.reported} }

// Looked notes that a read was answered.
func (t *Trouble) Looked() {
	if t.Reads = 0; t.Writes == 0 {
		t.Err = nil
	}
}

// Progress notes that a write has landed, this machine's or a rival's: the store works. A rival's
// success counts, or a contended lock would look like a failing store.
func (t *Trouble) Progress() { t.Reads, t.Writes, t.LookAt, t.TryAt, t.Err = 0, 0, 0, 0, nil }

// OthersWrite notes that others can write, so this process tries again within a second, but not at
// once: it may be the only one whose writes are refused, and the object may change all the time.
func (t *Trouble) OthersWrite(now Now) { t.TryAt = min(t.TryAt, now.Clock+time.Second) }

// Unwanted notes that there is nothing left to write, whatever has failed before.
func (t *Trouble) Unwanted() {
	if t.Writes = 0; t.Reads == 0 {
		t.Err = nil
	}
}

// lookFailed takes in that a look failed.
func (c *Candidate) lookFailed(err error, now Now, out *Actions) {
	c.trouble.Reads++
	c.trouble.LookAt = now.Clock + c.retryDelay(c.trouble.Reads)
	c.due = c.trouble.LookAt
	c.trouble.Failed(c.trouble.Reads, err, c.cfg.Reaper, now, out)
}

// tryFailed takes in that a write failed. The candidate looks without a pause whether it landed.
func (c *Candidate) tryFailed(err error, now Now, out *Actions) {
	c.trouble.Writes++
	c.trouble.TryAt = now.Clock + c.retryDelay(c.trouble.Writes)
	c.obs.fresh = false
	c.due = now.Clock
	c.trouble.Failed(c.trouble.Writes, err, c.cfg.Reaper, now, out)
}

// Failed notes the n-th failure in a row. It adds a Troubled for the third, and then once a minute
// or always.
func (t *Trouble) Failed(n int, err error, always bool, now Now, out *Actions) {
	t.Err = err
	if n >= EnoughTries {
		t.Report(err, always, now, out)
	}
}

// Report adds a Troubled, at most once a minute unless always is set. More often would bury what
// matters in a log, and less often would hide that the store still fails. A Reaper reports always,
// because each of those that it watches for counts the minutes for itself.
func (t *Trouble) Report(err error, always bool, now Now, out *Actions) {
	if now.Clock >= t.reported || always {
		t.reported = now.Clock + reminder
		out.Add(Troubled{err})
	}
}

// NoAnswer returns ErrNoAnswer, with the last failure if there was one.
func (t *Trouble) NoAnswer() error {
	if t.Err == nil {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, t.Err)
}

// resting reports that no write may be sent yet, and plans the next step for then.
// Between a failed write and the next there is a pause even if the look in between succeeds. If
// not, a store that answers reads and refuses writes would get them as fast as it answers.
func (c *Candidate) resting(now Now) bool {
	if now.Clock >= c.trouble.TryAt {
		return false
	}
	c.due = c.trouble.TryAt
	return true
}

// retryDelay is the pause after the n-th failure in a row. A holder has little time to
// renew its lease, so the pause is at most a sixth of the TTL; the others need not be
// slower than a lease of theirs would be renewed. Pauses spread, so that many candidates
// that failed at one moment do not come back at one moment.
func (c *Candidate) retryDelay(n int) time.Duration {
	pause := retry.Pause(n, c.cfg.Retries)
	if c.phase != clear {
		return min(pause, max(c.cfg.TTL/6, retry.Min))
	}
	pause = min(pause, max(Renewal(c.cfg.TTL), time.Second))
	return pause + c.rng.Jitter(pause/4)
}

// Trouble is why the last try failed, and nil if none has failed since the last success.
func (c *Candidate) Trouble() error { return c.trouble.Err }
