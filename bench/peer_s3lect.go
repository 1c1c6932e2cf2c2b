package main

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"time"
)

// openS3lect gives locks that are held by leading, by the loop of s3lect v1.0.2 without
// peers: with its interval of 5 s for a time-out of 15 s, in which a leader reads the record
// and writes it, and all others read it. The module itself is not to be had from the module
// proxy, so this follows its documentation, and its code for the resignation. Each process has
// its own ticks, since some moment before it wants the lock: all candidates of an experiment would
// look at the same moments for ever if they ticked from when they first want it.
func openS3lect(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
	e := &s3lectElector{p.objects(), crand.Text(), ttl}
	every := ttl / 3
	began := time.Now().Add(-rand.N(every))
	return &poller{newKeeper(every), e.take, func() time.Duration { return every - time.Since(began)%every }}, nil
}

type s3lectElector struct {
	objects
	id  string
	ttl time.Duration
}

type s3lectRecord struct {
	LeaderID    string    `json:"leaderID"`
	LeaderAddr  string    `json:"leaderAddr"`
	LastUpdated time.Time `json:"lastUpdated"`
}

func (e *s3lectElector) take(ctx context.Context, name string) (grant, error) {
	h := &s3lectLed{e, "s3lect/" + name + ".json"}
	var r s3lectRecord
	etag, err := e.read(ctx, h.key, &r)
	if err != nil {
		return nil, err
	}
	if etag != "" && time.Since(r.LastUpdated) < e.ttl {
		return nil, errHeld
	}
	_, err = e.replace(ctx, h.key, etag, e.record(time.Now()))
	return h, err
}

func (e *s3lectElector) record(at time.Time) s3lectRecord {
	return s3lectRecord{e.id, "127.0.0.1:8443", at}
}

type s3lectLed struct {
	*s3lectElector
	key string
}

func (l *s3lectLed) renew(ctx context.Context) error   { return l.put(ctx, time.Now()) }
func (l *s3lectLed) release(ctx context.Context) error { return l.put(ctx, time.Time{}) }

func (l *s3lectLed) put(ctx context.Context, at time.Time) error {
	var r s3lectRecord
	etag, err := l.read(ctx, l.key, &r)
	if err != nil {
		return err
	}
	if r.LeaderID != l.id {
		return fmt.Errorf("%s: %w by %s", l.key, errHeld, r.LeaderID)
	}
	_, err = l.replace(ctx, l.key, etag, l.record(at))
	return err
}
