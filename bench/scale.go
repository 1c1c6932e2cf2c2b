package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
)

// A virtual is what a test in virtual time found out.
type virtual struct {
	Followers int     `json:"followers,omitempty"`
	Locks     int     `json:"locks,omitempty"`
	Cut       float64 `json:"cut"`     // when in an interval of renewals the crash came
	Seconds   float64 `json:"seconds"` // from the crash until the lock, or the first lock, has a new holder
	Spread    float64 `json:"spread"`  // from then until the last one has
	Reads     int     `json:"reads"`   // since the crash, of all
	Writes    int     `json:"writes"`

	Leases      int     `json:"leases,omitempty"`      // that are renewed
	Allocations float64 `json:"allocations,omitempty"` // for each renewal
	Micros      float64 `json:"micros,omitempty"`      // of CPU for each
}

// What S3 serves of one prefix, by its guide to performance.
const (
	putsPerSecond = 3500
	getsPerSecond = 5500
)

// scale computes what many followers and locks cost, and plays their crash in virtual time.
func scale(ctx context.Context, b *bench) error {
	prices := cost.ListPrices()
	at, err := prices.Store("s3")
	if err != nil {
		return err
	}
	s := b.section("Scale")
	s.say("Requests and dollars are computed by the formulas of [cost.md](cost.md), which tests count, for S3's list prices of %s; the TTL is %v. Crashes are played in virtual time, with 30 to 70 ms for each request, or 100 to 200 ms where many locks are taken over, of a store that serves no more than S3 does; up to %s followers and %s locks: more take more time or memory than one run has. How long a fail-over takes depends on when the crash comes after a renewal, so each crash comes at a moment that is drawn evenly over the interval of renewals; the figures are the median of %d crashes up to %[3]s, and of %[6]d above. S3 serves %d PUT and %d GET a second of one prefix, and more after a while where keys spread.", prices.Date, defaultTTL, thousands(mostFollowers), thousands(mostLocks), b.crashes(mostFollowers), b.crashes(mostLocks), putsPerSecond, getsPerSecond)
	seconds := cost.Month.Seconds()
	rows := [][]string{{"followers of one leader", "GET/s", "$ a month", "$ with `--infrequent 1m`", "$ with peers", "fail-over, s", "GET and PUT spent on it"}}
	for n := 10; n <= 100_000; n *= 10 {
		p := cost.Plan{TTL: defaultTTL, Candidates: n + 1, Locks: 1, Mode: cost.Store, Layout: leasehold.LayoutObject}
		seldom, peers := p, p
		seldom.Infrequent, peers.Mode = 4*defaultTTL, cost.Peer
		gets := cost.Total(p.Parts()).Get / seconds
		over, spent := "–", "–"
		if n <= b.most(mostFollowers) {
			name := fmt.Sprintf("%d followers", n)
			if err := b.crash(ctx, name, "TestVirtualFailover", "-followers", n); err != nil {
				return err
			}
			over, spent = b.of("scale", "virtual time", name, "fail-over s").String(), b.spent(name)
		}
		rows = append(rows, []string{thousands(n), bites(gets, getsPerSecond), dollars(at.Of(cost.Total(p.Parts()))), dollars(at.Of(cost.Total(seldom.Parts()))), dollars(at.Of(cost.Total(peers.Parts()))), over, spent})
	}
	s.table(rows)
	s.say("In bold is what a prefix does not serve. Then followers should ask the leader itself ([peers](peers.md)), or look less often (`--infrequent`, `--ttl`).")
	rows = [][]string{{"locks, 3 processes that want all", "PUT/s, a lease each", "$ a month", "PUT/s, sessions", "$ a month", "first lock after a crash, s", "all others, s", "GET and PUT spent on it"}}
	for n := 1; n <= 1_000_000; n *= 10 {
		p := cost.Plan{TTL: defaultTTL, Candidates: 3, Locks: n, Mode: cost.Wait, Layout: leasehold.LayoutObject}
		session := p
		session.Mode = cost.Session
		alone, together := cost.Total(p.Parts()), cost.Total(session.Parts())
		first, rest, spent := "–", "–", "–"
		if n <= b.most(mostLocks) {
			name := fmt.Sprintf("%d locks", n)
			if err := b.crash(ctx, name, "TestVirtualSession", "-locks", n); err != nil {
				return err
			}
			first, rest = b.of("scale", "virtual time", name, "fail-over s").String(), b.of("scale", "virtual time", name, "spread s").String()
			spent = b.spent(name)
		}
		rows = append(rows, []string{
			thousands(n), bites(alone.Put/seconds, putsPerSecond), dollars(at.Of(alone)), bites(together.Put/seconds, putsPerSecond), dollars(at.Of(together)), first, rest, spent,
		})
	}
	s.table(rows)
	s.say("Under [sessions](sessions.md) the number of locks does not matter until they change hands. Without them keep to fewer than %s locks of one prefix at this TTL, and put more under different prefixes.", thousands(int(putsPerSecond*defaultTTL.Seconds()/3)))
	return nil
}

// most is how far virtual time is played.
func (b *bench) most(n int) int {
	if b.short {
		return min(n, 100)
	}
	return n
}

// So many are played in virtual time. More followers take minutes for each crash.
const (
	mostFollowers = 10_000
	mostLocks     = 100_000
)

// crashes is how many there are with so many followers or locks. With more locks each takes a minute, and
// how long they are taken over from the first to the last does not depend on when it comes.
func (b *bench) crashes(n int) int {
	if b.short || n > mostFollowers {
		return 2
	}
	return 12
}

// crash plays them, and adds what they take.
func (b *bench) crash(ctx context.Context, name, test, flag string, n int) error {
	played, err := b.play(ctx, test, flag, fmt.Sprint(n), "-cuts", fmt.Sprint(b.crashes(n)), "-seed", fmt.Sprint(b.Seed))
	for i, v := range played {
		for metric, value := range map[string]float64{
			"cut at s": v.Cut, "fail-over s": v.Seconds, "spread s": v.Spread, "GET": float64(v.Reads), "PUT": float64(v.Writes),
		} {
			b.add("scale", "virtual time", name, metric, i, value)
		}
	}
	return err
}

// spent is how many requests they took.
func (b *bench) spent(name string) string {
	of := func(metric string) float64 { return b.of("scale", "virtual time", name, metric).median }
	return fmt.Sprintf("%.0f, %.0f", of("GET"), of("PUT"))
}

// play runs a test in virtual time, and returns what it tells.
func (b *bench) play(ctx context.Context, test string, flags ...string) (told []virtual, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-v", "-count=1", "-timeout", "20m", "-run", "^" + test + "$", "."}, flags...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", test, flags, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if text, is := strings.CutPrefix(line, "VIRTUAL "); is {
			var v virtual
			if err = json.Unmarshal([]byte(text), &v); err != nil {
				return nil, err
			}
			told = append(told, v)
		}
	}
	if told == nil {
		return nil, fmt.Errorf("%s %v says nothing:\n%s", test, flags, out)
	}
	return told, nil
}

// bites is a rate, in bold where it is more than is served.
func bites(rate, served float64) string {
	if rate > served {
		return "**" + number(rate) + "**"
	}
	return number(rate)
}

func dollars(usd float64) string { return fmt.Sprintf("%.2f", usd) }

func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
