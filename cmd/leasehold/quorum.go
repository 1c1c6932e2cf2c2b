package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

func (a *app) quorum() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorum",
		Short: "Make, show and mend a quorum of stores",
		Long: `Make, show and mend a quorum: one store over three or five others, which goes on while a
minority of them is down, slow, cut off or emptied.

STORE is quorum:///?member=URL&member=URL&member=URL, with each URL escaped as a parameter,
or quorum://NAME, whose members are in the file that LEASEHOLD_QUORUM_FILE names. Each member
is a bucket, a prefix or a directory of its own, with nothing else in it.

A lock's URL goes on with its key: quorum://NAME/locks/nightly.`,
	}
	cmd.AddCommand(a.quorumInit(), a.quorumStatus(), a.quorumReplace(), a.quorumRepair())
	return cmd
}

func (a *app) quorumInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init STORE",
		Short: "Make a quorum of empty stores",
		Long: `Make a quorum of empty stores. Interrupted, it is run again. On a quorum that is there already
it changes nothing.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			a.mkdir = true
			st, err := a.openQuorum(ctx, args[0])
			if err != nil {
				return err
			}
			if err := st.Init(ctx); err != nil {
				return failed(err)
			}
			return a.quorumMembers(ctx, st)
		},
	}
}

func (a *app) quorumStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status STORE",
		Short: "Show the members of a quorum",
		Long: `Show the members of a quorum.

  votes        on every object
  being filled it is new, and votes on the objects that it has so far: see repair
  lost         it has lost its objects, or has another quorum's, and does not vote: see replace
  fails        it does not answer, or refuses

The exit code is 0 if every member votes, 78 if a majority does, and 69 if none does.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.openQuorum(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.quorumMembers(cmd.Context(), st)
		},
	}
}

func (a *app) quorumReplace() *cobra.Command {
	return &cobra.Command{
		Use:   "replace STORE OLD NEW",
		Short: "Put a new member in the place of one",
		Long: `Put a new member in the place of one that has lost its objects, or that is to go. OLD and NEW
are URLs of stores; they may be the same, when OLD was emptied.

Locks are used meanwhile. Interrupted, it is run again. Nobody has to be told: who opens the quorum
with the old members finds the new ones, while a majority of the old ones answers.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.openQuorum(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			by, err := storeurl.Open(cmd.Context(), args[2])
			if err != nil {
				return failed(err)
			}
			old, err := storeurl.Open(cmd.Context(), args[1]) // for its name as the quorum has it
			if err != nil {
				return failed(err)
			}
			if err := st.Replace(cmd.Context(), old.String(), by); err != nil {
				return failed(err)
			}
			return a.quorumMembers(cmd.Context(), st)
		},
	}
}

func (a *app) quorumRepair() *cobra.Command {
	return &cobra.Command{
		Use:   "repair STORE",
		Short: "Finish a change, and bring to every member what the others have",
		Args:  one,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.openQuorum(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := st.Repair(cmd.Context()); err != nil {
				return failed(err)
			}
			return a.quorumMembers(cmd.Context(), st)
		},
	}
}

func (a *app) openQuorum(ctx context.Context, name string) (*quorumstore.Store, error) {
	p, err := a.locatePrefix(ctx, name)
	if err != nil {
		return nil, err
	}
	st, ok := p.store.(*quorumstore.Store)
	if !ok {
		return nil, usage("%s is no quorum: write quorum:///?member=URL&member=URL&member=URL, or quorum://NAME", name)
	}
	return st, nil
}

// member is a line of JSON about one.
type member struct {
	Member        string `json:"member"`
	State         string `json:"state"`
	Since         int    `json:"since"`
	Configuration int    `json:"configuration"`
	Error         string `json:"error,omitempty"`
}

func (a *app) quorumMembers(ctx context.Context, st *quorumstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	number, members, err := st.Status(ctx)
	if err != nil {
		return failed(err)
	}
	voting := 0
	rows := [][]string{{"MEMBER", "STATE", "SINCE", "WHY"}}
	for _, m := range members {
		state, why := "votes", "-"
		switch {
		case errors.Is(m.Err, quorumstore.ErrLost):
			state = "lost"
		case m.Err != nil:
			state, why = "fails", a.message(m.Err)
		case !m.Whole:
			state = "being filled"
		default:
			voting++
		}
		rows = append(rows, []string{m.Place, state, fmt.Sprintf("configuration %d", m.Since), why})
		if a.output == "json" {
			line := member{Member: m.Place, State: state, Since: m.Since, Configuration: number}
			if m.Err != nil {
				line.Error = a.message(m.Err)
			}
			if err := a.print("", line); err != nil {
				return err
			}
		}
	}
	if a.output != "json" {
		if err := a.table(rows); err != nil {
			return err
		}
	}
	switch {
	case voting == len(members):
		return nil
	case voting > len(members)/2:
		return &exit{exitUnsafe, fmt.Errorf("%d of %d members vote", voting, len(members))}
	}
	return &exit{exitUnavailable, fmt.Errorf("%d of %d members vote, and it takes %d", voting, len(members), len(members)/2+1)}
}
