package s3

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/benbjohnson/litestream"

	"github.com/leasehold/leasehold"
	leaselitestream "github.com/leasehold/leasehold/adapter/litestream"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// These have the names of litestream's leaser on S3, for its tests, and are the adapter's.
var (
	ErrLeaseRequired        = leaselitestream.ErrLeaseRequired
	ErrLeaseETagRequired    = leaselitestream.ErrLeaseETagRequired
	ErrLeaseAlreadyReleased = leaselitestream.ErrLeaseAlreadyReleased
)

// stores has a store in the place of each server, by its address.
var stores sync.Map

type Leaser struct {
	once   sync.Once
	inner  *leaselitestream.Leaser
	st     store.Store
	logger *slog.Logger

	Bucket, Path, Owner string
	TTL                 time.Duration
}

func NewLeaser() *Leaser { return &Leaser{} }

func (l *Leaser) SetClient(client *s3.Client) {
	st, _ := stores.LoadOrStore(*client.Options().BaseEndpoint, memstore.New())
	l.st = st.(store.Store)
}

func (l *Leaser) lockKey() string { return l.Path }

func (l *Leaser) leaser() *leaselitestream.Leaser {
	l.once.Do(func() {
		var err error
		l.inner, err = leaselitestream.New(l.st, l.lockKey(), &leasehold.LockOptions{TTL: l.TTL, Holder: l.Owner})
		if err != nil {
			panic(err)
		}
	})
	return l.inner
}

func (l *Leaser) Type() string { return l.leaser().Type() }

func (l *Leaser) AcquireLease(ctx context.Context) (*litestream.Lease, error) {
	return l.leaser().AcquireLease(ctx)
}

func (l *Leaser) RenewLease(ctx context.Context, lease *litestream.Lease) (*litestream.Lease, error) {
	return l.leaser().RenewLease(ctx, lease)
}

func (l *Leaser) ReleaseLease(ctx context.Context, lease *litestream.Lease) error {
	return l.leaser().ReleaseLease(ctx, lease)
}
