package cost_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// usual is a plan with the default TTL.
var usual = cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 1, Mode: cost.Store, Layout: leasehold.LayoutObject}

func at(t *testing.T, name string) *cost.Price {
	t.Helper()
	p, err := cost.ListPrices().Store(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.005 }

// TestMonth: by hand. 2,628,000 seconds hold 525,600 renewals at the default TTL.
func TestMonth(t *testing.T) {
	parts := usual.Parts()
	if parts[0].Requests != (cost.Requests{Put: 525_600}) || parts[1].Requests != (cost.Requests{Get: 1_051_200}) || parts[1].Number != 2 {
		t.Errorf("%+v", parts)
	}
	if usd := at(t, "s3").Of(cost.Total(parts)); !near(usd, 2.628+0.42048) {
		t.Errorf("$%v", usd)
	}
	waiting := usual
	waiting.Mode, waiting.Locks, waiting.Changes = cost.Wait, 10, 24
	parts = waiting.Parts()
	if parts[1].Who != "waiters" || parts[1].Number != 20 || parts[2].Number != 7300 || parts[2].Delete != 0 || parts[2].Put != 3*7300 {
		t.Errorf("%+v", parts)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	for says, change := range map[string]func(*cost.Plan){
		"the TTL 10ms is not between 1s and 24h0m0s": func(p *cost.Plan) { p.TTL = 10 * time.Millisecond },
		"0 candidates":                       func(p *cost.Plan) { p.Candidates = 0 },
		"-1 locks":                           func(p *cost.Plan) { p.Locks = -1 },
		"a marker cannot be under a session": func(p *cost.Plan) { p.Mode, p.Layout = cost.Session, leasehold.LayoutMarker },
		"a fair lock is one object":          func(p *cost.Plan) { p.Mode, p.Layout = cost.Fair, leasehold.LayoutEpochs },
		"followed through 0 to 144":          func(p *cost.Plan) { p.Mode, p.Changes = cost.Fair, 145 },
		`there is no mode "watch"`:           func(p *cost.Plan) { p.Mode = "watch" },
		`there is no layout "quorum"`:        func(p *cost.Plan) { p.Layout = "quorum" },
		"the layout marker without If-Match does not renew leases": func(p *cost.Plan) { p.Layout, p.NoIfMatch = leasehold.LayoutMarker, true },
		"the layout object needs If-Match":                         func(p *cost.Plan) { p.NoIfMatch = true },
		"for followers that look at the store": func(p *cost.Plan) {
			p.Mode, p.Infrequent = cost.Peer, time.Second
		},
		"an infrequent interval of -1s": func(p *cost.Plan) { p.Infrequent = -time.Second },
		"1441 changes of holder a day: with a TTL of 15s a lock can be followed through 0 to 1440": func(p *cost.Plan) { p.Changes = 1441 },
		"NaN changes": func(p *cost.Plan) { p.Changes = math.NaN() },
		"-1 changes":  func(p *cost.Plan) { p.Changes = -1 },
	} {
		p := usual
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", p, err, says)
		}
	}
	epochs := usual
	epochs.Layout, epochs.NoIfMatch = leasehold.LayoutEpochs, true
	if err := epochs.CheckAt(at(t, "s3-express")); err == nil || epochs.CheckAt(at(t, "s3")) != nil {
		t.Errorf("epochs where listings are in no order: %v", err)
	}
}

// TestAlternatives: by hand.
func TestAlternatives(t *testing.T) {
	prices := cost.ListPrices()
	p := usual
	p.Changes = 1
	want := map[string]float64{
		"leasehold --mode store":             3.05,
		"leasehold --mode peer":              2.70, // 525,600 PUT, 175,200 GET
		"leasehold --mode wait":              3.07, // and 756 quick looks of each at 30 holders
		"leasehold --mode session":           8.31, // 3 × 525,600 PUT, 1,051,200 GET, 30 changes
		"leasehold --mode fair":              8.41, // 3 × 525,600 PUT, 1,322,760 GET, 30 changes
		"lock by If-Match, published 2025":   3.05, // 525,600 PUT, 1,051,200 GET
		"election by epochs, published 2024": 8.30, // 525,600 PUT, 1,051,200 GET and LIST
		"create-and-delete, published 2024":  2 * 3_504_000 * 0.005 / 1000,
		"s3lect v1.0.2":                      3.26,
		"s3lect v1.0.2 with peers":           2.84,
		"DynamoDB lock client":               (700_800*0.625 + 2*2_628_000*0.125) / 1e6,
	}
	all := p.Alternatives(at(t, "s3"), prices.DynamoDB)
	for _, a := range all {
		if usd, ok := want[a.Name]; !ok || !near(a.USD, usd) {
			t.Errorf("%s: $%v of %+v, want %v", a.Name, a.USD, a.Requests, usd)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d alternatives, want %d", len(all), len(want))
	}
	if fewer := p.Alternatives(at(t, "s3"), nil); len(fewer) != len(all)-1 {
		t.Errorf("%d without prices of DynamoDB", len(fewer))
	}
}

func TestSavings(t *testing.T) {
	flags := func(p cost.Plan) (flags []string) {
		for _, s := range p.Savings(at(t, "s3")) {
			flags = append(flags, s.Flag)
			if s.USD <= 0 || s.But == "" {
				t.Errorf("%+v", s)
			}
		}
		return flags
	}
	many, day, peer, epochs, locks := usual, usual, usual, usual, usual
	locks.Locks = 1000
	many.Candidates = 1000
	day.TTL, day.Candidates = 24*time.Hour, 1
	peer.Mode = cost.Peer
	epochs.Layout, epochs.NoIfMatch, epochs.Candidates = leasehold.LayoutEpochs, true, 1
	for _, c := range []struct {
		p    cost.Plan
		want []string
	}{
		{usual, []string{"--ttl 1m", "--mode peer"}},
		{many, []string{"--mode peer", "--infrequent 30s"}},
		{peer, []string{"--ttl 1m"}},
		{locks, []string{"--mode session", "--ttl 1m"}},
		{day, nil},
		{epochs, []string{"--ttl 1m", "--layout object"}},
	} {
		if got := flags(c.p); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.p, got, c.want)
		}
	}
}

// TestQuorum: every member is asked, and a change of holder writes twice. The price is the sum of the members'.
func TestQuorum(t *testing.T) {
	t.Parallel()
	one := cost.Plan{
		TTL: 15 * time.Second, Candidates: 3, Locks: 2, Mode: cost.Store, Layout: leasehold.LayoutObject, Changes: 10,
	}
	several := one
	several.Members = 3
	for i, p := range several.Parts() {
		single := one.Parts()[i]
		want := single.Times(3)
		if i == 2 {
			want.Put *= 2
		}
		if p.Who != single.Who || p.Number != single.Number || p.Requests != want {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
	prices := cost.ListPrices()
	s3, err := prices.Store("s3")
	if err != nil {
		t.Fatal(err)
	}
	r2, err := prices.Store("r2")
	if err != nil {
		t.Fatal(err)
	}
	mean := cost.Mean("quorum", "the members", []*cost.Price{s3, r2, nil})
	total := cost.Total(several.Parts())
	third := total.Times(1. / 3)
	if got, want := mean.Of(total), s3.Of(third)+r2.Of(third); math.Abs(got-want) > want/1e9 {
		t.Errorf("%v dollars, want %v", got, want)
	}
	for _, a := range several.Alternatives(mean, prices.DynamoDB) {
		if !strings.HasPrefix(a.Name, "leasehold ") && a.Name != "DynamoDB lock client" {
			t.Errorf("%s cannot be on a quorum", a.Name)
		}
	}
	for _, l := range []leasetest.Way{leasetest.Epochs, leasetest.EpochsNoIfMatch, leasetest.Marker} {
		several.Layout, several.NoIfMatch = l.Layout, l.NoIfMatch
		if err := several.CheckAt(mean); err == nil || !strings.Contains(err.Error(), "on a quorum is not computed") {
			t.Errorf("the layout %s: %v", l, err)
		}
	}
}
