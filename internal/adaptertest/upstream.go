package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/longtest"
)

// Upstream are tests of the other project, as they lie in the module cache, run against the adapter: files of
// their package are replaced, or added, by files of ours while it is compiled, so that what they make is the
// adapter's.
type Upstream struct {
	Package string            // whose tests are run
	Dir     string            // of the module in which it is compiled; "": the adapter's own
	Files   map[string]string // the name of a file in the package, and the path of ours that stands in its place
	Run     string            // which tests: see go test
	LeftOut map[string]string // tests of those that are not run, and why
}

// Results are what became of tests of the other project.
type Results struct {
	Ran    []string // names of tests, without their subtests
	Passed int
}

// Test runs them. Each must pass, and one that skips itself or is not there must be among those left out.
func (u Upstream) Test(t *testing.T) Results {
	t.Helper()
	longtest.Only(t)
	dir := u.Dir
	if dir == "" {
		dir = "."
	}
	args := []string{"test", "-json", "-count=1", "-timeout=10m", "-run", u.Run, "-overlay", u.overlay(t, dir)}
	if len(u.LeftOut) > 0 {
		args = append(args, "-skip", "^("+strings.Join(slices.Sorted(maps.Keys(u.LeftOut)), "|")+")$")
	}
	out, failure := goIn(t.Context(), dir, append(args, u.Package)...)
	var results Results
	var said strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			said.Write(lines.Bytes())
			continue
		}
		said.WriteString(e.Output)
		if e.Test == "" || strings.Contains(e.Test, "/") {
			continue
		}
		switch e.Action {
		case "pass":
			results.Ran = append(results.Ran, e.Test)
			results.Passed++
		case "fail", "skip":
			results.Ran = append(results.Ran, e.Test)
			t.Errorf("%s %s: %s", u.Package, e.Test, e.Action)
		}
	}
	if failure != nil || results.Passed == 0 {
		t.Errorf("go test %s: %v\n%s", u.Package, failure, said.String())
	}
	slices.Sort(results.Ran)
	return results
}

// overlay writes what go test reads of the files that stand in the place of others.
func (u Upstream) overlay(t *testing.T, dir string) string {
	t.Helper()
	out, err := goIn(t.Context(), dir, "list", "-f", "{{.Dir}}", u.Package)
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", u.Package, err, out)
	}
	replace := map[string]string{}
	for name, ours := range u.Files {
		path, err := filepath.Abs(ours)
		if err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(strings.TrimSpace(string(out)), name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func goIn(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
