package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
)

func (a *app) watch() *cobra.Command {
	var (
		opts   leasehold.LockOptions
		prefix *prefixWatch
	)
	cmd := &cobra.Command{
		Use:   "watch LOCK|PREFIX/",
		Short: "Show changes of a lock as they happen",
		Long: `Show changes of a lock, or of the locks under a prefix, until interrupted.

Each line has the time at which a change was seen, the change, and if known the
holder, its token and address, and the age of the record. Changes:

  elected     the lock has a holder, from now on or since before watch started
  resigned    the holder released the lock
  expired     the holder did not renew its lease in time; another may take over
  taken over  the lock has another holder, and no release was seen
  renewed     the holder renewed its lease; with -v only
  changed     the holders or waiters of a semaphore changed
  vanished    the lock's object was deleted
  unreadable  the store did not respond, or the object is not a lock

Cost: a read every TTL/3, or for a semaphore every 5 s. Nothing is written.

JSON: --output json prints one object per line. "event" is one of the changes
above ("taken_over"), and the other fields are those of leasehold status: see
leasehold help events.

` + foundOut + ` A lock that does not exist is polled every 5 s.

` + prefixHelp,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := prefix.refuse(cmd, args[0]); err != nil {
				return err
			}
			if isPrefix(args[0]) {
				return prefix.watch(cmd.Context(), args[0])
			}
			return a.observe(cmd.Context(), args[0], &opts, chosen(cmd))
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	prefix = a.prefixFlags(cmd)
	return cmd
}

func (a *app) observe(ctx context.Context, name string, opts *leasehold.LockOptions, chosen bool) error {
	// A fault from the beginning is an error, and not a change.
	look, done := context.WithTimeout(ctx, patience)
	p, e, err := a.see(look, name, opts, chosen)
	done()
	if err != nil {
		return err
	}
	if e.Size == 0 && a.live() {
		if e, err = a.liveLock(ctx, p, e.Info, opts, chosen); err != nil || e.Size == 0 {
			return err
		}
	}
	if !e.Held {
		a.console.event(levelNotice, event{Event: eventWaiting, Message: fmt.Sprintf("%s is %s: waiting for a holder", name, describe(p, e.Info).State)})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	defer listen(signals)()
	go func() { cancel(stopped(<-signals, nil)) }() // or until the program ends
	if !e.Exists && !chosen {
		if e, err = a.appears(ctx, &p, opts, func(c leasehold.Change) error { return a.change(p, c) }); err != nil {
			return err
		}
	}
	if e.Size > 0 {
		return a.watchSemaphore(ctx, p, e.Info)
	}
	el, err := leasehold.NewElection(p.store, p.key, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: opts.Layout, NoIfMatch: opts.NoIfMatch, Logger: a.console.logger()}, Renewals: a.verbose})
	if err != nil {
		return &exit{exitUsage, err}
	}
	for c := range el.Observe(ctx) {
		if err := a.change(p, c); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// appearance is how often watch looks for a lock that there is none of yet: as often as the
// holder of one writes it, by default.
const appearance = leasehold.DefaultTTL / 3

// appears waits until there is a lock, or a semaphore, and notes its layout, which nothing tells before. A failure
// meanwhile is told as it is while a lock is watched, once for each reason.
func (a *app) appears(ctx context.Context, p *target, opts *leasehold.LockOptions, tell func(leasehold.Change) error) (admin.Entry, error) {
	next := time.NewTicker(appearance)
	defer next.Stop()
	for said := ""; ; {
		select {
		case <-next.C:
		case <-ctx.Done():
			return admin.Entry{}, context.Cause(ctx)
		}
		e, err := a.look(ctx, p, opts)
		switch {
		case ctx.Err() != nil:
			return admin.Entry{}, context.Cause(ctx)
		case err == nil && e.Exists:
			return e, nil
		case err == nil:
			said = ""
		case said != err.Error():
			said = err.Error()
			if lost := tell(leasehold.Change{Kind: leasehold.Unreadable, Time: time.Now(), Err: err, Info: leasehold.Info{Age: -1}}); lost != nil {
				return admin.Entry{}, lost
			}
		}
	}
}
