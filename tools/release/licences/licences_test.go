package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestLinked: everything that is linked into the command, the library packages and the adapters, on any platform of a
// release, is under a licence that allows it.
func TestLinked(t *testing.T) {
	t.Parallel()
	adapters, err := filepath.Glob(root + "/adapter/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob(root + "/adapter/*/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{root}
	for _, file := range append(adapters, deeper...) {
		dirs = append(dirs, filepath.Dir(file))
	}
	if len(dirs) < 10 {
		t.Errorf("only %d modules were found", len(dirs))
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			on := platforms
			if dir != root {
				on = platforms[:1] // they are not compiled for others here
			}
			modules, err := linked(t.Context(), dir, on, []string{"./..."})
			if err != nil {
				t.Fatal(err)
			}
			if err := check(modules); err != nil {
				t.Error(err)
			}
			if dir == root && len(modules) < 20 {
				t.Errorf("only %d modules were found", len(modules))
			}
		})
	}
}

// A module as it lies on a disk: the file names and what is in them.
func written(t *testing.T, files map[string]string) *module {
	t.Helper()
	dir := t.TempDir()
	packages := []string{dir}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, filepath.Dir(path))
	}
	m := &module{path: "example.com/m", version: "v1.0.0", dir: dir, packages: packages}
	if err := m.read(); err != nil {
		t.Fatal(err)
	}
	return m
}

// gnu is the notice by which files are put under a licence of the GNU project.
func gnu(name string, version int) string {
	return fmt.Sprintf(`This program is free software: you can redistribute it and/or modify it under the terms of the GNU %[1]s as
published by the Free Software Foundation, either version %[2]d of the License, or (at your option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU %[1]s for more details.

You should have received a copy of the GNU %[1]s along with this program. If not, see <http://www.gnu.org/licenses/>.
`, name, version)
}

// TestLicencesAreRefused: a check that never refuses is worth nothing.
func TestLicencesAreRefused(t *testing.T) {
	t.Parallel()
	apache, err := os.ReadFile(root + "/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	good := string(apache)
	for name, c := range map[string]struct {
		files map[string]string
		want  string // "" is that it is allowed
	}{
		"allowed":            {map[string]string{"LICENSE": good, "NOTICE": "Copyright somebody"}, ""},
		"in a package":       {map[string]string{"LICENSE": good, "a/b/LICENSE.md": gnu("General Public License", 3)}, "a/b/LICENSE.md: it is under GPL-3.0"},
		"AGPL":               {map[string]string{"COPYING": gnu("Affero General Public License", 3)}, "COPYING: it is under AGPL-3.0"},
		"GPL 2":              {map[string]string{"LICENCE": gnu("General Public License", 2)}, "LICENCE: it is under GPL-2.0"},
		"GPL 3":              {map[string]string{"LICENSE.txt": gnu("General Public License", 3)}, "LICENSE.txt: it is under GPL-3.0"},
		"LGPL":               {map[string]string{"COPYING.LESSER": gnu("Lesser General Public License", 3)}, "COPYING.LESSER: it is under LGPL-3.0"},
		"LGPL beside Apache": {map[string]string{"LICENSE": good, "LICENSE-LGPL": gnu("Lesser General Public License", 3)}, "LICENSE-LGPL: it is under LGPL-3.0"},
		"BUSL":               {map[string]string{"LICENSE": "Business Source License 1.1\nLicensor: somebody\n"}, "LICENSE: it is under BUSL"},
		"SSPL":               {map[string]string{"LICENSE": "Server Side Public License\nVERSION 1\n"}, "LICENSE: it is under SSPL"},
		"Commons Clause":     {map[string]string{"LICENSE": "\"Commons Clause\" License Condition v1.0\n" + good}, "it is under Commons-Clause"},
		"unknown":            {map[string]string{"LICENSE": "Ask me before you use this."}, `under no licence that is known here; it begins with "Ask me`},
		"none":               {map[string]string{"m.go": "package m", "NOTICE": "Copyright somebody"}, "it has no licence file"},
		"more than Apache":   {map[string]string{"LICENSE": good + strings.Repeat("And the use for good things only is permitted.\n", 200)}, "read the rest"},
		"GPL in a notice":    {map[string]string{"LICENSE": good, "NOTICE": gnu("General Public License", 3)}, "NOTICE: it is under GPL-3.0"},
	} {
		err := check([]*module{written(t, c.files)})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestText: the text that goes along with the command has the licences and the notices of all that is linked.
func TestText(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "text")
	if err := run(t.Context(), root, file, []string{"./cmd/leasehold"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nstd go1.", "\ngithub.com/spf13/cobra v", "\ngithub.com/aws/aws-sdk-go-v2 v", ": NOTICE.txt\n",
		"\ngithub.com/inconshreveable/mousetrap v", // on Windows only
		"Permission is hereby granted", "TERMS AND CONDITIONS",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the text has no %q", want)
		}
	}
	if strings.Contains(string(text), "porcupine") {
		t.Error("the text has what only tests import")
	}
}
