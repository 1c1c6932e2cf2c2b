package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// leastAge is how old an object must be at least to be collected.
const leastAge = 24 * time.Hour

func (a *app) gc() *cobra.Command {
	var opts admin.CollectOptions
	cmd := &cobra.Command{
		Use:   "gc PREFIX",
		Short: "Delete expired epochs, markers and sessions",
		Long: `Delete expired epochs, markers and sessions under a prefix.

PREFIX is as for leasehold list. Each deleted object is shown with its age, by
the store's clock, and the reason:

  past epoch      older than --age, and not the last object of one of the lock's
                  last --keep leases. A lock's highest epoch always stays.
                  Holders also delete past epochs from time to time, so gc is
                  for locks that are no longer used, or for an earlier deletion.
  expired marker  its TTL and margin have passed, so its holder has died. Other
                  tools' markers stay. A marker that is created at this very
                  moment can be deleted, too.
  session that is over
                  ended at least --age ago. A session that was silent for --age
                  is watched for its TTL and margin, and ended. The next gc
                  after --age deletes it.

Semaphores stay, but their sessions do not: run gc once a day if you use
leasehold run --slots.

Clocks: nothing is deleted from a store that does not report its time. A quorum
has no clock, so gc refuses it with exit code 64: use leasehold quorum collect.

Exit codes: those of leasehold run. After an error with one lock, gc continues
with the others, and exits with the code of the first error.`,
		Example: `  leasehold gc --dry-run s3://bucket/locks
  leasehold gc --keep 1000 --age 720h jobs/`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case opts.Keep < 1:
				return usage("--keep %d is less than 1", opts.Keep)
			case opts.Age < leastAge:
				return usage("--age %v is less than %v: a request may be on its way for so long, and must not make anew what was deleted", opts.Age, leastAge)
			}
			p, err := a.locatePrefix(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, ok := p.store.(*quorumstore.Store); ok {
				return usage("%s: nothing is deleted: a quorum of stores has no clock, so how old an object is cannot be known; "+
					"what is over stays, and does no harm; leasehold quorum collect takes away what deleted objects have left", p.store)
			}
			return a.collect(cmd.Context(), p, &opts)
		},
	}
	f := cmd.Flags()
	f.IntVar(&opts.Keep, "keep", 100, "keep the last `N` leases of each lock")
	f.DurationVar(&opts.Age, "age", leastAge, "delete only what is older; at least 24h")
	f.BoolVar(&opts.DryRun, "dry-run", false, "show what would be deleted, and delete nothing")
	return cmd
}

// collect shows as much as it does, also when it then fails.
func (a *app) collect(ctx context.Context, p target, opts *admin.CollectOptions) error {
	deleted, verb := 0, "deleted"
	if opts.DryRun {
		verb = "would be deleted"
	}
	var failure error
	for c, err := range admin.Collect(ctx, a.withTimeout(p.store), p.key, opts) {
		switch {
		case err == nil:
			deleted++
			if err = a.collected(p, c, !opts.DryRun); err != nil {
				return err
			}
		case failure == nil:
			failure = failed(err)
		default:
			a.console.warn("%s", a.message(err))
		}
	}
	objects := "objects"
	if deleted == 1 {
		objects = "object"
	}
	a.console.tell("%d %s %s", deleted, objects, verb)
	return failure
}

// collected writes one object.
func (a *app) collected(p target, c admin.Collected, deleted bool) error {
	if a.output != "json" {
		return a.write(fmt.Sprintf("%s  %v  %s\n", plain.Word(c.Key), c.Age.Round(time.Second), c.Why))
	}
	url, _ := urlOf(p.storeURL, c.Key) // it was opened by that URL
	return a.writeLine(struct {
		Object  string `json:"object"`
		Age     int64  `json:"age_ms"`
		Why     string `json:"why"`
		Deleted bool   `json:"deleted"`
	}{url, c.Age.Milliseconds(), c.Why, deleted})
}
