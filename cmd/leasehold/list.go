package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/internal/watchview"
)

// notLock is the state of an object that lies among the locks and is none.
const notLock = lockjson.NotLock

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List locks under a prefix",
		Long: `List the locks under a prefix, sorted by name.

PREFIX is the URL of a store, such as s3://bucket/locks or file:///dir, or a
prefix of names, such as jobs/. By default, all names are listed. The URL of a
lock with epochs is a prefix, too.

STATE is one of:
  held        the lock has a holder
  abandoned   the lock has a holder that seems to have died
  free        the lock has no holder
  at rest     the lock is free, but still kept by leasehold run --hold-at-least
  moved       leasehold move has moved the lock
  not a lock  the object is not recognized; keep locks apart from other objects

AGE is the time since the last write. A ~ means that the store does not report
it, and the age is by wall clocks. LAYOUT is shown if any lock has another
layout than object. A semaphore's is table.

Cost: one listing per 1000 objects, and one read per object. The epochs of a
lock count as one object, plus a listing.`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.locatePrefix(cmd.Context(), append(args, "")[0])
			if err != nil {
				return err
			}
			return a.listAll(cmd.Context(), p)
		},
	}
}

// listAll shows as much as it learns, also when it then fails.
func (a *app) listAll(ctx context.Context, p target) error {
	if a.output == "json" {
		return a.eachLock(ctx, p, func(e admin.Entry, foreign error) error { return a.listLine(p, e, foreign) })
	}
	rows, special := [][]string{{"NAME", "STATE", "HOLDER", "TOKEN", "AGE", "LAYOUT"}}, false
	err := a.eachLock(ctx, p, func(e admin.Entry, foreign error) error {
		rows = append(rows, row(e, foreign))
		special = special || foreign == nil && e.Layout != leasehold.LayoutObject
		return nil
	})
	if !special {
		for n := range rows {
			rows[n] = rows[n][:len(rows[n])-1]
		}
	}
	if lost := a.table(rows); err == nil {
		err = lost
	}
	if err == nil && len(rows) == 1 && p.name != "" {
		a.console.tell("there are no locks under %s", plain.Word(p.name))
	}
	return err
}

// table writes rows, of which the first is the head, if there are any others.
func (a *app) table(rows [][]string) error {
	if len(rows) == 1 {
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, cell := range r {
			r[i] = plain.Word(cell)
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return written(w.Flush())
}

// eachLock calls show for each object, with an error if it is neither a lock nor a semaphore.
func (a *app) eachLock(ctx context.Context, p target, show func(e admin.Entry, foreign error) error) error {
	for e, err := range admin.List(ctx, a.withTimeout(p.store), p.key) {
		if err != nil && !errors.Is(err, leasehold.ErrForeignObject) {
			return failed(err)
		}
		if err = show(e, err); err != nil {
			return err
		}
	}
	return nil
}

// listLine writes one object as JSON.
func (a *app) listLine(p target, e admin.Entry, foreign error) error {
	p.url, _ = urlOf(p.storeURL, e.Key) // it was opened by that URL
	line := struct {
		report
		Error string `json:"error,omitempty"`
	}{report: describe(p, e.Info)}
	if foreign != nil {
		line.State, line.Error = lockjson.StateOfForeign(foreign), oneLine(foreign)
	}
	return a.writeLine(line)
}

// row is one object in the table.
func row(e admin.Entry, foreign error) []string {
	i := e.Info
	state, holder, token, old, lies := "free", "-", "-", "-", "-"
	switch {
	case foreign != nil:
		state = lockjson.StateOfForeign(foreign)
	case i.Abandoned:
		state = "abandoned"
	case i.Held:
		state = "held"
	case i.Rest > 0:
		state = "at rest"
	}
	if text := watchview.HoldersOf(i); text != "" {
		holder = text
	}
	if foreign == nil {
		lies = string(i.Layout)
	}
	if i.Token != leasehold.NoToken {
		token = i.Token.String()
	}
	if text := age(i); text != "" {
		old = text
	}
	return []string{plain.Word(i.Key), state, holder, token, old, lies}
}

// age is how long ago the record was written, or nothing. Where the store does not
// tell, it is by the holder's clock and this machine's, and marked.
func age(i leasehold.Info) string {
	switch {
	case i.Age >= 0:
		return i.Age.Round(time.Second).String()
	case !i.RenewedAt.IsZero():
		return "~" + max(time.Since(i.RenewedAt), 0).Round(time.Second).String()
	}
	return ""
}
