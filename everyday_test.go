package leasehold_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// everyday counts the rows of the table "Everyday use" of docs/requests.md, over the layout of the test.
type everyday struct {
	t  *testing.T
	st *faultstore.Store
}

// counted is a row, and what it has cost.
type counted struct {
	row string
	got requests
}

// count counts a row.
func (e *everyday) count(row string, f func()) counted {
	e.t.Helper()
	got := cost(e.st, f)
	synctest.Wait()
	return counted{row, got}
}

// take acquires a lock at once.
func (e *everyday) take(lock *leasehold.Lock, opts ...leasehold.AcquireOption) *leasehold.Lease {
	e.t.Helper()
	lease, err := lock.TryAcquire(e.t.Context(), opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	return lease
}

// refused checks that a lock is held, or at rest.
func (e *everyday) refused(_ *leasehold.Lease, err error) {
	e.t.Helper()
	if !errors.Is(err, leasehold.ErrHeld) {
		e.t.Error(err)
	}
}

// locks are those of Locks.
func (e *everyday) locks() (all []counted) {
	e.t.Helper()
	release(e.t, acquire(e.t, newLock(e.t, e.st, nil)))
	locks := newLocks(e.t, e.st, nil)
	var lease *leasehold.Lease
	for _, row := range []string{"Locks, a new key", "Locks, a known key", "Locks, a forgotten key"} {
		if strings.Contains(row, "forgotten") {
			time.Sleep(forgetting)
		}
		all = append(all, e.count(row, func() { lease = had(e.t, locks, "jobs/backup") }))
		release(e.t, lease)
	}
	return all
}

// terms are those of the options of one acquisition.
func (e *everyday) terms() (all []counted) {
	e.t.Helper()
	lock := newLock(e.t, e.st, nil)
	release(e.t, acquire(e.t, lock))
	var lease *leasehold.Lease
	for _, with := range []leasehold.AcquireOption{leasehold.WithoutRenewal(), leasehold.WithMaxHold(30 * time.Second)} {
		all = append(all, e.count("acquire with an option", func() { lease = e.take(lock, with) }))
		row := "hold WithoutRenewal"
		if !lease.End().IsZero() && time.Until(lease.End()) > 20*time.Second {
			row = "hold WithMaxHold(30 s), to the end"
		}
		all = append(all, e.count(row, func() { <-lease.Done() }))
		_ = lease.Release(e.t.Context()) // it is over
		time.Sleep(time.Minute)
		lock = newLock(e.t, e.st, patient(leasehold.LockOptions{}))
		release(e.t, acquire(e.t, lock))
	}
	if !here().Tokens() {
		return all
	}
	rest := leasehold.WithHoldAtLeast(61 * time.Minute)
	all = append(all, e.count("acquire with an option", func() { lease = e.take(lock, rest) }))
	all = append(all, e.count("release with a cooldown", func() { release(e.t, lease) }))
	other := newLock(e.t, e.st, nil)
	all = append(all, e.count("find it in cooldown", func() { e.refused(other.TryAcquire(e.t.Context())) }))
	waits, cancel := context.WithTimeout(e.t.Context(), time.Hour)
	defer cancel()
	all = append(all, e.count("wait in a cooldown for an hour", func() { e.refused(newLock(e.t, e.st, nil).Acquire(waits)) }))
	return all
}

// attempts are those of TryCampaign.
func (e *everyday) attempts() (all []counted) {
	e.t.Helper()
	one := newElection(e.t, e.st, leasehold.ElectionOptions{})
	two := newElection(e.t, e.st, leasehold.ElectionOptions{})
	release(e.t, acquire(e.t, newLockOf(e.t, e.st, one.Status().Key)))
	var lease *leasehold.Lease
	var err error
	all = append(all,
		e.count("TryCampaign, won", func() { lease, err = one.TryCampaign(e.t.Context()) }),
		e.count("TryCampaign, another leads", func() { e.refused(two.TryCampaign(e.t.Context())) }),
		e.count("TryCampaign, already leading", func() { e.refused(one.TryCampaign(e.t.Context())) }))
	if err != nil {
		e.t.Fatal(err)
	}
	release(e.t, lease)
	return all
}

// anyOfMany are those of AcquireAny, of forty locks.
func (e *everyday) anyOfMany() (all []counted) {
	e.t.Helper()
	names := keys(40)
	for _, lock := range locksOf(e.t, e.st, nil, names...) {
		release(e.t, acquire(e.t, lock))
	}
	slow := faultstore.Fault{Kind: faultstore.DelayBefore, Delay: 10 * time.Millisecond} // so that looks at a time are at a time
	e.st.Inject(slow)
	locks := locksOf(e.t, e.st, nil, names...)
	var lease *leasehold.Lease
	all = append(all, e.count("AcquireAny of 40, all free, nothing known", func() { lease, _ = anyOf(e.t, locks) }))
	release(e.t, lease)
	for _, lock := range locks {
		release(e.t, acquire(e.t, lock))
	}
	all = append(all, e.count("AcquireAny of 40, all known to be free", func() { lease, _ = anyOf(e.t, locks) }))
	release(e.t, lease)
	for _, lock := range locks[1:] {
		defer release(e.t, acquire(e.t, lock))
	}
	locks = locksOf(e.t, e.st, nil, names...)
	all = append(all, e.count("AcquireAny of 40, one free, nothing known", func() { lease, _ = anyOf(e.t, locks) }))
	e.st.Clear() // an instant for all looks, and no pause between two of a waiter is over
	locks = locksOf(e.t, e.st, nil, names...)
	all = append(all, e.count("AcquireAny of 40, all held, until it waits", func() {
		short, cancel := context.WithTimeout(e.t.Context(), time.Millisecond)
		defer cancel()
		_, err := leasehold.AcquireAny(short, locks)
		e.refused(nil, err)
	}))
	settleAll(e.t, locks)
	release(e.t, lease)
	return all
}

// bounds are those that a cell has: "60G" is exact, "about 60G" a tenth more or less, and "up to 40G P"
// no more and one write.
func bounds(t *testing.T, cell string) (low, high requests) {
	t.Helper()
	most, upTo := strings.CutPrefix(cell, "up to ")
	text, about := strings.CutPrefix(most, "about ")
	high = letters(t, text)
	switch low = high; {
	case upTo:
		low.get, low.list = 0, 0
	case about:
		low.get, low.list = low.get-low.get/10, low.list-low.list/10
		high.get, high.list = high.get+high.get/10, high.list+high.list/10
	}
	return low, high
}

// TestEverydayIsDocumented: docs/requests.md says of everyday use what is counted, and of nothing else.
func TestEverydayIsDocumented(t *testing.T) {
	columns, rows := documented(t, "docs/requests.md", "## Everyday use")
	column := slices.Index(columns, string(here()))
	if column < 0 {
		t.Fatalf("no column %s", here())
	}
	seen := map[string]bool{}
	for _, part := range []func(*everyday) []counted{(*everyday).locks, (*everyday).terms, (*everyday).attempts, (*everyday).anyOfMany} {
		bubble(t, func(t *testing.T) {
			for _, c := range part(&everyday{t, newStore()}) {
				seen[c.row] = true
				if len(rows[c.row]) != len(columns) {
					t.Errorf("%s is not documented: %v", c.row, c.got)
					continue
				}
				cell := rows[c.row][column]
				if low, high := bounds(t, cell); cell == "" || !c.got.within(low, high) {
					t.Errorf("%s: the document says %q, and it took %v", c.row, cell, c.got)
				}
			}
		})
	}
	for row, cells := range rows {
		if !seen[row] && cells[column] != "" {
			t.Errorf("%s: nothing is counted", row)
		}
	}
}

// TestRestInADirectory: a directory tells its time of what is not there only, so a look at a lock at rest asks for that.
func TestRestInADirectory(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	files, err := filestore.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := everyday{t, newStoreOver(files)}
	lock := newLock(t, e.st, nil)
	look := func() requests {
		return cost(e.st, func() {
			if _, err := newLock(t, e.st, nil).Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	release(t, e.take(lock))
	free := look()
	release(t, e.take(lock, leasehold.WithHoldAtLeast(time.Hour)))
	if rests := look(); rests != free.plus(requests{get: 1}) || free != budgets[here()].inspect {
		t.Errorf("a look at a lock that is free is %v, and at one at rest %v", free, rests)
	}
}

// TestObserversAreDocumented: an observer costs what a follower costs, and nothing where it is a candidate too, as
// elect --http is, however often it is asked how it stands. A candidate that has led and does not campaign looks
// only if it observes: that used to be documented as nothing.
func TestObserversAreDocumented(t *testing.T) {
	needsRenewals(t)
	_, rows := documented(t, "docs/cost.md", "## An election")
	for row, want := range map[string][]string{
		"an observer without a campaign (watch LOCK)":                                              {"as a follower", "0"},
		"elect --http, or Observe beside Run, while leading or campaigning; each probe and scrape": {"0 more", "0 more"},
		"the same, in the backoff after its work ended":                                            {"as a follower; 0 if it does not observe", "0"},
	} {
		if !slices.Equal(rows[row], want) {
			t.Errorf("%s: the document says %q, want %q", row, rows[row], want)
		}
	}
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		ctx, stop := context.WithCancel(t.Context())
		var over sync.WaitGroup
		observe := func(c *campaigner) {
			over.Go(func() {
				for range c.Observe(ctx) {
					_ = c.Status()
				}
			})
		}
		rested, silent := newCampaigner(t, st, leasehold.ElectionOptions{}), newCampaigner(t, st, leasehold.ElectionOptions{})
		for _, c := range []*campaigner{rested, silent} {
			if _, err := c.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		silent.net.Reset()
		leader := campaign(t, st, leasehold.ElectionOptions{})
		if err := leader.WaitForLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		follower, onlooker := campaign(t, st, leasehold.ElectionOptions{}), newCampaigner(t, st, leasehold.ElectionOptions{})
		all := []*campaigner{leader, follower, onlooker, rested}
		for _, c := range all {
			observe(c)
		}
		time.Sleep(time.Minute)
		for _, c := range all {
			c.net.Reset()
		}
		for range 20 * 60 {
			time.Sleep(time.Second)
			for _, c := range all {
				if s := c.Status(); s.Failures != 0 || !s.HasLeader || s.Leading != (c == leader) {
					t.Fatalf("%+v", s)
				}
			}
		}
		for i, c := range all {
			got := since(c.net, faultstore.Counts{})
			if ok := c == leader && leads(got, 240) || c != leader && watches(got, 240); !ok {
				t.Errorf("the leader, a follower, an observer and one that has led in turn: %d made %v", i, got)
			}
		}
		if got := since(silent.net, faultstore.Counts{}); got != (requests{}) {
			t.Errorf("one that has led, and does not observe, made %v", got)
		}
		stop()
		over.Wait()
		leader.quit(t)
		follower.quit(t)
	})
}
