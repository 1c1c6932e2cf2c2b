package adaptertest

import (
	"os"
	"strings"
	"testing"
)

// Readme checks that the README in this directory is of one screen, and that its first Go code stands in the program at
// path as it is: in an example's main.go, or in a test file, of which Example is the main of the README. Code that
// begins with its package is the whole program.
func Readme(t *testing.T, path string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	program := string(text)
	if strings.HasSuffix(path, "_test.go") {
		if body, _, ok := strings.Cut(program, "\t// Output:"); ok {
			program = body + "}\n"
		}
		_, rest, _ := strings.Cut(program, "\n")
		program = "package main\n" + strings.Replace(rest, "func Example()", "func main()", 1)
	}
	_, code, _ := strings.Cut(string(readme), "```go\n")
	code, _, ok := strings.Cut(code, "```")
	if !ok || !strings.Contains("\n"+program, "\n"+code) || strings.HasPrefix(code, "package ") && code != program {
		t.Errorf("the README does not show what is in %s:\n%s", path, program)
	}
	if n := strings.Count(string(readme), "\n"); n > 40 {
		t.Errorf("the README has %d lines, more than a screen", n)
	}
}
