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
		Long: `Delete what is left of the past of the locks under a prefix.

PREFIX is as for leasehold list. Each object that is deleted is shown, with its age
by the store's own clock and the reason:

  past epoch      of a lock with epochs: older than --age, and not the last object of
                  one of its last --keep leases. The highest of a lock always stays.
                  Holders do the same now and then; so this is for locks that nobody
                  takes any more, or for sooner.
  expired marker  its TTL and margin are over, so its holder is gone. Other tools'
                  markers stay. A marker that is made at this very moment may be hit:
                  nothing can keep a delete from that.
  session that is over
                  and has been for --age. A session that has been silent for so long
                  is watched for its TTL and margin, and ended; the next collection
                  after --age deletes it.

Semaphores stay, whose sessions are of the last kind: let gc run once a day where
leasehold run --slots is used.

Nothing is deleted from a store that does not tell its time. A quorum of stores has no
clock, so gc refuses it with exit code 64: use leasehold quorum collect there. An error
with one lock does not keep the others from being collected; the exit code is that of
the first error.`,
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
	f.IntVar(&opts.Keep, "keep", 100, "how many leases of the past stay, of each lock")
	f.DurationVar(&opts.Age, "age", leastAge, "what is younger stays")
	f.BoolVar(&opts.DryRun, "dry-run", false, "delete nothing, and show what would be")
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
	url, err := urlOf(p.storeURL, c.Key)
	if err != nil {
		return failed(err)
	}
	return a.writeLine(struct {
		Object  string `json:"object"`
		Age     int64  `json:"age_ms"`
		Why     string `json:"why"`
		Deleted bool   `json:"deleted"`
	}{url, c.Age.Milliseconds(), c.Why, deleted})
}
