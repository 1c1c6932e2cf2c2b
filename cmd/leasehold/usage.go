package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// seeHelp is how a message of bad usage ends.
func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

// meant is how a message goes on where a word is near one of those that there are.
func meant(written string, words []string) string {
	if word := nearest(written, words, 2); word != "" {
		return "did you mean " + word + "? "
	}
	return ""
}

// What users of flock and of other tools write, and what it is here.
var (
	flockFlags = map[string]string{"n": "--wait 0", "w": "--wait with a duration such as 30s", "c": "--shell", "E": "--conflict-exit-code", "s": "--shared", "x": "--exclusive"}
	otherWords = map[string]string{"lock": "run or acquire", "unlock": "release", "ls": "list", "exec": "run", "lead": "elect", "rm": "break", "mv": "move", "cat": "status", "show": "status", "free": "break", "steal": "break"}
)

// badFlag says what is wrong with a flag.
func badFlag(cmd *cobra.Command, err error) error {
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
	var (
		unknown *pflag.NotExistError
		value   *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		name := unknown.GetSpecifiedName()
		if instead, known := flockFlags[name]; known && cmd.Flags().Lookup(strings.TrimPrefix(strings.Fields(instead)[0], "--")) != nil {
			return usage("unknown flag -%s: did you mean %s? %s", name, instead, seeHelp(cmd))
		}
		return usage("unknown flag -%s: %s", name, seeHelp(cmd))
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		return usage("unknown flag %s: %s%s", name, meant(name, flags), seeHelp(cmd))
	case errors.As(err, &value):
		return badValue(fmt.Sprintf("--%s %q", value.GetFlag().Name, value.GetValue()), value.GetFlag(), value.Unwrap())
	case errors.As(err, &missing):
		return usage("--%s needs a value: %s", missing.GetFlag().Name, seeHelp(cmd))
	}
	return usage("%w: %s", err, seeHelp(cmd))
}

// badValue says why a flag cannot have a value, where the package that reads it speaks only to programmers.
func badValue(given string, f *pflag.Flag, err error) error {
	why := map[string]string{
		"duration": "is not a duration such as 500ms, 30s or 5m",
		"bool":     "is neither true nor false",
		"int":      "is not a whole number", "int64": "is not a whole number",
		"float64": "is not a number",
	}[f.Value.Type()]
	switch {
	case why == "" || strings.Contains(err.Error(), "duration such as"): // it says so itself
		return usage("%s: %w", given, err)
	case errors.Is(err, strconv.ErrRange):
		return usage("%s is too large a number", given)
	}
	return usage("%s %s", given, why)
}

// subcommand refuses what is none of a command's subcommands.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("no command given: %s", seeHelp(cmd))
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, append(c.Aliases, c.Name())...)
		}
	}
	if instead, known := otherWords[args[0]]; known && !cmd.HasParent() {
		return usage("there is no command %q: did you mean %s? %s", args[0], instead, seeHelp(cmd))
	}
	return usage("there is no command %q: %s%s", args[0], meant(args[0], names), seeHelp(cmd))
}

// The numbers of arguments that commands take.

func one(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usage("1 argument is needed, and there %s: %s", are(len(args)), seeHelp(cmd))
}

func two(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return usage("2 arguments are needed, and there %s: %s", are(len(args)), seeHelp(cmd))
}

func three(cmd *cobra.Command, args []string) error {
	if len(args) == 3 {
		return nil
	}
	return usage("3 arguments are needed, and there %s: %s", are(len(args)), seeHelp(cmd))
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage("%s allowed, and there %s: %s", arguments(n), are(len(args)), seeHelp(cmd))
	}
}

func some(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return usage("an argument is needed, and there is none: %s", seeHelp(cmd))
}

func arguments(n int) string {
	switch n {
	case 0:
		return "no argument is"
	case 1:
		return "1 argument is"
	}
	return fmt.Sprintf("%d arguments are", n)
}

func are(n int) string {
	if n == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", n)
}
