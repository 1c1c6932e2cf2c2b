package peer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
)

// leaders are the candidates that lead now.
func leaders(all []*candidate) (leading []*candidate) {
	for _, c := range all {
		if c.IsLeader() {
			leading = append(leading, c)
		}
	}
	return leading
}

// TestHour: five candidates over TLS. While the leader answers, its followers look at the
// store once in two TTLs; the leader sends its renewals. Each follower keeps one
// connection to the leader, the leader none.
func TestHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*candidate
		for i := range 5 {
			all = append(all, w.join(t, fmt.Sprint("c", i)))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute + time.Second/2) // between two renewals
		leading := leaders(all)
		if len(leading) != 1 || leading[0] != all[0] {
			t.Fatalf("%d leaders", len(leading))
		}
		for _, c := range all {
			c.net.Reset()
		}
		before := make([]int64, len(all))
		questions := make([]int64, len(all))
		for i, c := range all {
			s := c.Status()
			before[i], questions[i] = s.Reads+s.Writes, s.Questions
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, c := range all {
			s, counts := c.Status(), c.net.Counts()
			requests := s.Reads + s.Writes - before[i]
			asked := s.Questions - questions[i]
			t.Logf("%s: %d GET, %d PUT, %d questions", s.Holder, counts.Get, counts.Put, asked)
			switch {
			case c == all[0]:
				if counts.Get != 0 || counts.Put < 719 || counts.Put > 721 || requests != int64(counts.Put) || asked != 0 {
					t.Errorf("the leader made %+v, %d requests by its own count", counts, requests)
				}
			case counts.Get < 119 || counts.Get > 121 || counts.Put+counts.List+counts.Delete != 0 || requests != int64(counts.Get): // a look in two TTLs
				t.Errorf("follower %d made %+v, %d requests by its own count", i, counts, requests)
			case asked < 479 || asked > 481: // one for each half of a TTL
				t.Errorf("follower %d asked %d times", i, asked)
			}
			if lines := c.logs.about(""); len(lines) > 0 {
				t.Errorf("%s logged %q", s.Holder, lines)
			}
		}
		if made, open := w.made(address("c0")), w.alive(address("c0")); made != 4 || open != 4 {
			t.Errorf("four followers made %d connections to the leader, %d are open", made, open)
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// TestResignation: followers hear of it through the questions that wait. The one that
// has waited for longest leads, within one look and one write, and the others ask it
// from then on; the connections to the former leader are closed.
func TestResignation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*candidate
		for i := range 5 {
			all = append(all, w.join(t, fmt.Sprint("c", i)))
			time.Sleep(time.Second)
		}
		for round := range 4 {
			time.Sleep(time.Minute)
			for _, c := range all {
				c.net.Reset()
			}
			next := all[round+1]
			began := time.Now()
			if err := all[round].Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := leasetest.Lead(ctx, next.Election); err != nil {
				t.Fatalf("round %d: %+v does not lead, which has waited for longest: %v", round, next.Status(), err)
			}
			cancel()
			if counts := next.net.Counts(); counts.Get != 1 || counts.Put != 1 || time.Since(began) > 0 {
				t.Errorf("round %d: the next leader began after %v and %+v", round, time.Since(began), counts)
			}
			time.Sleep(time.Minute)
			if open := w.alive(address(fmt.Sprint("c", round))); open != 0 {
				t.Errorf("round %d: %d connections to the former leader are open", round, open)
			}
			if open := w.alive(address(fmt.Sprint("c", round+1))); open != 4 {
				t.Errorf("round %d: %d connections to the leader are open", round, open)
			}
		}
		for _, c := range all {
			if lines := c.logs.about(""); len(lines) > 0 {
				t.Errorf("%s logged %q", c.Status().Holder, lines)
			}
			c.quit(t)
		}
	})
}
