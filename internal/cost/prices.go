package cost

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

//go:embed prices.json
var embedded []byte

// Prices are list prices in US dollars on a date. They leave out free tiers, discounts, storage and
// transfer: a record has half a kilobyte.
type Prices struct {
	Date     string    `json:"date"` // day of the last check: 2006-01-02
	Currency string    `json:"currency"`
	Stores   []Price   `json:"stores"`
	DynamoDB *DynamoDB `json:"dynamodb"` // nil: unknown
}

// A Price is the price of requests to one kind of store, in dollars for every Per requests.
type Price struct {
	Name   string   `json:"name"` // for users to choose it
	Title  string   `json:"title"`
	Source string   `json:"source"`
	Date   string   `json:"date,omitempty"` // day of the last check, if not [Prices.Date]
	Per    float64  `json:"per"`
	Get    *float64 `json:"get"`
	Put    *float64 `json:"put"`
	List   *float64 `json:"list"`
	Delete *float64 `json:"delete"`

	// Unordered means that listings have no order, so each one must read all entries.
	Unordered bool `json:"unordered,omitempty"`
}

// A DynamoDB is the price of DynamoDB's request units, in dollars for every Per units.
type DynamoDB struct {
	Title  string   `json:"title"`
	Source string   `json:"source"`
	Per    float64  `json:"per"`
	Read   *float64 `json:"read"`
	Write  *float64 `json:"write"`
}

// ListPrices returns the prices built into this program. Do not change them.
func ListPrices() *Prices { return listPrices() }

var listPrices = sync.OnceValue(func() *Prices {
	p, err := ReadPrices(bytes.NewReader(embedded))
	if err != nil {
		panic(fmt.Sprintf("cost: prices.json: %v", err)) // a test reads it
	}
	return p
})

// ReadPrices reads prices in the format of prices.json. An unknown or missing field is an error that
// names it, because a missing price is not zero.
func ReadPrices(r io.Reader) (*Prices, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var p Prices
	if err := dec.Decode(&p); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the prices")
	}
	return &p, p.check()
}

func (p *Prices) check() error {
	if err := dated(p.Date); err != nil {
		return err
	}
	if p.Currency != "USD" {
		return fmt.Errorf("currency %q: only USD is known", p.Currency)
	}
	if len(p.Stores) == 0 {
		return errors.New("stores: there is none")
	}
	names := map[string]bool{}
	for i, s := range p.Stores {
		switch {
		case s.Name == "" || strings.ContainsAny(s.Name, " ,\n"):
			return fmt.Errorf("stores[%d]: the name %q is not one that can be asked for", i, s.Name)
		case names[s.Name]:
			return fmt.Errorf("stores[%d]: there is another %q", i, s.Name)
		}
		names[s.Name] = true
		if err := complete(s.Title, s.Source, s.Per, map[string]*float64{"get": s.Get, "put": s.Put, "list": s.List, "delete": s.Delete}); err != nil {
			return fmt.Errorf("stores[%d], %s: %w", i, s.Name, err)
		}
		if s.Date == "" {
			continue
		}
		if err := dated(s.Date); err != nil {
			return fmt.Errorf("stores[%d], %s: %w", i, s.Name, err)
		}
	}
	if d := p.DynamoDB; d != nil {
		if err := complete(d.Title, d.Source, d.Per, map[string]*float64{"read": d.Read, "write": d.Write}); err != nil {
			return fmt.Errorf("dynamodb: %w", err)
		}
	}
	return nil
}

func dated(date string) error {
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return fmt.Errorf("date %q: write the day on which the prices were looked up, such as 2026-11-20", date)
	}
	return nil
}

func complete(title, source string, per float64, prices map[string]*float64) error {
	switch {
	case title == "":
		return errors.New("title is missing")
	case source == "":
		return errors.New("source is missing: say where the prices stand")
	case per <= 0:
		return fmt.Errorf("per %v: write for how many requests the prices are, such as 1000", per)
	}
	for _, name := range []string{"get", "put", "list", "delete", "read", "write"} {
		switch price, wanted := prices[name]; {
		case wanted && price == nil:
			return fmt.Errorf("%s is missing; write 0 if it is free", name)
		case wanted && *price < 0:
			return fmt.Errorf("%s %v is less than 0", name, *price)
		}
	}
	return nil
}

// Names returns the stores' names.
func (p *Prices) Names() []string {
	var names []string
	for _, s := range p.Stores {
		names = append(names, s.Name)
	}
	return names
}

// Store returns the prices of the store with that name.
func (p *Prices) Store(name string) (*Price, error) {
	for i := range p.Stores {
		if p.Stores[i].Name == name {
			return &p.Stores[i], nil
		}
	}
	return nil, fmt.Errorf("there are no prices of %q: use %s", name, strings.Join(p.Names(), ", "))
}

// DateOf returns the day on which a store's prices were last checked.
func (p *Prices) DateOf(s *Price) string { return cmp.Or(s.Date, p.Date) }

// Of returns the price of requests in dollars.
func (p *Price) Of(r Requests) float64 {
	return (r.Get**p.Get + r.Put**p.Put + r.List**p.List + r.Delete**p.Delete) / p.Per
}

// Mean returns the mean price of requests that are spread evenly over several stores. A nil Price is of a
// store that is free.
func Mean(name, title string, of []*Price) *Price {
	var sum [4]float64
	mean := &Price{Name: name, Title: title, Source: "the members", Per: 1}
	for _, p := range of {
		if p == nil {
			continue
		}
		for i, price := range []*float64{p.Get, p.Put, p.List, p.Delete} {
			sum[i] += *price / p.Per / float64(len(of))
		}
		mean.Unordered = mean.Unordered || p.Unordered
	}
	mean.Get, mean.Put, mean.List, mean.Delete = &sum[0], &sum[1], &sum[2], &sum[3]
	return mean
}

// of returns the price of reads and writes of small items in dollars.
func (d *DynamoDB) of(r Requests) float64 {
	return (r.Get**d.Read + (r.Put+r.Delete)**d.Write) / d.Per
}
