package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A report is the table of results.
type report struct {
	out       io.Writer
	mutations []*mutation
	verbose   bool
	rule      int // widths of columns
	title     int

	survivors []*mutation // without a reason
}

func newReport(out io.Writer, mutations []*mutation, verbose bool) *report {
	r := &report{out: out, mutations: mutations, verbose: verbose}
	for _, m := range mutations {
		r.rule, r.title = max(r.rule, len(m.rule)), max(r.title, len(m.title))
	}
	return r
}

func (r *report) row(m *mutation, rest string) {
	fmt.Fprintf(r.out, "%-*s  %-*s  %s\n", r.rule, m.rule, r.title, m.title, rest)
}

func (r *report) list() {
	for _, m := range r.mutations {
		var tests []string
		for _, t := range m.tests {
			tests = append(tests, t.String())
		}
		r.row(m, strings.Join(tests, ", "))
	}
}

// all prints each verdict as it comes, and reports whether every mutation was caught or
// explained. A survey needs no reasons.
func (r *report) all(verdicts []<-chan verdict, survey bool) bool {
	caught, survived, bad, began := 0, 0, 0, time.Now()
	explained, open, unbuilt := 0, 0, 0
	for i, m := range r.mutations {
		v := <-verdicts[i]
		took := fmt.Sprintf("%5.1fs  ", v.took.Seconds())
		switch {
		case m.change != nil && errors.Is(v.bad, errUnbuilt):
			unbuilt++ // the compiler caught it
			continue
		case strings.HasPrefix(m.why, openMark) && len(v.passed) > 0:
			open++
			r.row(m, "open      "+took+at(m))
		case m.why != "" && len(v.passed) > 0:
			explained++
			r.row(m, "explained "+took+m.why)
		case m.why != "" && v.bad == nil:
			bad++
			r.row(m, "BAD       "+took+"it is explained why no test fails, and "+strings.Join(v.caught, ", ")+" does")
		case v.bad != nil:
			bad++
			r.row(m, "BAD       "+took+m.at+": "+strings.TrimSpace(v.bad.Error()))
		case len(v.passed) > 0:
			survived++
			r.survivors = append(r.survivors, m)
			if v.unreached {
				r.row(m, "SURVIVED  "+took+m.at+": no test comes by it")
				continue
			}
			var tests []string
			for _, t := range v.passed {
				tests = append(tests, t.String())
			}
			r.row(m, "SURVIVED  "+took+strings.Join(tests, ", ")+at(m))
		default:
			caught++
			r.row(m, "caught    "+took+strings.Join(v.caught, ", "))
		}
		if r.verbose && v.bad == nil {
			fmt.Fprintln(r.out, v.said)
		}
	}
	rest := ""
	if explained+open+unbuilt > 0 {
		rest = fmt.Sprintf(", %d explained, %d open, %d not compiled", explained, open, unbuilt)
	}
	fmt.Fprintf(r.out, "%d mutations: %d caught, %d survived, %d bad%s; %.0f s\n",
		len(r.mutations), caught, survived, bad, rest, time.Since(began).Seconds())
	return (survived == 0 || survey) && bad == 0
}

func at(m *mutation) string {
	if m.change == nil {
		return ""
	}
	return " at " + m.at
}
