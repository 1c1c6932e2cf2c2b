package main

import (
	"bytes"
	"os"
	"path/filepath"
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
	kept, err := os.ReadFile(filepath.Join(root, "docs", "stores.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, page(rows)) {
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
		Store: "s3://broken", Format: 1,
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
	got := string(page([]row{{Name: "fine", Title: "Fine", Report: fine}, {Name: "broken", Title: "Broken", Version: "v1", Report: broken}}))
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
