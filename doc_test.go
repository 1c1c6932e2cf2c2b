package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	plan "github.com/leasehold/leasehold/internal/cost" // a test has the name cost
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// documented reads the first table under a heading of a document: the columns' names, and
// for each row its name and its cells.
func documented(t *testing.T, file, heading string) (columns []string, rows map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		_, rest, found = strings.Cut("\n"+string(text), "\n"+heading+"\n")
	}
	if !found {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	rows = map[string][]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			if columns != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cell), "`", "")
		}
		switch {
		case columns == nil:
			columns = cells[1:]
		case strings.HasPrefix(cells[0], "---"):
		case rows[cells[0]] != nil:
			t.Fatalf("%s: %s has two rows %q", file, heading, cells[0])
		default:
			rows[cells[0]] = cells[1:]
		}
	}
	return columns, rows
}

// letters reads requests such as "G 2P L".
func letters(t *testing.T, cell string) (r requests) {
	t.Helper()
	cell, _, _ = strings.Cut(cell, ",")
	for _, field := range strings.Fields(strings.TrimPrefix(cell, "none")) {
		n := 1
		if digits := field[:len(field)-1]; digits != "" {
			var err error
			if n, err = strconv.Atoi(digits); err != nil {
				t.Fatalf("%q is not a number of requests", field)
			}
		}
		switch field[len(field)-1] {
		case 'G':
			r.get += n
		case 'P':
			r.put += n
		case 'L':
			r.list += n
		case 'D':
			r.del += n
		default:
			t.Fatalf("%q is no request", field)
		}
	}
	return r
}

// TestBudgetsAreDocumented: docs/requests.md says of each layout what is counted.
func TestBudgetsAreDocumented(t *testing.T) {
	columns, rows := documented(t, "docs/requests.md", "## Layouts")
	of := map[string]func(b budget) requests{
		"acquire, current version known":      func(b budget) requests { return b.acquire },
		"acquire, nothing known":              func(b budget) requests { return b.unknown },
		"acquire, nothing known, no lock yet": func(b budget) requests { return b.make },
		"acquire, nothing known, 500 epochs so far": func(b budget) requests {
			if b.unknown.list == 0 {
				return requests{}
			}
			return b.unknown.plus(budgets[leasetest.EpochsNoIfMatch].far)
		},
		"renew": func(b budget) requests { return b.renew },
		"hold for an hour, in addition to 720 renewals": func(b budget) requests { return b.hour },
		"release": func(b budget) requests { return b.release },
		"hand over to another goroutine of the process": func(b budget) requests { return b.pass },
		"read, nothing known":                           func(b budget) requests { return b.inspect },
		"read, unchanged":                               func(b budget) requests { return b.look },
		"read, renewed":                                 func(b budget) requests { return b.news },
		"read, released":                                func(b budget) requests { return b.freed },
		"read, several changes":                         func(b budget) requests { return b.jump },
		"try a lock that was free and is now held":      func(b budget) requests { return b.refused },
		"take over from a dead holder, after the wait":  func(b budget) requests { return b.takeover },
	}
	for name := range rows {
		if of[name] == nil {
			t.Errorf("nothing is counted for the row %q", name)
		}
	}
	for name, count := range of {
		cells := rows[name]
		if len(cells) != len(columns) || len(columns) != len(leasetest.Ways) {
			t.Errorf("the row %q has %d cells for %d layouts", name, len(cells), len(leasetest.Ways))
			continue
		}
		for i, cell := range cells {
			b, ok := budgets[leasetest.ParseWay(columns[i])]
			want := count(b)
			never := name == "read, renewed" && b.renew == requests{}
			switch {
			case !ok:
				t.Errorf("there is no layout %q", columns[i])
			case cell == "" && never:
			case letters(t, cell) != want:
				t.Errorf("%s, %s: the document says %q, and the tests count %v", name, columns[i], cell, want)
			}
		}
	}
}

// TestElectionIsDocumented: docs/cost.md says of locks and elections what is counted, by
// TestCostInRequests, TestWaitingBacksOff and TestElectionBudget.
func TestElectionIsDocumented(t *testing.T) {
	b := budgets[leasetest.Object]
	each := func(n int) string { return fmt.Sprintf("%d every TTL/3", n) }
	number := strconv.Itoa
	for heading, want := range map[string]map[string][]string{
		"## The main operations": {
			"acquire, current version known": {number(b.acquire.get), number(b.acquire.put)},
			"acquire, nothing known":         {number(b.unknown.get), number(b.unknown.put)},
			"hold":                           {"0", each(b.renew.put)},
			"release":                        {number(b.release.get), number(b.release.put)},
			"find it held (TryAcquire, status --layout)":             {number(b.inspect.get), number(b.inspect.put)},
			"wait for a holder that keeps it: the first ten minutes": {fmt.Sprintf("about %d", waits(10*time.Minute, 0)), "0"},
			"wait for a holder that keeps it: the first hour":        {fmt.Sprintf("about %d", waits(time.Hour, 0)), "0"},
			"wait for a holder that keeps it: from then on":          {each(b.look.get), "0"},
			"take over from a dead holder, after the wait":           {number(b.takeover.get), number(b.takeover.put)},
		},
		"## An election": {
			"the leader":                                  {"0", each(b.renew.put)},
			"a follower, from its second minute on":       {each(b.news.get) + ", and at most 5 % more", "0"},
			"a follower that is new, or has a new leader": {fmt.Sprintf("up to %d until it knows when the leader renews", plan.LooksOfFollower), "0"},
		},
	} {
		_, rows := documented(t, "docs/cost.md", heading)
		for name, cells := range want {
			if !slices.Equal(rows[name], cells) {
				t.Errorf("%s, %s: the document says %q, want %q", heading, name, rows[name], cells)
			}
		}
	}
	const hourly = 720
	if renewals := int(time.Hour / protocol.Renewal(leasehold.DefaultTTL)); renewals != hourly {
		t.Errorf("an hour has %d renewals", renewals)
	}
	text, err := os.ReadFile("docs/cost.md")
	if says := fmt.Sprintf("sends up to %d GETs\nan hour; %d would be one per renewal", hourly+hourly/20, hourly); err != nil || !strings.Contains(string(text), says) {
		t.Errorf("the document does not say %q, %v", says, err)
	}
}

// waits is how often a waiter looks in so much time.
func waits(wait, interval time.Duration) int {
	return plan.LooksOfWaiter(wait, leasehold.DefaultTTL, interval)
}

// TestWaitingIsDocumented: docs/cost.md says what waiting costs, in looks, which TestWaitingBacksOff
// counts, and in dollars on S3.
func TestWaitingIsDocumented(t *testing.T) {
	s3, err := plan.ListPrices().Store("s3")
	if err != nil {
		t.Fatal(err)
	}
	columns, rows := documented(t, "docs/cost.md", "## Waiting for a lock")
	want := map[string]func(wait time.Duration) int{
		"by default, TTL 15 s": func(wait time.Duration) int { return waits(wait, 0) },
		"by default, TTL 3 s":  func(wait time.Duration) int { return plan.LooksOfWaiter(wait, 3*time.Second, 0) },
		"by default, TTL 24 h": func(wait time.Duration) int { return plan.LooksOfWaiter(wait, leasehold.MaxTTL, 0) },
		"PollInterval 100 ms":  func(wait time.Duration) int { return waits(wait, 100*time.Millisecond) },
		"PollInterval 1 s":     func(wait time.Duration) int { return waits(wait, time.Second) },
		"PollInterval 10 s":    func(wait time.Duration) int { return waits(wait, 10*time.Second) },
	}
	spans := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}
	if len(rows) != len(want) || !slices.Equal(columns, []string{"a minute", "10 minutes", "an hour", "a day", "$, a day", "$, a month"}) {
		t.Errorf("%d rows of %d, with the columns %q", len(rows), len(want), columns)
	}
	for name, looks := range want {
		var cells []string
		for _, span := range spans {
			cells = append(cells, strconv.Itoa(looks(span)))
		}
		for _, span := range []time.Duration{24 * time.Hour, plan.Month} {
			cells = append(cells, strconv.FormatFloat(s3.Of(plan.Requests{Get: float64(looks(span))}), 'f', 4, 64))
		}
		if !slices.Equal(rows[name], cells) {
			t.Errorf("%s: the document says %q, computed is\n| %s | %s |", name, rows[name], name, strings.Join(cells, " | "))
		}
	}
}

// TestMoneyIsDocumented: docs/cost.md says what is computed, by the prices of the day that
// it names, and has no prices of its own.
func TestMoneyIsDocumented(t *testing.T) {
	prices := plan.ListPrices()
	text, err := os.ReadFile("docs/cost.md")
	if says := "as they stood on " + prices.Date + ","; err != nil || !strings.Contains(string(text), says) {
		t.Errorf("the document does not say %q, %v", says, err)
	}
	lock := plan.Plan{TTL: leasehold.DefaultTTL, Candidates: 2, Locks: 1, Mode: plan.Store, Layout: leasehold.LayoutObject}
	slow, epochs, seldom, asks := lock, lock, lock, lock
	epochs.NoIfMatch = true
	slow.TTL, epochs.Layout, seldom.Infrequent, asks.Mode = time.Minute, leasehold.LayoutEpochs, 30*time.Second, plan.Peer
	many := lock
	many.Candidates, many.Locks = 5, 100
	peers, sessions := many, many
	peers.Mode, sessions.Mode = plan.Peer, plan.Session
	part := func(p plan.Plan, i ...int) (all plan.Requests) {
		for _, n := range i {
			all = all.Plus(p.Parts()[n].Requests)
		}
		return all
	}
	columns, rows := documented(t, "docs/cost.md", "## In money")
	if !slices.Equal(columns, prices.Names()) {
		t.Errorf("the columns are %q, the prices are of %q", columns, prices.Names())
	}
	want := map[string]plan.Requests{
		"a holder, TTL 15 s":                               part(lock, 0),
		"a holder, TTL 60 s":                               part(slow, 0),
		"a holder, TTL 15 s, epochs without If-Match":      part(epochs, 0, 3),
		"a follower that polls the store, TTL 15 s":        part(lock, 1),
		"a follower that polls every 30 s":                 part(seldom, 1),
		"a follower that asks the leader":                  part(asks, 1),
		"100 locks with 5 candidates each, --mode store":   part(many, 0, 1),
		"100 locks with 5 candidates each, --mode peer":    part(peers, 0, 1),
		"100 locks with 5 candidates each, --mode session": part(sessions, 0, 1),
	}
	for name, r := range want {
		var cells []string
		for i := range prices.Stores {
			cell := strconv.FormatFloat(prices.Stores[i].Of(r), 'f', 3, 64)
			if strings.Contains(name, "epochs") && epochs.CheckAt(&prices.Stores[i]) != nil {
				cell = "-"
			}
			cells = append(cells, cell)
		}
		if !slices.Equal(rows[name], cells) {
			t.Errorf("%s: the document says %q, computed is\n| %s | %s |", name, rows[name], name, strings.Join(cells, " | "))
		}
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows, of which %d are computed", len(rows), len(want))
	}

	if dollars := regexp.MustCompile(`\$0\.\d+`).FindAllString(string(text), -1); len(dollars) > 0 {
		t.Errorf("docs/cost.md has prices of its own: %q", dollars)
	}
}

// TestOriginalIsDocumented: docs/s3lect.md says what is computed for three instances.
func TestOriginalIsDocumented(t *testing.T) {
	prices := plan.ListPrices()
	s3, err := prices.Store("s3")
	if err != nil {
		t.Fatal(err)
	}
	three := plan.Plan{TTL: leasehold.DefaultTTL, Candidates: 3, Locks: 1, Mode: plan.Store, Layout: leasehold.LayoutObject}
	_, rows := documented(t, "docs/s3lect.md", "## Cost")
	for name, want := range map[string]string{"s3lect v1.0.2": "the original", "leasehold --mode peer": "the same in peer mode"} {
		found := false
		for _, a := range three.Alternatives(s3, prices.DynamoDB) {
			if a.Name != name {
				continue
			}
			found = true
			if says, cells := fmt.Sprintf("$%.2f", a.USD), rows[want]; len(cells) != 3 || cells[2] != says {
				t.Errorf("%s: the document says %q, computed is %s", want, cells, says)
			}
		}
		if !found {
			t.Errorf("there is no %q", name)
		}
	}
}

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
		if !leasehold.Internal.Core(lease).End().IsZero() && time.Until(leasehold.Internal.Core(lease).End()) > 20*time.Second {
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

// settleAll waits until nothing is under way of what was given up.
func settleAll(t *testing.T, locks []*leasehold.Lock) {
	t.Helper()
	for _, lock := range locks {
		if err := lock.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// anyOf acquires one of the locks.
func anyOf(t *testing.T, locks []*leasehold.Lock) *leasehold.Lease {
	t.Helper()
	lease, err := multilock.AcquireAny(t.Context(), locks)
	if err != nil {
		t.Fatal(err)
	}
	if err = lease.Err(); err != nil {
		t.Fatal(err)
	}
	return lease
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
	all = append(all, e.count("AcquireAny of 40, all free, nothing known", func() { lease = anyOf(e.t, locks) }))
	release(e.t, lease)
	for _, lock := range locks {
		release(e.t, acquire(e.t, lock))
	}
	all = append(all, e.count("AcquireAny of 40, all known to be free", func() { lease = anyOf(e.t, locks) }))
	release(e.t, lease)
	for _, lock := range locks[1:] {
		defer release(e.t, acquire(e.t, lock))
	}
	locks = locksOf(e.t, e.st, nil, names...)
	all = append(all, e.count("AcquireAny of 40, one free, nothing known", func() { lease = anyOf(e.t, locks) }))
	e.st.Clear() // an instant for all looks, and no pause between two of a waiter is over
	locks = locksOf(e.t, e.st, nil, names...)
	all = append(all, e.count("AcquireAny of 40, all held, until it waits", func() {
		short, cancel := context.WithTimeout(e.t.Context(), time.Millisecond)
		defer cancel()
		_, err := multilock.AcquireAny(short, locks)
		e.refused(nil, err)
	}))
	settleAll(e.t, locks)
	release(e.t, lease)
	return all
}

// TestAcquireAnyCosts: of many locks that are free one is claimed, by one write.
func TestAcquireAnyCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		b := budgets[here()]
		all := keys(40)
		for _, lock := range locksOf(t, st, nil, all...) {
			release(t, acquire(t, lock))
		}
		locks := locksOf(t, st, nil, all...)
		var lease *leasehold.Lease
		got := cost(st, func() { lease = anyOf(t, locks) })
		if most := b.unknown.plus(b.inspect.times(7)).plus(b.look.times(8)); !got.within(requests{put: b.unknown.put}, most) {
			t.Errorf("nothing known: %v, want %v at most", got, most)
		}
		release(t, lease)
		for _, lock := range locks { // whose last versions are known from now on
			release(t, acquire(t, lock))
		}
		if got = cost(st, func() { lease = anyOf(t, locks) }); got != b.acquire {
			t.Errorf("all known to be free: %v, want %v", got, b.acquire)
		}
		release(t, lease)
	})
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
	column := slices.Index(columns, here().String())
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
		if err := leasetest.Lead(t.Context(), leader.Election); err != nil {
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
