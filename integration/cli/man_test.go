package cli_test

import (
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
)

// TestManualPages has the tools read the manual pages that find mistakes in them.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := clitest.Command(t, "", "man", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, tool := range [][]string{{"groff", "-man", "-Tutf8", "-ww", "-z"}, {"mandoc", "-Tlint", "-Wwarning"}} {
		t.Run(tool[0], func(t *testing.T) {
			if _, err := osexec.LookPath(tool[0]); err != nil {
				t.Skipf("there is no %s here", tool[0])
			}
			for _, page := range pages {
				out, err := osexec.CommandContext(t.Context(), tool[0], append(tool[1:], page)...).CombinedOutput()
				if said := remarks(string(out)); said != "" {
					t.Errorf("%s: %v %s", page, err, said)
				}
			}
		})
	}
}

// remarks are what a tool says, but for what is not known where there is no revision: the date.
func remarks(out string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return line == "" || strings.Contains(line, "missing date")
	}), "\n")
}
