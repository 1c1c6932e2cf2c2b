package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const code = `package x

func Sum(a, b int) int { return a + b }

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Name(s string) string { return "x" + s }

type Counter struct{ N int }

func (c *Counter) Add() { c.N++ }

const answer = 42

func Answer() int { return answer }

func Down(n int) (steps int) {
	for n != 0 {
		n--
		steps++
	}
	return steps
}
`

const codeTests = `package x

import "testing"

func TestAll(t *testing.T) {
	if Sum(2, 1) != 3 || Max(1, 2) != 2 || Max(2, 1) != 2 || Name("y") != "xy" || Answer() != 42 {
		t.Error("wrong")
	}
}

func TestDown(t *testing.T) {
	if Down(2) != 2 {
		t.Error("wrong")
	}
}
`

// TestGeneral: what no test of the package notices is a survivor, unless it is explained,
// and no explanation outlives its mutation.
func TestGeneral(t *testing.T) {
	t.Parallel()
	const (
		equal = "x.go Max: a > b → a >= b\n\tEqual numbers are one.\n"
		add   = "x.go Counter.Add: all of it → nothing\nx.go Counter.Add: c.N++ → nothing\n\n# why\n\tNobody calls it.\n\tReally.\n"
	)
	for _, c := range []struct {
		title, explained string
		want             []string
		code             int
	}{
		{"survivors", "", []string{
			"Sum: a + b → a - b caught", "Max: a > b → a >= b SURVIVED", "Max: a > b → a <= b caught",
			"Max: a > b → false caught", "Counter.Add: all of it → nothing SURVIVED 0.0s x.go:16: no test comes by it",
			"the package: 42 → (42 + 1) caught", "Down: n-- → nothing caught", "timeout in TestDown",
			"12 mutations: 8 caught, 3 survived, 0 bad, 0 explained, 0 open, 1 not compiled;",
		}, 1},
		{"one is explained", equal, []string{"explained", "Equal numbers are one.", "8 caught, 2 survived, 0 bad, 1 explained,"}, 1},
		{"all are explained", add + equal, []string{"Nobody calls it. Really.", "8 caught, 0 survived, 0 bad, 3 explained,"}, 0},
		{"all are open", strings.ReplaceAll(strings.ReplaceAll(add+equal, "Equal", "OPEN: equal"), "Nobody", "OPEN: nobody"), []string{"open", "8 caught, 0 survived, 0 bad, 0 explained, 3 open,"}, 0},
		{"explained and caught", add + equal + "x.go Sum: a + b → a - b\n\tSo what.\n", []string{"BAD", "it is explained why no test fails, and TestAll does"}, 1},
		{"explained and gone", add + "x.go Min: a > b → a >= b\n\tIt was.\n", []string{`root.txt:7: there is no mutation "x.go Min: a > b → a >= b"`}, 2},
		{"no reason", equal + "x.go Sum: a + b → a - b\n", []string{`no reason is given for "x.go Sum: a + b → a - b"`}, 2},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			dir := inModule(t, "")
			for name, text := range map[string]string{"x.go": code, "x_test.go": codeTests, "proof/mutate/explained/root.txt": c.explained} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out := mutate(t, dir, "-general", ".")
			out = strings.Join(strings.Fields(out), " ")
			if code != c.code {
				t.Errorf("exit code %d, want %d, and\n%s", code, c.code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

// TestGeneralSecondPackage: one that the package's own tests leave is caught by another's.
func TestGeneralSecondPackage(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	for name, text := range map[string]string{
		"x.go": code, "x_test.go": codeTests,
		"y/y_test.go": "package y\n\nimport (\n\t\"testing\"\n\n\t\"x\"\n)\n\nfunc TestCounter(t *testing.T) {\n\tc := new(x.Counter)\n\tif c.Add(); c.N != 1 {\n\t\tt.Error(c)\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out := mutate(t, dir, "-general", ".", "-run", "Counter", "./y")
	if code != 0 || strings.Count(out, "TestCounter") != 2 {
		t.Errorf("exit code %d and\n%s", code, out)
	}
}

// TestExec: the tests are run by the command that is to run them.
func TestExec(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	tests := strings.Replace(codeTests, "import \"testing\"", "import (\n\t\"os\"\n\t\"testing\"\n)", 1)
	tests = strings.Replace(tests, "if Sum", "if os.Getenv(\"RUN_BY\") != \"env\" || Sum", 1)
	for name, text := range map[string]string{"x.go": code, "x_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := mutate(t, dir, "-general", ".", "-run", "Sum", "-exec", "env RUN_BY=env"); code != 0 || !strings.Contains(out, "1 caught") {
		t.Errorf("exit code %d and\n%s", code, out)
	}
}

// TestRecord: a survivor is added to the list as open, and then is no finding any more.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	for name, text := range map[string]string{"x.go": code, "x_test.go": codeTests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := mutate(t, dir, "-general", ".", "-run", "Max|Add", "-survey"); code != 0 || !strings.Contains(out, "3 survived") {
		t.Errorf("a survey: exit code %d and\n%s", code, out)
	}
	if code, out := mutate(t, dir, "-general", ".", "-run", "Max|Add", "-record"); code != 1 || !strings.Contains(out, "3 survived") {
		t.Errorf("exit code %d and\n%s", code, out)
	}
	if code, out := mutate(t, dir, "-general", ".", "-run", "Max|Add"); code != 0 || !strings.Contains(out, "0 survived, 0 bad, 0 explained, 3 open") {
		t.Errorf("exit code %d and\n%s", code, out)
	}
}

// mutants is code in which what is to change can be replaced by a function's value only at
// some distance, or not at all.
const mutants = `package x

import (
	"bytes"
	"errors"
	"io"
)

const kind, other = iota + 1, 2

var table = [2]*part{{name: "a", at: 1}, {name: "b", at: 2}}

type part struct {
	name string
	at   uint8
}

func at(i int) (name string, at uint8) {
	defer func() {
		if r := recover(); r != nil {
			name, at = "none", 255
		}
	}()
	p := &part{at: 7}
	p.name, p.at = table[i].name, table[i].at<<1
	return p.name, p.at
}

func sizes(texts chan string, b *bytes.Buffer) (sum int, err error) {
loop:
	for {
		select {
		case s := <-texts:
			if s == "" {
				break loop
			}
			var n int
			if n, err = b.WriteString(s); errors.Is(err, io.EOF) || n == 0 {
				continue
			}
			sum += n
		}
	}
	return sum, err
}

func last[T any](all []T, none T) T {
	if len(all) == 0 {
		return none
	}
	return all[len(all)-1]
}

func kinds(k int) string {
	switch k {
	case kind:
		return "one"
	case 2:
		return "two"
	}
	return "many"
}
`

const mutantsTests = `package x

import (
	"bytes"
	"testing"
)

func TestAt(t *testing.T) {
	for i, want := range []part{{"a", 2}, {"b", 4}, {"none", 255}} {
		if name, at := at(i); name != want.name || at != want.at {
			t.Error(i, name, at)
		}
	}
}

func TestSizes(t *testing.T) {
	texts := make(chan string, 3)
	texts <- "ab"
	texts <- "c"
	texts <- ""
	var b bytes.Buffer
	if sum, err := sizes(texts, &b); sum != 3 || err != nil || b.String() != "abc" {
		t.Error(sum, err, b.String())
	}
}

func TestLast(t *testing.T) {
	if last(nil, 7) != 7 || last([]int{1, 2, 3}, 7) != 3 {
		t.Error("wrong")
	}
}

func TestKinds(t *testing.T) {
	if kinds(1) != "one" || kinds(2) != "two" || kinds(3) != "many" {
		t.Error("wrong")
	}
}
`

// TestMutants: code does the same with its mutants as without, and a mutant does what its
// mutation says, wherever in the code that is.
func TestMutants(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	for name, text := range map[string]string{"x.go": mutants, "x_test.go": mutantsTests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, all, err := loadGeneral(t.Context(), dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSchema(code, all)
	if err != nil {
		t.Fatal(err)
	}
	var apart []string
	for _, m := range all {
		if len(m.change.choices) == 0 && s.compiles(m.change.file, m.change.mutated()) {
			apart = append(apart, m.title)
		}
	}
	// Constants, and the length of the array.
	want := []string{"the package: iota + 1 → iota - 1", "the package: 2 → (2 + 1)", "the package: 2 → (2 + 1) (2)"}
	if !slices.Equal(apart, want) {
		t.Errorf("these have no site:\n%q\nwant\n%q", apart, want)
	}
	_, out := mutate(t, dir, "-general", ".")
	out = strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"at: r != nil → false caught",
		"at: name, at = \"none\", 255 → nothing caught",
		"at: p.name → _ caught",
		"at: at: 7 → nothing SURVIVED",
		"the package: at: 2 → nothing caught",
		"the package: 2 → (2 + 1) (3) caught",
		"sizes: break loop → nothing caught",
		"sizes: n → _ caught",
		"sizes: err → _ SURVIVED",
		"last: 1 → (1 + 1) caught",
		"kinds: 2 → (2 + 1) caught",
		"the package: iota + 1 → iota - 1 caught",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// TestGeneralInAnotherModule: the second package may be in a module of its own.
func TestGeneralInAnotherModule(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	for name, text := range map[string]string{
		"x.go": code, "x_test.go": codeTests,
		"y/go.mod":    "module x/y\n\ngo 1.26.0\n\nrequire x v0.0.0\n\nreplace x => ..\n",
		"y/y_test.go": "package y\n\nimport (\n\t\"testing\"\n\n\t\"x\"\n)\n\nfunc TestCounter(t *testing.T) {\n\tc := new(x.Counter)\n\tif c.Add(); c.N != 1 {\n\t\tt.Error(c)\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out := mutate(t, dir, "-general", ".", "-run", "Counter", "y")
	if code != 0 || strings.Count(out, "TestCounter") != 2 {
		t.Errorf("exit code %d and\n%s", code, out)
	}
}

// TestShare: each mutation is of exactly one share, and of the same one each time. A share may be empty.
func TestShare(t *testing.T) {
	t.Parallel()
	dir := inModule(t, "")
	_, whole := mutate(t, dir, "-general", ".", "-list")
	parts, empty := "", 0
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		code, out := mutate(t, dir, "-general", ".", "-list", "-share", part)
		if code != 0 {
			t.Errorf("share %s: exit code %d and %s", part, code, out)
		}
		if _, again := mutate(t, dir, "-general", ".", "-list", "-share", part); again != out {
			t.Errorf("share %s is\n%sand then\n%s", part, out, again)
		}
		if out == "no mutation is in the share "+part+"\n" {
			empty++
		} else {
			parts += out
		}
	}
	if empty == 0 {
		t.Error("no share is empty")
	}
	sorted := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if sorted(parts) != sorted(whole) {
		t.Errorf("together the shares are\n%sand the whole is\n%s", parts, whole)
	}
	for _, part := range []string{"0/3", "4/3", "1/0", "x", ""} {
		if code, out := mutate(t, dir, "-general", ".", "-list", "-share", part); code != 2 || !strings.Contains(out, "-share "+part) {
			t.Errorf("%q: exit code %d and %s", part, code, out)
		}
	}
}

// TestExplained: the lists of this module are not stale, and each is of a package.
func TestExplained(t *testing.T) {
	t.Parallel()
	const root = "../.."
	files, err := filepath.Glob(explained(root, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	err = filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		pkg, _ := filepath.Rel(root, dir)
		if file := explained(root, pkg); err == nil && entry.IsDir() && slices.Contains(files, file) {
			files = slices.DeleteFunc(files, func(f string) bool { return f == file })
			if _, _, e := loadGeneral(t.Context(), root, "./"+filepath.ToSlash(pkg)); e != nil {
				t.Error(e)
			}
		}
		return err
	})
	if err != nil || len(files) > 0 {
		t.Errorf("%q explain survivors of no package: %v", files, err)
	}
}

// TestSubtests: what a subtest is called, and how it is run by itself and with its siblings.
func TestSubtests(t *testing.T) {
	t.Parallel()
	var events strings.Builder
	for _, name := range []string{"TestA/x", "TestA/y z/1", "TestA/y z/2", "TestA/y z", "TestA", "TestB"} {
		fmt.Fprintf(&events, "{\"Action\":\"run\",\"Test\":%q}\n{\"Action\":\"pass\",\"Test\":%q}\n", name, name)
	}
	if o, want := read([]byte(events.String())), []string{"TestA/x", "TestA/y z/1", "TestA/y z/2"}; !slices.Equal(o.leaves, want) {
		t.Errorf("the subtests are %q, want %q", o.leaves, want)
	}
	all := func(names ...string) (tests []*measured) {
		for _, name := range names {
			tests = append(tests, &measured{name: name, took: time.Millisecond})
		}
		return tests
	}
	for _, tt := range []struct {
		tests []*measured
		want  string
		rest  int
	}{
		{all("TestA", "TestB"), "^(TestA|TestB)$", 0},
		{all("TestA/x.y"), `^TestA$/^(x\.y)$`, 0},
		{all("TestA/x/1", "TestA/x/2", "TestA/y", "TestB"), "^TestA$/^x$/^(1|2)$", 2},
	} {
		some, rest, _ := batch(tt.tests)
		if got := pattern(some); got != tt.want || len(rest) != tt.rest {
			t.Errorf("it runs %s and leaves %d, want %s and %d", got, len(rest), tt.want, tt.rest)
		}
	}
}
