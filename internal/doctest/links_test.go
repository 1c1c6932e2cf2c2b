package doctest_test

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// root is the repository, from here.
const root = "../.."

var (
	inlineLink = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	heading    = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	codeSpan   = regexp.MustCompile("``[^`]+``|`[^`]*`")
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	anchorTag  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// TestLinks: each link of each page leads to a file that is there and, with an anchor, to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string][]string{}
	links := 0
	for _, page := range found {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range prose(string(text)) {
			for _, m := range inlineLink.FindAllStringSubmatch(line, -1) {
				links++
				if why := broken(page, m[1], anchors); why != "" {
					t.Errorf("%s: the link to %s: %s", page, m[1], why)
				}
			}
		}
	}
	if len(found) < 30 || links < 300 {
		t.Errorf("%d pages with %d links: they were looked for in the wrong place", len(found), links)
	}
	t.Logf("figures: %d links of %d pages", links, len(found))
}

// broken says what is wrong with a link of a page, if anything is.
func broken(page, to string, anchors map[string][]string) string {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme == "http":
		return "it is not https"
	case u.Scheme != "":
		return "" // there is no network to follow it
	}
	target := page
	if u.Path != "" {
		target = filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
	}
	if rel, err := filepath.Rel(root, target); err != nil || strings.HasPrefix(rel, "..") {
		return "it leads out of the repository"
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if u.Fragment == "" {
		return ""
	}
	if _, known := anchors[target]; !known {
		anchors[target] = anchorsOf(target)
	}
	if !slices.Contains(anchors[target], u.Fragment) {
		return "there is no such heading"
	}
	return ""
}

// anchorsOf are those that GitHub gives the headings of a page.
func anchorsOf(page string) (all []string) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil
	}
	for _, line := range outside(string(text)) {
		for _, m := range anchorTag.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		all = append(all, slug)
	}
	return all
}

// outside are the lines of a page that are in no block of code.
func outside(page string) (lines []string) {
	fence := ""
	for _, line := range strings.Split(page, "\n") {
		mark := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(mark, "```"):
			fence = "```"
		case fence != "" && mark == fence:
			fence = ""
		case fence == "":
			lines = append(lines, line)
		}
	}
	return lines
}

// prose is that without what stands in code within a line.
func prose(page string) (lines []string) {
	for _, line := range outside(page) {
		lines = append(lines, codeSpan.ReplaceAllString(line, ""))
	}
	return lines
}

// TestSite: each page of docs is beside the others on the site, and in the list of docs/README.md.
func TestSite(t *testing.T) {
	t.Parallel()
	nav, err := os.ReadFile(filepath.Join(root, "docs/site/data/nav.toml"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(root, "docs/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := os.ReadFile(filepath.Join(root, "docs/recipes/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for pattern, index := range map[string][]byte{"*.md": list, "recipes/*.md": recipes} {
		found, err := filepath.Glob(filepath.Join(root, "docs", pattern))
		if err != nil || len(found) < 10 {
			t.Fatalf("%d pages, %v", len(found), err)
		}
		for _, page := range found {
			name := filepath.Base(page)
			if name == "README.md" {
				continue
			}
			if !strings.Contains(string(index), "("+name+")") {
				t.Errorf("%s: its README.md does not list it", page)
			}
			if at := filepath.ToSlash(filepath.Join(filepath.Dir(pattern), name)); !strings.Contains(string(nav), `"`+at+`"`) {
				t.Errorf("docs/site/data/nav.toml does not have %s", at)
			}
		}
	}
}
