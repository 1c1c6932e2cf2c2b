package clitest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// documentedCurl matches a line with curl in docs/probes.md: of a shell, or of a probe.
var documentedCurl = regexp.MustCompile(`(?m)^(curl .*)$|command: \[(curl, .*)\]\}$`)

// documentedAt is where the candidates of that document answer.
var documentedAt = strings.NewReplacer("127.0.0.1:4040", `"$1"`, "/run/leasehold/http", `"$1"`)

// curls writes each line with curl of docs/probes.md as a script to a file with the name of what it asks
// for: leader, healthz and readyz. Its argument is where to ask instead.
func curls(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: curls")
	}
	text, err := os.ReadFile(filepath.Join(Root, "docs", "probes.md"))
	ts.Check(err)
	var names []string
	for _, m := range documentedCurl.FindAllStringSubmatch(string(text), -1) {
		line := m[1] + strings.NewReplacer(",", "", `"`, "").Replace(m[2])
		names = append(names, path.Base(line))
		ts.Check(os.WriteFile(ts.MkAbs(path.Base(line)), []byte("exec "+documentedAt.Replace(line)+"\n"), 0o600))
	}
	if got := strings.Join(names, " "); got != "leader healthz readyz" {
		ts.Fatalf("docs/probes.md asks with curl for %q", got)
	}
}
