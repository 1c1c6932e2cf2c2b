package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/shard"
)

func (a *app) shards() *cobra.Command {
	return &cobra.Command{
		Use:   "shards PREFIX",
		Short: "Show who owns which shard",
		Long: `Show who owns which shard, sorted by name.

PREFIX is the prefix that the workers of package shard use: a URL, such as
s3://bucket/streams/orders, or a name.

States:
  owned       the owner's session is alive
  moving      owned, but planned for another worker, NEXT: the owner releases
              the shard when its work has returned
  gone        the owner's session has ended, or was not renewed for its TTL and
              margin; the next owner takes the shard over
  free        the shard has no owner
  not a lock  this version does not understand the shard's object

Cost: a read for the plan, each shard and each worker, and a listing of the
shards. Nothing is written.

JSON: --output json prints one object per line.

Exit codes: 65 if this version does not understand the plan, but the owners are
still shown; others as for leasehold run.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.locate(cmd.Context(), strings.TrimSuffix(args[0], "/"), "")
			if err != nil {
				return err
			}
			return a.showShards(cmd.Context(), p)
		},
	}
}

// showShards shows as much as it learns, also when it then fails.
func (a *app) showShards(ctx context.Context, p target) error {
	owners, err := shard.Owners(ctx, a.withTimeout(p.store), p.key)
	show := a.shardRows
	if a.output == "json" {
		show = a.shardLines
	}
	if lost := show(owners); lost != nil {
		return lost
	}
	switch {
	case errors.Is(err, shard.ErrForeign):
		return &exit{exitForeign, err}
	case err != nil:
		return failed(err)
	}
	return nil
}

func (a *app) shardRows(owners []shard.Owner) error {
	rows := [][]string{{"SHARD", "STATE", "OWNER", "TOKEN", "NEXT"}}
	for _, o := range owners {
		row := []string{plain.Word(o.Shard), o.State.String(), "-", "-", "-"}
		if o.Holder != "" && o.State != shard.Free {
			row[2] = plain.Word(o.Holder)
		}
		if o.Token != leasehold.NoToken {
			row[3] = o.Token.String()
		}
		if o.Planned != "" && o.State != shard.Owned {
			row[4] = plain.Word(o.Planned)
		}
		rows = append(rows, row)
	}
	return a.table(rows)
}

// shardLines writes shards as JSON. The names are for scripts: they stay.
func (a *app) shardLines(owners []shard.Owner) error {
	for _, o := range owners {
		line := struct {
			Shard          string          `json:"shard"`
			State          string          `json:"state"`
			Owner          string          `json:"owner,omitempty"` // of a free one: the last
			Session        string          `json:"session,omitempty"`
			Token          leasehold.Token `json:"token,omitempty"`
			Planned        string          `json:"planned,omitempty"`
			PlannedSession string          `json:"planned_session,omitempty"`
			Error          string          `json:"error,omitempty"`
		}{o.Shard, o.State.String(), o.Holder, o.Session, o.Token, o.Planned, o.PlannedSession, ""}
		if o.Err != nil {
			line.Error = oneLine(o.Err)
		}
		if err := a.writeLine(line); err != nil {
			return err
		}
	}
	return nil
}
