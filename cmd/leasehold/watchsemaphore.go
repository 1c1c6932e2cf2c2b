package main

import (
	"context"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
)

// eventChanged is of semaphores: see watchview.SemaphoreChange.
const eventChanged eventName = "changed"

// watchSemaphore shows each change of a semaphore, from what was seen first, until the context ends. It costs a
// read each time.
func (a *app) watchSemaphore(ctx context.Context, p target, first leasehold.Info) error {
	sem, err := semaphore.New(p.store, p.key, 1, &semaphore.Options{Logger: a.console.logger()}) // which only looks
	if err != nil {
		return &exit{exitUsage, err}
	}
	tell := func(kind string, i leasehold.Info, cause error) error {
		return a.seenChange(time.Now(), kind, "", describe(p, i), i, cause)
	}
	last := first
	if kind := watchview.SemaphoreChange(leasehold.Info{}, last); kind != "" {
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
			last = leasehold.Info{Age: -1}
		case info.Exists:
			now, said = info, ""
			kind = watchview.SemaphoreChange(last, now)
			last = now
		}
		if kind != "" {
			if lost := tell(kind, now, err); lost != nil {
				return lost
			}
		}
	}
}
