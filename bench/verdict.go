package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"
)

// verdict says in words what the tables say: where others are faster, and why one would take
// them. It comes first in the document and is written last.
func verdict(_ context.Context, b *bench) error {
	s := b.section("In short")
	last := len(b.sections) - 1
	if rows := b.faster(); len(rows) > 1 {
		s.say("**Where others are faster.** Each row names all of this run that needed less time than leasehold.")
		s.table(rows)
		s.say("Why one would pick them:")
		s.say("%s", strings.Join([]string{
			"- A server near by answers in less time than a bucket takes for one write. Where locks are taken for milliseconds, or thousands of times a second, take **etcd** or **Redis**; etcd tells waiters at once, and its locks survive a crash of its machine. The price is a server to run, day and night, or three of them.",
			"- Where a **PostgreSQL** is there anyway and the work is done in it, an advisory lock costs nothing more, and ends with the connection; a row with a lease can be checked in the transaction that it protects.",
			"- **Redis** without an fsync for each write forgets its last locks when it crashes. Its locks have no tokens.",
			"- A lock on S3 that is faster here makes fewer requests or checks less: no token, no second look after an answer that was lost, no margin for a slow store. [reliability.md](reliability.md) and [protocol.md](protocol.md) say what comes of that.",
			"- On one machine **flock** needs no store at all, and the kernel frees it when the process dies.",
		}, "\n"))
	}
	if rows, reasons := b.goals(); len(rows) > 1 {
		s.say("**What it is held to.**")
		s.table(rows)
		if len(reasons) > 0 {
			s.say("Why it misses what it misses:")
			s.say("- %s", strings.Join(reasons, "\n- "))
		}
	}
	b.sections = append([]*section{b.sections[last]}, b.sections[:last]...)
	return nil
}

// Why goals are missed that are. A goal for which none of these is the reason has been missed by accident, or something
// is wrong.
const (
	slowCalls   = "Leasehold's own part is mostly system calls and wake-ups: it reads a clock that goes on in suspend, and each request has a goroutine. The machine of a run decides how long these take: those with a hypervisor that makes them slow also start a process several times as slowly."
	inMemory    = "A server in its memory answers a PUT in a fifth of a millisecond, and there the goroutine of each request shows, without which a caller could not give up while it is under way; under a session a lock also gives up its memory between its requests. Over a network neither shows, as the rows with a delay say."
	onceASecond = "Without peers the head of a line finds out by looking that it has the lock, and it looks once a second, or three times in a turn where turns are longer: each look costs money. One that looks once a second cannot hear of a release within the time of three PUTs, which is half a second behind a delay and a few milliseconds near by. Peers are for that."
	twoTrips    = "With peers a release in a line is a write, and a look by the process that was told. These are two trips, and a PUT by the bare SDK is one; what the processor needs comes on top. A release that comes before its holder has seen the last one who has joined looks first, and is three."
	rejoins     = "A turn in a line of those who come back is a write to join, and a look and a write to leave. The rest are looks of those who wait, one a second at most. The holder keeps the lock for 3.5 to 8.5 s here, so that no look comes at one moment of all turns; with 6 s in each, in virtual time, the goals are kept (`TestTurns` of package semaphore: 7.4, 8.5 and 11.7)."
	twoCores    = "A hundred tasks of 20 ms, each a candidate of its own, share two processors with the server. A turn without peers ends with a look, and the looks of the others compete with it. Tasks that share a lock or a semaphore in one process pass it on with one write."
	threeAtOnce = "Near by, the three requests of a renewal on a quorum, three servers and three proxies share two processors, and one bare PUT has them for itself. Over a network they do not wait for one another."
	seenLate    = "A follower counts a TTL and the margin from the look that showed it the last renewal, which comes a little later than that, and then looks once more before it writes. Those who try spread over a tenth of a TTL, or many would try at once."
)

// faster are those that needed less time than leasehold, for each thing that was timed.
func (b *bench) faster() [][]string {
	rows := [][]string{{"", "leasehold", "faster"}}
	compare := func(what, experiment, metric string, of func(name string) (place string), ours string, others []string, unit string, scale float64) {
		mine := b.of(experiment, of(ours), ours, metric).median
		if math.IsNaN(mine) {
			return
		}
		var all []string
		for _, name := range others {
			if theirs := b.of(experiment, of(name), name, metric).median; theirs < mine && !strings.HasPrefix(name, "leasehold") {
				all = append(all, name+" "+number(theirs/scale))
			}
		}
		if len(all) == 0 {
			all = []string{"nobody"}
		}
		rows = append(rows, []string{what + ", " + unit, number(mine / scale), strings.Join(all, "; ")})
	}
	var names []string
	brings := map[string]bool{}
	for _, sub := range subjects {
		names = append(names, sub.name)
		brings[sub.name] = sub.ownServer
	}
	near, far := b.near()[len(b.near())-1], b.far()[len(b.far())-1]
	at := func(p *place) func(string) string {
		return func(name string) string {
			if brings[name] {
				return own
			}
			return p.name
		}
	}
	always := func(place string) func(string) string { return func(string) string { return place } }
	for _, p := range []*place{near, far} {
		compare("acquire and release, "+p.name, "acquire", "p50 µs", at(p), "leasehold", names, "ms", 1000)
		compare("try a lock that is held, "+p.name, "held", "p50 µs", at(p), "leasehold", names, "ms", 1000)
		for _, n := range waiters {
			where := func(name string) string { // a server of its own is near
				if brings[name] {
					return line{n, near}.String()
				}
				return line{n, p}.String()
			}
			compare("idle after a release, with peers, "+where(withPeers), "handover", "idle ms", where, withPeers, names, "ms", 1)
			compare("idle after a release, fair lock with peers, "+where(fairWithPeers), "handover", "idle ms", where, fairWithPeers, names, "ms", 1)
		}
	}
	compare("fail-over at equal cost", "crash", "s", always(b.near()[0].name), "leasehold, election", names, "s", 1)
	compare("a hundred tasks, "+near.name, "contention", "s", always(hundred(near)), "leasehold", names, "s", 1)
	compare("a hundred tasks, fair lock, "+near.name, "contention", "s", always(hundred(near)), fairLock, names, "s", 1)
	var commands []string
	for _, s := range b.Samples {
		if s.Experiment == "command" && s.Round == 0 && strings.Contains(s.Subject, "lock") {
			commands = append(commands, s.Subject)
		}
	}
	compare("a command under a lock in a directory", "command", "p50 µs", always("this machine"), runInDirectory, commands, "ms", 1000)
	var more []string
	mine := b.of("decisions", "null", ownElection, "decisions/s").median
	for _, name := range []string{bareElector, fakeElector} {
		if theirs := b.of("decisions", "null", name, "decisions/s").median; theirs > mine {
			more = append(more, name+" "+number(theirs))
		}
	}
	if len(more) > 0 {
		rows = append(rows, []string{"decisions of an election on a store that answers at once, a second", number(mine), strings.Join(more, "; ")})
	}
	return rows
}

// goals are leasehold's goals, and the measurements of this run beside them.
// With them come the reasons for those that were missed.
func (b *bench) goals() (rows [][]string, reasons []string) {
	rows = [][]string{{"", "goal", "measured", ""}}
	row := func(name, goal string, measured spread, missed bool, why string) {
		if measured.n == 0 {
			return
		}
		kept := "kept"
		if missed {
			kept = "**missed**"
			if why != "" && !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
		}
		rows = append(rows, []string{name, goal, measured.String(), kept})
	}
	goal := func(name string, most float64, measured spread, why string) {
		row(name, "at most "+number(most), measured, measured.median > most, why)
	}
	for _, p := range b.places {
		goal("acquire and release, over two PUTs by the bare SDK, "+p.name, 1.10, b.ratio("acquire", p.name, "p50 µs", "leasehold", rawTwo), inMemory)
	}
	part := func(metric string) spread { // of one operation of the two, without the store
		all, store := b.values("overhead", "null", ownCycle, metric), b.values("overhead", "null", ownStore, metric)
		var each []float64
		for round, v := range all {
			each = append(each, (v-store[round])/2)
		}
		return spreadOf(each)
	}
	goal("leasehold's own part of an operation, µs", 20, part("p50 µs"), slowCalls)
	goal("its allocations", 60, part("allocations"), "")
	for _, p := range b.places {
		for _, n := range waiters {
			where := line{n, p}.String()
			goal("idle after a release, election with peers, over one PUT by the bare SDK, "+where, 3, b.of("handover", where, withPeers, "over one PUT"), "")
		}
	}
	for _, p := range b.places {
		where := line{waiters[2], p}.String()
		goal("idle after a release, "+fairLock+", over one PUT by the bare SDK, "+where, 3, b.of("handover", where, fairLock, "over one PUT"), onceASecond)
		goal("idle after a release, "+fairWithPeers+", over one PUT by the bare SDK, "+where, 3, b.of("handover", where, fairWithPeers, "over one PUT"), twoTrips)
	}
	for _, p := range b.far() {
		where := line{waiters[0], p}.String()
		goal("idle after a release, over one PUT by the bare SDK, "+where, 4, b.of("handover", where, "leasehold", "over one PUT"), onceASecond)
	}
	for _, p := range b.places {
		for i, n := range waiters {
			where := line{n, p}.String()
			for _, name := range []string{fairLock, fairWithPeers} {
				goal("requests for the lock from one hand-over to the next, "+name+", "+where, []float64{8, 10, 12}[i], b.of("handover", where, name, sentColumns[0]), rejoins)
			}
		}
	}
	// A cut comes when five sixths of a TTL are left on average. Then come the margin, and the spread of those who try.
	const margin, spread = crashTTL/12 + 10*time.Millisecond, crashTTL / 10
	goal("fail-over, election, TTL "+crashTTL.String()+", s", (crashTTL*5/6 + margin + spread).Seconds(), b.of("crash", b.near()[0].name, "leasehold, election", "s"), seenLate)
	for _, p := range b.near() {
		const least = 0.75
		for _, name := range []string{tasksOfOne, fairOfOne, "leasehold", fairLock, fairWithPeers} {
			used := b.of("contention", hundred(p), name, inUse)
			row("share of the time in which a hundred tasks use the lock, "+name+", "+p.name, "at least "+number(least), used, used.median < least, twoCores)
		}
	}
	for _, p := range b.near() {
		for _, name := range []string{fairLock, fairWithPeers} {
			goal("the longest wait over the mean, "+name+", "+returning(p), 2.2, b.of("contention", returning(p), name, waitRatio), "")
		}
	}
	goal("100,000 locks of a process that is gone, from the first that is taken over to the last, s", 45, b.of("scale", "virtual time", "100000 locks", "spread s"), "")
	for _, d := range distances {
		goal("a renewal on a quorum over a PUT to its second-fastest member by the bare SDK, "+d.name, overRenewal, b.over(d.name, secondPut), threeAtOnce)
		goal("a renewal on a quorum over PUTs to its three members at once by the bare SDK until two have answered, "+d.name, overRenewal, b.over(d.name, atOnce), "")
	}
	var perInterval []float64
	for _, v := range b.values("process", b.near()[0].name, "10000 leases, one session", "requests") {
		perInterval = append(perInterval, v*(defaultTTL/3).Seconds())
	}
	goal("requests in an interval (TTL/3) for 10,000 leases under a session", 1, spreadOf(perInterval), "")
	return rows, reasons
}
