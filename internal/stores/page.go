package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/leasehold/leasehold/store/probe"
)

//go:embed stores.md.tmpl
var text string

// page is the whole of docs/stores.md.
func page(rows []row, stores []documented) []byte {
	var b bytes.Buffer
	err := template.Must(template.New("").Parse(text)).Execute(&b, map[string]string{
		"Verdicts": verdicts(rows),
		"Findings": findings(rows),
		"Latency":  latency(rows),
		"Requests": requests(rows),
		"Notes":    notes(rows),
		"Details":  details(rows),
		"Answers":  answers(stores, rows),
		"Sources":  sources(stores),
	})
	if err != nil {
		panic(err) // the template names something else
	}
	return b.Bytes()
}

// table is one in Markdown, with a first column that says what the row is about.
func table(head []string, body [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, cells := range body {
		line(cells)
	}
	return b.String()
}

func titles(rows []row) (names []string) {
	for _, r := range rows {
		names = append(names, escaped(r.Title))
	}
	return names
}

// verdicts is the table of what each store is safe for.
func verdicts(rows []row) string {
	head := []string{""}
	for _, use := range probe.Uses() {
		head = append(head, "`"+use+"`")
	}
	var body [][]string
	for _, r := range rows {
		cells := []string{"[" + escaped(r.Title) + "](#" + r.Name + ")"}
		for _, use := range probe.Uses() {
			if r.Proves(r.Store, use) == nil {
				cells = append(cells, "safe")
			} else {
				cells = append(cells, "**NO**")
			}
		}
		body = append(body, cells)
	}
	return table(head, body)
}

// asked is the finding that says no more than that the findings on settings follow.
const asked = "settings"

// found are the names of all findings, in the order in which they are made.
func found(rows []row) (names []string) {
	for _, r := range rows {
		after := 0
		for _, f := range r.Findings {
			if f.Name == asked {
				continue
			}
			i := slices.Index(names, f.Name)
			if i < 0 {
				i = after
				names = slices.Insert(names, i, f.Name)
			}
			after = i + 1
		}
	}
	return names
}

// findings is the table of how each experiment came out.
func findings(rows []row) string {
	var body [][]string
	for _, name := range found(rows) {
		cells := []string{escaped(name)}
		for _, r := range rows {
			cells = append(cells, mark(r.Report, name))
		}
		body = append(body, cells)
	}
	return table(append([]string{""}, titles(rows)...), body)
}

// nothing is what a setting that is not there is called.
const nothing = "none"

func mark(r *probe.Report, name string) string {
	i := slices.IndexFunc(r.Findings, func(f probe.Finding) bool { return f.Name == name })
	if i < 0 {
		return "" // no store of this kind has it
	}
	switch f := r.Findings[i]; {
	case f.Result == probe.Bad:
		return "**BAD**"
	case f.Result == probe.Unknown:
		return "?"
	case f.Result == probe.Note && f.Detail == nothing:
		return nothing
	default:
		return string(f.Result)
	}
}

// few is how many requests of a kind tell too little of the slowest percent.
const few = 20

// latency is the table of how long each operation took.
func latency(rows []row) string {
	var ops []string
	for _, r := range rows {
		for _, l := range r.Latency {
			if l.Count >= few && !slices.Contains(ops, l.Op) {
				ops = append(ops, l.Op)
			}
		}
	}
	var body [][]string
	for _, r := range rows {
		cells := []string{escaped(r.Title)}
		for _, op := range ops {
			cell := ""
			if i := slices.IndexFunc(r.Latency, func(l probe.Latency) bool { return l.Op == op }); i >= 0 && r.Latency[i].Count >= few {
				cell = millis(r.Latency[i].P50) + " / " + millis(r.Latency[i].P99)
			}
			cells = append(cells, cell)
		}
		body = append(body, append(cells, r.TTL.Least.Duration().String()))
	}
	return table(slices.Concat([]string{""}, ops, []string{"least TTL"}), body)
}

// millis gives milliseconds in two digits, or all of those before the point.
func millis(m probe.Micros) string {
	ms := float64(m) / 1000
	switch {
	case ms < 1:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	}
	return strconv.FormatFloat(ms, 'f', 0, 64)
}

// requests is the table of what a probe costs.
func requests(rows []row) string {
	var body [][]string
	for _, r := range rows {
		q := r.Requests
		cells := []string{escaped(r.Title)}
		for _, n := range []int{q.Get, q.Put, q.List, q.Delete, q.Inspect, q.Total(), r.Limit} {
			cells = append(cells, strconv.Itoa(n))
		}
		for _, bytes := range []int64{r.Sent, r.SentLimit} {
			cells = append(cells, strconv.FormatFloat(float64(bytes)/1e6, 'f', 0, 64))
		}
		body = append(body, append(cells, r.Took.Duration().Round(100*time.Millisecond).String()))
	}
	return table([]string{"", "GET", "PUT", "LIST", "DELETE", "settings and versions", "all", "at most", "MB sent", "at most", "time"}, body)
}

// chance is in notes that would be the same but for numbers that no run repeats.
var chance = regexp.MustCompile(`in [0-9]+ of [0-9]+ races`)

// notes are what the notes say, each once, and of which stores.
func notes(rows []row) string {
	var b strings.Builder
	for _, name := range found(rows) {
		var said []string
		of := map[string][]string{}
		for _, r := range rows {
			if f := r.Finding(name); f.Result == probe.Note && f.Detail != nothing {
				detail := chance.ReplaceAllString(f.Detail, "in some races")
				if of[detail] == nil {
					said = append(said, detail)
				}
				of[detail] = append(of[detail], escaped(r.Title))
			}
		}
		for _, detail := range said {
			who := strings.Join(of[detail], ", ")
			if len(of[detail]) == len(rows) {
				who = "all"
			}
			fmt.Fprintf(&b, "- %s: %s. (%s)\n", escaped(name), escaped(detail), who)
		}
	}
	return b.String()
}

// details is a section for each store, with what is wrong or not known.
func details(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "<a id=%q></a>\n\n### %s\n\n", r.Name, escaped(r.Title))
		if r.Version != "" {
			fmt.Fprintf(&b, "Version %s. ", escaped(r.Version))
		}
		fmt.Fprintf(&b, "%s Probed on %s: [the report](stores/%s.json).\n\n", escaped(r.Note), r.At.Format(time.DateOnly), r.Name)
		for _, result := range []probe.Result{probe.Bad, probe.Unknown} {
			var said []string
			names := map[string][]string{} // by what is said of them
			for _, f := range r.Findings {
				if f.Result != result || f.Name == asked {
					continue
				}
				if names[f.Detail] == nil {
					said = append(said, f.Detail)
				}
				names[f.Detail] = append(names[f.Detail], f.Name)
			}
			for _, detail := range said {
				of := names[detail]
				fmt.Fprintf(&b, "- %s %s: %s\n", mark(r.Report, of[0]), escaped(strings.Join(of, ", ")), escaped(detail))
			}
		}
		b.WriteByte('\n')
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n\n\n", "\n\n")
}

// The text of a server must not look like Markdown.
var escapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "\n", " ")

func escaped(s string) string { return escapes.Replace(s) }
