package main

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
)

// unfit says why a candidate cannot do its work, or returns "". It can as long as its store has
// not failed for longer than a TTL: a failure that lasts for less costs no leader its lease, and a follower
// nothing at all. Whether it leads does not matter, nor does whether anybody does.
func unfit(s leasehold.Status, ttl time.Duration, now time.Time) string {
	if s.FailingSince.IsZero() {
		return ""
	}
	if failing := now.Sub(s.FailingSince); failing > ttl {
		return fmt.Sprintf("the store has failed for %v, which is longer than the TTL of %v", failing.Round(time.Second), ttl)
	}
	return ""
}

// leaderOf is the leader that a candidate knows of, and false if it knows of none. Its last
// sighting is not believed once the store has failed for a TTL. Nor is its own name, when its lease
// is lost: the election keeps that until the store shows another.
func leaderOf(s leasehold.Status, ttl time.Duration, now time.Time) (leasehold.Info, bool) {
	if !s.HasLeader || s.Leader.Holder == s.Holder && !s.Leading || unfit(s, ttl, now) != "" {
		return leasehold.Info{}, false
	}
	return s.Leader, true
}

// standing says in a line how a candidate stands, for people.
func standing(s leasehold.Status, lock string, ttl time.Duration, now time.Time) string {
	text := "candidate for " + lock + ", no leader is known"
	if leader, ok := leaderOf(s, ttl, now); ok {
		text = "following in " + lock + ", led by " + plain.Word(leader.Holder) + withToken(leader.Token)
		if s.Leading {
			text = "leading " + lock + " as " + plain.Word(leader.Holder) + withToken(leader.Token)
		}
	}
	if !s.FailingSince.IsZero() && now.Sub(s.FailingSince) >= statusPeriod {
		text += "; the store has failed since " + s.FailingSince.Format(time.TimeOnly)
	}
	return text
}
