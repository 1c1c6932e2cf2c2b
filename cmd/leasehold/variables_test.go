package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// newRoot is the program without a run of it.
func newRoot() *cobra.Command {
	a := &app{console: console{w: io.Discard}, stdout: io.Discard}
	return a.root()
}

// eachCommand visits all commands.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, visit)
	}
}

// No flag reads a variable that the command is told, whatever it is told and whichever flags
// there are: a leasehold within a job used to take over the holder and the layout of the
// lock around it. The variables are found out from an environment, so one that is added
// without being listed is found too.
func TestNothingToldConfigures(t *testing.T) {
	t.Parallel()
	lock, err := leasehold.NewLock(memstore.New(), "l", &leasehold.LockOptions{Layout: leasehold.LayoutObject}) // which has tokens
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	j := job{target: target{url: "file:///dir/l", storeURL: "file:///dir", layout: leasehold.LayoutObject}}
	before := os.Environ()
	var toldNames []string
	for _, v := range j.environment(lease) {
		if !slices.Contains(before, v) {
			name, _, _ := strings.Cut(v, "=")
			toldNames = append(toldNames, name)
		}
	}
	toldNames = append(toldNames, ownExpires) // which acquire --exec tells a shell
	slices.Sort(toldNames)
	if want := slices.Sorted(slices.Values(told)); !slices.Equal(toldNames, want) {
		t.Errorf("a command is told %q, want %q", toldNames, want)
	}
	flags := 0
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		read := func(f *pflag.Flag) {
			flags++
			if slices.Contains(toldNames, variableOf(f.Name)) {
				t.Errorf("leasehold %s reads --%s from %s, which tells a command of its lock", cmd.Name(), f.Name, variableOf(f.Name))
			}
		}
		cmd.Flags().VisitAll(read)
		cmd.PersistentFlags().VisitAll(read)
	})
	if slices.Contains(toldNames, storeVariable) {
		t.Errorf("a command is told %s, which says where its own locks lie", storeVariable)
	}
	if flags < 50 {
		t.Errorf("there are %d flags: are they all looked at?", flags)
	}
}

// Every variable that a flag reads is known, so that it is not reported; and each one letter
// of which is lost, doubled or exchanged is reported, with the one that is meant.
func TestMisspeltVariables(t *testing.T) {
	t.Parallel()
	known := variables(newRoot())
	for _, name := range known {
		if lines := misread([]string{name + "=x", ownLock + "=x"}, known); len(lines) > 0 {
			t.Errorf("%s: %q", name, lines)
		}
		if lines := misread([]string{name + "="}, known); len(lines) > 0 {
			t.Errorf("%s, which is empty: %q", name, lines)
		}
	}
	const name = "LEASEHOLD_STORE"
	for i := range name {
		wrong := []string{name[:i] + name[i+1:], name[:i] + name[i:i+1] + name[i:]}
		if i > 0 {
			wrong = append(wrong, name[:i-1]+name[i:i+1]+name[i-1:i]+name[i+1:])
		}
		for _, w := range wrong {
			if w == name {
				continue
			}
			want := fmt.Sprintf("the variable %s is not one that leasehold reads: did you mean %s?", w, name)
			if lines := misread([]string{w + "=secret"}, known); !slices.Equal(lines, []string{want}) {
				t.Errorf("%s gives %q, want %q", w, lines, want)
			}
		}
	}
	for _, other := range []string{"LEASE", "STORE", "HOME", "LEASEHOLD", "AWS_REGION", "LEASEHOLD_X_SERVICE_HOST", "LEASEHOLD_PORT_8080_TCP", "LEASHLD_STOR"} {
		if lines := misread([]string{other + "=x"}, known); len(lines) > 0 {
			t.Errorf("%s: %q", other, lines)
		}
	}
}

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
