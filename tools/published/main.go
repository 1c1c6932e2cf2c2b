// Published checks that the modules of this repository work for those who do not have a clone.
//
//	published ROOT
//
// It puts the main module and the adapters into a module proxy in a temporary directory, at the
// version that the adapters require. Then it installs the command with go install, as users
// do, and builds each adapter without its replace directives.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	library = "github.com/leasehold/leasehold"
	version = "v0.1.0"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: published ROOT")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "published:", err)
		os.Exit(1)
	}
}

func check(root string) error {
	tmp, err := os.MkdirTemp("", "published")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dirs, err := modules(root)
	if err != nil {
		return err
	}
	proxy := filepath.Join(tmp, "proxy")
	for _, dir := range dirs {
		if err := publish(proxy, dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	settings, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return err
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	env := append(os.Environ(),
		// A module cache of its own, since this version must not stay in the user's. What that one has of
		// other modules is served from there.
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+upstream,
		"GONOSUMDB="+library, "GOPRIVATE=", "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off",
		"GOMODCACHE="+filepath.Join(tmp, "cache"), "GOBIN="+filepath.Join(tmp, "bin"), "CGO_ENABLED=0",
	)
	run := func(dir string, args ...string) error {
		begun := time.Now()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, env
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
		}
		fmt.Printf("ok  go %s (%.0f s)\n", strings.Join(args, " "), time.Since(begun).Seconds())
		return nil
	}
	if err := run(tmp, "install", library+"/cmd/leasehold@"+version); err != nil {
		return err
	}
	for _, dir := range dirs[1:] {
		copied := filepath.Join(tmp, "built", filepath.Base(dir))
		if err := errors.Join(os.CopyFS(copied, os.DirFS(dir)), dropReplace(filepath.Join(copied, "go.mod"))); err != nil {
			return err
		}
		if err := run(copied, "build", "-C", copied, "./..."); err != nil {
			return err
		}
	}
	fmt.Printf("1 command installed and %d adapters built against %s %s\n", len(dirs)-1, library, version)
	return nil
}

// modules are the directories of the main module and of the adapters.
func modules(root string) ([]string, error) {
	dirs := []string{root}
	err := filepath.WalkDir(filepath.Join(root, "adapter"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.Name() == "go.mod":
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	return dirs, err
}

// publish writes a module's files as a module proxy serves them.
func publish(proxy, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	path := modfile.ModulePath(text)
	to := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err = os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		zip.CreateFromDir(out, module.Version{Path: path, Version: version}, dir), out.Close(),
		os.WriteFile(filepath.Join(to, version+".mod"), text, 0o644),
		os.WriteFile(filepath.Join(to, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(to, "list"), []byte(version+"\n"), 0o644),
	)
}

// dropReplace takes the replace directives out of a go.mod.
func dropReplace(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		return err
	}
	for _, r := range mod.Replace {
		if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	mod.Cleanup()
	if text, err = mod.Format(); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
