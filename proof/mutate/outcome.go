package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// An event is one line of go test -json's output. See go doc test2json and, for FailedBuild, go
// help buildjson.
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

// An outcome is the result of go test -json for one package.
type outcome struct {
	ran     int      // tests and subtests
	failed  []string // failed or unfinished tests, innermost first
	leaves  []string // passed subtests without subtests
	unbuilt bool
	said    string // output of what did not pass
}

// timedOut is the testing package's message when a test binary times out.
const timedOut = "panic: test timed out after"

// read parses the output of go test -json. Lines that are not events count as output.
func read(output []byte) outcome {
	var o outcome
	var events []event
	var running []string
	passed := map[string]bool{}
	late := ""
	for line := range bytes.Lines(output) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
			e = event{Action: "output", Output: string(line)}
		}
		events = append(events, e)
		o.unbuilt = o.unbuilt || e.FailedBuild != ""
		if strings.HasPrefix(e.Output, timedOut) {
			late = "timeout in "
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			o.ran++
			running = append(running, e.Test)
		case "fail":
			o.failed = append(o.failed, late+e.Test)
		case "pass", "skip":
			passed[e.Test] = true
		}
	}
	names := slices.Sorted(maps.Keys(passed))
	for i, name := range names {
		if strings.Contains(name, "/") && (i+1 == len(names) || !strings.HasPrefix(names[i+1], name+"/")) {
			o.leaves = append(o.leaves, name)
		}
	}
	running = slices.DeleteFunc(running, func(test string) bool { return passed[test] })
	if len(o.failed) == 0 && len(running) > 0 {
		o.failed = []string{late + running[len(running)-1]}
	}
	var said strings.Builder
	for _, e := range events {
		if !passed[e.Test] {
			said.WriteString(e.Output)
		}
	}
	o.said = said.String()
	return o
}
