// Command stores writes docs/stores.md: what is known of each store for which a report
// of "leasehold doctor" is kept in docs/stores, and what others write of stores, by
// docs/stores/documented.json.
//
//	go run ./internal/stores
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store/probe"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

// write makes the page of the repository in the directory root.
func write(root string) error {
	rows, err := read(root)
	if err != nil {
		return err
	}
	stores, err := readDocumented(root, rows)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "stores.md"), page(rows, stores), 0o644)
}

// A row is one store: its entry in docs/stores/index.json and the report in
// docs/stores/NAME.json.
type row struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Module  string `json:"module"`  // of a test server: internal/servers/pinned/go.mod has the version
	Version string `json:"version"` // of another
	Note    string `json:"note"`

	*probe.Report `json:"-"`
}

// read gives the rows in the order of the index. A report that the index does not know
// is an error: it would be on no page.
func read(root string) ([]row, error) {
	dir := filepath.Join(root, "docs", "stores")
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, fmt.Errorf("%w (run this in the root of the repository)", err)
	}
	d := json.NewDecoder(bytes.NewReader(index))
	d.DisallowUnknownFields()
	var rows []row
	if err = d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("docs/stores/index.json: %w", err)
	}
	versions, err := pinned(root)
	if err != nil {
		return nil, err
	}
	known := []string{"index.json", documentation}
	for i := range rows {
		r := &rows[i]
		known = append(known, r.Name+".json")
		if r.Module != "" {
			if r.Version = versions[r.Module]; r.Version == "" {
				return nil, fmt.Errorf("docs/stores/index.json: %s: internal/servers/pinned/go.mod does not require %s", r.Name, r.Module)
			}
		}
		if r.Report, err = report(filepath.Join(dir, r.Name+".json")); err != nil {
			return nil, err
		}
	}
	return rows, unlisted(dir, known)
}

func report(path string) (*probe.Report, error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: docs/stores/index.json lists it: make it with leasehold doctor --output json", err)
	}
	if err != nil {
		return nil, err
	}
	r, err := probe.ReadReport(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func unlisted(dir string, known []string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !slices.Contains(known, f.Name()) {
			return fmt.Errorf("%s is not in index.json beside it: add an entry", filepath.Join(dir, f.Name()))
		}
	}
	return nil
}

// pinned are the versions of the modules of the test servers.
func pinned(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "internal", "servers", "pinned", "go.mod"))
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 {
			versions[words[0]] = words[1]
		}
	}
	return versions, nil
}
