package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// plainCases are those of a store that answers.
var plainCases = []Case{
	{"free-absent", "It takes a lock of which there is no object, with the store's time as token.", func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		if r := t.record(); !r.Held || r.Token != token || r.TTL != t.ttl {
			t.fail("F15", "it said that it has the token %d, and the record is %+v", token, r)
		}
		t.holds(t.ttl / 4)
		t.release("F7")
		t.freed(token)
	}},
	{"free-record", "It takes a lock that is free, with the next token.", func(t *trial) {
		t.plantRecord(t.other(false, 41, t.ttl))
		t.start()
		if token := t.acquire("F15", 0); token != 42 {
			t.fail("F3", "the token after 41 is %d", token)
		}
		t.release("F7")
		t.freed(42)
	}},
	{"refused", "It is told that another holds the lock, and writes nothing; also after three TTLs of renewals.", func(t *trial) {
		lease := t.ours(false)
		t.start()
		for range 2 {
			if word, rest := t.tryAcquire(0); word != "held" || !strings.Contains(rest, "leasehold itself") {
				t.must(lease.Err())
				t.fail("F19", "while %q holds it the answer is %q", "leasehold itself", word+" "+rest)
			}
		}
		if word, rest := t.tryAcquire(3 * t.ttl); word != "held" {
			t.must(lease.Err()) // on a slow machine it is ours that is lost
			t.fail("F5", "while it is held and renewed the answer is %q", word+" "+rest)
		}
		if n := t.writes(); n > 0 {
			t.fail("F5", "it wrote %d times while the lock was held by another", n)
		}
		t.must(lease.Err())
		t.must(lease.Release(t.ctx))
	}},
	{"waits-for-release", "One that waits takes the lock when it is released.", func(t *trial) {
		lease := t.ours(false)
		t.start()
		request := t.begin(3*t.ttl + 2*slack)
		t.pause(t.ttl)
		t.must(lease.Release(t.ctx))
		released := clock.Now()
		token := t.finish("F20", request, 3*t.ttl+2*slack)
		if late := t.acquired[token] - released; late > slack {
			t.fail("F20", "it took the lock %v after the release", late)
		}
		if token <= int64(lease.Token()) {
			t.fail("F3", "its token %d is not above ours, %d", token, lease.Token())
		}
	}},
	{"takes-over", "It takes a lock over whose holder is gone after the TTL of the record and m, and not sooner.", func(t *trial) {
		t.plantRecord(t.other(true, 7, t.ttl))
		t.start()
		t.takesOver(t.ttl, 8)
	}},
	{"takes-over-their-ttl", "It waits the TTL of the record, and not its own, which is shorter.", func(t *trial) {
		t.ttl = time.Second
		t.plantRecord(t.other(true, 7, 3*time.Second))
		t.start()
		t.takesOver(3*time.Second, 8)
	}},
	{"takes-over-renewed", "It begins to wait anew when it sees another version.", func(t *trial) {
		r := t.other(true, 7, t.ttl)
		t.plantRecord(r)
		t.start()
		request := t.begin(3*patience(t.ttl) + slack)
		t.pause(t.ttl * 2 / 3)
		r.WriteID = t.writeID()
		t.plantRecord(r)
		t.finish("F20", request, 3*patience(t.ttl)+slack) // when it has written is for the judge
	}},
	{"renews", "It holds a lock for four TTLs, and one that waits does not get it until it is released.", func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		waiting := make(chan int64, 1)
		go func() { waiting <- t.waiter() }()
		t.holds(4 * t.ttl)
		select {
		case other := <-waiting:
			t.fail("F18", "another has the lock, with the token %d", other)
		default:
		}
		t.release("F7")
		select {
		case other := <-waiting:
			if other <= token {
				t.fail("F3", "the token went from %d to %d", token, other)
			}
		case <-time.After(2*t.ttl + slack):
			t.fail("F7", "another does not get the lock after the release")
		}
	}},
	{"tokens-grow", "Tokens grow with each acquisition, over releases and processes.", func(t *trial) {
		t.start()
		last := t.acquire("F15", 0)
		for i := range 5 {
			t.release("F7")
			t.freed(last)
			if i == 2 {
				t.start()
			}
			token := t.acquire("F15", 0)
			if token <= last {
				t.fail("F3", "the token went from %d to %d", last, token)
			}
			last = token
		}
		t.release("F7")
	}},
	{"own-lease-after-restart", "A process that starts anew does not go on with the lease of the one before.", func(t *trial) {
		t.start()
		before := t.acquire("F15", 0)
		t.start()
		if t.valid() {
			t.fail("F9", "it has just started, and says that a lease is valid")
		}
		if word, rest := t.tryAcquire(0); word == "acquired" {
			t.fail("F9", "it has just started, and has the token %s; the lease before, with %d, is not over", rest, before)
		}
	}},
	{"unknown-fields", "All that it does not know stays in the record, and so does the history.", func(t *trial) {
		t.plant([]byte(`{"format":1,"token":41,"state":"free","holder":"the other one","address":"http://10.0.0.1","ttl_ms":2000,"write_id":"runner.9","session":"",` +
			`"meta":{"job":"of the other one"},"successor":"nobody","ended":"broken","x_new":{"deep":[1,2.5,{"big":9007199254740993,"text":"é\u2028<&>"}],"no":null},` +
			`"x_flag":true,"term":5,"term_token":41,"rest":{"ms":10,"write_id":"runner.8"},` +
			`"history":[{"token":40,"term":4,"holder":"h","from":"2026-11-01T00:00:00.000Z","to":"2026-11-01T00:01:00.000Z","how":"released","more":1}]}` + "\n"))
		t.start()
		t.acquire("F15", 2*slack)
		first := t.lastWrite()
		if !t.until(3*t.ttl, func() bool { return t.lastWrite().arrived != first.arrived }) {
			t.fail("F18", "it has not renewed the lease")
		}
		t.release("F7")
		r := t.record()
		if r.Held || len(r.Unknown) < 2 || len(r.Past()) == 0 {
			t.fail("F13", "after the release the record is %+v", r)
		}
	}},
	{"session", "It leaves a lock alone that is held under a session, however long it stays unchanged.", func(t *trial) {
		r := t.other(true, 7, time.Second)
		r.Session = "sessions/some"
		// The heartbeat is there and held, so that whoever looks at it sees that the session goes on.
		beat := t.other(true, 9, 24*time.Hour)
		beat.Layout.Name = record.LayoutSession
		body, err := beat.Encode()
		t.must(err)
		_, err = t.opts.Store.Put(t.ctx, t.key[:strings.LastIndexByte(t.key, '/')+1]+r.Session, body, store.IfAbsent())
		t.must(err)
		t.plantRecord(r)
		t.ttl = time.Second
		t.start()
		if word, rest := t.tryAcquire(3 * patience(r.TTL)); word != "held" {
			t.fail("F12", "the answer is %q", word+" "+rest)
		}
		if n := t.writes(); n > 0 {
			t.fail("F12", "it wrote %d times", n)
		}
	}},
	{"broken", "A holder whose record was freed by hand has lost its lease.", func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		since := clock.Now()
		r := t.other(false, token, t.ttl)
		r.Ended = record.EndedByHand
		version := t.plantRecord(r)
		t.becomesLost("F21", 2*t.ttl+slack, since)
		t.leavesAlone(version)
	}},
	{"taken", "A holder whose lock another has taken has lost its lease, and leaves the record alone.", func(t *trial) {
		t.start()
		token := t.acquire("F15", 0)
		since := clock.Now()
		version := t.plantRecord(t.other(true, token+1, t.ttl))
		t.becomesLost("F21", 2*t.ttl+slack, since)
		t.leavesAlone(version)
	}},
	{"deleted-while-held", "A holder whose object was deleted has lost its lease.", func(t *trial) {
		t.start()
		t.acquire("F15", 0)
		since := clock.Now()
		t.must(t.opts.Store.Delete(t.ctx, t.key))
		t.becomesLost("F21", 2*t.ttl+slack, since)
		if _, _, err := t.read(); err == nil {
			t.fail("F21", "it has written the object again")
		}
	}},
	{"deleted-while-waiting", "One that waits, and saw the object before it was deleted, waits TTL and m before it makes it anew, with a greater token.", func(t *trial) {
		const far = int64(1) << 50 // above the time in milliseconds
		t.plantRecord(t.other(true, far, t.ttl))
		t.start()
		request := t.begin(3*patience(t.ttl) + slack)
		if !t.until(slack, func() bool { return len(t.proxy.exchanges()) > 0 && t.proxy.exchanges()[0].sent > 0 }) {
			t.fail("F20", "it does not look at the lock")
		}
		t.must(t.opts.Store.Delete(t.ctx, t.key))
		if token := t.finish("F20", request, 3*patience(t.ttl)+slack); token <= far {
			t.fail("F16", "the token is %d, and %d was seen", token, far)
		}
	}},
	{"foreign-while-held", "A holder that finds no record in place of its own has lost its lease, and leaves the object alone.", func(t *trial) {
		t.start()
		t.acquire("F15", 0)
		since := clock.Now()
		version := t.plant([]byte("notes of somebody\n"))
		t.becomesLost("F21", 2*t.ttl+slack, since)
		t.leavesAlone(version)
	}},
}

// waiter takes the lock with this library and gives it back, and returns the token; 0 if it could not.
func (t *trial) waiter() int64 {
	lock, err := leasehold.NewLock(t.opts.Store, t.key, &leasehold.LockOptions{TTL: t.ttl, Holder: "leasehold itself"})
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(t.ctx, 10*t.ttl+2*slack)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return 0
	}
	_ = lease.Release(ctx) // its TTL ends it too
	return int64(lease.Token())
}

// takesOver has the subject take a lock over whose holder is gone.
func (t *trial) takesOver(ttl time.Duration, token int64) {
	asked := clock.Now()
	wait := 3*patience(ttl) + slack
	if got := t.finish("F20", t.begin(wait), wait); got != token {
		t.fail("F3", "the token is %d, and the one before was %d", got, token-1)
	}
	if late := t.acquired[token] - asked - patience(ttl); late > slack {
		t.fail("F20", "it took the lock over %v after it could", late)
	}
	t.holds(t.ttl / 4)
}

// freed checks that the lock is free, with the token of the lease before.
func (t *trial) freed(token int64) {
	if r := t.record(); r.Held || r.Token != token {
		t.fail("F7", "after the release of token %d the record is %+v", token, r)
	}
}

// leavesAlone checks that the object still has a version when the lease was given back, and two TTLs have passed.
func (t *trial) leavesAlone(version store.Version) {
	t.ask(2*t.ttl+slack, "release %s", t.key)
	t.pause(t.ttl)
	obj, err := t.opts.Store.Get(t.ctx, t.key, "")
	t.must(err)
	if obj.Version != version {
		t.fail("F21", "it has written over what was not its own: now there is %.300s", obj.Body)
	}
}
