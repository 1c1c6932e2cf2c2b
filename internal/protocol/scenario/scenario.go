// Package scenario plays the scenarios of the state machines: text files that claim something in
// their header, and then list events and what the machine must answer.
package scenario

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what happened into the scenarios")

// Wall is the wall clock's reading when the clock reads zero.
var Wall = time.Date(2026, 11, 20, 10, 30, 0, 0, time.UTC)

// Play plays the files testdata/*.txt. A line at the margin is an event, with the clock's reading, and
// the indented lines under it are the answer. The function play returns the text with the answers
// of its machine: see Replay. With the flag -update, Play writes these into the files.
func Play(t *testing.T, play func(t *testing.T, text string) string) {
	t.Helper()
	for _, file := range files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s: the answers differ.\nwant:\n%s\ngot:\n%s", file, text, got)
		})
	}
}

// Replay passes each event of a scenario to a function, which writes the answer, and returns the
// scenario's text with these answers.
func Replay(text string, event func(line string, out *strings.Builder)) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "  "):
			// the old answer
		default:
			fmt.Fprintln(&out, line)
			event(line, &out)
		}
	}
	return out.String()
}

// Claims fails the test unless each scenario begins with its claim, and each of these rules has one.
func Claims(t *testing.T, rules ...string) {
	t.Helper()
	var headers strings.Builder
	for _, file := range files(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s does not begin with its claim", file)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				headers.WriteString(line)
			}
		}
	}
	for _, rule := range rules {
		if !strings.Contains(headers.String(), rule+":") {
			t.Errorf("no scenario claims rule %s", rule)
		}
	}
}

func files(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	return files
}

// Duration parses a duration of a scenario.
func Duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Failure parses an error of a scenario, which is fatal if its last word says so.
func Failure(words []string) (err error, fatal bool) {
	if fatal = words[len(words)-1] == "fatal"; fatal {
		words = words[:len(words)-1]
	}
	return errors.New(strings.Join(words, " ")), fatal
}
