package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/longtest"
)

const module = "github.com/leasehold/leasehold"

// An event is one line of the output of go test -json; see go doc test2json
// and, for ImportPath and FailedBuild, go help buildjson.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64 // seconds
	ImportPath  string
	FailedBuild string
}

// A tally is written the output of go test -json, counts the tests and prints
// a line for each package and all that failing tests said. The zero tally with
// an out is ready to use. It is not safe for concurrent use.
type tally struct {
	out      io.Writer
	verbose  bool   // show what passing tests said, too
	ci       bool   // a skip that is not allowed is a failure
	layout   string // that is tested
	everyday bool   // without the long tests

	passed, failed int
	skips          []skip // not counted in failed
	bad            []string
	whole          []elapsed // the packages
	long           []elapsed // the longest, which is the first, and the next ones

	packages map[string]*results // begun and not yet ended
	builds   map[string][]string // output of builds, by import path
	partial  []byte              // an unfinished line
}

// results are those of one package that is being tested.
type results struct {
	passed, failed int
	skips          []skip
	running        map[string]*node
	bad            map[string]bool // failed or unfinished, by name
	took           []elapsed
	said           []line
}

// An elapsed is a package, or a test without subtests, and the seconds that it took.
type elapsed struct {
	name    string
	seconds float64
}

// The longest tests are named with the time that they took, if they took so many seconds.
const (
	longest = 12
	slow    = 5
)

// A node is a test that has begun: a leaf until it has a subtest.
type node struct {
	branch      bool
	failedBelow bool
	said        []string
}

// A line is one line of output and the test that it came from, if any.
type line struct {
	test, text string
}

func (t *tally) printf(format string, args ...any) {
	fmt.Fprintf(t.out, format, args...)
}

// step prints a line for something other than a package; with an error it has
// failed.
func (t *tally) step(name string, took time.Duration, err error) {
	if err != nil {
		t.failed++
		t.printf("FAIL  %-50s %7.1fs\n%v\n", name, took.Seconds(), err)
		return
	}
	t.printf("ok    %-50s %7.1fs\n", name, took.Seconds())
}

// Write takes the next part of the stream. It never fails.
func (t *tally) Write(p []byte) (int, error) {
	t.partial = append(t.partial, p...)
	for {
		text, rest, ok := bytes.Cut(t.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.line(text)
		t.partial = rest
	}
}

// line takes one line of the stream. A line that is no event is somebody's message.
func (t *tally) line(text []byte) {
	var e event
	if err := json.Unmarshal(text, &e); err != nil || e.Action == "" {
		t.printf("%s\n", text)
		return
	}
	switch {
	case e.Action == "build-output":
		if t.builds == nil {
			t.builds = make(map[string][]string)
		}
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)
	case e.Package == "":
	case e.Test == "":
		t.pkgEvent(e)
	default:
		t.results(e.Package).testEvent(e)
	}
}

func (t *tally) results(pkg string) *results {
	r := t.packages[pkg]
	if r == nil {
		if t.packages == nil {
			t.packages = make(map[string]*results)
		}
		r = &results{running: make(map[string]*node), bad: make(map[string]bool)}
		t.packages[pkg] = r
	}
	return r
}

// pkgEvent takes an event of a package as a whole.
func (t *tally) pkgEvent(e event) {
	r := t.results(e.Package)
	switch e.Action {
	case "output":
		r.said = append(r.said, line{text: e.Output})
	case "pass", "skip":
		t.endPackage(e, true)
	case "fail":
		t.endPackage(e, false)
	}
}

// testEvent takes an event of one test.
func (r *results) testEvent(e event) {
	switch e.Action {
	case "run":
		r.running[e.Test] = &node{}
		for _, above := range r.above(e.Test) {
			above.branch = true
		}
	case "output":
		if strings.HasPrefix(e.Output, "=== ") {
			return
		}
		r.said = append(r.said, line{e.Test, e.Output})
		if l := r.running[e.Test]; l != nil {
			l.said = append(l.said, e.Output)
		}
	case "pass", "fail", "skip":
		r.endTest(e)
	}
}

// endTest counts a test that has ended. One with subtests is counted only for
// what its subtests do not account for.
func (r *results) endTest(e event) {
	l := r.running[e.Test]
	if l == nil {
		l = &node{}
	}
	delete(r.running, e.Test)
	if !l.branch && e.Elapsed >= slow {
		r.took = append(r.took, elapsed{short(e.Package) + " " + e.Test, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		if !l.branch {
			r.passed++
		}
	case "fail":
		r.bad[e.Test] = true
		if !l.failedBelow {
			r.failed++
		}
		for _, above := range r.above(e.Test) {
			above.failedBelow = true
		}
	case "skip":
		r.skips = append(r.skips, skip{short(e.Package), e.Test, reason(l.said)})
	}
}

// above are the running tests of which the named one is a subtest.
func (r *results) above(test string) []*node {
	var nodes []*node
	for i := strings.LastIndexByte(test, '/'); i >= 0; i = strings.LastIndexByte(test[:i], '/') {
		if l := r.running[test[:i]]; l != nil {
			nodes = append(nodes, l)
		}
	}
	return nodes
}

// endPackage counts a package that has ended and prints what it said.
func (t *tally) endPackage(e event, ok bool) {
	r := t.results(e.Package)
	delete(t.packages, e.Package)
	for name, l := range r.running { // it panicked, timed out or exited
		r.bad[name] = true
		if !l.branch {
			r.failed++
		}
	}
	if !ok && r.failed == 0 {
		r.failed = 1
	}
	for _, s := range r.skips {
		if t.ci && !s.allowed() && (!t.everyday || !strings.HasPrefix(s.reason, longtest.LeftOut)) {
			r.failed++
			r.said = append(r.said, line{text: "skipped for a reason that is not allowed in CI: " + s.String() + "\n"})
		} else {
			t.skips = append(t.skips, s)
		}
	}
	t.passed += r.passed
	t.failed += r.failed
	for _, name := range slices.Sorted(maps.Keys(r.bad)) {
		t.bad = append(t.bad, short(e.Package)+" "+name)
	}
	if name := short(e.Package); e.Elapsed >= 1 {
		if slices.Contains(layouts, t.layout) {
			name += " in the layout " + t.layout
		}
		t.whole = append(t.whole, elapsed{name, e.Elapsed})
	}
	t.long = append(t.long, r.took...)
	slices.SortStableFunc(t.long, func(a, b elapsed) int { return cmp.Compare(b.seconds, a.seconds) })
	t.long = t.long[:min(longest, len(t.long))]

	word := "ok"
	if r.failed > 0 {
		word = "FAIL"
	} else if r.passed+len(r.skips) == 0 {
		word = "-"
	}
	t.printf("%-5s %-38s %5d tests %7.1fs\n", word, short(e.Package), r.passed+r.failed, e.Elapsed)
	t.show(e, r)
}

// show prints the output of a package: what failed, or all if t is verbose.
func (t *tally) show(e event, r *results) {
	for _, text := range t.builds[e.FailedBuild] {
		t.printf("%s", text)
	}
	delete(t.builds, e.FailedBuild) // several packages can fail for one
	for _, l := range r.said {
		if t.verbose || r.failed > 0 && (l.test == "" || r.bad[l.test]) {
			t.printf("%s", l.text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		t.printf("did not finish: %s\n", name)
	}
}

// end says that the stream is over: a package that has not ended has failed.
func (t *tally) end() {
	if len(t.partial) > 0 {
		t.line(t.partial)
		t.partial = nil
	}
	for _, pkg := range slices.Sorted(maps.Keys(t.packages)) {
		t.endPackage(event{Package: pkg}, false)
	}
}

// summary prints what the run amounts to, the counts alone on the last line.
func (t *tally) summary(built outcome) {
	t.printf("\ntested against: %s\n", list(built.ready))
	if len(built.leftOut) > 0 {
		t.printf("left out: %s (by %s)\n", list(built.leftOut), without)
	}
	if len(built.broken) > 0 {
		t.printf("could not be built: %s\n", list(built.broken))
	}
	for _, s := range t.skips {
		t.printf("skipped: %s\n", s)
	}
	slices.SortStableFunc(t.whole, func(a, b elapsed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, l := range t.whole {
		t.printf("package took %6.1fs: %s\n", l.seconds, l.name)
	}
	for _, l := range t.long {
		t.printf("took %6.1fs: %s\n", l.seconds, l.name)
	}
	for _, name := range t.bad {
		t.printf("failed: %s\n", name)
	}
	t.printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, len(t.skips))
}

func list(names []string) string {
	if len(names) == 0 {
		return "no server"
	}
	return strings.Join(names, ", ")
}

// short is the import path without the module's.
func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}
