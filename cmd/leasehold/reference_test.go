package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var updateReference = flag.Bool("update", false, "write docs/reference/cli.md")

// TestReference: docs/reference/cli.md has the help of every command and topic.
func TestReference(t *testing.T) {
	t.Parallel()
	const page = "../../docs/reference/cli.md"
	var b strings.Builder
	b.WriteString(`# The commands

The help of each command, which a test keeps up to date here. [Operations](../operations.md) shows them at work. See also
[exit codes](../exitcodes.md) and [events](../events.md).
`)
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		var out, err bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := exec(t.Context(), args, &out, &err); code != 0 || err.Len() > 0 {
			t.Fatalf("%s: exit code %d, %s", cmd.CommandPath(), code, &err)
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", cmd.CommandPath(), strings.TrimSpace(out.String()))
	})
	if *updateReference {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("docs/reference/cli.md is not what --help says; go test ./cmd/leasehold -run TestReference -update writes it")
	}
}
