package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/plain"
)

// patience bounds a command that asks the store once or twice.
const patience = 30 * time.Second

// What is known of a lock, as package lockjson has it.
type (
	report          = lockjson.Report
	party           = lockjson.Party
	details         = lockjson.Details
	semaphoreReport = lockjson.Semaphore
	entryReport     = lockjson.Entry
)

// The exit codes of status --exit-code. A lock that is held has 0.
const (
	exitFree    = 1
	exitMissing = 2
)

func (a *app) status() *cobra.Command {
	var (
		opts   leasehold.LockOptions
		toCode bool
	)
	cmd := &cobra.Command{
		Use:   "status LOCK",
		Short: "Show who holds a lock",
		Long: `Show who holds a lock, without changing it.

States, also in "state" of --output json:
  held    the lock has a holder. If the holder seems to have died, the lock is
          also "abandoned", and stays held until another takes it over
  free    the last holder and token are shown as "last_holder" and "last_token"
  absent  the lock does not exist

Semaphores: the holders are shown, and the waiters in order. A semaphore is held
if any slot is taken. "token" is the last one that was granted.

Exit codes: 0 whether the lock is held, free or absent.
With --exit-code it is 0 if the lock is held, 1 if it is free, and 2 if it is
absent. Errors have codes from 64, as for leasehold run.

` + foundOut,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			p, e, err := a.see(ctx, args[0], &opts, chosen(cmd))
			if err != nil {
				return err
			}
			r := describe(p, e.Info)
			if err := a.print(reportText(r, e.Info), r); err != nil || !toCode {
				return err
			}
			return stateCode(e.Info)
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	cmd.Flags().BoolVar(&toCode, "exit-code", false, "exit with 0 if the lock is held, 1 if it is free, and 2 if\nit is absent")
	return cmd
}

// stateCode is the exit that says whether a lock is held.
func stateCode(i leasehold.Info) error {
	switch {
	case i.Held:
		return nil
	case i.Exists:
		return &exit{exitFree, nil}
	}
	return &exit{exitMissing, nil}
}

// silent is for a lock that is looked at or written once: what there is to say an error says, or the command itself.
var silent = slog.New(slog.DiscardHandler)

// open finds a lock and makes a candidate for it.
func (a *app) open(ctx context.Context, name string, opts *leasehold.LockOptions) (target, *leasehold.Lock, error) {
	p, err := a.locate(ctx, name, opts.Layout)
	if err != nil {
		return target{}, nil, err
	}
	p.store, opts.Logger = a.withTimeout(p.store), silent
	lock, err := leasehold.NewLock(p.store, p.key, opts)
	if err != nil {
		return target{}, nil, &exit{exitUsage, err}
	}
	return p, lock, nil
}

// describe is what is known of a lock, or of a semaphore.
func describe(p target, i leasehold.Info) report { return lockjson.Describe(p.url, p.layout, i) }

// reportText is the report for people: a line for each thing that there is to say.
func reportText(r report, i leasehold.Info) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, plain.Word(fmt.Sprintf(format, args...)))
	}
	line("lock", "%s", r.Lock)
	state := r.State
	if r.Abandoned {
		state += ", but its holder looks to be gone"
	}
	line("state", "%s", state)
	if !i.Exists {
		return b.String()
	}
	if r.Semaphore != nil {
		semaphoreText(r.Semaphore, line)
	}
	if last := lastOf(r.Party); last != "" {
		line("last", "%s", last)
	}
	if r.Holder != "" {
		line("holder", "%s", plain.Word(r.Holder))
	}
	if r.Rest > 0 {
		line("rest", "%v more, as its last holder has asked", i.Rest.Round(time.Second))
	}
	if r.Address != "" {
		line("address", "%s", plain.Word(r.Address))
	}
	if r.Token != leasehold.NoToken {
		line("token", "%v", r.Token)
	}
	if r.Term != 0 {
		line("term", "%d", r.Term)
	}
	if r.Layout != "" && r.Semaphore == nil {
		line("layout", "%s", r.LayoutText())
	}
	if r.TTL != 0 {
		line("ttl", "%v", i.TTL)
	}
	if r.Age != nil {
		line("age", "%v since the last write", i.Age.Round(time.Second))
	}
	if r.AcquiredAt != nil {
		line("acquired", "%s by the holder's clock", r.AcquiredAt.Local().Format(time.DateTime))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Meta)) {
		line("meta", "%s", plain.Word(key+"="+r.Meta[key]))
	}
	return b.String()
}

// lastOf says who held a lock that is free, if anybody did.
func lastOf(p party) string {
	var parts []string
	if p.LastHolder != "" {
		parts = append(parts, plain.Word(p.LastHolder))
	}
	if p.LastToken != leasehold.NoToken {
		parts = append(parts, fmt.Sprintf("token %v", p.LastToken))
	}
	if p.LastAddress != "" {
		parts = append(parts, plain.Word(p.LastAddress))
	}
	return strings.Join(parts, ", ")
}

func toJSON(data any) string {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		panic(err) // nothing that we print can fail
	}
	return string(plain.JSON(text)) + "\n"
}
