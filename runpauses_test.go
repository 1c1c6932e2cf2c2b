package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestPausesAfterATerm: a candidate that has resigned lets the others go first for as long as Run
// says, and for up to a quarter longer, whether its options say so or an Update.
func TestPausesAfterATerm(t *testing.T) {
	for want, c := range map[time.Duration]leasehold.ElectionConfig{
		7500 * time.Millisecond: {},
		1500 * time.Millisecond: {TTL: 3 * time.Second},
		30 * time.Second:        {TTL: 24 * time.Hour},
		60 * time.Second:        {Infrequent: 40 * time.Second},
	} {
		for _, updated := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: c.TTL}, Infrequent: c.Infrequent}
				if updated {
					opts = leasehold.ElectionOptions{}
				}
				e := newElection(t, memstore.New(), opts)
				if updated {
					if err := e.Update(c); err != nil {
						t.Fatal(err)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				var pauses []time.Duration
				var ended time.Time
				_ = e.Run(ctx, func(context.Context, *leasehold.Lease) error {
					if !ended.IsZero() {
						pauses = append(pauses, time.Since(ended))
					}
					if ended = time.Now(); len(pauses) == 300 {
						stop()
					}
					return nil
				})
				least, most := slices.Min(pauses), slices.Max(pauses)
				if least < want || least > want*21/20 || most < want*121/100 || most > want*5/4 {
					t.Errorf("%+v, updated %v: pauses from %v to %v, and not from %v", c, updated, least, most, want)
				}
			})
		}
	}
}

// TestLostLeaderComesBackAtOnce: who has lost the leadership, and not resigned, campaigns without a
// pause, since another leads by now or nobody does.
func TestLostLeaderComesBackAtOnce(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it breaks a lock by hand: the same in every layout")
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e := newElection(t, st, leasehold.ElectionOptions{})
		ctx, stop := context.WithCancel(t.Context())
		var lost time.Time
		_ = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			if !lost.IsZero() {
				if d := time.Since(lost); d > time.Second {
					t.Errorf("it leads again after %v", d)
				}
				stop()
				return nil
			}
			lock, err := leasehold.NewLock(st, lease.Key(), nil)
			if err != nil {
				t.Error(err)
			} else if _, err = admin.Break(ctx, lock, lease.Token()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			lost = time.Now()
			return nil
		})
	})
}

// stamps is a log that notes when it is written with a text.
type stamps struct {
	text string
	at   []time.Time
}

func (s *stamps) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.at = append(s.at, time.Now())
	}
	return len(p), nil
}

// TestCampaignsThatFail: where the store is too slow for the TTL a campaign fails, which is logged, and the
// next one comes after the pauses that the options name, for failures in a row; a term ends the row.
func TestCampaignsThatFail(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it looks at the writes of one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		failed := stamps{text: "campaign failed, will try again"}
		var claimed, led time.Time
		var pauses []time.Duration
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: func(c faultstore.Call) bool {
			if strings.Contains(string(c.Body), `"state":"held"`) {
				if claimed = time.Now(); len(pauses) < len(failed.at) {
					pauses = append(pauses, time.Since(failed.at[len(pauses)]))
				}
			}
			if len(pauses) == 4 {
				stop()
			}
			// The fourth campaign succeeds, and its release. Of the others each claim is known to have
			// landed only when too much of it is over.
			succeeds := len(pauses) == 3 && (led.IsZero() || time.Since(led) < 400*time.Millisecond)
			return !succeeds && time.Since(claimed) < 600*time.Millisecond
		}})
		e := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{TTL: time.Second, Logger: slog.New(slog.NewTextHandler(&failed, nil))},
			Retries:     []time.Duration{time.Second, 3 * time.Second},
		})
		err := e.Run(ctx, func(context.Context, *leasehold.Lease) error {
			led = time.Now()
			return nil
		})
		if !errors.Is(err, context.Canceled) || len(pauses) != 4 {
			t.Fatalf("the pauses were %v; %v", pauses, err)
		}
		for i, want := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, time.Second} {
			if pauses[i] < want || pauses[i] > want*5/4 {
				t.Errorf("after failure %d: %v, and not %v", i+1, pauses[i], want)
			}
		}
		st.Clear()
		time.Sleep(time.Minute) // what was given up is settled
	})
}
