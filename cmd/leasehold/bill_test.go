package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
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
