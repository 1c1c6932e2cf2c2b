package doctest_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/doctest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	steps, err := doctest.Parse(`# A page

<!-- test: setup
echo hidden
-->

<!-- test: exit 3 -->
<!-- test: needs a b -->
` + "```sh\n(exit 3)\n```" + `
<!-- test: prints -->
` + "```text\nnothing …\n```" + `

- in a list:

` + "  ```sh\n  one\n    two\n  ```\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 4 {
		t.Fatalf("%+v", steps)
	}
	if s := steps[0]; s.Do != "setup" || s.Text != "echo hidden\n" {
		t.Errorf("%+v", s)
	}
	if s := steps[1]; s.Do != "run" || s.Exit != 3 || len(s.Needs) != 2 || s.Text != "(exit 3)\n" || s.Line != 10 {
		t.Errorf("%+v", s)
	}
	if s := steps[2]; s.Do != "prints" || s.Text != "nothing …\n" {
		t.Errorf("%+v", s)
	}
	if s := steps[3]; s.Text != "one\n  two\n" {
		t.Errorf("%+v", s)
	}
}

// What nobody would notice otherwise: a block that is never run because of a mistake in the page.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"```go\npackage main\n```":                                        "is not run, and does not say why",
		"```\nx\n```":                                                     "is not run, and does not say why",
		"<!-- test: same a -->\n```go\n```":                               "an empty block",
		"```sh\nx":                                                        "without an end",
		"<!-- test: run -->\n```sh\nx\n```":                               "is none of",
		"<!-- test: skip -->\n```sh\nx\n```":                              "skip of what?",
		"<!-- test: exit x -->\n```sh\nx\n```":                            "invalid syntax",
		"<!-- test: skip it\n-->\n```sh\nx\n```":                          "only setup has more than a line",
		"<!-- test: setup -->\n":                                          "only setup has more than a line",
		"<!-- test: setup\necho":                                          "a comment without an end",
		"<!-- test: file a -->\ntext\n```sh\nx\n```":                      "no block follows",
		"<!-- test: file a -->":                                           "no block follows",
		"<!-- test: file a -->\n<!-- test: background -->\n```sh\nx\n```": "has two words",
	} {
		if _, err := doctest.Parse(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"a b", "a   b\n", true},
		{"a …", "a 12", true},
		{"a …", "b 12", false},
		{"… c", "a b c", true},
		{"…b…", "a b c", true},
		{"…d…", "a b c", false},
		{"a", "a\nb", false},
		{"a\n…", "a\nb", true},
		{"a\n…\nc", "a\nb\nc", true},
		{"a\n…\nc", "a\nc\nb", false},
		{"x … x", "x", false},
	} {
		if got := doctest.Matches(c.shown, c.printed); got != c.want {
			t.Errorf("%q against %q: %v", c.shown, c.printed, got)
		}
	}
}
