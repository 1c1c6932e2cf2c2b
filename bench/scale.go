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
	PerSecond float64 `json:"per_second"` // reads before the crash
	Seconds   float64 `json:"seconds"`    // from the crash until the lock, or the first lock, has a new holder
	Spread    float64 `json:"spread"`     // from then until the last one has
	Reads     int     `json:"reads"`      // since the crash, of all
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
	s.say("Requests and dollars are computed by the formulas of [cost.md](cost.md), which tests count, for S3's list prices of %s; the TTL is %v. Crashes are played in virtual time, with 30 to 70 ms for each request, up to 100,000; a million locks with all who wait for them do not fit into the memory of one machine. S3 serves %d PUT and %d GET a second of one prefix, and more after a while where keys spread.", prices.Date, defaultTTL, putsPerSecond, getsPerSecond)
	seconds := cost.Month.Seconds()
	rows := [][]string{{"followers of one leader", "GET/s", "$ a month", "$ with `--infrequent 1m`", "$ with peers", "fail-over, s", "GET and PUT spent on it"}}
	for n := 10; n <= 100_000; n *= 10 {
		p := cost.Plan{TTL: defaultTTL, Candidates: n + 1, Locks: 1, Mode: cost.Store, Layout: leasehold.LayoutObject}
		seldom, peers := p, p
		seldom.Infrequent, peers.Mode = 4*defaultTTL, cost.Peer
		gets := cost.Total(p.Parts()).Get / seconds
		over, spent := "–", "–"
		if n <= b.most(100_000) {
			v, err := b.play(ctx, "TestVirtualFailover", "-followers", n)
			if err != nil {
				return err
			}
			b.add("scale", "virtual time", fmt.Sprintf("%d followers", n), "fail-over s", 0, v.Seconds)
			over, spent = number(v.Seconds), fmt.Sprintf("%d, %d", v.Reads, v.Writes)
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
		if n <= b.most(100_000) {
			v, err := b.play(ctx, "TestVirtualSession", "-locks", n)
			if err != nil {
				return err
			}
			b.add("scale", "virtual time", fmt.Sprintf("%d locks", n), "fail-over s", 0, v.Seconds)
			b.add("scale", "virtual time", fmt.Sprintf("%d locks", n), "spread s", 0, v.Spread)
			first, rest, spent = number(v.Seconds), number(v.Spread), fmt.Sprintf("%d, %d", v.Reads, v.Writes)
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

// play runs a test in virtual time.
func (b *bench) play(ctx context.Context, test, flag string, n int) (v virtual, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout", "20m", "-run", "^"+test+"$", ".", flag, fmt.Sprint(n))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return v, fmt.Errorf("%s with %d: %w\n%s", test, n, err, out)
	}
	_, text, found := strings.Cut(string(out), "\nVIRTUAL ")
	if !found {
		return v, fmt.Errorf("%s with %d says nothing:\n%s", test, n, out)
	}
	text, _, _ = strings.Cut(text, "\n")
	return v, json.Unmarshal([]byte(text), &v)
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
