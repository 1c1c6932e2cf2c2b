package protocol

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/retry"
)

// trouble is the state of a candidate whose store fails. A try is a write and the looks
// that tell whether it landed. After a failure there is always a pause before the next
// try, whatever the answer was and whatever made the next one due, so requests are bounded
// under every failure that lasts: see Pause.
type trouble struct {
	reads    int           // failed looks, in a row
	writes   int           // failed writes, in a row
	slow     int           // claims in a row that came too late to be used
	lookAt   time.Duration // no look is sent before this
	tryAt    time.Duration // and no write
	err      error         // why the last try failed; nil: none has since the last success
	reported time.Duration // Troubled is not sent again before this
}

// forget begins anew: the user's next request need not wait for earlier failures.
func (t *trouble) forget() { *t = trouble{reported: t.reported} }

// looked takes in that a look was answered.
func (t *trouble) looked() {
	if t.reads = 0; t.writes == 0 {
		t.err = nil
	}
}

// progress takes in that a write has landed, or that a rival's has: then the store works.
// A rival's success counts, or a lock that many want would look like a store that fails.
func (t *trouble) progress() { t.reads, t.writes, t.lookAt, t.tryAt, t.err = 0, 0, 0, 0, nil }

// othersWrite takes in that others can write, which does not tell that this process can. It tries within a second: where
// a table changes all the time and one process is let write nothing, a try with each change would be without bounds.
func (t *trouble) othersWrite(now Now) { t.tryAt = min(t.tryAt, now.Clock+time.Second) }

// unwanted takes in that nothing is to be written, whatever has failed before.
func (t *trouble) unwanted() {
	if t.writes = 0; t.reads == 0 {
		t.err = nil
	}
}

// lookFailed takes in that a look failed.
func (c *Candidate) lookFailed(err error, now Now, out *actions) {
	c.trouble.reads++
	c.trouble.lookAt = now.Clock + c.retryDelay(c.trouble.reads)
	c.due = c.trouble.lookAt
	c.trouble.failed(c.trouble.reads, err, &c.cfg, now, out)
}

// tryFailed takes in that a write failed. The candidate looks without a pause whether it landed.
func (c *Candidate) tryFailed(err error, now Now, out *actions) {
	c.trouble.writes++
	c.trouble.tryAt = now.Clock + c.retryDelay(c.trouble.writes)
	c.obs.fresh = false
	c.due = now.Clock
	c.trouble.failed(c.trouble.writes, err, &c.cfg, now, out)
}

// failed tells of the n-th failure in a row, the third time and then once a minute; a Reaper
// does so each time.
func (t *trouble) failed(n int, err error, cfg *Config, now Now, out *actions) {
	t.err = err
	if n >= enoughTries {
		t.report(err, cfg, now, out)
	}
}

// report tells of trouble once a minute. Those that a Reaper looks for do that, each by itself.
// More often would bury what matters in a log, and less often hide that it still goes on.
func (t *trouble) report(err error, cfg *Config, now Now, out *actions) {
	if now.Clock >= t.reported || cfg.Reaper {
		t.reported = now.Clock + reminder
		out.add(Troubled{err})
	}
}

// noAnswer is why a user hears nothing of the lock, with the last failure if there was one.
func (t *trouble) noAnswer() error {
	if t.err == nil {
		return ErrNoAnswer
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, t.err)
}

// resting reports that no write may be sent yet, and plans the next step for then.
// Between a failed write and the next there is a pause even if the look in between succeeds. If
// not, a store that answers reads and refuses writes would get them as fast as it answers.
func (c *Candidate) resting(now Now) bool {
	if now.Clock >= c.trouble.tryAt {
		return false
	}
	c.due = c.trouble.tryAt
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
	return pause + c.rng.jitter(pause/4)
}

// Trouble is why the last try failed, and nil if none has failed since the last success.
func (c *Candidate) Trouble() error { return c.trouble.err }
