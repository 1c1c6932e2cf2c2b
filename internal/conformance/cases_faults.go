package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// lossCases are those of single writes whose answers are lost, or that come late or twice.
var lossCases = []Case{
	{"acquire-answer-lost", "The write of an acquisition lands, and its answer is lost: it finds out that it has the lock.", func(t *trial) {
		t.start()
		t.proxy.once(held, dropAnswer)
		t.settles(t.acquire("F6", 2*t.ttl+slack))
	}},
	{"acquire-request-lost", "The write of an acquisition is lost: it does not say that it has the lock before another one has landed.", func(t *trial) {
		t.start()
		t.proxy.once(held, dropRequest)
		t.settles(t.acquire("F6", 2*t.ttl+slack))
	}},
	{"acquire-500-after-landing", "The write of an acquisition lands, and the answer is 500.", func(t *trial) {
		t.start()
		t.proxy.once(held, statusAfter(http.StatusInternalServerError))
		t.settles(t.acquire("F6", 2*t.ttl+slack))
	}},
	{"acquire-409", "The write of an acquisition is answered with 409.", func(t *trial) {
		t.start()
		t.proxy.once(held, status(http.StatusConflict))
		t.settles(t.acquire("F6", 2*t.ttl+slack))
	}},
	{"acquire-twice", "The write of an acquisition is delivered twice, and the answer is that to the second one, 412: it finds out that it has the lock.", func(t *trial) {
		t.start()
		t.proxy.once(held, twice)
		t.settles(t.acquire("F6", 2*t.ttl+slack))
	}},
	{"acquire-late", "The write of an acquisition is carried out more than a TTL late.", func(t *trial) {
		t.start()
		t.proxy.once(held, lateRequest(t.ttl*3/2))
		t.settles(t.acquire("F6", 4*t.ttl+slack))
		t.pause(t.ttl) // by then the late one has arrived
		t.settles(t.held)
	}},
	{"acquire-late-answer", "The answer to the write of an acquisition comes after more than a TTL: no lease of that write is valid then.", func(t *trial) {
		t.start()
		t.proxy.once(held, lateAnswer(t.ttl*5/4))
		t.settles(t.acquire("F4", 4*t.ttl+slack))
	}},
	{"slow-answer", "The answer to the write of an acquisition is slow, and it is cut off then: its lease counts from the sending.", func(t *trial) {
		var claims []*exchange
		t.proxy.faults(func(e *exchange) fault { // one at a time, and while what the subject was shown does not change
			if slices.ContainsFunc(claims, func(c *exchange) bool { return c.shown == http.StatusOK }) {
				return dropRequest
			}
			if !e.write() || !held(e) {
				return pass
			}
			claims = append(claims, e)
			return lateAnswer(t.ttl * 2 / 5)
		})
		t.start()
		t.acquire("F6", 2*t.ttl+slack)
		t.proxy.always(dropRequest)
		t.until(2*t.ttl+slack, func() bool { return !t.valid() }) // the judge looks at what it says
		t.becomesLost("F10", slack, t.began)
	}},
	{"acquire-lost-to-another", "The write of an acquisition is lost, and another takes the lock meanwhile: it is told so.", func(t *trial) {
		t.plantRecord(t.other(false, 41, t.ttl))
		t.start()
		r := t.other(true, 42, t.opts.TTL*5)
		t.proxy.once(func(e *exchange) bool {
			if !held(e) {
				return false
			}
			t.plantRecord(r)
			return true
		}, dropRequest)
		if word, rest := t.tryAcquire(0); word != "held" || !strings.Contains(rest, r.Holder) {
			t.fail("F6", "another has the lock, and the answer is %q", word+" "+rest)
		}
	}},
	{"renew-answer-lost", "A renewal lands, and its answer is lost: the lease goes on.", renewalMeets(dropAnswer)},
	{"renew-request-lost", "A renewal is lost: the lease goes on.", renewalMeets(dropRequest)},
	{"renew-twice", "A renewal is delivered twice, and the answer is that to the second one, 412: the lease goes on.", renewalMeets(twice)},
	{"renew-503", "Two renewals are answered with 503: the lease goes on.", func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		n := 0
		t.proxy.faults(func(e *exchange) fault {
			if e.write() && held(e) && n < 2 {
				n++
				return status(http.StatusServiceUnavailable)
			}
			return pass
		})
		t.holds(3 * t.ttl)
		t.still(token)
	}},
	{"release-answer-lost", "A release lands, and its answer is lost: it says that the lock is released, and it is.", releaseMeets(dropAnswer)},
	{"release-request-lost", "A release is lost: it is sent again.", releaseMeets(dropRequest)},
	{"release-late", "A release is carried out late, when the lock was released and acquired again: the new lease has a token of its own, and is not harmed.", func(t *trial) {
		t.start()
		first := t.acquire("F15", 0)
		t.proxy.once(free, lateRequest(t.ttl))
		t.ask(2*t.ttl+slack, "release %s", t.key) // it may not know what has become of it
		t.held = 0
		if second := t.acquire("F8", 3*t.ttl+slack); second <= first {
			t.fail("F8", "the lease after the release has the token %d, and the one before had %d", second, first)
		}
		t.holds(2 * t.ttl)
		t.settles(t.held)
	}},
	{"late-writes", "All its writes arrive once more after another has taken the lock: nothing changes.", func(t *trial) {
		t.start()
		first := t.acquire("F15", 0)
		t.holds(t.ttl)
		t.release("F7")
		second := t.acquire("F15", 0)
		t.release("F7")
		lease := t.ours(false)
		if token := int64(lease.Token()); first >= second || second >= token {
			t.fail("F3", "the tokens are %d, %d and then %d", first, second, token)
		}
		_, version, err := t.read()
		t.must(err)
		for _, e := range t.proxy.exchanges() {
			if !e.write() {
				continue
			}
			code, err := t.proxy.again(&e)
			t.must(err)
			if code == http.StatusOK {
				t.fail("F1", "a write that arrived late was carried out: %s", e.body)
			}
		}
		if _, now, err := t.read(); err != nil || now != version && lease.Err() != nil {
			t.fail("F2", "the object has changed, %v", err)
		}
		t.must(lease.Release(t.ctx))
	}},
}

// settles checks that the record is the lease that the subject has.
func (t *trial) settles(token int64) {
	t.still(token)
	t.holds(t.ttl / 3)
	t.still(token)
}

// still checks that the record is held with the token.
func (t *trial) still(token int64) {
	if r := t.record(); !r.Held || r.Token != token {
		t.fail("F6", "it says that it holds the lock with the token %d, and the record is held %v with %d", token, r.Held, r.Token)
	}
}

// free checks that anybody can take the lock now.
func (t *trial) free() { t.must(t.ours(false).Release(t.ctx)) }

// wasHit checks that a fault was met.
func (t *trial) wasHit(hit <-chan *exchange, rule, what string) {
	select {
	case <-hit:
	default:
		t.fail(rule, "it has sent no %s", what)
	}
}

// trialCases are those of a subject that is killed, stopped or cut off.
func trialCases() []Case {
	all := []Case{
		{"killed", "It is killed: another takes the lock over, and not before its lease is over.", func(t *trial) {
			t.start()
			token := t.acquire("F15", 0)
			t.holds(t.ttl)
			last := t.lastWrite()
			t.kill()
			lease := t.ours(true)
			if waited := clock.Now() - last.arrived; waited < protocol.Validity(t.ttl) || int64(lease.Token()) <= token {
				t.fail("F4", "another had the lock %v after the last write, with the token %d after %d", waited, lease.Token(), token)
			}
			t.must(lease.Release(t.ctx))
		}},
		{"stopped", "It is stopped for longer than its lease, and another takes the lock: the first that it says is that its lease is lost.", func(t *trial) {
			if !canStop {
				panic(skipped("processes cannot be stopped on this system"))
			}
			t.start()
			t.acquire("F15", 0)
			t.pause(t.ttl / 2)
			t.must(t.subject.stop())
			lease := t.ours(true)
			before := len(t.subject.all())
			t.must(t.subject.say("valid " + t.key))
			t.must(t.subject.goOn())
			word, _ := t.answer("valid "+t.key, slack)
			for _, l := range t.subject.all()[before:] {
				if l.ours {
					continue
				}
				if l.text != "lost "+t.key {
					t.fail("F10", "the first that it says when it goes on is %q", l.text)
				}
				break
			}
			if word != "no" {
				t.fail("F4", "it was stopped for longer than its lease, and says that that is valid")
			}
			t.ask(2*t.ttl+slack, "release %s", t.key)
			t.pause(t.ttl)
			if !lease.Valid() {
				t.fail("F21", "when it went on, it has taken the lock from the next holder: %v", lease.Err())
			}
			t.must(lease.Release(t.ctx))
		}},
		{"stopped-shortly", "It is stopped for less than its lease lasts: the lease goes on.", func(t *trial) {
			if !canStop {
				panic(skipped("processes cannot be stopped on this system"))
			}
			t.start()
			token := t.acquire("F15", 0)
			t.must(t.subject.stop())
			time.Sleep(t.ttl / 3)
			t.must(t.subject.goOn())
			t.holds(t.ttl)
			t.still(token)
		}},
	}
	for name, f := range map[string]fault{"cut-off": dropRequest, "cut-off-silent": silence, "answers-lost": dropAnswer} {
		about := "All its requests from some moment on are " + f.name + ": by the end of its lease it says that it is lost."
		all = append(all, Case{name, about, func(t *trial) { t.cutOff(f) }})
	}
	return all
}

// cutOff has the proxy do the same to all requests from some moment on: the lease must end in time.
func (t *trial) cutOff(f fault) {
	t.start()
	t.acquire("F15", 0)
	t.pause(t.ttl / 2)
	since := clock.Now()
	t.proxy.always(f)
	// What lands all the same would keep the lock for it if it found out, and it cannot. Whether it says so in time is for
	// the judge, who knows which of its writes have landed.
	t.until(2*t.ttl+slack, func() bool { return !t.valid() })
	t.becomesLost("F10", slack, since)
	t.proxy.always(pass)
	lease := t.ours(true)
	t.pause(t.ttl / 2)
	if t.valid() {
		t.fail("F10", "its lease was over, and is valid again")
	}
	t.ask(2*t.ttl+slack, "release %s", t.key)
	if !lease.Valid() {
		t.fail("F21", "it has taken the lock from the next holder: %v", lease.Err())
	}
	t.must(lease.Release(t.ctx))
}

// storeCases are those of a store that refuses.
func storeCases() (all []Case) {
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests} {
		all = append(all, Case{
			fmt.Sprintf("refuses-%d", code), fmt.Sprintf("While the store answers %d it sends few requests; then it takes the lock.", code),
			func(t *trial) { t.refuses(status(code), func(*exchange) bool { return true }) },
		})
	}
	return append(
		all,
		Case{"refuses-writes", "While the store refuses all writes, and answers reads, it sends few requests; then it takes the lock.", func(t *trial) {
			t.refuses(status(http.StatusServiceUnavailable), (*exchange).write)
		}},
		Case{"drops-all", "While all requests are lost it sends few; then it takes the lock.", func(t *trial) {
			t.refuses(dropRequest, func(*exchange) bool { return true })
		}},
		Case{"refuses-403", "A store that denies access ends an acquisition with an error at once, also one that waits.", func(t *trial) {
			t.proxy.always(status(http.StatusForbidden))
			t.start()
			asked := clock.Now()
			if word, rest := t.tryAcquire(3 * slack); word != "error" || rest == "" {
				t.fail("F17", "the answer is %q", word+" "+rest)
			}
			if took := clock.Now() - asked; took > slack {
				t.fail("F17", "the answer came after %v", took)
			}
			if n := len(t.proxy.exchanges()); n > 6 {
				t.fail("F17", "it sent %d requests", n)
			}
		}},
		Case{"refuses-at-once", "A store that does not answer for long ends an acquisition that does not wait, with an error.", func(t *trial) {
			t.proxy.always(status(http.StatusServiceUnavailable))
			t.start()
			if word, rest := t.tryAcquire(0); word != "error" || rest == "" {
				t.fail("F17", "the answer is %q", word+" "+rest)
			}
			if n := len(t.proxy.exchanges()); n > 30 {
				t.fail("F17", "it sent %d requests", n)
			}
		}},
	)
}

// refuses counts the requests in 5 s of trouble: with the shortest pauses of F17 there are seven tries, each a write
// and a look.
func (t *trial) refuses(f fault, which func(*exchange) bool) {
	t.proxy.faults(func(e *exchange) fault {
		if which(e) {
			return f
		}
		return pass
	})
	t.start()
	request := t.begin(2 * slack)
	t.pause(5 * time.Second)
	n := len(t.proxy.exchanges())
	t.proxy.always(pass)
	back := clock.Now()
	if n > 14 || n < 3 {
		t.note("F17", "it sent %d requests in 5 s", n)
	}
	token := t.finish("F20", request, 2*slack)
	if late := t.acquired[token] - back; late > slack {
		t.fail("F20", "it took the lock %v after the store had come back", late)
	}
}

// renewalMeets has a fault hit one renewal, which the lease outlives.
func renewalMeets(f fault) func(t *trial) {
	return func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		hit := t.proxy.once(held, f)
		t.holds(3 * t.ttl)
		t.wasHit(hit, "F18", "renewal")
		t.still(token)
	}
}

// releaseMeets has a fault hit one release, after which the lock is free all the same.
func releaseMeets(f fault) func(t *trial) {
	return func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		t.proxy.once(free, f)
		t.release("F6")
		t.freed(token)
		t.free()
	}
}
