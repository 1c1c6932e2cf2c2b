package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store/probe"
)

const root = "../.."

func TestPageIsCurrent(t *testing.T) {
	rows, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	stores, err := readDocumented(root, rows)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(root, "docs", "stores.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, page(rows, stores)) {
		t.Error("docs/stores.md is not what is made of docs/stores and stores.md.tmpl: go run ./internal/stores")
	}
}

// A page that never shows a NO where a report says so would be worse than none.
func TestPageShowsWhatIsWrong(t *testing.T) {
	fine := &probe.Report{Store: "s3://fine", Findings: []probe.Finding{
		{Name: "read", Result: probe.OK},
		{Name: "versioning", Result: probe.Note, Detail: "none"},
		{Name: "settings", Result: probe.Note, Detail: "asked for"},
		{Name: "list", Result: probe.OK},
	}}
	for _, use := range probe.Uses() {
		fine.Verdicts = append(fine.Verdicts, probe.Verdict{Use: use, Safe: true})
	}
	broken := &probe.Report{
		Store: "s3://broken", Format: 2,
		Verdicts: []probe.Verdict{{Use: "object", Why: []string{"list: <b>a|b</b>"}}},
		Latency: []probe.Latency{
			{Op: "get", Count: 200, P50: 420, P99: 12_345},
			{Op: "list", Count: 1, P50: 1, P99: 1},
		},
		Findings: []probe.Finding{
			{Name: "read", Result: probe.OK},
			{Name: "delete", Result: probe.Unknown, Detail: "not *tried*"},
			{Name: "versioning", Result: probe.Note, Detail: "enabled"},
			{Name: "list", Result: probe.Bad, Detail: "<b>a|b</b>"},
		},
	}
	got := string(page([]row{{Name: "fine", Title: "Fine", Report: fine}, {Name: "broken", Title: "Broken", Version: "v1", Report: broken}}, nil))
	for _, want := range []string{
		"| [Fine](#fine) | safe | safe | safe | safe | safe | safe | safe | safe |\n",
		"| [Broken](#broken) | **NO** | **NO** | **NO** | **NO** | **NO** | **NO** | **NO** | **NO** |\n",
		"|  | Fine | Broken |\n| --- | --- | --- |\n| read | ok | ok |\n| delete |  | ? |\n| versioning | none | note |\n| list | ok | **BAD** |\n",
		"|  | get | least TTL |\n",
		"| Broken | 0.42 / 12 | 0s |\n",
		"- versioning: enabled. (Broken)\n",
		"### Broken\n\nVersion v1. ",
		"- **BAD** list: &lt;b>a\\|b&lt;/b>\n- ? delete: not \\*tried\\*\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "asked for") {
		t.Error("the page has a finding that says nothing")
	}
}

func TestRead(t *testing.T) {
	const mod = "\tgithub.com/minio/minio v1.2.3 // indirect\n"
	const good = `{"format": 1, "store": "s3://b", "verdicts": [{"use": "object", "safe": true}]}`
	for _, c := range []struct {
		name  string
		files map[string]string // in docs/stores
		want  string            // in the error
	}{
		{"all there", map[string]string{"index.json": `[{"name": "a", "module": "github.com/minio/minio"}]`, "a.json": good}, ""},
		{"no index", nil, "in the root of the repository"},
		{"a misspelt field", map[string]string{"index.json": `[{"nam": "a"}]`}, `unknown field "nam"`},
		{"a module that is not pinned", map[string]string{"index.json": `[{"name": "a", "module": "x"}]`, "a.json": good}, "does not require x"},
		{"no report", map[string]string{"index.json": `[{"name": "a"}]`}, "leasehold doctor --output json"},
		{"no report in it", map[string]string{"index.json": `[{"name": "a"}]`, "a.json": "{}"}, "a.json: a report of a probe in format 0"},
		{"a report that is not listed", map[string]string{"index.json": `[]`, "b.json": good}, "b.json is not in index.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, filepath.Join(dir, "internal", "servers", "pinned", "go.mod"), mod)
			for name, text := range c.files {
				lay(t, filepath.Join(dir, "docs", "stores", name), text)
			}
			rows, err := read(dir)
			switch {
			case c.want == "":
				if err != nil || len(rows) != 1 || rows[0].Version != "v1.2.3" || rows[0].Store != "s3://b" {
					t.Errorf("it reads %+v, %v", rows, err)
				}
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

func lay(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocumented: a fact without a source or a day is refused, and so is whatever else would
// make a cell that nobody can check.
func TestDocumented(t *testing.T) {
	const good = `[{"name": "s", "title": "S", "url": "s3://b", "proven": ["a"], "meaning": "all.", "facts": [
		{"about": ["create"], "answer": "yes", "says": "it does", "source": "https://s.example/doc", "dated": "2026-01-02"},
		{"says": "a remark", "source": "https://s.example/more", "read": "2026-01-03"}]}]`
	for _, c := range []struct{ name, old, with, want string }{
		{"all there", "", "", ""},
		{"no source", `, "source": "https://s.example/doc"`, ``, `the source "" is no https URL`},
		{"a source that is no link", `https://s.example/doc`, `the manual`, "no https URL"},
		{"no day", `, "dated": "2026-01-02"`, ``, "write the day of the source"},
		{"no day of a remark", `, "read": "2026-01-03"`, ``, "write the day of the source"},
		{"two days", `"dated"`, `"read": "2026-01-02", "dated"`, "write the day of the source"},
		{"no such day", `2026-01-02`, `2026-02-30`, `the day "2026-02-30"`},
		{"a fact that says nothing", `it does`, ``, "says nothing"},
		{"no answer", `, "answer": "yes"`, ``, "has an answer"},
		{"a remark with an answer", `"says": "a remark"`, `"answer": "yes", "says": "a remark"`, "a remark has none"},
		{"another answer", `"yes"`, `"surely"`, `not by "surely"`},
		{"no such column", `["create"]`, `["speed"]`, `no column "speed"`},
		{"two answers", `["create"]`, `["create", "create"]`, "another fact answers create"},
		{"no such report", `["a"]`, `["b"]`, `no report "b"`},
		{"no meaning", `all.`, ``, "must be there"},
		{"the name of a report", `"name": "s"`, `"name": "a"`, "something else has this name"},
		{"a misspelt field", `"meaning"`, `"means"`, `unknown field "means"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if !strings.Contains(good, c.old) {
				t.Fatalf("there is no %q", c.old)
			}
			lay(t, filepath.Join(dir, "docs", "stores", documentation), strings.Replace(good, c.old, c.with, 1))
			stores, err := readDocumented(dir, []row{{Name: "a"}})
			switch {
			case c.want == "":
				if err != nil || len(stores) != 1 {
					t.Errorf("it reads %+v, %v", stores, err)
				}
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

// TestCarries: a layout is promised only where all that it rests on is documented.
func TestCarries(t *testing.T) {
	var layouts []string
	for _, n := range needs {
		layouts = append(layouts, n.layout)
		if !slices.Contains(probe.Uses(), n.layout) {
			t.Errorf("no report has a verdict on %s", n.layout)
		}
	}
	for answers, want := range map[string]string{
		"": "not known", "update yes, reads yes": "not known",
		"create yes, update yes, reads yes, listings yes": "all",
		"create yes, update yes":                          "perhaps all",
		"create yes, update partly, reads yes":            "`marker without If-Match`; perhaps `object`, `epochs`, `epochs without If-Match`, `marker`",
		"create yes, update no, reads yes, listings yes":  "`epochs without If-Match`, `marker without If-Match`",
		"create yes, update yes, reads yes, listings no":  "`object`, `marker`, `marker without If-Match`",
		"create no, update yes, reads yes, listings yes":  "none",
		"create yes, reads no":                            "none",
	} {
		var s documented
		for _, a := range strings.Split(answers, ", ") {
			if about, answer, found := strings.Cut(a, " "); found {
				s.Facts = append(s.Facts, fact{About: []string{about}, Answer: answer})
			}
		}
		if got := s.carries(); got != want {
			t.Errorf("%s: %s, want %s (of %q)", answers, got, want, layouts)
		}
	}
}

// TestAnswers: what was not found is not left empty, each answer leads to its source, and a
// report counts for more than what is written.
func TestAnswers(t *testing.T) {
	report := &probe.Report{Store: "s3://b", Verdicts: []probe.Verdict{{Use: "epochs", Safe: true}, {Use: "marker", Why: []string{"list: bad"}}}}
	facts := []fact{
		{About: []string{"create", "reads"}, Answer: "yes", Says: "it does", Source: "https://s.example/doc", Dated: "2026-01-02"},
		{Says: "a remark", Source: "https://s.example/more", Read: "2026-01-03"},
	}
	got := string(page([]row{{Name: "tried", Title: "Tried", Report: report}}, []documented{
		{Name: "s", Title: "A|B", URL: "s3://b", Meaning: "It would do.", Facts: facts},
		{Name: "p", Title: "P", URL: "s3://p", Proven: []string{"tried"}, Meaning: "It does.", Facts: facts},
	}))
	const yes = "[yes](https://s.example/doc) | "
	const cells = yes + "nothing found | nothing found | nothing found | " + yes + "nothing found | nothing found | nothing found | "
	for _, want := range []string{
		"| [A\\|B](#s) | " + cells + "`marker without If-Match`; perhaps `object`, `epochs`, `epochs without If-Match`, `marker` | *read* |\n",
		"| [P](#p) | " + cells + "[Tried](#tried): `epochs` | *read*, *proven here* |\n",
		"<a id=\"s\"></a>\n\n### A\\|B: sources\n\n    s3://b\n\nIt would do.\n\n",
		"- create, reads: **yes**; it does ([source](https://s.example/doc), 2026-01-02)\n- a remark ([source](https://s.example/more), read 2026-01-03)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}
