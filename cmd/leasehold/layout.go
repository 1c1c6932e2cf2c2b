package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

// layoutHelp says what a layout is chosen by, for the help of the commands that make
// locks.
const layoutHelp = `Layouts, for --layout. All candidates for a lock must use the same one.
  object  default: one object, overwritten with If-Match
  epochs  a new object per acquisition, renewed with If-Match; keeps a history
  marker  an object that exists while the lock is held, for use beside tools
          that lock this way. The weakest layout: it has no token, and a late
          delete can free someone else's lock

If a store has no If-Match, or ignores it, write if_match=false among the
parameters of its URL, as in s3://bucket/lock?if_match=false, everywhere. Then
object cannot be used; epochs makes a new object per renewal too; and markers
are not renewed, so the command must end within --ttl, and a dead holder's
marker stays until --sweep or leasehold gc deletes it. If --proof says that
If-Match fails, these are used without it.`

// A layoutValue is the value of --layout.
type layoutValue leasehold.Layout

func layoutFlag(f *pflag.FlagSet, to *leasehold.Layout) {
	*to = leasehold.LayoutObject
	f.Var((*layoutValue)(to), "layout", "how the lock is stored: object, epochs or marker")
}

// chosen reports that the user has said which layout it is to be, by the flag or by its
// variable.
func chosen(cmd *cobra.Command) bool { return cmd.Flags().Changed("layout") }

func layoutNames() []string {
	return []string{string(leasehold.LayoutObject), string(leasehold.LayoutEpochs), string(leasehold.LayoutMarker)}
}

// layouts are the names of all, for people.
func layouts() string {
	names := layoutNames()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func (l *layoutValue) Set(name string) error {
	if slices.Contains(layoutNames(), name) {
		*l = layoutValue(name)
		return nil
	}
	return fmt.Errorf("there is no such layout: %sthere are %s", meant(name, layoutNames()), layouts())
}

func (l *layoutValue) String() string { return string(*l) }

func (*layoutValue) Type() string { return "layout" }

// withToken is how a message goes on where there is a token.
func withToken(t leasehold.Token) string {
	if t == leasehold.NoToken {
		return ""
	}
	return fmt.Sprintf(", token %v", t)
}

// inspect reads a lock. A lock in another layout is an error, even if the requested
// layout does not see it.
func inspect(ctx context.Context, p target, lock *leasehold.Lock) (leasehold.Info, error) {
	info, err := lock.Inspect(ctx)
	if err == nil && info.RenewedAt.IsZero() { // nobody whom we know has written it
		if other := elsewhere(ctx, p); other != nil {
			return info, other
		}
	}
	return info, explain(ctx, p, err)
}

// explain chooses the exit code for an error about a lock, and says which layout the
// lock has if that is what is wrong.
func explain(ctx context.Context, p target, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, leasehold.ErrMoved): // it says where to
	case errors.Is(err, record.ErrIfMatch):
		return &exit{exitForeign, fmt.Errorf("%s is used with If-Match: leave if_match=false out of its store's URL, and use a store that has it", p.name)}
	case errors.Is(err, record.ErrNoIfMatch):
		return &exit{exitForeign, fmt.Errorf("%s is used without If-Match: write if_match=false among the parameters of its store's URL", p.name)}
	case errors.Is(err, semaphore.ErrSize):
		if other := asSemaphore(ctx, p); other != nil {
			return other
		}
	case errors.Is(err, leasehold.ErrForeignObject) || errors.Is(err, store.ErrInvalid): // a directory has no object where there are some below
		if other := elsewhere(ctx, p); other != nil {
			return other
		}
	}
	return failed(err)
}

// elsewhere looks for a lock of this name in the layouts that were not asked for, or for a semaphore, and
// says which there is; nil: none. It costs one look in each.
func elsewhere(ctx context.Context, p target) error {
	looked := struct{ store.Store }{p.store} // it need not prove anything: nothing is written
	for _, opts := range []leasehold.LockOptions{
		{Layout: leasehold.LayoutObject},
		{Layout: leasehold.LayoutEpochs},
		{Layout: leasehold.LayoutEpochs, NoIfMatch: true},
		{Layout: leasehold.LayoutMarker}, // records do not tell which
	} {
		if opts.Layout == p.layout {
			continue
		}
		opts.Logger = silent
		lock, err := leasehold.NewLock(looked, p.key, &opts)
		if err != nil {
			continue
		}
		if info, err := lock.Inspect(ctx); err == nil && !info.RenewedAt.IsZero() {
			return misplaced(p, info)
		}
	}
	if p.layout == layoutTable {
		return nil
	}
	return asSemaphore(ctx, p)
}

// asSemaphore says how to take the semaphore of this name; nil: there is none. It costs one look.
func asSemaphore(ctx context.Context, p target) error {
	sem, err := semaphore.New(p.store, p.key, 1, &semaphore.Options{Logger: silent}) // which only looks, so its size is of no matter
	if err != nil {
		return nil //nolint:nilerr // what is wrong was said
	}
	info, err := sem.Inspect(ctx)
	if err != nil || !info.Exists {
		return nil //nolint:nilerr // see above
	}
	return &exit{exitForeign, fmt.Errorf("%s is %s", p.name, howToTake(info.Size))}
}

// misplaced says which layout a lock has, and what opens it.
func misplaced(p target, i leasehold.Info) error {
	if p.layout == layoutTable {
		return &exit{exitForeign, fmt.Errorf("%s is a lock with the layout %s: leasehold run takes it without --slots, --fair, --shared and --exclusive", p.name, i.Layout)}
	}
	give := "--layout " + string(i.Layout)
	switch {
	case i.Layout == leasehold.LayoutEpochs && i.NoIfMatch:
		give += ", and if_match=false among the parameters of its store's URL"
	case i.Layout == leasehold.LayoutMarker: // its record does not say
		give += ", and if_match=false if its holders do"
	}
	return &exit{exitForeign, fmt.Errorf("%s has the layout %s, not %s: give %s", p.name, i.Layout, p.layout, give)}
}
