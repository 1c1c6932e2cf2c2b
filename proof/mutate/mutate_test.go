package main

import (
	"context"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ruled is a file of a module with rules, of which its tests check some.
const ruled = `package x

import "strings"

func Sum(a, b int) int {
	return a + b
}

func Upper(s string) string {
	return strings.ToUpper(s)
}

var started = true
`

const tests = `package x

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if !started {
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func TestSum(t *testing.T) {
	t.Run("one", func(t *testing.T) { want(t, 2) })
	t.Run("two", func(t *testing.T) { want(t, 3) })
}

func want(t *testing.T, n int) {
	if got := Sum(n, 1); got != n+1 {
		t.Errorf("the sum is %d", got)
	}
}

func TestUpper(t *testing.T) {
	t.Log("nothing is checked")
	_ = Upper("x")
}
`

// inModule makes a module in a new directory, with a list of mutations.
func inModule(t *testing.T, list string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n\ngo 1.26.0\n", "x.go": ruled, "x_test.go": tests, "proof/mutate/x.txt": list,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestVerdicts: each mutation gets the one that it deserves, and the code stays as it is.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title, diff, tests string
		want               string // a regexp for what is printed
		code               int
	}{
		{
			"caught", "-\treturn a + b\n+\treturn a - b\n", "test . TestSum\n",
			`R +caught +caught +[0-9.]+s +TestSum/one\n1 mutations: 1 caught, 0 survived, 0 bad`, 0,
		},
		{
			"caught by both", "-\treturn a + b\n+\treturn a\n", "test . TestSum/one\ntest . TestSum/two\n",
			`caught +[0-9.]+s +TestSum/one, TestSum/two\n`, 0,
		},
		{
			"survives", "-\treturn strings.ToUpper(s)\n+\treturn strings.ToLower(s)\n", "test .\n",
			`SURVIVED +[0-9.]+s +\.\n1 mutations: 0 caught, 1 survived, 0 bad`, 1,
		},
		{
			"survives one of two", "-\treturn a + b\n+\treturn a\n", "test . TestSum\ntest . TestUpper\n",
			`SURVIVED +[0-9.]+s +\. TestUpper\n`, 1,
		},
		{
			"does not compile", "-\treturn strings.ToUpper(s)\n+\treturn s\n", "test .\n",
			`BAD +[0-9.]+s +x.txt:1: \. does not compile:\n(.*\n)*.*"strings" imported and not used(.*\n)*1 mutations: 0 caught, 0 survived, 1 bad`, 1,
		},
		{
			"panics", "-\treturn a + b\n+\tpanic(a + b)\n", "test .\n", `caught +[0-9.]+s +TestSum/one\n`, 0,
		},
		{
			"exits", "-import \"strings\"\n+import (\n+\t\"os\"\n+\t\"strings\"\n+)\nfile x.go\n func Sum(a, b int) int {\n+\tos.Exit(a)\n", "test .\n",
			`caught +[0-9.]+s +TestSum/one\n`, 0,
		},
		{
			"hangs", "-\treturn a + b\n+\tselect {}\n", "test .\n", `caught +[0-9.]+s +timeout in TestSum/one\n`, 0,
		},
		{
			"ends outside of the tests", "-var started = true\n+var started = false\n", "test .\n",
			`BAD +[0-9.]+s +x.txt:1: \. fails outside of its tests: exit status 1`, 1,
		},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			dir := inModule(t, "rule R "+c.title+"\nfile x.go\n"+c.diff+c.tests)
			timeout := "2m"
			if c.title == "hangs" {
				timeout = "3s"
			}
			code, out := mutate(t, dir, "-timeout", timeout)
			if code != c.code || !regexp.MustCompile(c.want).MatchString(out) {
				t.Errorf("exit code %d, want %d, and\n%s\nwant %s", code, c.code, out, c.want)
			}
			for name, want := range map[string]string{"x.go": ruled, "x_test.go": tests} {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
					t.Errorf("%s has changed: %s, %v", name, got, err)
				}
			}
		})
	}
}

func mutate(t *testing.T, dir string, args ...string) (code int, said string) {
	t.Helper()
	var out strings.Builder
	code = run(t.Context(), dir, args, &out, &out)
	return code, out.String()
}

const removed = "rule R the sum is a difference\nfile x.go\n-\treturn a + b\n+\treturn a - b\n"

// TestBefore: a mistake in a list is reported before any mutation is tried.
func TestBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title, list string
		args        []string
		want        string
		code        int
	}{
		{"no list", "", nil, "no mutation is listed", 2},
		{"none matches", removed + "test .\n", []string{"-run", "^S "}, "no mutation is listed, or matches", 2},
		{"no regexp", removed + "test .\n", []string{"-run", "("}, "-run: error parsing", 2},
		{"no file", removed + "test .\n", []string{"none.txt"}, "open none.txt", 2},
		{"stale", strings.Replace(removed, "a + b", "b + a", 1) + "test .\n", nil, `x.txt:2: "R the sum is a difference" is stale: its lines are not in x.go`, 2},
		{"stale and not asked for", strings.Replace(removed, "a + b", "b + a", 1) + "test .\n", []string{"-run", "none"}, "is stale", 2},
		{"no such source", strings.Replace(removed, "x.go", "y.go", 1) + "test .\n", nil, "is stale: open", 2},
		{"no such test", removed + "test . TestNone\n", nil, ". TestNone has no test", 1},
		{"no such package", removed + "test ./none\n", nil, "./none", 1},
		{"listed", removed + "test .\ntest . TestSum\n", []string{"-list"}, "R  the sum is a difference  ., . TestSum\n", 0},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			if code, out := mutate(t, inModule(t, c.list), c.args...); code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d, and\n%s\nwant %s", code, c.code, out, c.want)
			}
		})
	}
}

// TestUnmutated: tests that fail anyway catch nothing.
func TestUnmutated(t *testing.T) {
	t.Parallel()
	dir := inModule(t, removed+"test .\n")
	if err := os.WriteFile(filepath.Join(dir, "bad_test.go"), []byte("package x\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(\"as ever\") }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := mutate(t, dir)
	if code != 1 || !strings.Contains(out, ". fails in TestBad without a mutation:") || !strings.Contains(out, "as ever") || strings.Contains(out, "caught") {
		t.Errorf("exit code %d and\n%s", code, out)
	}
	if strings.Contains(out, "nothing is checked") {
		t.Errorf("what passes is shown too:\n%s", out)
	}
}

// TestInterrupted: a mutation that was not tried was not caught.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if code := run(ctx, inModule(t, removed+"test .\n"), nil, &out, &out); code != 1 || !strings.Contains(out.String(), "context canceled") {
		t.Errorf("exit code %d and\n%s", code, &out)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"file x.go\n":                                 "l:1: a mutation begins with",
		"rule R\n":                                    "l:1: the mutation of rule \"R\" does not say what is removed",
		"rule R it\n":                                 "l:1: \"R it\" changes no file",
		"rule R it\n-":                                "l:2: these lines are of no file",
		"rule R it\nfile x.go\n+a\ntest .":            "\"R it\" does not say where in x.go",
		"rule R it\nfile x.go\n-a\n+a\ntest .":        "\"R it\" leaves x.go as it is",
		"rule R it\nfile x.go\n-a\n+b\n":              "\"R it\" names no test",
		"rule R it\n\n# why\nfile x.go y.go":          "l:4: \"file x.go y.go\" is none of",
		"rule R it\ntest a b c":                       "l:2: \"test a b c\" is none of",
		"rule R it\nrun TestSum":                      "l:2: \"run TestSum\" is none of",
		removed + "test .\n" + removed + "test ./a\n": "l:6: \"R the sum is a difference\" is listed twice, first at l:1",
	} {
		if _, err := parse("l", list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, diff, want string }{
		{"a\nb\nc", "-b\n+x\n+y", "a\nx\ny\nc"},
		{"a\nb\nc", "-a", "b\nc"},
		{"a\nb\nc\n", " c\n+d", "a\nb\nc\nd\n"},
		{"\tab\nab", "-ab\n+x", "\tab\nx"},
		{"a\nb\na", "-a\n+x", "more than once, at 1 and 3"},
		{"a\na\na", "-a\n-a\n+x", "more than once, at 1 and 2"},
		{"ab\nb", "-a\n+x", "not in x.go"},
		{"a", "-a\n-b\n-c\n+x", "not in x.go"},
		{"a\nb", "-a\n+x\nfile x.go\n-x\n+y", "y\nb"},
	} {
		all, err := parse("l", "rule R it\nfile x.go\n"+c.diff+"\ntest .")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err = os.WriteFile(filepath.Join(dir, "x.go"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := all[0].apply(dir)
		if got["x.go"] != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q by %q is %q, %v, want %q", c.text, c.diff, got["x.go"], err, c.want)
		}
	}
}

// TestLists: the lists of this module are not stale, the code that they change can
// still be parsed, and each rule of docs/protocol*.md is in them.
func TestLists(t *testing.T) {
	t.Parallel()
	const root = "../.."
	all, err := load(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	removed := map[string]bool{}
	for _, m := range all {
		removed[m.rule] = true
		var mutated map[string]string
		if mutated, err = m.apply(root); err != nil {
			t.Fatal(err)
		}
		for file, text := range mutated {
			if _, err = parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("%s: %q: %v", m.at, m, err)
			}
		}
	}
	var rules []byte
	for _, page := range []string{"protocol", "protocol-sessions", "protocol-tables", "protocol-layouts"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, text...)
	}
	found := regexp.MustCompile(`(?m)^\| \*\*([ADTM]\d+)\*\*`).FindAllStringSubmatch(string(rules), -1)
	if len(found) < 33 {
		t.Fatalf("docs/protocol*.md have only the rules %q", found)
	}
	for _, rule := range found {
		if !removed[rule[1]] {
			t.Errorf("no mutation removes rule %s of docs/protocol*.md", rule[1])
		}
	}
}
