package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/plain"
)

const (
	// A shell that waits is worse than one that knows of no lock.
	completionPatience = 2 * time.Second
	mostCompletions    = 200
)

// completions has the shell complete what it can know: the locks of a store, and the
// values of flags that have few. It is called when all commands and flags are there.
func (a *app) completions(cmd *cobra.Command) {
	var modes []string
	for _, mode := range cost.Modes {
		modes = append(modes, string(mode))
	}
	for flag, values := range map[string][]string{
		"layout": layoutNames(), "output": {"text", "json"}, "wait": {"0", "forever"},
		"mode": modes, "price": priceNames,
	} {
		if cmd.Flag(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // it is there, or was seen at its parent
		}
	}
	if strings.Contains(cmd.Use, "LOCK") || strings.Contains(cmd.Use, "PREFIX") || strings.Contains(cmd.Use, "FROM") {
		cmd.ValidArgsFunction = a.completeLock
	}
	for _, c := range cmd.Commands() {
		a.completions(c)
	}
}

// shellScripts adds the command that prints the shells' scripts. Left to itself, cobra adds one
// that prints its help, with 0, for a shell that it does not know; and a shell's profile would
// run that.
func shellScripts(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, subcommand
		}
	}
}

// completeLock gives the locks whose names or URLs begin with the written word. After a
// failure it gives the locks that it has found so far, and no error.
func (a *app) completeLock(cmd *cobra.Command, args []string, written string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // the command to run
	}
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	before, storeURL, prefix, err := a.splitWritten(written)
	if err != nil {
		return nil, directive
	}
	p := target{storeURL: storeURL}
	if err = p.open(ctx); err != nil {
		return nil, directive
	}
	var names []string
	for found, err := range layout.Find(ctx, p.store, prefix) {
		if err != nil || len(names) == mostCompletions {
			break
		}
		name := found.Key
		if before == "" && plain.Word(name) != name {
			continue // a shell would type it
		}
		if before != "" {
			name = before + escaped(found.Key)
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, directive
}

var errNoStore = errors.New("this does not say yet in which store to look")

// splitWritten says where the locks lie whose names begin with the written word: the text
// before each name, the store, and the prefix of the names. After parameters there is
// nothing to complete: the name stands before them.
func (a *app) splitWritten(written string) (before, storeURL, prefix string, err error) {
	scheme, path, isURL := strings.Cut(written, "://")
	if !isURL {
		storeURL, err = a.home(written)
		return "", storeURL, written, err
	}
	// A key may hold slashes, except in a directory, of which it is the last part; a
	// bucket ends at the first slash.
	i := strings.Index(path, "/")
	if scheme == "file" {
		i = strings.LastIndex(path, "/")
	}
	if i < 0 || strings.ContainsAny(path, "?#") {
		return "", "", "", errNoStore
	}
	before = scheme + "://" + path[:i+1]
	if storeURL = strings.TrimSuffix(before, "/"); i == 0 { // the root directory, or no store
		storeURL = before
	}
	prefix, err = url.PathUnescape(path[i+1:])
	return before, storeURL, prefix, err
}

// helpCommand is the command help. Cobra's own prints the help of all, with 0, for a command that there is not.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command",
		Long: "Help about any command: leasehold help COMMAND is leasehold COMMAND --help.",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, left, err := cmd.Root().Find(args)
			if err != nil || len(left) > 0 {
				return subcommand(found, left)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, written string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if found, _, err := cmd.Root().Find(args); err == nil {
				for _, c := range found.Commands() {
					if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), written) {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
