package leasehold_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks: each link from one document to a file or a heading of the project leads there.
func TestLinks(t *testing.T) {
	t.Parallel()
	followed := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "testdata", "node_modules"}, entry.Name()) {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(prose(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			followed++
			if why := deadEnd(t, path, m[1]); why != "" {
				t.Errorf("%s: (%s): %s", path, m[1], why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 100 {
		t.Errorf("only %d links were found in all documents", followed)
	}
}

// deadEnd says why a link of a document leads nowhere.
func deadEnd(t *testing.T, document, to string) string {
	t.Helper()
	file, anchor, _ := strings.Cut(to, "#")
	target := document
	if file != "" {
		target = filepath.Join(filepath.Dir(document), filepath.FromSlash(file))
	}
	if _, err := os.Stat(target); err != nil {
		return err.Error()
	}
	if anchor == "" || filepath.Ext(target) != ".md" {
		return ""
	}
	text := prose(t, target)
	if strings.Contains(text, `<a id="`+anchor+`">`) {
		return ""
	}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		if anchor == slug(h[1]) {
			return ""
		}
	}
	return "no such heading"
}

// slug is what GitHub makes of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// prose is a document without its blocks of code.
func prose(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(text), "")
}
