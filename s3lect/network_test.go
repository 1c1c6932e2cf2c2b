package s3lect_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A retrying storage is what an SDK makes of one: it repeats what has failed, and so
// reports a write that landed as refused.
type retrying struct{ storage }

func (r retrying) PutIfMatch(ctx context.Context, key string, data []byte, etag string) error {
	if err := r.storage.PutIfMatch(ctx, key, data, etag); err == nil {
		return nil
	}
	return r.storage.PutIfMatch(ctx, key, data, etag)
}

// The storage fails, loses answers, delivers late and twice, and repeats requests. No
// two instances lead at once, and each that leads has been elected.
func TestNoTwoLeadersOverABadNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var all []*instance
		for _, id := range []string{"a", "b", "c"} {
			i := newInstance(t, st, id, swift)
			i.net.Inject(
				faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Probability: 0.2, Delay: 100 * time.Millisecond},
				faultstore.Fault{Kind: faultstore.LateLanding, Probability: 0.1, Delay: time.Second, Jitter: 5 * time.Second},
				faultstore.Fault{Kind: faultstore.LateDuplicate, Probability: 0.1, Delay: time.Second, Jitter: 5 * time.Second},
				faultstore.Fault{Kind: faultstore.Unavailable, Probability: 0.2},
				faultstore.Fault{Kind: faultstore.DelayAfter, Probability: 0.2, Jitter: 2 * time.Second},
			)
			config := i.GetConfig()
			e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Config: config, Storage: retrying{storage{i.net}}, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			i.S3Elector = e
			if err := i.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { i.quit(t); i.net.Close() })
			all = append(all, i)
		}
		var led time.Duration
		leaders := map[*instance]bool{}
		const step = 50 * time.Millisecond
		// 15 minutes, and as much longer as it takes until each has led.
		enough := func(n int) bool {
			return time.Duration(n)*step >= 15*time.Minute && len(leaders) == len(all) && led >= 150*time.Second
		}
		for n := 0; !enough(n); n++ {
			if time.Duration(n)*step > 5*time.Hour {
				t.Fatalf("in five hours %d of 3 led, for %v in all: the test tests too little", len(leaders), led)
			}
			time.Sleep(step)
			// Each of them is away for a while, one after the other.
			for i, who := range all {
				who.net.Partition(n/1200%len(all) == i && n%1200 > 600)
			}
			if leader := ruler(t, all...); leader != nil {
				led += step
				leaders[leader] = true
			}
		}
		for _, i := range all {
			i.net.Clear()
		}
		time.Sleep(time.Minute)
		if ruler(t, all...) == nil {
			t.Error("nobody leads")
		}
	})
}
