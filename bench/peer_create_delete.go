package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// openCreateDelete gives locks that are held while their object exists. There is no TTL.
func openCreateDelete(_ context.Context, _ *bench, p *place, _ time.Duration) (candidate, error) {
	o := p.objects()
	return &poller{
		newKeeper(0),
		func(ctx context.Context, name string) (grant, error) {
			h := created{o, "created/" + name}
			_, err := o.replace(ctx, h.key, "", struct{}{})
			return h, err
		},
		func() time.Duration { return 500*time.Millisecond + rand.N(500*time.Millisecond) },
	}, nil
}

type created struct {
	objects
	key string
}

func (created) renew(context.Context) error         { return nil }
func (c created) release(ctx context.Context) error { return c.remove(ctx, c.key) }
