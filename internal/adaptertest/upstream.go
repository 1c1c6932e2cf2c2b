package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Upstream are tests of the other project, run against the adapter: in a copy of its module, as that lies in the module
// cache, files of their package are replaced, added or edited, so that what they make is the adapter's.
type Upstream struct {
	Package  string            // whose tests are run
	Dir      string            // of the module in which it is compiled; "": the adapter's own
	Files    map[string]string // the name of a file in the package, and the path of ours that stands in its place
	Edits    []Edit            // of files in the package
	Run      string            // which tests: see go test
	LeftOut  map[string]string // tests of those that are not run, and why
	Subtests bool              // count each subtest, and not the tests that only run others
}

// An Edit replaces a text that a file in the package has exactly once.
type Edit struct{ File, Old, New string }

// Results are what became of tests of the other project.
type Results struct {
	Ran    []string // names of tests
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
	got, said := outcomes(out, u.Subtests)
	var results Results
	for test, outcome := range got {
		if results.Ran = append(results.Ran, test); outcome == "pass" {
			results.Passed++
		} else {
			t.Errorf("%s %s: %s", u.Package, test, outcome)
		}
	}
	if failure != nil || results.Passed == 0 {
		t.Errorf("go test %s: %v\n%s", u.Package, failure, said)
	}
	slices.Sort(results.Ran)
	return results
}

// outcomes reads what go test -json has printed: the pass, fail or skip of each test, and all output. With subtests, a
// test that has subtests is not counted itself.
func outcomes(out []byte, subtests bool) (of map[string]string, said string) {
	of = map[string]string{}
	groups, all := map[string]bool{}, strings.Builder{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			all.Write(lines.Bytes())
			continue
		}
		all.WriteString(e.Output)
		if e.Test == "" || !subtests && strings.Contains(e.Test, "/") {
			continue
		}
		for i, c := range e.Test {
			if c == '/' {
				groups[e.Test[:i]] = true
			}
		}
		if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			of[e.Test] = e.Action
		}
	}
	maps.DeleteFunc(of, func(test, _ string) bool { return groups[test] })
	return of, all.String()
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
	pkg := filepath.Join(theirs, strings.TrimPrefix(said[2], said[1]))
	for name, ours := range u.Files {
		copyFile(t, filepath.Join(pkg, name), ours, "")
	}
	for _, e := range u.Edits {
		text, err := e.edited(pkg)
		if err == nil {
			err = os.WriteFile(filepath.Join(pkg, e.File), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	modfile = filepath.Join(temp, "go.mod") // what is relative in it is relative to dir all the same
	copyFile(t, modfile, filepath.Join(dir, "go.mod"), "\nreplace "+said[0]+" => "+theirs+"\n")
	copyFile(t, filepath.Join(temp, "go.sum"), filepath.Join(dir, "go.sum"), "")
	return modfile
}

// edited is the file of a package after the edit.
func (e Edit) edited(pkg string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(pkg, e.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(e.Old)); n != 1 {
		return nil, fmt.Errorf("%s has this text %d times, want once: %s", e.File, n, e.Old)
	}
	return bytes.Replace(text, []byte(e.Old), []byte(e.New), 1), nil
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
