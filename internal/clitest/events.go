package clitest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// kinds are the events that testdata/events.txt of the command lists, which a test of the
// command compares with the code: by name, with the fields that all and that only some have.
var kinds = sync.OnceValues(func() (map[string][2][]string, error) {
	text, err := os.ReadFile(filepath.Join(Root, "cmd", "leasehold", "testdata", "events.txt"))
	if err != nil {
		return nil, err
	}
	found := map[string][2][]string{}
	for line := range strings.Lines(string(text)) {
		name, fields, _ := strings.Cut(line, ":")
		always, sometimes, _ := strings.Cut(fields, "|")
		found[name] = [2][]string{strings.Fields(always), strings.Fields(sometimes)}
	}
	return found, nil
})

// Event checks that a line is an event as it is documented, and returns its name and fields.
func Event(line []byte) (name string, has map[string]json.RawMessage, err error) {
	known, err := kinds()
	if err != nil {
		return "", nil, err
	}
	if err := json.Unmarshal(line, &has); err != nil {
		return "", nil, fmt.Errorf("%s is not an object: %w", line, err)
	}
	var common struct{ Time, Event string }
	if err := json.Unmarshal(line, &common); err != nil {
		return "", nil, err
	}
	if _, err := time.Parse(time.RFC3339, common.Time); err != nil || !strings.HasSuffix(common.Time, "Z") {
		return "", nil, fmt.Errorf("%s: the time is not in UTC: %w", line, err)
	}
	fields, ok := known[common.Event]
	if !ok {
		return "", nil, fmt.Errorf("%s: there is no event %q", line, common.Event)
	}
	for _, f := range fields[0] {
		if has[f] == nil {
			return "", nil, fmt.Errorf("%s: there is no field %q", line, f)
		}
	}
	for f := range has {
		if !slices.Contains(slices.Concat(fields[0], fields[1]), f) {
			return "", nil, fmt.Errorf("%s: the field %q is not one of that event", line, f)
		}
	}
	return common.Event, has, nil
}

// events FILE NAME[+FIELD…]… checks that all lines of a file are events as they are documented, and
// that among them, in this order, there are those, with these fields. Of NAME|NAME there is one.
func eventLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: events FILE NAME[+FIELD…]…")
	}
	text, due := ts.ReadFile(args[0]), args[1:]
	for line := range strings.Lines(text) {
		name, has, err := Event([]byte(line))
		ts.Check(err)
		if len(due) == 0 {
			continue
		}
		want := strings.Split(due[0], "+")
		if slices.Contains(strings.Split(want[0], "|"), name) && !slices.ContainsFunc(want[1:], func(f string) bool { return has[f] == nil }) {
			due = due[1:]
		}
	}
	if len(due) > 0 {
		ts.Fatalf("there is no event %s, or not in this order, in:\n%s", due[0], text)
	}
}
