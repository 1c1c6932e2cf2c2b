package main

import (
	"context"
	"fmt"
	"strings"
)

// verdict says in words what the tables say: where others are faster, and why one would take
// them. It comes first in the document and is written last.
func verdict(_ context.Context, b *bench) error {
	s := b.section("In short")
	last := len(b.sections) - 1
	near, far := b.near()[len(b.near())-1], b.far()[len(b.far())-1]
	var faster []string
	for _, sub := range subjects {
		if !sub.ownServer {
			continue
		}
		theirs, ours := b.of("acquire", own, sub.name, "p50 µs"), b.of("acquire", far.name, "leasehold", "p50 µs")
		if theirs.n > 0 && ours.n > 0 && theirs.median < ours.median {
			faster = append(faster, fmt.Sprintf("%s %s ms (%s times faster)", sub.name, number(theirs.median/1000), number(ours.median/theirs.median)))
		}
	}
	if len(faster) > 0 {
		s.say("**Where others are faster.** A lock that is acquired and released takes leasehold two writes to the bucket: %s ms on %s, %s ms behind S3's latency. A server near by needs less: %s. Where locks are taken for milliseconds, or thousands of times a second, take one of those; and where a PostgreSQL is there anyway and the work is in it, its advisory lock ends with the connection and costs nothing more. What one pays for that is a server to run, and one has to ask what becomes of its locks when it crashes: Redis without an fsync for each write forgets the last ones.",
			b.ms("acquire", near.name, "leasehold"), near.name, b.ms("acquire", far.name, "leasehold"), strings.Join(faster, ", "))
	}
	var slower []string
	for _, sub := range subjects {
		r := b.ratio("acquire", near.name, "p50 µs", sub.name, "leasehold")
		if sub.ownServer || strings.HasPrefix(sub.name, "leasehold") || r.n == 0 {
			continue
		}
		slower = append(slower, fmt.Sprintf("%s %s", sub.name, number(r.median)))
	}
	if len(slower) > 0 {
		s.say("**Beside others on a bucket**, times leasehold's time for the same on %s: %s. Who makes fewer requests or checks less is faster there, and what each of them gives up for that stands in [reliability.md](reliability.md).", near.name, strings.Join(slower, ", "))
	}
	if r := b.ratio("acquire", near.name, "p50 µs", "leasehold", rawTwo); r.n > 0 {
		s.say("**The floor.** Acquire and release over two PUTs with If-Match by the bare SDK: %s.", b.perPlace(func(p *place) string {
			return b.ratio("acquire", p.name, "p50 µs", "leasehold", rawTwo).String()
		}))
	}
	if r := b.of("handover", fmt.Sprintf("2 waiters, %s", near.name), "leasehold, election with peers", "over one PUT"); r.n > 0 {
		s.say("**Hand-over.** With peers the next one leads after %s PUTs; without them after its next look at the store.", r)
	}
	b.sections = append([]*section{b.sections[last]}, b.sections[:last]...)
	return nil
}

// perPlace is a figure for each place.
func (b *bench) perPlace(f func(*place) string) string {
	var all []string
	for _, p := range b.places {
		all = append(all, p.name+" "+f(p))
	}
	return strings.Join(all, "; ")
}
