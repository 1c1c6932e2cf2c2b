package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
)

func (a *app) history() *cobra.Command {
	var (
		opts  leasehold.LockOptions
		limit int
	)
	cmd := &cobra.Command{
		Use:   "history LOCK",
		Short: "Show who has held a lock",
		Long: `Show who has held a lock, the present holder first.

Only the layouts with epochs keep a history: --layout epochs or epochs+if-match. It
goes back for the last hundred leases, and a day at least: see leasehold gc. Each
has its token, its holder, when it began and ended, by the clocks of the holders, and
why it ended:

  released    its holder released it
  taken over  its holder was gone
  broken      it was freed by hand

It costs one look, and one read for each. The exit code is 66 if there is no such
lock.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage("--limit %d is less than 0", limit)
			}
			p, err := a.locate(cmd.Context(), args[0], opts.Layout)
			if err != nil {
				return err
			}
			p.store = a.withTimeout(p.store)
			err = a.terms(cmd.Context(), p, &opts, limit)
			if has, other := errors.AsType[*otherLayout](err); other && has.layout.Tokens() && !chosen(cmd) {
				opts.Layout, p.layout = has.layout, has.layout
				err = a.terms(cmd.Context(), p, &opts, limit)
			}
			return err
		},
	}
	f := cmd.Flags()
	layoutFlag(f, &opts.Layout)
	f.IntVar(&limit, "limit", 0, "show so many leases at most (default all that are kept)")
	return cmd
}

// terms shows as much as it learns, also when it then fails.
func (a *app) terms(ctx context.Context, p target, opts *leasehold.LockOptions, limit int) error {
	lock, err := leasehold.NewLock(p.store, p.key, opts)
	if err != nil {
		return &exit{exitUsage, err}
	}
	rows, n := [][]string{{"TOKEN", "HOLDER", "BEGAN", "ENDED", "WHY"}}, 0
	var failure error
	for t, err := range admin.History(ctx, lock) {
		if err != nil {
			failure = err
			break
		}
		rows = append(rows, []string{t.Token.String(), printable(t.Holder), moment(t.AcquiredAt), moment(t.Ended), orDash(t.Why)})
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
		if err := a.table(rows); err != nil {
			return err
		}
	}
	if n > 0 {
		return explain(ctx, p, failure)
	}
	if l, found := elsewhere(ctx, p); found {
		return misplaced(p, l)
	}
	switch {
	case errors.Is(failure, admin.ErrNoHistory):
		return usage("--layout %s keeps no history: only epochs and epochs+if-match do", p.layout)
	case failure == nil:
		return &exit{exitAbsent, fmt.Errorf("there is no lock %s", p.name)}
	}
	return failed(failure)
}

// term writes one lease as JSON.
func (a *app) term(p target, t admin.Term) error {
	return a.writeLine(struct {
		Lock    string            `json:"lock"`
		Token   leasehold.Token   `json:"token"`
		Holder  string            `json:"holder"`
		Address string            `json:"address,omitempty"`
		Meta    map[string]string `json:"meta,omitempty"`
		Began   *time.Time        `json:"began,omitempty"`
		Ended   *time.Time        `json:"ended,omitempty"` // not there if it goes on
		Why     string            `json:"why,omitempty"`
	}{p.url, t.Token, t.Holder, t.Address, t.Meta, known(t.AcquiredAt), known(t.Ended), t.Why})
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
