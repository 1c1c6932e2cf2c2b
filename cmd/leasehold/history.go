package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/plain"
)

func (a *app) history() *cobra.Command {
	var (
		opts  leasehold.LockOptions
		limit int
	)
	cmd := &cobra.Command{
		Use:   "history LOCK",
		Short: "Show previous holders of a lock",
		Long: `Show the current and previous holders of a lock, latest first.

Each lease has its number, token and holder, when it began and ended, by the
holders' clocks, and why it ended:

  released        its holder released it
  taken over      its holder had died
  broken          it was force-released
  deleted         the lock's object was deleted
  acquired again  the same candidate acquired the lock again, at once

Leases that a candidate acquired again at once share a line, with the first and
the last token.

Limits: the last 16 leases before the current one, for one read. With epochs
there are 100 more and at least those of the last day, for one read each: see
leasehold gc. Markers and semaphores keep no history.

Exit codes: 66 if the lock does not exist, others as for leasehold run.

` + foundOut,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage("--limit %d is less than 0", limit)
			}
			p, err := a.locate(cmd.Context(), args[0], opts.Layout)
			if err != nil {
				return err
			}
			return a.past(cmd.Context(), p, &opts, chosen(cmd), limit)
		},
	}
	f := cmd.Flags()
	layoutFlag(f, &opts.Layout)
	f.IntVar(&limit, "limit", 0, "show at most `N` leases (default all)")
	return cmd
}

// past shows who has held a lock. Where no layout was chosen, it is the one that the lock has.
func (a *app) past(ctx context.Context, p target, opts *leasehold.LockOptions, chosen bool, limit int) error {
	p.store = a.withTimeout(p.store)
	if !chosen {
		e, err := a.look(ctx, &p, opts)
		switch {
		case err != nil:
			return failed(err)
		case !e.Exists:
			return &exit{exitAbsent, fmt.Errorf("there is no lock %s", p.name)}
		case e.Size > 0:
			return usage("%s is a semaphore, which keeps no history: leasehold status shows who holds its slots", p.name)
		}
	}
	return a.terms(ctx, p, opts, limit)
}

// terms shows as much as it learns, also when it then fails.
func (a *app) terms(ctx context.Context, p target, opts *leasehold.LockOptions, limit int) error {
	opts.Logger = silent
	lock, err := leasehold.NewLock(p.store, p.key, opts)
	if err != nil {
		return &exit{exitUsage, err}
	}
	rows, n := [][]string{{"TERM", "TOKEN", "HOLDER", "BEGAN", "ENDED", "WHY"}}, 0
	var failure error
	for t, err := range admin.History(ctx, lock) {
		if err != nil {
			failure = err
			break
		}
		rows = append(rows, lease(t))
		if a.output == "json" {
			if err := a.term(p, t); err != nil {
				return err
			}
		}
		if n++; n == limit {
			break
		}
	}
	if a.output != "json" {
		if err = a.table(rows); err != nil {
			return err
		}
	}
	if n > 0 {
		return explain(ctx, p, failure)
	}
	if other := elsewhere(ctx, p); other != nil {
		return other
	}
	switch {
	case errors.Is(failure, admin.ErrNoHistory):
		return usage("--layout %s keeps no history: a release deletes the object", p.layout)
	case failure != nil:
		return explain(ctx, p, failure)
	}
	info, err := inspect(ctx, p, lock)
	switch {
	case err != nil:
		return err
	case !info.Exists:
		return &exit{exitAbsent, fmt.Errorf("there is no lock %s", p.name)}
	}
	a.console.warn("nobody has held the lock %s yet", p.name)
	return nil
}

// lease is one lease in the table, or several in a row.
func lease(t admin.Term) []string {
	number, token := "-", t.Token.String()
	if t.Term > 0 {
		number = strconv.FormatInt(t.Term, 10)
	}
	if t.Leases > 1 {
		token = t.First.String() + "-" + token
	}
	return []string{number, token, orDash(plain.Word(t.Holder)), moment(t.AcquiredAt), moment(t.Ended), orDash(plain.Word(t.Why))}
}

// term writes one lease as JSON.
func (a *app) term(p target, t admin.Term) error {
	return a.writeLine(lockjson.DescribeTerm(p.url, t))
}

// moment is a time for people, if it is known.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
