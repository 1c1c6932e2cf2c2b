package main

import (
	"context"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
)

// eventChanged is of semaphores: see watchview.SemaphoreChange.
const eventChanged eventName = "changed"

// watchSemaphore shows each change of a semaphore, from what was seen first, until the context ends. It costs a
// read each time.
func (a *app) watchSemaphore(ctx context.Context, p target, first admin.Entry) error {
	sem, err := semaphore.New(p.store, p.key, 1, &semaphore.Options{Logger: a.console.logger()}) // which only looks
	if err != nil {
		return &exit{exitUsage, err}
	}
	tell := func(kind string, e admin.Entry, cause error) error {
		return a.seenChange(time.Now(), kind, "", describeEntry(p, e), e.Info, cause)
	}
	last := first
	if kind := watchview.SemaphoreChange(nil, last.Semaphore); kind != "" {
		if err := tell(kind, last, nil); err != nil {
			return err
		}
	}
	next := time.NewTicker(appearance)
	defer next.Stop()
	for said := ""; ; {
		select {
		case <-next.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		look, done := context.WithTimeout(ctx, patience)
		info, err := sem.Inspect(look)
		done()
		kind, now := "", last
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && said == err.Error(): // it was told
		case err != nil:
			kind, said = leasehold.Unreadable.String(), err.Error()
		case !info.Exists && last.Exists:
			kind, said = leasehold.Vanished.String(), ""
			last = admin.Entry{Info: leasehold.Info{Age: -1}}
		case info.Exists:
			now, said = seenSemaphore(info), ""
			kind = watchview.SemaphoreChange(last.Semaphore, now.Semaphore)
			last = now
		}
		if kind != "" {
			if lost := tell(kind, now, err); lost != nil {
				return lost
			}
		}
	}
}

// seenSemaphore is a semaphore that was looked at, whose holders' sessions were not. Its key and layout the target has.
func seenSemaphore(i semaphore.Info) admin.Entry {
	return admin.Entry{Semaphore: &i, Info: leasehold.Info{
		Exists: true, Held: len(i.Holders) > 0, Token: i.Token, Age: -1, Version: i.Version,
	}}
}
