package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutation removes one rule, or is made by general.
type mutation struct {
	rule, title string
	edits       []edit
	tests       []test  // each must fail; of a general mutation, any
	at          string  // where it is listed, such as protocol.txt:12
	change      *change // of a general mutation
	why         string  // the reason why no test fails
}

func (m *mutation) String() string { return m.rule + " " + m.title }

// An edit replaces lines of a file.
type edit struct {
	file     string // relative to go.mod
	old, new []string
	at       string
}

type test struct {
	pkg string
	run string // as for go test -run; empty: all
}

func (t test) String() string {
	if t.run == "" {
		return t.pkg
	}
	return t.pkg + " " + t.run
}

// parse parses a list of mutations, such as
//
//	# Why this is a rule, if its name does not say it.
//	rule A3 a lease after one's own has the same token
//	file internal/protocol/candidate/look.go
//	-	return o.top + 1
//	+	return o.top
//	test ./internal/protocol/candidate TestScenarios/a03
//	test ./proof/sim TestSimulation
//
// The lines after "file" are those of a diff: present lines after "-" or a space, new lines after
// "+" or a space. Present lines must be complete, and occur once in the file. There may be
// several "file" lines, even for the same file, and several "test" lines. A test is a package and
// an optional regexp for go test -run. Use a narrow one, because a test that fails for another
// reason hides a survivor. Empty lines and those that begin with "#" are ignored. The name is
// used in errors.
func parse(name, text string) ([]*mutation, error) {
	var all []*mutation
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		if line == "" || line[0] == '#' {
			continue
		}
		if word, rest, _ := strings.Cut(line, " "); word == "rule" {
			rule, title, _ := strings.Cut(rest, " ")
			all = append(all, &mutation{rule: rule, title: title, at: at})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: a mutation begins with a line \"rule NAME WHAT IS REMOVED\"", at)
		}
		if err := all[len(all)-1].line(line, at); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
	}
	seen := map[string]string{}
	for _, m := range all {
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", m.at, err)
		}
		if before := seen[m.String()]; before != "" {
			return nil, fmt.Errorf("%s: %q is listed twice, first at %s", m.at, m, before)
		}
		seen[m.String()] = m.at
	}
	return all, nil
}

func (m *mutation) line(line, at string) error {
	if strings.IndexByte(" -+", line[0]) >= 0 {
		if len(m.edits) == 0 {
			return errors.New("these lines are of no file: a line \"file PATH\" comes before them")
		}
		e := &m.edits[len(m.edits)-1]
		if line[0] != '+' {
			e.old = append(e.old, line[1:])
		}
		if line[0] != '-' {
			e.new = append(e.new, line[1:])
		}
		return nil
	}
	switch words := strings.Fields(line); {
	case words[0] == "file" && len(words) == 2:
		m.edits = append(m.edits, edit{file: words[1], at: at})
	case words[0] == "test" && len(words) == 2:
		m.tests = append(m.tests, test{pkg: words[1]})
	case words[0] == "test" && len(words) == 3:
		m.tests = append(m.tests, test{pkg: words[1], run: words[2]})
	default:
		return fmt.Errorf("%q is none of \"rule NAME WHAT IS REMOVED\", \"file PATH\", \"test PACKAGE [REGEXP]\" and the line of a diff", line)
	}
	return nil
}

func (m *mutation) check() error {
	switch {
	case m.title == "":
		return fmt.Errorf("the mutation of rule %q does not say what is removed", m.rule)
	case len(m.edits) == 0:
		return fmt.Errorf("%q changes no file", m)
	case len(m.tests) == 0:
		return fmt.Errorf("%q names no test", m)
	}
	for _, e := range m.edits {
		switch {
		case len(e.old) == 0:
			return fmt.Errorf("%q does not say where in %s", m, e.file)
		case slices.Equal(e.old, e.new):
			return fmt.Errorf("%q leaves %s as it is", m, e.file)
		}
	}
	return nil
}

// apply returns the mutated text of each file that the mutation changes, in the module in dir.
func (m *mutation) apply(dir string) (map[string]string, error) {
	mutated := map[string]string{}
	for _, e := range m.edits {
		text, again := mutated[e.file]
		if !again {
			read, err := os.ReadFile(filepath.Join(dir, e.file))
			if err != nil {
				return nil, fmt.Errorf("%s: %q is stale: %w", e.at, m, err)
			}
			text = string(read)
		}
		var err error
		if mutated[e.file], err = e.apply(text); err != nil {
			return nil, fmt.Errorf("%s: %q is stale: %w", e.at, m, err)
		}
	}
	return mutated, nil
}

func (e edit) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	where := -1
	for i := range len(lines) - len(e.old) + 1 {
		if !slices.Equal(lines[i:i+len(e.old)], e.old) {
			continue
		}
		if where >= 0 {
			return "", fmt.Errorf("its lines are in %s more than once, at %d and %d: add some beside them", e.file, where+1, i+1)
		}
		where = i
	}
	if where < 0 {
		return "", fmt.Errorf("its lines are not in %s: write it anew for the code that is there now", e.file)
	}
	return strings.Join(slices.Replace(lines, where, where+len(e.old), e.new...), "\n"), nil
}
