package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A trial is one case under way.
type trial struct {
	ctx     context.Context
	opts    *Options
	ttl     time.Duration // of the subject's leases
	key     string        // of the lock
	began   time.Duration
	proxy   *proxy
	subject *subject
	past    []line // of subjects that have ended

	acquired map[int64]time.Duration // when the subject said so, by token
	held     int64                   // the token of the lease that it has; 0: none
	beat     time.Duration           // when it was last asked to renew, if it does not by itself
	failures []Failure
}

// note takes in that a sentence was broken.
func (t *trial) note(rule, format string, args ...any) {
	t.failures = append(t.failures, Failure{Rule: rule, Sentence: rules[rule], What: fmt.Sprintf(format, args...)})
}

// fail is note, and the end of the case.
func (t *trial) fail(rule, format string, args ...any) {
	t.note(rule, format, args...)
	panic(errStop)
}

// must ends the case for a reason that is not the subject's.
func (t *trial) must(err error) {
	if err != nil {
		t.fail("", "the case could not be made: %v", err)
	}
}

// start starts the subject, once more if it has ended.
func (t *trial) start() {
	if t.subject != nil {
		t.end()
	}
	s, err := startSubject(t.opts, t.proxy.endpoint, time.Minute)
	if err != nil {
		t.fail("L1", "%v", err)
	}
	t.subject = s
}

// end ends the subject, by a kill that it cannot notice.
func (t *trial) end() {
	if t.subject == nil {
		return
	}
	t.subject.end()
	t.past = append(t.past, t.subject.all()...)
	t.subject, t.held = nil, 0
}

// kill is end for a case that goes on.
func (t *trial) kill() { t.end() }

func (t *trial) lines() []line {
	if t.subject == nil {
		return t.past
	}
	return append(append([]line{}, t.past...), t.subject.all()...)
}

// said shows the lines of both sides to people.
func (t *trial) said() (text []string) {
	for i, l := range t.lines() {
		if i == 300 {
			return append(text, "… and more")
		}
		mark := "<"
		if l.ours {
			mark = ">"
		}
		text = append(text, fmt.Sprintf("%7.3f s  %s %.300s", (l.at-t.began).Seconds(), mark, l.text))
	}
	return text
}

// slack is what processes and requests may take beside what the rules say, on a busy machine.
const slack = 10 * time.Second

// ask sends a request, and gives the words of its answer, the first one apart.
func (t *trial) ask(patience time.Duration, format string, args ...any) (word, rest string) {
	request := fmt.Sprintf(format, args...)
	if err := t.subject.say(request); err != nil {
		t.fail("L1", "%q could not be said: %v", request, err)
	}
	return t.answer(request, patience)
}

func (t *trial) answer(request string, patience time.Duration) (word, rest string) {
	l, err := t.subject.next(patience)
	if err != nil {
		t.fail("L1", "%s: %v", request, err)
	}
	word, rest, _ = strings.Cut(l.text, " ")
	verb, _, _ := strings.Cut(request, " ")
	allowed := map[string]string{"acquire": " acquired held error ", "renew": " renewed error ", "release": " released error ", "valid": " yes no "}[verb]
	if !strings.Contains(allowed, " "+word+" ") {
		t.fail("L1", "%s was answered with %q", request, l.text)
	}
	if word == "acquired" {
		token, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			t.fail("L1", "%s was answered with %q, which has no token", request, l.text)
		}
		t.acquired[token], t.held, t.beat = l.at, token, l.at
	}
	return word, rest
}

// begin sends a request to acquire the lock, whose answer is waited for by finish.
func (t *trial) begin(wait time.Duration) (request string) {
	request = fmt.Sprintf("acquire %s %d %d", t.key, t.ttl.Milliseconds(), wait.Milliseconds())
	if err := t.subject.say(request); err != nil {
		t.fail("L1", "%q could not be said: %v", request, err)
	}
	return request
}

// tryAcquire asks for the lock.
func (t *trial) tryAcquire(wait time.Duration) (word, rest string) {
	return t.answer(t.begin(wait), wait+3*t.ttl+slack)
}

// acquire asks for the lock, which must be given. rule is broken if it is not.
func (t *trial) acquire(rule string, wait time.Duration) int64 {
	return t.finish(rule, t.begin(wait), wait)
}

func (t *trial) finish(rule, request string, wait time.Duration) int64 {
	word, rest := t.answer(request, wait+3*t.ttl+slack)
	if word != "acquired" {
		t.fail(rule, "%s was answered with %q", request, word+" "+rest)
	}
	return t.held
}

// release asks for the end of the lease, which must be confirmed.
func (t *trial) release(rule string) {
	token := t.held
	word, rest := t.ask(2*t.ttl+slack, "release %s", t.key)
	if t.held = 0; word != "released" {
		t.fail(rule, "release was answered with %q", word+" "+rest)
	}
	if r, _, err := t.read(); err == nil && r.Held && r.Token == token {
		t.fail("F7", "release was answered with \"released\", and the record is held with its token %d", token)
	}
}

// valid asks whether the lease is valid.
func (t *trial) valid() bool {
	word, _ := t.ask(slack, "valid %s", t.key)
	return word == "yes"
}

// lost reports whether the subject has said since the time that the lease is lost.
func (t *trial) lost(since time.Duration) bool {
	at, told := t.subject.lostAt(t.key)
	return told && at >= since
}

// becomesLost waits for the word that the lease is lost.
func (t *trial) becomesLost(rule string, within time.Duration, since time.Duration) {
	if !t.until(within, func() bool { return t.lost(since) }) {
		t.fail(rule, "%v later it has not said \"lost\"", within)
	}
	t.held = 0
}

// until waits for a condition, and has a subject renew that does not by itself. It reports whether the condition came.
func (t *trial) until(within time.Duration, condition func() bool) bool {
	for end := clock.Now() + within; !condition(); {
		if clock.Now() >= end {
			return false
		}
		t.must(t.ctx.Err())
		t.renewInTime()
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// renewInTime asks a subject to renew that does not by itself, if it is time. What comes of it is for the case to see.
func (t *trial) renewInTime() {
	if t.subject == nil || t.subject.renews || t.held == 0 || clock.Now() < t.beat+t.ttl/3 {
		return
	}
	t.beat = clock.Now()
	t.ask(t.ttl+slack, "renew %s", t.key)
}

// holds has the subject hold its lease for so long: it must be valid all the time.
func (t *trial) holds(d time.Duration) {
	since, next := clock.Now(), time.Duration(0)
	t.until(d, func() bool {
		if now := clock.Now(); now > next {
			next = now + t.ttl/8
			if !t.valid() {
				t.fail("F18", "the lease is not valid any more, and nothing has ended it")
			}
		}
		if t.lost(since) {
			t.fail("F18", "it said \"lost\", and nothing has ended the lease")
		}
		return false
	})
}

// pause lets time pass.
func (t *trial) pause(d time.Duration) { t.until(d, func() bool { return false }) }

// read gives what lies there now.
func (t *trial) read() (record.Record, store.Version, error) {
	obj, err := t.opts.Store.Get(t.ctx, t.key, "")
	if err != nil {
		return record.Record{}, "", err
	}
	r, err := record.Decode(obj.Body)
	return r, obj.Version, err
}

// record gives the record that lies there now.
func (t *trial) record() record.Record {
	r, _, err := t.read()
	t.must(err)
	return r
}

// writeID is a fresh one of the runner's.
func (t *trial) writeID() string { return fmt.Sprintf("runner-%d.1", clock.Now()) }

// other is a record as another candidate of this case writes it.
func (t *trial) other(held bool, token int64, ttl time.Duration) record.Record {
	now := time.Now()
	return record.Record{
		Token: token, Held: held, Holder: "the other one", TTL: ttl, WriteID: t.writeID(), AcquiredAt: now, RenewedAt: now, ExpiresAt: now.Add(ttl),
	}
}

// plant writes a body, whatever is there.
func (t *trial) plant(body []byte) store.Version {
	for {
		only := store.IfAbsent()
		if obj, err := t.opts.Store.Get(t.ctx, t.key, ""); err == nil {
			only = store.IfMatch(obj.Version)
		} else if !errors.Is(err, store.ErrNotExist) {
			t.must(err)
		}
		obj, err := t.opts.Store.Put(t.ctx, t.key, body, only)
		if err == nil {
			return obj.Version
		}
		if !errors.Is(err, store.ErrPrecondition) { // else the subject was faster
			t.must(err)
		}
	}
}

func (t *trial) plantRecord(r record.Record) store.Version {
	body, err := r.Encode()
	t.must(err)
	return t.plant(body)
}

// ours takes the lock with this library.
func (t *trial) ours(wait bool) *leasehold.Lease {
	lock, err := leasehold.NewLock(t.opts.Store, t.key, &leasehold.LockOptions{TTL: t.ttl, Holder: "leasehold itself"})
	t.must(err)
	ctx, cancel := context.WithTimeout(t.ctx, 3*t.ttl+2*slack)
	defer cancel()
	take := lock.TryAcquire
	if wait {
		take = lock.Acquire
	}
	lease, err := take(ctx)
	if err != nil {
		t.fail("F20", "leasehold itself could not take the lock: %v", err)
	}
	return lease
}

// patience is for how long a record must have been seen.
func patience(ttl time.Duration) time.Duration { return protocol.Patience(ttl) }

// lastWrite is the subject's last write that has landed.
func (t *trial) lastWrite() exchange {
	var last exchange
	for _, e := range t.proxy.exchanges() {
		if e.write() && e.landed {
			last = e
		}
	}
	return last
}

// writes counts the subject's.
func (t *trial) writes() (n int) {
	for _, e := range t.proxy.exchanges() {
		if e.write() {
			n++
		}
	}
	return n
}

func held(e *exchange) bool {
	r, err := record.Decode(e.body)
	return err == nil && r.Held
}

func free(e *exchange) bool { return !held(e) }
