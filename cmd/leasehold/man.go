package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/manpage"
)

// man is hidden: it is for those who package the command.
func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Hidden: true,
		Long: `Write the manual pages into a directory, which is made if it is not there: one for each
command, leasehold.1, leasehold-run.1 and so on. Their date is that of the source, by
SOURCE_DATE_EPOCH or else by the revision that the program was built from, so the same
source gives the same pages.`,
		Args:              one,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"), thisBuild().Time)
			if err != nil {
				return err
			}
			m := &manpage.Manual{Source: "leasehold " + thisBuild().Version, Date: date, Variable: variableOf}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &exit{exitInternal, fmt.Errorf("cannot make the directory: %w", err)}
			}
			pages := manpage.Commands(cmd.Root())
			for _, c := range pages {
				file := filepath.Join(args[0], manpage.Name(c)+".1")
				if err := os.WriteFile(file, []byte(m.Page(c)), 0o644); err != nil {
					return &exit{exitInternal, fmt.Errorf("cannot write a page: %w", err)}
				}
			}
			a.console.tell("%d pages written to %s", len(pages), args[0])
			return nil
		},
	}
}

// sourceDate is the day of the source; "" if it is not known.
func sourceDate(epoch, revision string) (string, error) {
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", usage("the variable SOURCE_DATE_EPOCH=%q is not a number of seconds", epoch)
		}
		return time.Unix(seconds, 0).UTC().Format(time.DateOnly), nil
	}
	day, _, _ := strings.Cut(revision, "T")
	return day, nil
}
