package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/layout"
)

// A bill is what a plan costs in a month.
type bill struct {
	Plan         planned            `json:"plan"`
	Price        priced             `json:"price"`
	Hours        float64            `json:"hours"` // of a month
	Parts        []item             `json:"parts"`
	Members      []memberBill       `json:"members,omitempty"` // of a quorum
	Total        item               `json:"total"`
	Alternatives []cost.Alternative `json:"alternatives"`
	Savings      []cost.Saving      `json:"savings"`
	Measured     *measured          `json:"measured,omitempty"`
}

type planned struct {
	TTL        int64            `json:"ttl_ms"`
	Candidates int              `json:"candidates"`
	Locks      int              `json:"locks"`
	Mode       cost.Mode        `json:"mode"`
	Layout     leasehold.Layout `json:"layout"`
	NoIfMatch  bool             `json:"no_if_match,omitempty"`
	Infrequent int64            `json:"infrequent_ms,omitempty"`
	Changes    float64          `json:"changes_a_day"`
}

type priced struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Date     string `json:"date"`
	Currency string `json:"currency"`
}

// A memberBill is what one member of a quorum costs: it is asked as often as each of the others.
type memberBill struct {
	Member string  `json:"member"`
	Price  *priced `json:"price,omitempty"` // nil: it costs nothing
	USD    float64 `json:"usd"`
}

// An item is a line of the bill.
type item struct {
	cost.Part
	USD float64 `json:"usd"`
}

// measured is what was counted, for all locks and a month.
type measured struct {
	Store   string  `json:"store"`
	Locks   int     `json:"locks"`
	Seconds float64 `json:"seconds"`
	Changes int     `json:"changes"`
	Parts   []item  `json:"parts"`
}

// bill computes what the plan costs.
func (c *costCmd) bill() *bill {
	parts := c.plan.Parts()
	b := &bill{
		Plan: planned{
			c.plan.TTL.Milliseconds(), c.plan.Candidates, c.plan.Locks, c.plan.Mode, c.plan.Layout, c.plan.NoIfMatch,
			c.plan.Infrequent.Milliseconds(), c.plan.Changes,
		},
		Price:        priced{c.price.Name, c.price.Title, c.prices.DateOf(c.price), c.prices.Currency},
		Hours:        cost.Month.Hours(),
		Total:        c.item(cost.Part{Who: "total", Requests: cost.Total(parts)}),
		Alternatives: c.plan.Alternatives(c.price, c.prices.DynamoDB),
		Savings:      c.plan.Savings(c.price),
	}
	for _, p := range parts {
		b.Parts = append(b.Parts, c.item(p))
	}
	for _, m := range c.members {
		of := memberBill{Member: readable(shown(m.url))}
		if m.price != nil {
			of.Price = &priced{m.price.Name, m.price.Title, c.prices.DateOf(m.price), c.prices.Currency}
			of.USD = m.price.Of(b.Total.Times(1 / float64(len(c.members))))
		}
		b.Members = append(b.Members, of)
	}
	return b
}

func (c *costCmd) item(p cost.Part) item { return item{p, c.price.Of(p.Requests)} }

// counted is what was measured, as part of the bill.
func (c *costCmd) counted(m *cost.Measured, where string) *measured {
	counted := &measured{Store: where, Locks: m.Locks, Seconds: m.For.Seconds(), Changes: m.Changes}
	for _, p := range m.Parts(c.plan) {
		counted.Parts = append(counted.Parts, c.item(p))
	}
	return counted
}

// text is the bill for people.
func (b *bill) text() string {
	var out strings.Builder
	p := b.Plan
	fmt.Fprintf(&out, "%s held for a month, %s each.\nTTL %v, layout %s, mode %s", plural(p.Locks, "lock"), plural(p.Candidates, "candidate"), time.Duration(p.TTL)*time.Millisecond, layout.Way(string(p.Layout), p.NoIfMatch), p.Mode)
	if p.Infrequent > 0 {
		fmt.Fprintf(&out, ", %s look every %v", b.Parts[1].Who, time.Duration(p.Infrequent)*time.Millisecond)
	}
	fmt.Fprintf(&out, ".\nList prices of %s, as of %s.\n\n", b.Price.Title, b.Price.Date)
	out.WriteString(lines("WHO", append(b.Parts, b.Total)))
	b.shares(&out)
	if b.Measured != nil {
		b.measurement(&out)
	}
	out.WriteString("\nThe same by other means, $ a month:\n")
	var rows [][]string
	for _, a := range b.Alternatives {
		rows = append(rows, []string{"  " + a.Name, dollars(a.USD), a.Assumed})
	}
	out.WriteString(columns(rows, 1))
	if len(b.Savings) > 0 {
		out.WriteString("\nWhat would save most, $ a month:\n")
	}
	rows = nil
	for _, s := range b.Savings {
		rows = append(rows, []string{"  " + s.Flag, dollars(s.USD), "but " + s.But})
	}
	out.WriteString(columns(rows, 1))
	return out.String()
}

// shares writes what each member of a quorum costs.
func (b *bill) shares(out *strings.Builder) {
	if len(b.Members) == 0 {
		return
	}
	fmt.Fprintf(out, "\nEach of the %d members has an equal part of the requests:\n", len(b.Members))
	rows := [][]string{{"MEMBER", "$ A MONTH", "PRICES"}}
	for _, m := range b.Members {
		whose := "none"
		if m.Price != nil {
			whose = m.Price.Title + ", as of " + m.Price.Date
		}
		rows = append(rows, []string{m.Member, dollars(m.USD), whose})
	}
	out.WriteString(columns(rows, 1))
}

// measurement writes what was counted beside what was computed.
func (b *bill) measurement(out *strings.Builder) {
	m := b.Measured
	fmt.Fprintf(out, "\nMeasured with %s in %s for %v, as if for all and a month:\n", plural(m.Locks, "lock"), m.Store, time.Duration(m.Seconds*float64(time.Second)).Round(time.Millisecond))
	var rows []item
	for i, p := range m.Parts {
		computed := b.Parts[i]
		computed.Who += ", computed"
		p.Who += ", measured"
		rows = append(rows, p, computed)
	}
	out.WriteString(lines("WHO", rows))
	if m.Changes > 0 {
		fmt.Fprintf(out, "%s changed hands meanwhile, which costs more than is computed: is the store\nslow, or this machine busy?\n", plural(m.Changes, "lock"))
	}
}

// lines are items as a table.
func lines(head string, items []item) string {
	rows := [][]string{{head, "NUMBER", "GET", "PUT", "LIST", "DELETE", "$ A MONTH"}}
	for _, i := range items {
		number := ""
		if i.Who != "total" {
			number = thousands(float64(i.Number))
		}
		rows = append(rows, []string{i.Who, number, thousands(i.Get), thousands(i.Put), thousands(i.List), thousands(i.Delete), dollars(i.USD)})
	}
	return columns(rows, 1, 2, 3, 4, 5, 6)
}

// columns are rows as a table, of which the named columns stand to the right.
func columns(rows [][]string, right ...int) string {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			width := -widths[i]
			for _, r := range right {
				if r == i {
					width = widths[i]
				}
			}
			line += fmt.Sprintf("%*s  ", width, cell)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// thousands is a number without its fraction.
func thousands(n float64) string { return grouped(fmt.Sprintf("%.0f", n)) }

func dollars(usd float64) string {
	whole, cents, _ := strings.Cut(fmt.Sprintf("%.2f", usd), ".")
	return grouped(whole) + "." + cents
}

// grouped puts commas between digits.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
