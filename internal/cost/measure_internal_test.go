package cost

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestNothingLandsAfterMeasuring: writes that are under way when the measurement ends leave nothing in the store.
func TestNothingLandsAfterMeasuring(t *testing.T) {
	for _, mode := range Modes {
		for _, after := range []int{50, 150, 250, 350, 450} {
			t.Run(fmt.Sprintf("%s after %d ms", mode, after), func(t *testing.T) {
				leasetest.Bubble(t, func(t *testing.T) {
					st := memstore.New()
					slow := faultstore.Wrap(st, nil)
					slow.Inject(faultstore.Fault{Op: "put", Kind: faultstore.DelayBefore, Delay: 100 * time.Millisecond})
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
					defer cancel()
					p := Plan{TTL: 15 * time.Second, Candidates: 2, Locks: 2, Mode: mode, Layout: leasehold.LayoutObject}
					if _, err := Measure(ctx, slow, "measured", p, 2, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					time.Sleep(time.Minute)
					for e, err := range st.List(t.Context(), "", "") {
						t.Errorf("%q is left, %v", e.Key, err)
					}
				})
			})
		}
	}
}
