package cost_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/cost"
)

// TestListPrices: they are complete, dated, not of the future, and each says where it
// stands; a DELETE costs nothing and a LIST as much as a PUT.
func TestListPrices(t *testing.T) {
	prices := cost.ListPrices()
	for _, p := range prices.Stores {
		date := prices.DateOf(&p)
		day, err := time.Parse(time.DateOnly, date)
		if err != nil || day.Before(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("the prices of %s are of %q", p.Name, date)
		}
		if *p.Delete != 0 || *p.List != *p.Put || *p.Get >= *p.Put || !strings.Contains(p.Source, "pric") {
			t.Errorf("%+v", p)
		}
		million := p.Of(cost.Requests{Put: 1e6})
		if million < 1 || million > 10 { // a unit that was mistaken is off by a thousand
			t.Errorf("a million PUTs to %s cost $%v", p.Name, million)
		}
	}
	if prices.DynamoDB == nil {
		t.Error("there are no prices of DynamoDB")
	}
}

// TestDateOf: a store's own date counts, and without one that of all.
func TestDateOf(t *testing.T) {
	prices := cost.Prices{Date: "2026-11-20"}
	for own, want := range map[string]string{"": "2026-11-20", "2026-04-30": "2026-04-30"} {
		if got := prices.DateOf(&cost.Price{Date: own}); got != want {
			t.Errorf("with the date %q it is of %q, want %q", own, got, want)
		}
	}
}

// TestReadPrices: what is wrong with a file is named.
func TestReadPrices(t *testing.T) {
	good, err := os.ReadFile("prices.json")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, with string) string {
		t.Helper()
		if !strings.Contains(string(good), old) {
			t.Fatalf("there is no %q", old)
		}
		return strings.Replace(string(good), old, with, 1)
	}
	if _, err := cost.ReadPrices(strings.NewReader(edit(`0.005`, `0.006`))); err != nil {
		t.Errorf("another price: %v", err)
	}
	for _, c := range []struct{ text, says string }{
		{"", "EOF"},
		{string(good) + "{}", "something follows"},
		{edit(`"put": 0.005`, `"puts": 0.005`), `unknown field "puts"`},
		{edit(`"put": 0.005,`, ``), "stores[0], s3: put is missing; write 0 if it is free"},
		{edit(`"put": 0.005`, `"put": -0.005`), "stores[0], s3: put -0.005 is less than 0"},
		{edit(`"put": 0.005`, `"put": "0.005"`), "put"},
		{edit(`"per": 1000,`, ``), "stores[0], s3: per 0: write for how many requests the prices are"},
		{edit(`"name": "s3-express"`, `"name": "s3"`), `stores[1]: there is another "s3"`},
		{edit(`"name": "s3"`, `"name": ""`), `stores[0]: the name ""`},
		{edit(`"title": "S3 Standard, us-east-1"`, `"title": ""`), "stores[0], s3: title is missing"},
		{edit(`"date": "2026-04-30"`, `"date": "spring"`), `stores[4], azure: date "spring"`},
		{edit(`"currency": "USD"`, `"currency": "EUR"`), `currency "EUR"`},
		{edit(`"write": 0.625`, `"write": null`), "dynamodb: write is missing"},
		{`{"date": "yesterday", "currency": "USD", "stores": []}`, `date "yesterday"`},
		{`{"date": "2026-11-20", "currency": "USD", "stores": []}`, "stores: there is none"},
	} {
		if _, err := cost.ReadPrices(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// FuzzPrices: whatever a file of prices has, it is refused, or each of its stores can be asked for by its name.
func FuzzPrices(f *testing.F) {
	f.Add([]byte(`{"date":"2026-01-02","currency":"USD","stores":[]}`))
	f.Add([]byte(`{"date":"2026-01-02","currency":"USD","stores":[{"name":"s3"}]}{}`))
	f.Add([]byte(`{"colour":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := cost.ReadPrices(bytes.NewReader(text))
		if err != nil {
			return
		}
		names := p.Names()
		if len(names) == 0 || p.Currency != "USD" {
			t.Errorf("accepted %+v", p)
		}
		for _, name := range names {
			if s, err := p.Store(name); err != nil || s.Name != name {
				t.Errorf("%q is %+v, %v", name, s, err)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(names))); len(sorted) != len(names) {
			t.Errorf("a name stands twice in %q", names)
		}
	})
}
