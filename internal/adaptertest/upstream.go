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
)

// Upstream are tests of the other project, run against the adapter: in a copy of its module, as that lies in the module
// cache, files of their package are replaced, or added, by files of ours, so that what they make is the adapter's.
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
	if testing.Short() {
		t.Skip("-short: it compiles the other project, and make adapters runs it")
	}
	dir := u.Dir
	if dir == "" {
		dir = "."
	}
	// Without the paths of the copy in them packages are compiled once, and not in each run.
	args := []string{"test", "-json", "-trimpath", "-count=1", "-timeout=10m", "-run", u.Run, "-modfile", u.replace(t, dir)}
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

// replace copies their module, with our files, and writes a go.mod that has the copy in its place. An overlay would not
// do: go takes none for files of the module cache.
func (u Upstream) replace(t *testing.T, dir string) (modfile string) {
	t.Helper()
	out, err := goIn(t.Context(), dir, "list", "-f", "{{.Module.Path}}\n{{.Module.Dir}}\n{{.Dir}}", u.Package)
	said := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(said) != 3 {
		t.Fatalf("go list %s: %v\n%s", u.Package, err, out)
	}
	temp := t.TempDir()
	theirs := filepath.Join(temp, "module")
	if err := os.CopyFS(theirs, os.DirFS(said[1])); err != nil {
		t.Fatal(err)
	}
	for name, ours := range u.Files {
		copyFile(t, filepath.Join(theirs, strings.TrimPrefix(said[2], said[1]), name), ours, "")
	}
	modfile = filepath.Join(temp, "go.mod") // what is relative in it is relative to dir all the same
	copyFile(t, modfile, filepath.Join(dir, "go.mod"), "\nreplace "+said[0]+" => "+theirs+"\n")
	copyFile(t, filepath.Join(temp, "go.sum"), filepath.Join(dir, "go.sum"), "")
	return modfile
}

// copyFile writes a file as another one is, and more.
func copyFile(t *testing.T, to, from, more string) {
	t.Helper()
	text, err := os.ReadFile(from) //nolint:gosec // it is the test that names it
	if err == nil {
		err = os.WriteFile(to, append(text, more...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func goIn(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
