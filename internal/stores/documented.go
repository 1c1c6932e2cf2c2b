package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// documentation is the file with what others write of stores.
const documentation = "documented.json"

// A documented store is one of which something was read: in its documentation, in its release
// notes, or in what its maintainers and users wrote.
type documented struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	URL     string   `json:"url"`
	Proven  []string `json:"proven"`  // the reports on it, by their names in index.json
	Meaning string   `json:"meaning"` // for the layouts, in Markdown
	Facts   []fact   `json:"facts"`
}

// A fact is one statement of one source.
type fact struct {
	About  []string `json:"about"`  // aspects that it answers; none: it is a remark
	Answer string   `json:"answer"` // one word for the table
	Says   string   `json:"says"`   // in Markdown
	Source string   `json:"source"`
	Dated  string   `json:"dated"` // the day of the source, if it names one
	Read   string   `json:"read"`  // or else the day on which it was read
}

const (
	yes    = "yes"
	no     = "no"
	partly = "partly"
)

// An aspect is a column of the table.
type aspect struct {
	name    string
	answers []string // that are possible
}

var aspects = []aspect{
	{"create", []string{yes, partly, no}},
	{"update", []string{yes, partly, no}},
	{"multipart", []string{yes, partly, no}},
	{"delete", []string{yes, partly, no}},
	{"reads", []string{yes, partly, no}},
	{"listings", []string{yes, partly, no}},
	{"order", []string{"by key", "none"}},
	{"etag", []string{"hash", "no hash", "unquoted"}},
}

// needs are the aspects that each layout rests on, in the order of probe.Uses. Nothing rests on
// the order of listings, since leasehold sorts where there is none; nor on conditions of a
// DELETE or of a multipart upload; nor on what an ETag is made of.
var needs = []struct {
	layout  string
	aspects []string
}{
	{"object", []string{"create", "update", "reads"}},
	{"epochs", []string{"create", "update", "reads", "listings"}},
	{"epochs without If-Match", []string{"create", "reads", "listings"}},
	{"marker", []string{"create", "update", "reads"}},
	{"marker without If-Match", []string{"create", "reads"}},
}

// readDocumented reads what is documented of stores. Every fact has a source and a day.
func readDocumented(root string, rows []row) ([]documented, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "stores", documentation))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var stores []documented
	if err := d.Decode(&stores); err != nil {
		return nil, fmt.Errorf("docs/stores/%s: %w", documentation, err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	anchors := slices.Clone(names)
	for _, s := range stores {
		err := s.check(names)
		if err == nil && slices.Contains(anchors, s.Name) {
			err = errors.New("something else has this name")
		}
		if err != nil {
			return nil, fmt.Errorf("docs/stores/%s: %q: %w", documentation, s.Name, err)
		}
		anchors = append(anchors, s.Name)
	}
	return stores, nil
}

func (s *documented) check(reports []string) error {
	if s.Name == "" || s.Title == "" || s.URL == "" || s.Meaning == "" || len(s.Facts) == 0 {
		return errors.New("name, title, url, meaning and facts must be there")
	}
	for _, name := range s.Proven {
		if !slices.Contains(reports, name) {
			return fmt.Errorf("there is no report %q", name)
		}
	}
	answered := map[string]bool{}
	for _, f := range s.Facts {
		if err := f.check(); err != nil {
			return fmt.Errorf("%q: %w", f.Says, err)
		}
		for _, about := range f.About {
			if answered[about] {
				return fmt.Errorf("%q: another fact answers %s", f.Says, about)
			}
			answered[about] = true
		}
	}
	return nil
}

func (f *fact) check() error {
	if f.Says == "" {
		return errors.New("a fact says nothing")
	}
	if u, err := url.Parse(f.Source); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the source %q is no https URL", f.Source)
	}
	if (f.Dated == "") == (f.Read == "") {
		return errors.New("write the day of the source, or else the day on which it was read")
	}
	if _, err := time.Parse(time.DateOnly, f.Dated+f.Read); err != nil {
		return fmt.Errorf("the day %q is not of the form 2026-11-23", f.Dated+f.Read)
	}
	if (len(f.About) == 0) != (f.Answer == "") {
		return errors.New("a fact about something has an answer, and a remark has none")
	}
	for _, about := range f.About {
		i := slices.IndexFunc(aspects, func(a aspect) bool { return a.name == about })
		if i < 0 {
			return fmt.Errorf("there is no column %q", about)
		}
		if !slices.Contains(aspects[i].answers, f.Answer) {
			return fmt.Errorf("%s is answered by one of %q, not by %q", about, aspects[i].answers, f.Answer)
		}
	}
	return nil
}

// on is the fact that answers an aspect, or nil if nothing was found.
func (s *documented) on(aspect string) *fact {
	for i := range s.Facts {
		if slices.Contains(s.Facts[i].About, aspect) {
			return &s.Facts[i]
		}
	}
	return nil
}

// carries says which layouts a store would carry if all is as it is written: first those of
// which everything is documented, then those of which something is not.
func (s *documented) carries() string {
	var sure, open []string
	for _, n := range needs {
		worst := yes
		for _, aspect := range n.aspects {
			switch f := s.on(aspect); {
			case f != nil && f.Answer == no:
				worst = no
			case (f == nil || f.Answer == partly) && worst == yes:
				worst = partly
			}
		}
		switch worst {
		case yes:
			sure = append(sure, "`"+n.layout+"`")
		case partly:
			open = append(open, "`"+n.layout+"`")
		}
	}
	switch {
	case s.on("create") == nil:
		return "not known"
	case len(open) == 0:
		return listed(sure)
	case len(sure) == 0:
		return "perhaps " + listed(open)
	}
	return listed(sure) + "; perhaps " + listed(open)
}

// answers is the table of what is documented. Where there are reports they say which layouts
// the store carries, whatever is written of it.
func answers(stores []documented, rows []row) string {
	head := []string{""}
	for _, a := range aspects {
		head = append(head, a.name)
	}
	var body [][]string
	for _, s := range stores {
		cells := []string{"[" + escaped(s.Title) + "](#" + s.Name + ")"}
		for _, a := range aspects {
			cell := "nothing found"
			if f := s.on(a.name); f != nil {
				cell = "[" + f.Answer + "](" + f.Source + ")"
			}
			cells = append(cells, cell)
		}
		layouts, mark := s.carries(), "*read*"
		if len(s.Proven) > 0 {
			layouts, mark = s.proven(rows), "*read*, *proven here*"
		}
		body = append(body, append(cells, layouts, mark))
	}
	return table(append(head, "layouts, if so", "mark"), body)
}

// proven are the layouts that the reports on a store find safe, with a link to each.
func (s *documented) proven(rows []row) string {
	var said []string
	for _, name := range s.Proven {
		r := rows[slices.IndexFunc(rows, func(r row) bool { return r.Name == name })]
		var safe []string
		for _, n := range needs {
			if r.Proves(r.Store, n.layout) == nil {
				safe = append(safe, "`"+n.layout+"`")
			}
		}
		said = append(said, "["+escaped(r.Title)+"](#"+name+"): "+listed(safe))
	}
	return strings.Join(said, "; ")
}

// listed are names of layouts in one cell.
func listed(layouts []string) string {
	switch len(layouts) {
	case 0:
		return "none"
	case len(needs):
		return "all"
	}
	return strings.Join(layouts, ", ")
}

// sources is a section for each documented store, with each fact, its source and its day.
func sources(stores []documented) string {
	var b strings.Builder
	for _, s := range stores {
		fmt.Fprintf(&b, "<a id=%q></a>\n\n### %s: sources\n\n    %s\n\n%s\n\n", s.Name, escaped(s.Title), s.URL, s.Meaning)
		for _, f := range s.Facts {
			about := ""
			if len(f.About) > 0 {
				about = strings.Join(f.About, ", ") + ": **" + f.Answer + "**; "
			}
			day := f.Dated
			if day == "" {
				day = "read " + f.Read
			}
			fmt.Fprintf(&b, "- %s%s ([source](%s), %s)\n", about, f.Says, f.Source, day)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
