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
	Reads  int           // failed reads, in a row
	Writes int           // failed writes, in a row
	LookAt time.Duration // no read is sent before this
	TryAt  time.Duration // and no write
	Err    error         // why the last try failed; nil: none has since the last success
	Quiet  time.Duration // Troubled is not sent again before this
}

// Forget forgets earlier failures: the user's next request need not wait for them.
func (t *Trouble) Forget() { *t = Trouble{Quiet: t.Quiet} }

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
	if now.Clock >= t.Quiet || always {
		t.Quiet = now.Clock + time.Minute
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

// The bounds of every pause.
const (
	MinPause = 50 * time.Millisecond
	MaxPause = 4 * time.Second
)

// Pause returns how long to wait before the next try after n failures in a row. Every retry of a
// request to a store waits for it, so no answer of a store causes a flood of requests, and nothing
// stays idle for long after the store has recovered.
//
// The pauses are those in retries, then the last one doubled after each failure. None is shorter
// than MinPause doubled n-1 times, or longer than MaxPause. Nil means 100 ms and 1 s.
func Pause(n int, retries []time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	if len(retries) == 0 {
		retries = []time.Duration{100 * time.Millisecond, time.Second}
	}
	pause := retries[min(n, len(retries))-1] << min(max(n-len(retries), 0), 16)
	return min(max(pause, MinPause<<min(n-1, 16)), MaxPause)
}
