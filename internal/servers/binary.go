package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// binaries are the paths of the executables that Binary has returned, by name: what is
// built stays so while a process lives, and asking the go command takes it a second.
var binaries sync.Map

// Binary returns the path of the server's executable, built if need be.
func Binary(ctx context.Context, name string) (string, error) {
	if path, known := binaries.Load(name); known {
		return path.(string), nil //nolint:errcheck // nothing else is stored
	}
	if _, known := pinned[name]; !known {
		return "", fmt.Errorf("unknown server %q; there are %s", name, strings.Join(Names, ", "))
	}
	path, err := build(ctx, name)
	if err == nil {
		binaries.Store(name, path)
	}
	return path, err
}

// build has the go command build a server. Only one process on the machine builds at a
// time: two test binaries that need the same server at once would both compile all of it.
func build(ctx context.Context, name string) (string, error) {
	dir, err := pinnedDir()
	if err != nil {
		return "", err
	}
	unlock, err := lockCache(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()

	// With -n the go command builds the tool into its cache, and prints the
	// path of the executable instead of running it.
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", name)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %q in %s: %w\n%s", name, cmd.Args, dir, err, stderr.String())
	}
	path := strings.TrimSpace(stdout.String())
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("build %s: %q in %s names no executable: %w", name, cmd.Args, dir, err)
	}
	return path, nil
}

// pinnedDir finds the module of the servers upwards of the working directory,
// which for a test is the directory of its package. (The path that the compiler
// keeps of this file would be no path at all under -trimpath.)
func pinnedDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the pinned servers: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		found := filepath.Join(dir, "internal", "servers", "pinned")
		if _, err := os.Stat(filepath.Join(found, "go.mod")); err == nil {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the pinned servers: no internal/servers/pinned in %s or above it", wd)
		}
	}
}

// errNoS3rver: the machine cannot install s3rver, because it has no npm or npm
// reaches no packages.
var errNoS3rver = errors.New("s3rver cannot be installed here")

// installS3rver returns the path of s3rver's script, in a cache directory into
// which npm installs it once.
func installS3rver(ctx context.Context) (string, error) {
	const version = "3.7.1"
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("%w: there is no npm on PATH", errNoS3rver)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	unlock, err := lockCache(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()

	dir := filepath.Join(cache, "s3rver-"+version)
	script := filepath.Join(dir, "node_modules", "s3rver", "bin", "s3rver.js")
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return script, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-save", "--no-audit", "--no-fund", "--fetch-retries=1", "s3rver@"+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: npm: %w: %.200s", errNoS3rver, err, bytes.ReplaceAll(out, []byte("\n"), []byte(" ")))
	}
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("install s3rver: %w", err)
	}
	// Last of all, so that an installation cut short is not taken for one.
	return script, os.WriteFile(done, nil, 0o644)
}

func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	dir := filepath.Join(user, "leasehold-test")
	return dir, os.MkdirAll(dir, 0o755)
}

func lockCache(ctx context.Context) (unlock func(), err error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "build.lock"))
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return nil, fmt.Errorf("wait for another build of the test servers: %s: %w", lock.Path(), err)
	}
	return func() { _ = lock.Close() }, nil
}
