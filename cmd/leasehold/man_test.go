package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// request matches the lines of a page that are roff's and that it may have.
var request = regexp.MustCompile(`^\.(\\"|TH |SH "|PP$|TP$|BR "|nf$|fi$|nh$|ad l$)`)

// unescaped undoes what a page escapes.
var unescaped = strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\[u2026]`, "…", `\&`, "", `\fB`, "", `\fI`, "", `\fR`, "", `\e`, `\`)

// Every command has a manual page with its whole help, and the pages are roff: by what they look
// like; module integration has tools read them.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man", "man1")
	var out, err bytes.Buffer
	if code := exec(t.Context(), []string{"man", dir}, &out, &err); code != 0 || out.Len() > 0 {
		t.Fatalf("exit code %d, %s%s", code, &out, &err)
	}
	written, failure := filepath.Glob(filepath.Join(dir, "*"))
	if failure != nil {
		t.Fatal(failure)
	}
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		if cmd.Short == "" && !cmd.Hidden {
			t.Errorf("%s does not say what it is for", cmd.CommandPath())
		}
		path := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		i := slices.Index(written, path)
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			if i >= 0 {
				t.Errorf("%s is hidden, or no command, and has a page", cmd.CommandPath())
			}
			return
		}
		if i < 0 {
			t.Errorf("%s has no page", cmd.CommandPath())
			return
		}
		written = slices.Delete(written, i, i+1)
		wholeHelp(t, path, cmd)
	})
	if len(written) > 0 {
		t.Errorf("%q are the pages of no command", written)
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(pages) < 20 {
		t.Errorf("%d pages: are all commands there?", len(pages))
	}
	// Whoever may read what others make so, by the umask, may read the pages.
	like := filepath.Join(t.TempDir(), "dir")
	if failure = errors.Join(os.Mkdir(like, 0o755), os.WriteFile(filepath.Join(like, "page"), nil, 0o644)); failure != nil {
		t.Fatal(failure)
	}
	for path, as := range map[string]string{dir: like, filepath.Join(dir, "leasehold.1"): filepath.Join(like, "page")} {
		if got, want := mode(t, path), mode(t, as); got != want {
			t.Errorf("%s has the mode %v, want %v", path, got, want)
		}
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// wholeHelp checks that a page is well formed, and has all lines of the help and all flags.
func wholeHelp(t *testing.T, path string, cmd *cobra.Command) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	roff := string(text)
	for line := range strings.Lines(roff) {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !request.MatchString(strings.TrimSpace(line)) {
			t.Errorf("%s: roff would take this for a request: %q", path, line)
		}
	}
	for _, section := range []string{".TH ", ".SH \"NAME\"\n", ".SH \"SYNOPSIS\"\n", ".SH \"DESCRIPTION\"\n", ".SH \"OPTIONS\"\n"} {
		if strings.Count(roff, section) != 1 {
			t.Errorf("%s: there is not one %q", path, section)
		}
	}
	if strings.Count(roff, "\n.nf\n") != strings.Count(roff, "\n.fi\n") {
		t.Errorf("%s: a table does not end", path)
	}
	plain := unescaped.Replace(roff)
	for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
		if line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    "); !strings.Contains(plain, line) {
			t.Errorf("%s: no %q", path, line)
		}
	}
	check := func(f *pflag.Flag) {
		if !strings.Contains(plain, "--"+f.Name) || !strings.Contains(plain, "Variable: "+variableOf(f.Name)+"\n") && variableOf(f.Name) != "" {
			t.Errorf("%s: no --%s with its variable", path, f.Name)
		}
	}
	cmd.Flags().VisitAll(check)
	cmd.InheritedFlags().VisitAll(check)
}

// The same source gives the same pages: their date is not that of the day.
func TestSourceDate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ epoch, revision, want string }{
		{"", "", ""},
		{"", "2026-11-23T07:00:00Z", "2026-11-23"},
		{"1763000000", "2026-11-23T07:00:00Z", "2025-11-13"},
	} {
		if got, err := sourceDate(tc.epoch, tc.revision); got != tc.want || err != nil {
			t.Errorf("%q and %q give %q, %v, want %q", tc.epoch, tc.revision, got, err, tc.want)
		}
	}
	if _, err := sourceDate("soon", ""); err == nil {
		t.Error("a date that is no number is taken")
	}
}
