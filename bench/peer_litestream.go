package main

import (
	"context"
	"errors"
	"time"

	"github.com/benbjohnson/litestream"
	lss3 "github.com/benbjohnson/litestream/s3"
)

// openLitestream gives leases of litestream's leaser, as it is. It has no waiting and renews
// nothing by itself, and litestream itself does not use it, so nobody names an interval.
func openLitestream(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
	client := p.client()
	return newPoller(ttl, func(ctx context.Context, name string) (grant, error) {
		l := lss3.NewLeaser()
		l.SetClient(client)
		l.Bucket, l.Path, l.TTL = p.bucket, "litestream/"+name, ttl
		lease, err := l.AcquireLease(ctx)
		if _, held := errors.AsType[*litestream.LeaseExistsError](err); held || outrun(err) {
			return nil, errHeld
		}
		return &litestreamLease{l, lease}, err
	}), nil
}

type litestreamLease struct {
	leaser *lss3.Leaser
	lease  *litestream.Lease
}

func (l *litestreamLease) renew(ctx context.Context) error {
	lease, err := l.leaser.RenewLease(ctx, l.lease)
	if err == nil {
		l.lease = lease
	}
	return err
}

func (l *litestreamLease) release(ctx context.Context) error {
	return l.leaser.ReleaseLease(ctx, l.lease)
}
