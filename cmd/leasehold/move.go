package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
)

// A moveCmd is one use of the command move.
type moveCmd struct {
	runCmd
	code   int  // of why the lock was not acquired
	silent bool // and nothing is to be said of that
}

func (a *app) move() *cobra.Command {
	h := &moveCmd{runCmd: runCmd{job: a.newJob(), wait: wait{forever: true}}}
	cmd := &cobra.Command{
		Use:   "move [flags] FROM TO",
		Short: "Move a lock to another name or store",
		Long: `Move a lock to another name or store while it is in use.

Steps: the lock at FROM is acquired, as by leasehold run, so a live holder is
waited for. Its object is sealed: all users of FROM fail, and are told the new
location. Then the lock at TO is created, free. Its token is at least the last
one of FROM, so tokens keep growing. Until then all users of TO fail, too. FROM
and TO are never both held.

Interruptions: if the move is interrupted, even by SIGKILL, run it again, on any
machine, and it continues. If it was complete, it changes nothing and exits with
0. If FROM was not sealed yet, FROM can be used as before, and TO stays closed
until the move is run again. To abandon the move, delete the object of TO.

Never delete the sealed object of FROM while anything may still use that name.
That would create a new lock there.

Layouts: FROM has any layout except the markers, which have no tokens: see
--layout. TO has the layout object. A semaphore cannot be moved: stop all its
users, and then use the new name.

Exit codes:
  0   the lock is at TO
  64  usage
  65  there is another object at TO, which was not changed; or FROM has moved
      elsewhere, and if TO was closed before, it stays closed; or an object is
      not recognized
  66  there is no lock at FROM
  69  a store failed six times in a row, or permanently refused: run it again
  75  the lock is held, and --wait has passed (see --conflict-exit-code)
  77  a store denied access`,
		Example: `  leasehold move s3://old/locks/backup s3://new/locks/backup
  leasehold move --wait 10m backup gs://bucket/locks/backup`,
		Args: two,
		RunE: func(cmd *cobra.Command, args []string) error {
			return untilSignal(cmd.Context(), func(ctx context.Context) error { return h.run(ctx, args[0], args[1]) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&h.opts.Holder, "holder", "", "holder `name` in the record (default HOST/PID)")
	f.DurationVar(&h.opts.TTL, "ttl", leasehold.DefaultTTL, "how long FROM stays held if the move is killed before\nFROM is sealed")
	f.Var(&h.wait, "wait", "how long to wait: 0, a `duration`, or forever")
	f.IntVar(&h.heldCode, "conflict-exit-code", exitHeld, "exit `code` if the lock is held")
	f.BoolVar(&h.mkdir, mkdirFlag, false, mkdirHelp)
	layoutFlag(f, &h.opts.Layout)
	return cmd
}

func (h *moveCmd) run(ctx context.Context, from, to string) error {
	if err := checkCode("conflict", h.heldCode); err != nil {
		return err
	}
	switch {
	case !h.opts.Layout.Tokens():
		return usage("with --layout %s there are no tokens to go on with: stop all that use the lock, and use the new name", h.opts.Layout)
	case h.opts.TTL < leasehold.MinTTL || h.opts.TTL > leasehold.MaxTTL:
		return usage("--ttl %v is not between %v and %v", h.opts.TTL, leasehold.MinTTL, leasehold.MaxTTL)
	}
	h.opts.Existing = true // what vanishes now was not moved
	there, err := h.locate(ctx, to, leasehold.LayoutObject)
	if err != nil {
		return err
	}
	if err = h.prepare(ctx, from); err != nil {
		return err
	}
	old, err := leasehold.NewLock(h.withTimeout(h.target.store), h.target.key, &leasehold.LockOptions{TTL: h.opts.TTL, Holder: h.opts.Holder, Layout: h.opts.Layout, Logger: silent})
	if err != nil {
		return unusable(err)
	}
	next, err := leasehold.NewLock(h.withTimeout(there.store), there.key, &leasehold.LockOptions{Holder: h.opts.Holder, Layout: leasehold.LayoutObject, Logger: silent})
	if err != nil {
		return unusable(err)
	}
	if h.target.url == there.url {
		return usage("FROM and TO are the same: %s", there.url)
	}
	info, err := admin.Move(ctx, old, next, &admin.MoveOptions{Acquire: h.take})
	switch {
	case h.silent:
		return &exit{h.code, nil}
	case h.code != 0:
		return &exit{h.code, late(err)}
	case err != nil:
		return failed(late(err))
	}
	r := describe(there, info)
	return h.print(fmt.Sprintf("%s is at %s now: %s, token %d\n", h.target.url, r.Lock, r.State, info.Token), struct {
		From string `json:"from"`
		report
	}{h.target.url, r})
}

// take acquires the lock that is to be moved, as --wait says.
func (h *moveCmd) take(ctx context.Context) (*leasehold.Lease, error) {
	lease, err := h.obtain(ctx)
	if err == nil {
		return lease.(*leasehold.Lease), nil //nolint:errcheck // there is no flag for anything else
	}
	end, ok := err.(*exit) //nolint:errorlint // obtain makes it
	switch {
	case !ok:
		return nil, err
	case errors.Is(end.err, leasehold.ErrMoved):
		return nil, end.err // the move goes on from there, and may end otherwise
	}
	h.code = end.code
	if h.silent = end.err == nil; h.silent {
		return nil, leasehold.ErrHeld
	}
	return nil, end.err
}
