package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store/quorumstore"
)

func (a *app) quorumCollect() *cobra.Command {
	var opts quorumstore.CollectOptions
	cmd := &cobra.Command{
		Use:   "collect STORE",
		Short: "Garbage-collect deleted objects",
		Long: `Take away what deleted objects have left in the members: a small object each, which says so.
Shards and fences delete objects all the time, so let it run once a day. Locks are used
meanwhile.

It goes where every member has shown it for a day by its own clock. If some have missed the
deletion, they get it now, and the collection of the next day takes it. Each key of which
nothing is left is shown.

All members must be there, vote, tell their times, and delete on a condition. That is tried in
each of them first. A server that deletes what has changed meanwhile is refused, with the exit
code 64: MinIO, versitygw and Ceph are such servers.

It makes a new configuration, of the same members, if there is anything to take. Interrupted, it
is run again. With --dry-run the members are tried, and nothing of the quorum is changed.`,
		Example: `  leasehold quorum collect quorum://main`,
		Args:    one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			st, err := a.openQuorum(ctx, args[0])
			if err != nil {
				return err
			}
			var failure error
			opts.OnKey = func(key string) {
				if failed := a.quorumCollected(key, !opts.DryRun); failure == nil {
					failure = failed
				}
			}
			did, err := st.Collect(ctx, &opts)
			what := "are gone"
			if opts.DryRun {
				what = "would be gone"
			}
			if err != nil && did.Gone+did.Settled == 0 {
				return a.quorumFailed(args[0], err)
			}
			a.console.tell("%d deleted objects %s; %d were settled, and can go in a day; %d were touched meanwhile",
				did.Gone, what, did.Settled, did.Left)
			if err != nil {
				return a.quorumFailed(args[0], err)
			}
			return failure
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "take nothing away, and show what would be")
	return cmd
}

// quorumCollected shows one key.
func (a *app) quorumCollected(key string, deleted bool) error {
	if a.output != "json" {
		return a.write(fmt.Sprintf("%s\n", plain.Word(key)))
	}
	return a.writeLine(struct {
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{key, deleted})
}
