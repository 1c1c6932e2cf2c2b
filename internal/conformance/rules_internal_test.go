package conformance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSentences: the rules are those of docs/format.md, word for word, and a case can break each.
func TestSentences(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| \*\*([FL][0-9]+)\*\* \| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		written[m[1]] = m[2]
	}
	for rule, sentence := range rules {
		if written[rule] != sentence {
			t.Errorf("docs/format.md has of %s: %q", rule, written[rule])
		}
	}
	if len(written) != len(rules) {
		t.Errorf("docs/format.md has %d rules, and there are %d", len(written), len(rules))
	}
	var source strings.Builder
	for _, name := range []string{"judge.go", "trial.go", "cases_plain.go", "cases_faults.go", "cases_foreign.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, m := range regexp.MustCompile(`"([FL][0-9]+)"`).FindAllStringSubmatch(source.String(), -1) {
		delete(written, m[1])
		if rules[m[1]] == "" {
			t.Errorf("a case names %s, which is no rule", m[1])
		}
	}
	for rule := range written {
		t.Errorf("no case can show that %s was broken", rule)
	}
}

// TestNames: each case has a name of its own, which can be a key, and says what it is about.
func TestNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range Cases() {
		if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(c.Name) || slices.Contains(names, c.Name) || !strings.HasSuffix(c.About, ".") {
			t.Errorf("%q: %q", c.Name, c.About)
		}
		names = append(names, c.Name)
	}
}
