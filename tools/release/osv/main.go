// Osv makes a database for govulncheck of a folder of reports, such as data/osv of the module golang.org/x/vulndb, so
// that it can be asked without a network.
//
//	osv -reports DIR -o DIR
//
// The form is that of https://go.dev/security/vuln/database, as far as govulncheck reads it: index/db.json,
// index/modules.json, and ID/GO-….json. A report that cannot be read, or that names no module, is an error: what is
// left out of the database is not found.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	reports := flag.String("reports", "", "the `directory` of the reports")
	out := flag.String("o", "", "the `directory` of the database; one that is there is replaced")
	flag.Parse()
	if *reports == "" || *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "osv: give -reports and -o, and nothing else")
		os.Exit(2)
	}
	n, latest, err := run(*reports, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "osv:", err)
		os.Exit(1)
	}
	fmt.Printf("%d reports, the latest is %s\n", n, latest)
}

// A report is one of a vulnerability, as far as the index needs it.
type report struct {
	ID        string    `json:"id"`
	Modified  time.Time `json:"modified"`
	Withdrawn string    `json:"withdrawn"`
	Affected  []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected"`
}

// A module is an entry of the index. That a version is affected is in the report itself.
type module struct {
	Path  string `json:"path"`
	Vulns []vuln `json:"vulns"`
}

type vuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

func run(reports, out string) (n int, latest string, err error) {
	files, err := filepath.Glob(filepath.Join(reports, "GO-*.json"))
	if err != nil {
		return 0, "", err
	}
	if len(files) == 0 {
		return 0, "", fmt.Errorf("%s has no report GO-….json", reports)
	}
	if err := os.RemoveAll(out); err != nil {
		return 0, "", err
	}
	for _, dir := range []string{"index", "ID"} {
		if err := os.MkdirAll(filepath.Join(out, dir), 0o755); err != nil {
			return 0, "", err
		}
	}
	modules := map[string]*module{}
	modified := time.Time{}
	for _, file := range files {
		r, err := add(modules, file, out)
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w", file, err)
		}
		latest = r.ID
		if r.Modified.After(modified) {
			modified = r.Modified
		}
	}
	all := slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return cmp.Compare(a.Path, b.Path) })
	if err := write(filepath.Join(out, "index", "modules.json"), all); err != nil {
		return 0, "", err
	}
	return len(files), latest, write(filepath.Join(out, "index", "db.json"), map[string]time.Time{"modified": modified})
}

func add(modules map[string]*module, file, out string) (r report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.ID != strings.TrimSuffix(filepath.Base(file), ".json") {
		return r, fmt.Errorf("it is the report %q", r.ID)
	}
	if len(r.Affected) == 0 && r.Withdrawn == "" {
		return r, errors.New("it names no module")
	}
	for _, affected := range r.Affected {
		path := affected.Package.Name
		if path == "" {
			return r, errors.New("it has a module without a name")
		}
		m := modules[path]
		if m == nil {
			m = &module{Path: path}
			modules[path] = m
		}
		if v := (vuln{r.ID, r.Modified}); !slices.Contains(m.Vulns, v) {
			m.Vulns = append(m.Vulns, v)
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return r, err
	}
	return r, os.WriteFile(filepath.Join(out, "ID", r.ID+".json"), compact.Bytes(), 0o644)
}

func write(file string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
