package cost_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
)

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
	for _, l := range []leasehold.Layout{
		leasehold.LayoutEpochs, leasehold.LayoutEpochsIfMatch, leasehold.LayoutMarkerIfMatch,
	} {
		several.Layout = l
		if err := several.CheckAt(mean); err == nil || !strings.Contains(err.Error(), "on a quorum is not computed") {
			t.Errorf("the layout %s: %v", l, err)
		}
	}
}
