package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A part that fails, or does not say what it did, has not held.
func TestAttack(t *testing.T) {
	for _, c := range []struct {
		command []string
		held    bool
		figures string
	}{
		{words("echo --- figures: 3 things"), true, "3 things"},
		{words("echo 7 mutations: 7 caught"), true, "7 mutations: 7 caught"},
		{words("echo 4 hold, 5 caught"), true, "4 hold, 5 caught"},
		{words("echo all is well"), false, ""},
		{words("ls figures:"), false, ""},
		{words("no-such-program"), false, ""},
	} {
		r := attack(t.Context(), "x", c.command)
		if held := r.outcome == "held"; held != c.held || c.held && strings.Join(r.figures, "") != c.figures {
			t.Errorf("%q: %s, %q", c.command, r.outcome, r.figures)
		}
		var b strings.Builder
		if table(&b, []result{{name: "well", outcome: "held"}, r}) != c.held || !strings.Contains(b.String(), c.figures) {
			t.Errorf("%q: the table says %s", c.command, b.String())
		}
	}
	if table(new(strings.Builder), nil) {
		t.Error("nothing was attacked, and it held")
	}
}

// Each part names a package, a program or a target that exists.
func TestParts(t *testing.T) {
	for _, p := range parts {
		for _, command := range [][]string{p.short, p.long} {
			if command == nil {
				continue
			}
			what, dir := command[0], ".."
			if what == "make" { // a machine may have none
				makefile, err := os.ReadFile(filepath.Join("..", "Makefile"))
				if err != nil || !strings.Contains(string(makefile), "\n"+command[1]+":") {
					t.Errorf("%s: there is no target %s, %v", p.name, command[1], err)
				}
				continue
			}
			if what == "go" {
				if command[1] == "-C" {
					dir = filepath.Join(dir, command[2])
				}
				what = command[slices.IndexFunc(command, func(word string) bool { return strings.HasPrefix(word, "./") })]
			}
			_, inPath := exec.LookPath(what)
			_, inTree := os.Stat(filepath.Join(dir, what))
			if inPath != nil && inTree != nil {
				t.Errorf("%s: there is no %s", p.name, what)
			}
		}
	}
}

// Each package of this module that has tests is part of some part: a proof that nothing runs proves nothing.
func TestEveryPackageIsAPart(t *testing.T) {
	files, err := filepath.Glob("*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		pkg := "./" + filepath.Dir(file)
		if !slices.ContainsFunc(parts, func(p part) bool { return slices.Contains(p.short, pkg) && slices.Contains(p.long, pkg) }) {
			t.Errorf("no part runs %s", pkg)
		}
	}
}
