package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// explained returns the file with a package's explained survivors, such as
// proof/mutate/explained/internal-protocol.txt, or root.txt.
func explained(dir, pkg string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(filepath.ToSlash(filepath.Clean(pkg)), "./"), "/", "-")
	if name == "." {
		name = "root"
	}
	return filepath.Join(dir, "proof/mutate/explained", name+".txt")
}

// openMark begins the reason of a survivor with a missing test.
const openMark = "OPEN"

func record(file string, survivors []*mutation) error {
	if len(survivors) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, m := range survivors {
		b.WriteString(m.String() + "\n")
	}
	b.WriteString("\t" + openMark + ": no test notices it.\n\n")
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

// explain adds the reasons to survivors, from a list such as
//
//	acquire.go Candidate.seek: now.Clock >= c.until → now.Clock > c.until
//		In the very nanosecond it makes no difference: the next step is due at once.
//
// Lines without indentation are mutations, and the indented lines after them are their reason.
// Empty lines and those that begin with "#" are ignored. A reason that begins with OPEN means a
// missing test, and is counted separately.
func explain(mutations []*mutation, file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	index := map[string]*mutation{}
	for _, m := range mutations {
		index[m.String()] = m
	}
	var stale []error
	var group, all []*mutation
	for i, line := range strings.Split(string(text), "\n") {
		switch m := index[line]; {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			for _, m := range group {
				m.why += line[1:] + " "
			}
		case m == nil:
			stale = append(stale, fmt.Errorf("%s:%d: there is no mutation %q", file, i+1, line))
		default:
			if len(group) > 0 && group[0].why != "" {
				group = nil
			}
			group, all = append(group, m), append(all, m)
		}
	}
	for _, m := range all {
		if m.why == "" {
			stale = append(stale, fmt.Errorf("%s: no reason is given for %q", file, m))
		}
	}
	return errors.Join(stale...)
}
