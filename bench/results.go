package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A sample is one figure of one round.
type sample struct {
	Experiment string  `json:"experiment"`
	Place      string  `json:"place"`
	Subject    string  `json:"subject"`
	Metric     string  `json:"metric"` // with its unit
	Round      int     `json:"round"`
	Value      float64 `json:"value"`
}

// results are all that was measured, and what was written about it.
type results struct {
	Began    time.Time `json:"began"`
	Machine  string    `json:"machine"`
	Rounds   int       `json:"rounds"`
	Seed     uint64    `json:"seed"` // of the times that were drawn
	Samples  []sample  `json:"samples"`
	Notes    []string  `json:"notes"` // what was left out
	sections []*section
}

// A section is the part of the document that an experiment writes.
type section struct {
	title string
	text  strings.Builder
	plots map[string]string // by file name
}

func newResults() *results {
	return &results{Began: time.Now().UTC(), Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
}

func (r *results) add(experiment, place, subject, metric string, round int, value float64) {
	r.Samples = append(r.Samples, sample{experiment, place, subject, metric, round, value})
}

// note says what was left out, and why.
func (r *results) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// section begins a part of the document.
func (r *results) section(title string) *section {
	r.sections = append(r.sections, &section{title: title, plots: map[string]string{}})
	return r.sections[len(r.sections)-1]
}

// values are the samples of one figure, by round.
func (r *results) values(experiment, place, subject, metric string) map[int]float64 {
	values := map[int]float64{}
	for _, s := range r.Samples {
		if s.Experiment == experiment && s.Place == place && s.Subject == subject && s.Metric == metric {
			values[s.Round] = s.Value
		}
	}
	return values
}

// A spread is the median of the rounds, and the least and the most of them.
type spread struct {
	median, least, most float64
	n                   int
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{median: math.NaN()}
	}
	values = slices.Sorted(slices.Values(values))
	return spread{quantile(values, 0.5), values[0], values[len(values)-1], len(values)}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// of is the spread of one figure.
func (r *results) of(experiment, place, subject, metric string) spread {
	var all []float64
	for _, v := range r.values(experiment, place, subject, metric) {
		all = append(all, v)
	}
	return spreadOf(all)
}

// ratio is the spread of one figure over another of the same round.
func (r *results) ratio(experiment, place, metric, subject, over string) spread {
	base := r.values(experiment, place, over, metric)
	var all []float64
	for round, v := range r.values(experiment, place, subject, metric) {
		if base[round] > 0 {
			all = append(all, v/base[round])
		}
	}
	return spreadOf(all)
}

// quantile is that of sorted values, between its neighbours.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// number is a figure with three digits that count.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func (s spread) String() string {
	if s.n < 2 || s.least == s.most {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.median), number(s.least), number(s.most))
}

// table writes rows, of which the first is the head.
func (s *section) table(rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(&s.text, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&s.text, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	s.text.WriteString("\n")
}

// say writes a paragraph.
func (s *section) say(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n\n", args...) }

// plot adds a picture.
func (s *section) plot(name, alt, svg string) {
	if svg == "" {
		return
	}
	s.plots[name] = svg
	fmt.Fprintf(&s.text, "![%s](benchmarks/%s)\n\n", alt, name)
}

// print writes the document.
func (r *results) print(w io.Writer) error {
	var out strings.Builder
	out.WriteString(preface)
	fmt.Fprintf(&out, "Run of %s on %s, %d rounds, or fewer where one takes long; times that are drawn come from the seed %d. The raw figures of every round: [benchmarks.json](benchmarks/benchmarks.json).\n\n", r.Began.Format("2006-01-02"), r.Machine, r.Rounds, r.Seed)
	for i := range r.sections {
		fmt.Fprintf(&out, "## %s\n\n%s", r.sections[i].title, r.sections[i].text.String())
	}
	if len(r.Notes) > 0 {
		out.WriteString("## Left out of this run\n\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&out, "- %s\n", n)
		}
	}
	_, err := io.WriteString(w, strings.TrimRight(out.String(), "\n")+"\n")
	return err
}

// write writes the document, its plots and the raw figures.
func (r *results) write(dir string) error {
	pictures := filepath.Join(dir, "benchmarks")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	for i := range r.sections {
		for name, svg := range r.sections[i].plots {
			if err := os.WriteFile(filepath.Join(pictures, name), []byte(svg), 0o644); err != nil {
				return err
			}
		}
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(pictures, "benchmarks.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	document, err := os.Create(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		return err
	}
	if err = r.print(document); err != nil {
		_ = document.Close()
		return err
	}
	return document.Close()
}
