package main

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// openEpochs gives locks with an object for each epoch. The newest one counts, until it says
// that it has expired or was not written for as long as it is valid, by the server's clock.
func openEpochs(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
	e := &epochs{objects: p.objects(), ttl: ttl}
	e.poller = newPoller(ttl, e.take)
	return e, nil
}

type epochs struct {
	objects
	*poller
	ttl time.Duration
}

type epochRecord struct {
	ValidityMS int64 `json:"validity_ms"`
	Expired    bool  `json:"expired"`
}

// keptEpochs are not collected. A candidate that is late by more could create one anew of
// those that were, and lead besides another.
const keptEpochs = 100

func (e *epochs) take(ctx context.Context, name string) (grant, error) {
	newest, written, err := e.newest(ctx, name)
	if err != nil {
		return nil, err
	}
	if newest > 0 {
		var r epochRecord
		etag, err := e.read(ctx, epochKey(name, newest), &r)
		if err != nil {
			return nil, err
		}
		valid := time.Since(written) < time.Duration(r.ValidityMS)*time.Millisecond
		if etag == "" || !r.Expired && valid { // "": it has been collected, so there are newer ones
			return nil, errHeld
		}
	}
	h := &epochHeld{e, epochKey(name, newest+1)}
	if _, err = e.replace(ctx, h.key, "", epochRecord{e.ttl.Milliseconds(), false}); err != nil {
		return nil, err
	}
	if old := newest + 1 - keptEpochs; old > 0 {
		// In the background, as its makers say; they have a process for it.
		go func() { _ = e.remove(e.ctx, epochKey(name, old)) }()
	}
	return h, nil
}

// newest is the epoch that counts, or 0, and when it was last written.
func (e *epochs) newest(ctx context.Context, name string) (epoch int, written time.Time, err error) {
	pages := s3.NewListObjectsV2Paginator(e.client, &s3.ListObjectsV2Input{Bucket: &e.bucket, Prefix: aws.String("epochs/" + name + "/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, time.Time{}, err
		}
		for _, o := range page.Contents {
			if _, err = fmt.Sscanf(path.Base(*o.Key), "lock_%d.json", &epoch); err != nil {
				return 0, time.Time{}, fmt.Errorf("the epoch of %s: %w", *o.Key, err)
			}
			written = *o.LastModified
		}
	}
	return epoch, written, nil
}

func epochKey(name string, epoch int) string {
	return fmt.Sprintf("epochs/%s/lock_%010d.json", name, epoch)
}

type epochHeld struct {
	*epochs
	key string
}

func (h *epochHeld) renew(ctx context.Context) error {
	return h.write(ctx, h.key, epochRecord{h.ttl.Milliseconds(), false})
}

func (h *epochHeld) release(ctx context.Context) error {
	return h.write(ctx, h.key, epochRecord{h.ttl.Milliseconds(), true})
}
