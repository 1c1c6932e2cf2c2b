package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
)

func (a *app) watch() *cobra.Command {
	var opts leasehold.LockOptions
	cmd := &cobra.Command{
		Use:   "watch LOCK",
		Short: "Show every change of a lock, as it happens",
		Long: `Show every change of a lock, as it happens, until a signal comes.

A line has the time of day at which the change was seen, and:

  elected     there is a holder, or there was one already at the beginning
  resigned    it has released the lock
  expired     it has not renewed its lease in time: another may take over
  taken over  there is another holder, and no release was seen
  renewed     with -v only
  vanished    the lock's object was deleted
  unreadable  the store did not answer, or the object is not a lock

with the holder, its token, its address and the age of the record, as far as they
are known. Nothing is written to the store: watching costs one read for each third
of the TTL. Without --layout it is that of the lock, except for markers. --output json
gives one object a line, with "change" as above ("taken_over") and otherwise the names
of leasehold status.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.observe(cmd.Context(), args[0], &opts, chosen(cmd))
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	return cmd
}

func (a *app) observe(ctx context.Context, name string, opts *leasehold.LockOptions, chosen bool) error {
	// A fault from the beginning is an error, and not a change.
	look, done := context.WithTimeout(ctx, patience)
	p, info, err := a.see(look, name, opts, chosen)
	done()
	if err != nil {
		return err
	}
	if !info.Held {
		a.console.tell("%s is %s: waiting for a holder", name, describe(p, info).State)
	}
	el, err := leasehold.NewElection(p.store, p.key, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: opts.Layout, Logger: a.console.logger()}, Renewals: a.verbose})
	if err != nil {
		return &exit{exitUsage, err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	listen(signals)
	go func() { cancel(stopped(<-signals, nil)) }() // or until the program ends
	for c := range el.Observe(ctx) {
		if err := a.change(p, c); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// change writes one line.
func (a *app) change(p target, c leasehold.Change) error {
	r := describe(p, c.Info)
	if a.output == "json" {
		line := struct {
			Time   time.Time `json:"time"`
			Change string    `json:"change"`
			report
			Error string `json:"error,omitempty"`
		}{Time: c.Time.UTC(), Change: strings.ReplaceAll(c.Kind.String(), " ", "_"), report: r}
		if c.Err != nil {
			line.Error = oneLine(c.Err)
		}
		return a.writeLine(line)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-10s", c.Time.Local().Format(time.DateTime), c.Kind)
	if c.Err != nil {
		fmt.Fprintf(&b, "  %s", printable(oneLine(c.Err)))
	}
	if r.Holder != "" {
		fmt.Fprintf(&b, "  %s", printable(r.Holder))
	}
	if r.Token != leasehold.NoToken {
		fmt.Fprintf(&b, "  token %v", r.Token)
	}
	if r.Address != "" {
		fmt.Fprintf(&b, "  %s", printable(r.Address))
	}
	if text := age(c.Info); text != "" {
		fmt.Fprintf(&b, "  age %s", text)
	}
	if r.Layout != "" {
		fmt.Fprintf(&b, "  layout %s", r.Layout)
	}
	return a.write(b.String() + "\n")
}
