package protocol

import (
	"fmt"
	"time"
)

// Trouble counts a failing store's failures for a machine. A try is a write and the reads after
// it that show its outcome. After a failure there is always a pause before the next try,
// whatever the answer was and whatever made the next one due, so lasting failures never cause
// unbounded requests.
type Trouble struct {
	Reads    int           // failed reads, in a row
	Writes   int           // failed writes, in a row
	slow     int           // claims in a row with a useless, late answer
	LookAt   time.Duration // no read is sent before this
	TryAt    time.Duration // and no write
	Err      error         // why the last try failed; nil: none has since the last success
	reported time.Duration // Troubled is not sent again before this
}

// forget forgets earlier failures: the user's next request need not wait for them.
func (t *Trouble) forget() { *t = Trouble{reported: t.reported} }

// Looked notes that a read was answered.
func (t *Trouble) Looked() {
	if t.Reads = 0; t.Writes == 0 {
		t.Err = nil
	}
}

// Progress notes that a write has landed, this machine's or a rival's: the store works. A
// rival's success counts, or a contended lock would look like a failing store.
func (t *Trouble) Progress() { t.Reads, t.Writes, t.LookAt, t.TryAt, t.Err = 0, 0, 0, 0, nil }

// OthersWrite notes successful writes of others. This process tries again within a second, but
// not at once: perhaps only its writes are refused, and the object may change all the time.
func (t *Trouble) OthersWrite(now Now) { t.TryAt = min(t.TryAt, now.Clock+time.Second) }

// Unwanted notes that nothing is left to write, whatever has failed before.
func (t *Trouble) Unwanted() {
	if t.Writes = 0; t.Reads == 0 {
		t.Err = nil
	}
}

// lookFailed handles a failed read.
func (c *Candidate) lookFailed(err error, now Now, out *Actions) {
	c.trouble.Reads++
	c.trouble.LookAt = now.Clock + c.retryDelay(c.trouble.Reads)
	c.due = c.trouble.LookAt
	c.trouble.Failed(c.trouble.Reads, err, c.cfg.Reaper, now, out)
}

// tryFailed handles a failed write. The candidate reads at once whether it landed.
func (c *Candidate) tryFailed(err error, now Now, out *Actions) {
	c.trouble.Writes++
	c.trouble.TryAt = now.Clock + c.retryDelay(c.trouble.Writes)
	c.obs.fresh = false
	c.due = now.Clock
	c.trouble.Failed(c.trouble.Writes, err, c.cfg.Reaper, now, out)
}

// Failed notes the n-th failure in a row. It adds a Troubled for the third, and then once a
// minute or always.
func (t *Trouble) Failed(n int, err error, always bool, now Now, out *Actions) {
	t.Err = err
	if n >= EnoughTries {
		t.Report(err, always, now, out)
	}
}

// Report adds a Troubled, at most once a minute unless always is set. More often would bury
// what matters in a log, and less often would hide that the store still fails. A Reaper reports
// always, because each of its waiters counts its own minutes.
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

// resting reports whether a write must wait, and plans the next step for then. A failed write
// is followed by a pause even if the read in between succeeds. Otherwise, a store that answers
// reads and refuses writes would get them as fast as it answers.
func (c *Candidate) resting(now Now) bool {
	if now.Clock >= c.trouble.TryAt {
		return false
	}
	c.due = c.trouble.TryAt
	return true
}

// retryDelay returns the pause after the n-th failure in a row. A holder has little time to
// renew its lease, so its pause is at most a sixth of the TTL. Others need not be slower than a
// renewal interval. Their pauses vary, so candidates do not all come back at once after a
// common failure.
func (c *Candidate) retryDelay(n int) time.Duration {
	pause := Pause(n, c.cfg.Retries)
	if c.phase != clear {
		return min(pause, max(c.cfg.TTL/6, MinPause))
	}
	pause = min(pause, max(Renewal(c.cfg.TTL), time.Second))
	return pause + c.rng.Jitter(pause/4)
}

// Trouble returns why the last try failed, or nil if none has since the last success.
func (c *Candidate) Trouble() error { return c.trouble.Err }
