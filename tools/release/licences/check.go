package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences under which this project links code. All others are refused: those that ask for the
// source of what they are linked into (GPL, LGPL, AGPL), those that restrict who may use it (BUSL, SSPL), and those
// that nobody has read yet.
var allowed = []string{
	"Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "Unlicense", "CC0-1.0", "BlueOak-1.0.0",
	"MPL-2.0", // it asks for the source of its own files only, which the Go module proxy has
	"OFL-1.1", // fonts and style sheets, in what Caddy links
}

// alsoIn are what may be in a notice besides: a grant of patents.
var alsoIn = []string{"GooglePatentsFile", "GooglePatentClause", "GooglePatents"}

// leastKnown is how many percent of a file its licences must make up. The rest is names and dates, or a text that
// nobody has looked at.
const leastKnown = 70

// restricted are names of licences that restrict who may use what is under them. Package licensecheck does not know
// all of their texts, and one of them may stand beside a licence that is allowed.
var restricted = map[string]*regexp.Regexp{
	"BUSL":           regexp.MustCompile(`(?i)\bBusiness Source License\b|\bBUSL-\d`),
	"SSPL":           regexp.MustCompile(`(?i)\bServer Side Public License\b|\bSSPL-\d`),
	"Commons-Clause": regexp.MustCompile(`(?i)\bCommons Clause\b`),
	"Elastic":        regexp.MustCompile(`(?i)\bElastic License\b`),
}

// identify says which licences are in a text, and how many percent of it they are.
func identify(text []byte) (ids []string, percent float64) {
	c := licensecheck.Scan(text)
	for _, m := range c.Match {
		ids = append(ids, m.ID)
	}
	for id, name := range restricted {
		if name.Match(text) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), c.Percent
}

// readBy are files that somebody has read because licensecheck does not know all of them, and what is in them. They
// count without a version: a licence by another name is found out all the same.
var readBy = map[string]string{
	"modernc.org/libc LICENSE-3RD-PARTY.md": "lists the permissive licences of musl, the BSDs and others, of which it is made",
	"modernc.org/memory LICENSE-LOGO":       "is about a picture, which is not linked",
}

// check says all that is wrong with the licences of modules.
func check(modules []*module) error {
	var wrong []error
	for _, m := range modules {
		licences := 0
		for _, f := range m.files {
			if !f.notice {
				licences++
			}
			if err := f.check(readBy[m.path+" "+f.name] != ""); err != nil {
				wrong = append(wrong, fmt.Errorf("%s %s: %s: %w", m.path, m.version, f.name, err))
			}
		}
		if licences == 0 {
			wrong = append(wrong, fmt.Errorf("%s %s: it has no licence file: do not link it", m.path, m.version))
		}
	}
	return errors.Join(wrong...)
}

func (f *file) check(read bool) error {
	for _, id := range f.found {
		if !slices.Contains(allowed, id) && (!f.notice || !slices.Contains(alsoIn, id)) {
			return fmt.Errorf("it is under %s, which is not among those under which this project links code: do not link it, or argue for the licence in %q", id, "tools/release/licences/check.go")
		}
	}
	switch {
	case f.notice, read:
		return nil
	case len(f.found) == 0:
		return fmt.Errorf("it is under no licence that is known here; it begins with %.60q", strings.TrimSpace(string(f.text)))
	case f.known < leastKnown:
		return fmt.Errorf("only %.0f %% of it are %s: read the rest", f.known, strings.Join(f.found, ", "))
	}
	return nil
}
