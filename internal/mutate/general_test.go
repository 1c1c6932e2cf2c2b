package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
`

const codeTests = `package x

import "testing"

func TestAll(t *testing.T) {
	if Sum(2, 1) != 3 || Max(1, 2) != 2 || Max(2, 1) != 2 || Name("y") != "xy" {
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
			"Counter.Add: all of it → nothing SURVIVED", "Counter.Add: c.N++ → nothing SURVIVED",
			"6 mutations: 2 caught, 3 survived, 0 bad", "besides, 0 survived as explained, and 1 did not compile",
		}, 1},
		{"one is explained", equal, []string{"explained", "Equal numbers are one.", "2 caught, 2 survived, 0 bad", "1 survived as explained"}, 1},
		{"all are explained", add + equal, []string{"Nobody calls it. Really.", "2 caught, 0 survived, 0 bad", "3 survived as explained"}, 0},
		{"explained and caught", add + equal + "x.go Sum: a + b → a - b\n\tSo what.\n", []string{"BAD", "it is explained why no test fails, and TestAll does"}, 1},
		{"explained and gone", add + "x.go Min: a > b → a >= b\n\tIt was.\n", []string{`explained.txt:7: there is no mutation "x.go Min: a > b → a >= b"`}, 2},
		{"no reason", equal + "x.go Sum: a + b → a - b\n", []string{`no reason is given for "x.go Sum: a + b → a - b"`}, 2},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			dir := inModule(t, "")
			for name, text := range map[string]string{"x.go": code, "x_test.go": codeTests, "internal/mutate/explained.txt": c.explained} {
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

// TestExplained: the list of this module is not stale.
func TestExplained(t *testing.T) {
	t.Parallel()
	if _, err := loadGeneral("../..", "./internal/protocol", nil); err != nil {
		t.Error(err)
	}
}
