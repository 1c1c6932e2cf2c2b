package main

import (
	"context"
	"time"
)

// openIfMatch gives locks that are one object each, in which stands when they expire by the
// clock of who holds them. It is written if nobody has changed it since it was read.
func openIfMatch(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
	l := &ifMatch{p.objects(), ttl}
	return newPoller(ttl, l.take), nil
}

type ifMatch struct {
	objects
	ttl time.Duration
}

type ifMatchRecord struct {
	ExpiresAt float64 `json:"expires_at"` // seconds since 1970
	Token     int64   `json:"token"`
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (l *ifMatch) take(ctx context.Context, name string) (grant, error) {
	h := &ifMatchHeld{ifMatch: l, key: "if-match/" + name}
	var err error
	if h.etag, err = l.read(ctx, h.key, &h.record); err != nil {
		return nil, err
	}
	if h.etag != "" {
		if unixSeconds(time.Now()) <= h.record.ExpiresAt {
			return nil, errHeld
		}
		h.record.Token++
	}
	return h, h.renew(ctx)
}

type ifMatchHeld struct {
	*ifMatch
	key, etag string
	record    ifMatchRecord
}

func (h *ifMatchHeld) renew(ctx context.Context) error {
	return h.put(ctx, unixSeconds(time.Now().Add(h.ttl)))
}

// release keeps the object, so that the token goes on.
func (h *ifMatchHeld) release(ctx context.Context) error { return h.put(ctx, 0) }

func (h *ifMatchHeld) put(ctx context.Context, expires float64) error {
	h.record.ExpiresAt = expires
	etag, err := h.replace(ctx, h.key, h.etag, h.record)
	if err == nil {
		h.etag = etag
	}
	return err
}
