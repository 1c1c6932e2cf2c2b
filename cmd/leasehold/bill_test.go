package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// TestMeasurement: what was counted stands beside what was computed, as if for all locks and a month.
func TestMeasurement(t *testing.T) {
	t.Parallel()
	c := &costCmd{app: &app{}, plan: cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "s3"}
	if err := c.check(nil, false); err != nil {
		t.Fatal(err)
	}
	b := c.bill()
	for _, tt := range []struct {
		changes int
		more    string
	}{
		{0, ""},
		{1, "1 lock changed hands meanwhile, which costs more than is computed: is the store\nslow, or this machine busy?\n"},
		{2, "2 locks changed hands meanwhile, which costs more than is computed: is the store\nslow, or this machine busy?\n"},
	} {
		b.Measured = c.counted(&cost.Measured{Locks: 2, For: 90 * time.Second, Changes: tt.changes, Holders: cost.Requests{Put: 36}, Others: cost.Requests{Get: 72}}, "memory")
		if m := b.Measured; m.Store != "memory" || m.Locks != 2 || m.Seconds != 90 || m.Changes != tt.changes || len(m.Parts) != 2 {
			t.Errorf("the measurement is %+v", m)
		}
		got := b.text()
		if want := `
Measured with 2 locks in memory for 1m30s, as if for all and a month:
WHO                  NUMBER        GET        PUT  LIST  DELETE  $ A MONTH
holders, measured         4          0  2,102,400     0       0      10.51
holders, computed         4          0  2,102,400     0       0      10.51
followers, measured       8  4,204,800          0     0       0       1.68
followers, computed       8  4,204,800          0     0       0       1.68
` + tt.more + "\nThe same by other means"; !strings.Contains(got, want) {
			t.Errorf("it says\n%s\nwant\n%s", got, want)
		}
	}
}

// TestNothingSaved: the bill leaves out the section on savings if there are none.
func TestNothingSaved(t *testing.T) {
	t.Parallel()
	c := &costCmd{app: &app{}, plan: cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "s3"}
	if err := c.check(nil, false); err != nil {
		t.Fatal(err)
	}
	b := c.bill()
	const savings = "\n\nWhat would save most, $ a month:\n  "
	if !strings.Contains(b.text(), savings) {
		t.Errorf("it says\n%s", b.text())
	}
	b.Savings = nil
	if strings.Contains(b.text(), "save") {
		t.Errorf("of no savings it says\n%s", b.text())
	}
}

// TestPricesOfMembers: each member of a quorum has the prices of its own store, a directory none, and a server that no list
// names those of --price, which all have where it is given.
func TestPricesOfMembers(t *testing.T) {
	t.Parallel()
	three := []string{"s3://a", "gs://b", "file:///c"}
	five := append(slices.Clone(three), "azblob://d?account=x", "s3://e?endpoint=http://127.0.0.1:9")
	for _, tt := range []struct {
		members []string
		byURL   bool
		want    string
	}{
		{three, true, "s3 gcs -"},
		{five, true, "s3 gcs - azure r2"},
		{five, false, "r2 r2 r2 r2 r2"},
		{five[:4], true, ""},
		{five[:2], true, ""},
	} {
		c := &costCmd{app: &app{}, plan: cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "r2", byURL: tt.byURL}
		query := url.Values{"member": tt.members}.Encode()
		err := c.check([]string{"quorum:///?" + query}, false)
		if (err == nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), "members: a quorum has 3 or 5") {
			t.Errorf("%q: %v", tt.members, err)
		}
		if err != nil {
			continue
		}
		var names []string
		for i, m := range c.members {
			if m.url != tt.members[i] {
				t.Errorf("member %d is %s, want %s", i, m.url, tt.members[i])
			}
			if m.price == nil {
				names = append(names, "-")
			} else {
				names = append(names, m.price.Name)
			}
		}
		if got := strings.Join(names, " "); got != tt.want || c.plan.Members != len(tt.members) || c.price.Name != "quorum" {
			t.Errorf("%q have the prices %s, want %s; %d members, %s", tt.members, got, tt.want, c.plan.Members, c.price.Name)
		}
	}
}

// TestUnknownPriceOfMembers: a member with an unknown price is an error, not free.
func TestUnknownPriceOfMembers(t *testing.T) {
	t.Parallel()
	members := url.Values{"member": {"s3://a", "s3://b", "s3://c"}}.Encode()
	c := &costCmd{app: &app{}, plan: cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "none"}
	if err := c.check([]string{"quorum:///?" + members}, false); err == nil || !strings.HasPrefix(err.Error(), "exit code 64: --price: ") {
		t.Errorf("it ends with %v", err)
	}
}

// TestPriceOfMeasuredStore: the prices are those of the store that is measured, unless --price was given, or nobody has its
// prices.
func TestPriceOfMeasuredStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  []string
		byURL bool
		want  string
	}{
		{[]string{"gs://b"}, true, "gcs"},
		{[]string{"gs://b"}, false, "r2"},
		{[]string{"file:///d"}, true, "r2"},
		{nil, true, "r2"},
	} {
		c := &costCmd{app: &app{}, plan: cost.Plan{TTL: 15 * time.Second, Candidates: 3, Locks: 4, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "r2", byURL: tt.byURL, measure: true, length: time.Minute}
		if err := c.check(tt.args, false); err != nil || c.price == nil || c.price.Name != tt.want {
			t.Errorf("%q, by its URL %t: the prices of %+v, %v; want those of %s", tt.args, tt.byURL, c.price, err, tt.want)
		}
	}
}

// TestPriceNames: the help, and shells, know of all stores that have prices.
func TestPriceNames(t *testing.T) {
	t.Parallel()
	if names := cost.ListPrices().Names(); !slices.Equal(names, priceNames) {
		t.Errorf("there are prices of %q, and help tells of %q", names, priceNames)
	}
}

// TestMeasuredInMemory: without a store the plan is run in memory, with all its candidates, but with no more than a thousand of
// several locks. The measurement is part of the bill.
func TestMeasuredInMemory(t *testing.T) {
	first := make(chan os.Signal, 1) // it begins what must not begin in a bubble, which would wait for its end
	signal.Notify(first, os.Interrupt)
	signal.Stop(first)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		locks, candidates int
		runs              bool
		says              string
	}{
		{2, 3, true, "measuring in memory: 2 locks, 3 candidates each, for 30s after 30s"},
		{4, 400, false, "measuring in memory: 2 locks, 400 candidates each, for 30s after 30s"},
		{400, 4, false, "measuring in memory: 250 locks, 4 candidates each, for 30s after 30s"},
		{400, 7, false, "measuring in memory: 142 locks, 7 candidates each, for 30s after 30s"},
		{2, 2000, false, "measuring in memory: 1 lock, 2000 candidates each, for 30s after 30s"},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			var out, said bytes.Buffer
			a := &app{stdout: &out, console: console{w: &said}}
			a.output = "json"
			c := &costCmd{app: a, plan: cost.Plan{TTL: 15 * time.Second, Candidates: tt.candidates, Locks: tt.locks, Mode: cost.Store, Layout: leasehold.LayoutObject}, name: "s3", measure: true, length: 30 * time.Second}
			if err := c.check(nil, true); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context() //nolint:contextcheck // of the bubble
			if !tt.runs {
				ctx = over
			}
			if err := c.tell(ctx, nil); (err == nil) != tt.runs || said.String() != "leasehold: "+tt.says+"\n" {
				t.Errorf("%v, and it says %q", err, &said)
			}
			if !tt.runs {
				return
			}
			var b bill
			if err := json.Unmarshal(out.Bytes(), &b); err != nil || b.Measured == nil || b.Measured.Store != "memory" || b.Measured.Locks != 2 || b.Measured.Seconds < 30 || len(b.Measured.Parts) != 2 || b.Measured.Parts[0].Put == 0 {
				t.Errorf("%v: %+v", err, b.Measured)
			}
		})
	}
}
