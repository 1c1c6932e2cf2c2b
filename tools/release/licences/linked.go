package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const own = "github.com/leasehold/leasehold"

// platforms are those of a release. What is linked does not depend on the processor, but for packages of package sys.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64", "freebsd/amd64"}

// A module is one that is linked, with what its files say.
type module struct {
	path, version string
	dir           string
	packages      []string // those that are linked
	files         []file
}

// A file is one with a licence or a notice.
type file struct {
	name   string // in the module
	text   []byte
	notice bool // it is handed on, and is no licence
	found  []string
	known  float64 // percent of the text that the licences found make up
}

// A listing is what go list says of a package.
type listing struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path, Version, Dir string
		Replace            *struct{ Path, Version, Dir string }
	}
}

// linked gives the modules that the packages link on any of the platforms, ordered by their paths: the standard
// library as the first, and none of this project.
func linked(ctx context.Context, dir string, platforms, packages []string) ([]*module, error) {
	all, seen := map[string]*module{}, map[string]bool{}
	for _, platform := range platforms {
		listings, err := list(ctx, dir, platform, packages)
		if err != nil {
			return nil, err
		}
		for _, l := range listings {
			if l.Standard || l.Module == nil || seen[l.ImportPath] {
				continue
			}
			seen[l.ImportPath] = true
			path, version, at := l.Module.Path, l.Module.Version, l.Module.Dir
			if r := l.Module.Replace; r != nil {
				at = r.Dir
				if r.Version != "" {
					path, version = r.Path, r.Version
				}
			}
			if path == own || strings.HasPrefix(path, own+"/") {
				continue
			}
			m := all[path]
			if m == nil {
				m = &module{path: path, version: version, dir: at}
				all[path] = m
			}
			m.packages = append(m.packages, l.Dir)
		}
	}
	modules := slices.SortedFunc(maps.Values(all), func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	for _, m := range modules {
		if err := m.read(); err != nil {
			return nil, err
		}
	}
	std, err := standard(ctx)
	if err != nil {
		return nil, err
	}
	return append([]*module{std}, modules...), nil
}

// list runs go list for a platform.
func list(ctx context.Context, dir, platform string, packages []string) (all []listing, err error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s in %s: %w: %s", platform, dir, err, &stderr)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listing
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list for %s in %s: %w", platform, dir, err)
		}
		all = append(all, l)
	}
}

// standard is the standard library and the runtime, whose licence is Go's.
func standard(ctx context.Context) (*module, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := &module{path: "std", version: version, dir: root, packages: []string{root}}
	return m, m.read()
}

var (
	licenceName = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying)s?([._-].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^(notice|patent|copyright)s?([._-].*)?$`)
)

// read finds the files of a module that say under which licence its linked packages are: the one in a package's own
// directory may be another than that of the module.
func (m *module) read() error {
	seen := map[string]bool{}
	for _, dir := range m.packages {
		for ; !seen[dir] && (dir == m.dir || strings.HasPrefix(dir, m.dir+string(filepath.Separator))); dir = filepath.Dir(dir) {
			seen[dir] = true
			if err := m.readDir(dir); err != nil {
				return fmt.Errorf("%s %s: %w", m.path, m.version, err)
			}
		}
	}
	slices.SortFunc(m.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return nil
}

func (m *module) readDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		notice := noticeName.MatchString(e.Name())
		if e.IsDir() || !notice && !licenceName.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		f := file{name: filepath.ToSlash(name), text: text, notice: notice}
		f.found, f.known = identify(text)
		m.files = append(m.files, f)
	}
	return nil
}

// ids are the licences of a module, without those of notices.
func (m *module) ids() string {
	var all []string
	for _, f := range m.files {
		if !f.notice {
			all = append(all, f.found...)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// text is what goes along with the command.
func text(modules []*module) []byte {
	var b bytes.Buffer
	b.WriteString("leasehold is under the Apache License 2.0. These are the licences and notices of what is linked into it.\n")
	for _, m := range modules {
		for _, f := range m.files {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n", strings.Repeat("=", 80), m.path, m.version, f.name)
			b.Write(bytes.TrimSpace(f.text))
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
