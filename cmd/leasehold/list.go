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
		Long: `Show all locks under a prefix, in order of their names.

PREFIX is the URL of a store, such as s3://bucket/locks or file:///dir, or the
beginning of bare names, such as jobs/; without it, all bare names are shown. The URL
of a lock with epochs is the beginning of names too. It costs one listing for every
thousand objects, and one read for each; epochs of one lock are one, for a listing
more. AGE is the time since the last write, with a ~ if the store does not tell and it
is by wall clocks. There is a column LAYOUT if any lock has another one than object; that
of a semaphore is table.

"abandoned" is a lock whose holder looks to be gone. Objects that are no locks are
shown as such; so it is better to keep locks apart from others.`,
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
func (a *app) listLine(p target, e admin.Entry, foreign error) (err error) {
	if p.url, err = urlOf(p.storeURL, e.Key); err != nil {
		return failed(err)
	}
	line := struct {
		report
		Error string `json:"error,omitempty"`
	}{report: describeEntry(p, e)}
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
	if i.Held && i.Holder != "" {
		holder = plain.Word(i.Holder)
	}
	if e.Semaphore != nil && i.Held {
		holder = watchview.HoldersOf(e.Semaphore)
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
