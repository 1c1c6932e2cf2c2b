package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The file of variables in docs/configuration.md: each is one that is read, its flag takes the
// value, and systemd and a shell take the line alike.
func TestDocumentedVariables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Variables\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(section, -1)
	if len(lines) < 5 {
		t.Fatalf("there are %d variables in the file: is it there?", len(lines))
	}
	root := newRoot()
	known, set := variables(root), 0
	for _, l := range lines {
		name, value := l[1], l[2]
		if strings.ContainsAny(value, " \t\"'`$\\#;&|<>()*?[]~") {
			t.Errorf("%s=%s means something else to a shell than to systemd", name, value)
		}
		if !strings.HasPrefix(name, variablePrefix) {
			continue
		}
		if !slices.Contains(known, name) || slices.Contains(told, name) {
			t.Errorf("%s is not read", name)
		}
		eachCommand(root, func(cmd *cobra.Command) {
			take := func(f *pflag.Flag) {
				if variableOf(f.Name) != name {
					return
				}
				set++
				if err := f.Value.Set(value); err != nil {
					t.Errorf("leasehold %s: %s=%s: %v", cmd.Name(), name, value, err)
				}
			}
			cmd.Flags().VisitAll(take)
			cmd.PersistentFlags().VisitAll(take)
		})
	}
	if set < 4 {
		t.Errorf("%d flags were set: were they looked at?", set)
	}
}
