package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// quorumFlag names a file for all that run below this process, too.
const quorumFlag = "quorum"

// noQuorum is for stores that might become one.
const noQuorum = "these stores are no quorum yet: leasehold quorum init makes one"

const quorumForms = "write quorum://NAME, or quorum:///?member=URL&member=URL&member=URL"

// passQuorums has the file of the flag looked up where the variable's is: by the stores, and by the command that runs.
func (a *app) passQuorums() error {
	if a.quorums == "" {
		return nil
	}
	path, err := filepath.Abs(a.quorums) // the command may run elsewhere
	if err == nil {
		err = os.Setenv(storeurl.QuorumFile, path)
	}
	if err != nil {
		return usage("--%s %s: %w", quorumFlag, a.quorums, err)
	}
	return nil
}

func (a *app) quorum() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorum",
		Short: "Create, show and repair a quorum of stores",
		Long: `Create, show and repair a quorum of stores.

A quorum is one store made of three or five members. It keeps working while a
minority of them is down, slow, cut off or emptied. Each member is a bucket,
prefix or directory of its own, with nothing else in it.

STORE is quorum://NAME. Each line of the file in --quorum or
LEASEHOLD_QUORUM_FILE has a name and the members' URLs, separated by spaces.
Without a file, STORE is quorum:///?member=URL&member=URL&member=URL, with each
URL escaped as a parameter.

For a lock's URL, add its key: quorum://NAME/locks/nightly.`,
		Example: `  export LEASEHOLD_QUORUM_FILE=/etc/leasehold/quorums
  leasehold quorum init quorum://main
  leasehold run quorum://main/nightly -- ./nightly.sh
  leasehold quorum status quorum://main`,
		RunE: subcommand,
	}
	cmd.AddCommand(a.quorumInit(), a.quorumStatus(), a.quorumReplace(), a.quorumRepair(), a.quorumCollect())
	return cmd
}

func (a *app) quorumInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init STORE",
		Short: "Create a quorum of empty stores",
		Long: `Create a quorum of empty stores, and the directories of file:// URLs.

If this is interrupted, run it again. An existing quorum is not changed, and its
members are shown. A member that has lost its objects is not created again: use
leasehold quorum replace.

Exit codes: 64 if a store is not empty, 69 if a store does not respond. For an
existing quorum, those of leasehold quorum status.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			st, err := a.openQuorum(ctx, args[0])
			if err != nil {
				return err
			}
			there, err := made(ctx, st)
			if err == nil && !there {
				a.mkdir = true
				if st, err = a.openQuorum(ctx, args[0]); err != nil {
					return err
				}
				err = st.Init(ctx)
			}
			if err != nil {
				return a.quorumFailed(args[0], err)
			}
			if there {
				a.console.tell("%s was there already: nothing is changed", st)
			} else {
				a.console.tell("%s is made", st)
			}
			return a.quorumMembers(ctx, args[0], st)
		},
	}
}

// made reports that a quorum is there, and nothing is left for Init: not even after it was interrupted in the middle of
// its last round, in which it tells the members that they are whole.
func made(ctx context.Context, st *quorumstore.Store) (bool, error) {
	_, members, err := st.Status(ctx)
	if errors.Is(err, quorumstore.ErrNoQuorum) {
		return false, nil
	}
	whole, fail := 0, 0
	for _, m := range members {
		switch {
		case m.Err != nil:
			fail++
		case m.Whole:
			whole++
		}
	}
	return whole == len(members) || whole > 0 && fail > 0, err
}

func (a *app) quorumStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status STORE",
		Short: "Show the members of a quorum",
		Long: `Show the members of a quorum.

States:
  votes         votes on every object
  being filled  new, and votes on the objects that it has so far: see repair
  lost          has lost its objects, or has another quorum's, and does not
                vote: see replace
  fails         does not respond, or rejects requests

SINCE is the configuration in which the member joined. Each change creates
another configuration. WHY also shows an interrupted change, which a member has
accepted and a majority has not: see repair.

Exit codes:
  0   every member votes
  69  no majority votes
  78  a majority votes, or a change was interrupted
Members that are being filled do not count as voting.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.openQuorum(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.quorumMembers(cmd.Context(), args[0], st)
		},
	}
}

func (a *app) quorumReplace() *cobra.Command {
	return &cobra.Command{
		Use:   "replace STORE OLD NEW",
		Short: "Replace a member",
		Long: `Replace a member that has lost its objects or is no longer wanted.

OLD and NEW are URLs of stores. They can be the same if OLD was emptied.

You can use the locks meanwhile. If this is interrupted, run it again. You need
not notify other processes: with the old members they find the new ones, while a
majority of the old ones responds.

Exit codes: those of leasehold quorum status, for the members after the change.`,
		Example: `  leasehold quorum replace quorum://main gs://old 's3://new?region=us-east-2'
  leasehold quorum replace quorum://main file:///srv/locks file:///srv/locks`,
		Args: three,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			st, err := a.openQuorum(ctx, args[0])
			if err != nil {
				return err
			}
			by, err := a.openMember(ctx, "NEW", args[2])
			if err != nil {
				return err
			}
			old, err := a.placeOf(ctx, st, args[1])
			if err != nil {
				return err
			}
			if err := st.Replace(ctx, old, by); err != nil {
				return a.quorumFailed(args[0], err)
			}
			return a.quorumMembers(ctx, args[0], st)
		},
	}
}

func (a *app) quorumRepair() *cobra.Command {
	return &cobra.Command{
		Use:   "repair STORE",
		Short: "Complete a change and copy missing objects to every member",
		Long: `Complete an interrupted change, and copy missing objects to every member.

A member that was away for long then need not wait for the next write of each
object. You can use the locks meanwhile. If this is interrupted, run it again.

Exit codes: those of leasehold quorum status, for the members after the repair.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.openQuorum(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := st.Repair(cmd.Context()); err != nil {
				return a.quorumFailed(args[0], err)
			}
			return a.quorumMembers(cmd.Context(), args[0], st)
		},
	}
}

func (a *app) openQuorum(ctx context.Context, name string) (*quorumstore.Store, error) {
	if !strings.HasPrefix(name, "quorum://") {
		return nil, usage("%s is no quorum: %s", shown(name), quorumForms)
	}
	// Commands on all members report each of them, so the quorum's own warnings are dropped.
	p := target{name: name, storeURL: name, opening: opening{mkdir: a.mkdir}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p.store.(*quorumstore.Store), nil //nolint:errcheck // no other store has such a URL
}

// openMember opens the store of an argument. The first write creates its directory.
func (a *app) openMember(ctx context.Context, what, url string) (store.Store, error) {
	switch {
	case !strings.Contains(url, "://"):
		return nil, usage("%s: %q is not the URL of a store: write one such as s3://bucket/prefix or file:///dir", what, url)
	case strings.HasPrefix(url, "quorum:"):
		return nil, usage("%s: a member is no quorum itself", what)
	}
	p := target{name: url, storeURL: url, opening: opening{mkdir: true}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p.store, nil
}

// placeOf returns the quorum's name for the member with that URL.
func (a *app) placeOf(ctx context.Context, st *quorumstore.Store, url string) (string, error) {
	_, members, _ := st.Status(ctx) // Replace says what is wrong
	for _, m := range members {
		if m.Place == url {
			return url, nil // as leasehold quorum status has it
		}
	}
	old, err := a.openMember(ctx, "OLD", url)
	if err != nil {
		return "", err
	}
	return old.String(), nil
}

// quorumFailed is an error of a quorum, which names the member if it is one of a member.
func (a *app) quorumFailed(name string, err error) error {
	code := codeOf(err)
	if errors.Is(err, quorumstore.ErrNoMajority) {
		code = exitUnavailable
	}
	return &exit{code, fmt.Errorf("%s: %s", shown(name), faults(err))}
}

// fault is what is wrong with a member, without the name of an object that nobody knows.
func fault(err error) string {
	failure, ok := errors.AsType[*store.Error](err)
	switch {
	case errors.Is(err, quorumstore.ErrNoQuorum):
		return noQuorum
	case !ok:
		return once(strings.ReplaceAll(oneLine(err), "filestore: ", ""))
	}
	before, _, _ := strings.Cut(oneLine(err), oneLine(failure))
	text := once(before + failure.Kind.Error() + strings.ReplaceAll(cause(failure, ""), "filestore: ", ""))
	if errors.Is(failure.Kind, store.ErrInvalid) && failure.Cause != nil {
		text = before + oneLine(failure.Cause) // which says what to do
	}
	return text
}

// faults are those of several members, if the error is of several.
func faults(err error) string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return fault(err)
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = append(all, faults(e))
	}
	if strings.Contains(err.Error(), "\n") {
		return strings.Join(all, "; ")
	}
	return fault(err)
}

// member is a line of JSON about one.
type member struct {
	Member        string `json:"member"`
	State         string `json:"state"`
	Since         int    `json:"since"`
	Configuration int    `json:"configuration"`
	Next          int    `json:"next,omitempty"` // a configuration that it has accepted, where a change was broken off
	Error         string `json:"error,omitempty"`
}

// quorumMembers shows them. How many vote is the exit code.
func (a *app) quorumMembers(ctx context.Context, name string, st *quorumstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	number, members, err := st.Status(ctx)
	if err != nil {
		return a.quorumFailed(name, err)
	}
	rows := [][]string{{"MEMBER", "STATE", "SINCE", "WHY"}}
	for _, m := range members {
		state, why := memberState(m)
		rows = append(rows, []string{m.Place, state, fmt.Sprintf("configuration %d", m.Since), why})
		if a.output != "json" {
			continue
		}
		line := member{Member: m.Place, State: state, Since: m.Since, Configuration: number, Next: m.Next}
		if m.Err != nil {
			line.Error = why
		}
		if err := a.writeLine(line); err != nil {
			return err
		}
	}
	if a.output != "json" {
		if err := a.table(rows); err != nil {
			return err
		}
	}
	return quorumStands(name, members)
}

// quorumStands is the exit that says how many members vote.
func quorumStands(name string, members []quorumstore.MemberStatus) error {
	voting, open, majority := 0, false, len(members)/2+1
	for _, m := range members {
		if state, _ := memberState(m); state == "votes" {
			voting++
		}
		open = open || m.Next > 0
	}
	switch {
	case voting >= majority && open:
		return &exit{exitUnsafe, fmt.Errorf("%s: a change of its members was broken off: leasehold quorum repair settles it", shown(name))}
	case voting == len(members):
		return nil
	case voting >= majority:
		return &exit{exitUnsafe, fmt.Errorf("%s: %d of %d members vote: it goes on", shown(name), voting, len(members))}
	}
	return &exit{exitUnavailable, fmt.Errorf("%s: %d of %d members vote, and it takes %d: nobody can acquire or renew "+
		"until they are back", shown(name), voting, len(members), majority)}
}

// memberState is how a member stands, and why.
func memberState(m quorumstore.MemberStatus) (state, why string) {
	switch {
	case errors.Is(m.Err, quorumstore.ErrLost):
		return "lost", "it has not what it had: leasehold quorum replace puts a new member there"
	case m.Err != nil:
		return "fails", fault(m.Err)
	case !m.Whole:
		return "being filled", "leasehold quorum repair brings it what it lacks"
	case m.Next > 0:
		return "votes", fmt.Sprintf("it has accepted configuration %d, and no majority has: leasehold quorum repair settles it", m.Next)
	}
	return "votes", "-"
}

// quorumLogger tells of the members of a quorum.
func (t *console) quorumLogger() *slog.Logger { return slog.New(memberHandler{t}) }

// memberHandler is for the records of package quorumstore, and no others.
type memberHandler struct{ t *console }

func (h memberHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h memberHandler) Handle(_ context.Context, r slog.Record) error {
	var place, why string
	var after time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Any().(type) {
		case time.Duration:
			after = v
		case error:
			why = fault(v)
			if errors.Is(v, quorumstore.ErrLost) {
				why = "it has lost its objects: see leasehold quorum replace --help"
			}
		case string:
			place = v
		}
		return true
	})
	if r.Level >= slog.LevelWarn {
		h.t.warn("the quorum's member %s fails, and the others go on: %s", place, why)
	} else {
		h.t.tell("the quorum's member %s answers again, after %v", place, after.Round(time.Millisecond))
	}
	return nil
}

func (h memberHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h memberHandler) WithGroup(string) slog.Handler      { return h }
