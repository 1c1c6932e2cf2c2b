package repo_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// otherTargets are for what is no parser.
var otherTargets = []string{"proof/sim FuzzSimulation"}

var (
	targetRow  = regexp.MustCompile("(?m)^\\| .* \\| `([^`]+)` \\| `(Fuzz[A-Za-z]+)` \\|$")
	targetFunc = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9]+)\(f \*testing\.F\)`)
)

// TestParsersAreFuzzed: the table in SECURITY.md has each target of the fuzzer, and each target of the table is there
// and has a corpus.
func TestParsersAreFuzzed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range targetRow.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1]+" "+m[2])
	}
	if len(listed) < 25 {
		t.Errorf("the table has %d rows", len(listed))
	}
	found, err := targets(".", "proof")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range unfuzzed(slices.Concat(listed, otherTargets), found, func(corpus string) int {
		files, _ := filepath.Glob(filepath.Join(filepath.FromSlash(corpus), "*")) // the pattern is a good one
		return len(files)
	}, otherTargets) {
		t.Error(wrong)
	}
}

// targets are those of the modules in these directories, each as its directory and its name.
func targets(modules ...string) (found []string, err error) {
	for _, root := range modules {
		some, err := targetsBelow(root)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func targetsBelow(root string) (found []string, err error) {
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root:
			_, own := os.Stat(filepath.Join(file, "go.mod"))
			if own == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
		case strings.HasSuffix(file, "_test.go"):
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, m := range targetFunc.FindAllSubmatch(text, -1) {
				found = append(found, filepath.ToSlash(filepath.Dir(file))+" "+string(m[1]))
			}
		}
		return nil
	})
	return found, err
}

// unfuzzed compares the list with the code.
func unfuzzed(listed, found []string, corpus func(dir string) int, without []string) (wrong []string) {
	for _, target := range listed {
		dir, name, _ := strings.Cut(target, " ")
		switch {
		case !slices.Contains(found, target):
			wrong = append(wrong, fmt.Sprintf("SECURITY.md lists %s of %s, which is not there", name, dir))
		case !slices.Contains(without, target) && corpus(path.Join(dir, "testdata/fuzz", name)) == 0:
			wrong = append(wrong, fmt.Sprintf("%s of %s has no corpus in testdata/fuzz/%s", name, dir, name))
		}
	}
	for _, target := range found {
		if !slices.Contains(listed, target) {
			wrong = append(wrong, target+" is not in the table of SECURITY.md")
		}
	}
	return wrong
}

// TestUnfuzzed: each kind of disagreement is told.
func TestUnfuzzed(t *testing.T) {
	t.Parallel()
	corpus := func(dir string) int {
		return map[string]int{"a/testdata/fuzz/FuzzA": 2, "testdata/fuzz/FuzzRoot": 1}[dir]
	}
	if wrong := unfuzzed([]string{"a FuzzA", ". FuzzRoot", "s FuzzS"}, []string{"a FuzzA", ". FuzzRoot", "s FuzzS"}, corpus, []string{"s FuzzS"}); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	got := unfuzzed([]string{"a FuzzA", "b FuzzB", "c FuzzC"}, []string{"a FuzzA", "b FuzzB", "d FuzzD"}, corpus, nil)
	want := []string{
		"FuzzB of b has no corpus in testdata/fuzz/FuzzB", "SECURITY.md lists FuzzC of c, which is not there", "d FuzzD is not in the table of SECURITY.md",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
