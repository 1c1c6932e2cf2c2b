package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// binaries caches the results of Binary by name, because asking the go command takes a second.
// An executable stays valid while the process lives.
var binaries sync.Map

// Binary returns the path of the server's executable, after building it if necessary.
func Binary(ctx context.Context, name string) (string, error) {
	if path, known := binaries.Load(name); known {
		return path.(string), nil //nolint:errcheck // nothing else is stored
	}
	if _, known := pinned[name]; !known {
		return "", fmt.Errorf("unknown server %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(pinned)), ", "))
	}
	path, err := build(ctx, name)
	if err == nil {
		binaries.Store(name, path)
	}
	return path, err
}

// build builds a server with the go command. Only one process on the machine builds at a time:
// otherwise two test binaries that need the same server would both compile all of it.
func build(ctx context.Context, name string) (string, error) {
	dir, err := pinnedDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, pinned[name].module)
	unlock, err := lockCache(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()

	// With -n, the go command builds the tool into its cache, and prints the executable's path
	// instead of running it.
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

// pinnedDir finds the module of the servers in the working directory, which for a test is its
// package's directory, or above it. The path of this file as compiled would be unusable with
// -trimpath.
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

// errNotInstalled is the error of a server from npm that cannot be installed, because npm is
// missing or cannot reach packages.
var errNotInstalled = errors.New("cannot be installed here")

// installS3rver returns the path of s3rver's script. npm installs it once, in a cache
// directory.
func installS3rver(ctx context.Context) (string, error) {
	const version = "3.7.1"
	return install(ctx, "s3rver", version, filepath.Join("s3rver", "bin", "s3rver.js"), func(dir string) ([]string, error) {
		return []string{"install", "--prefix", dir, "--no-save", "s3rver@" + version}, nil
	})
}

// installAzurite returns the path of Azurite's script. The files in pinned/azurite pin all its
// dependencies.
func installAzurite(ctx context.Context) (string, error) {
	pinned, err := pinnedDir()
	if err != nil {
		return "", err
	}
	lock, err := os.ReadFile(filepath.Join(pinned, "azurite", "package-lock.json"))
	if err != nil {
		return "", err
	}
	manifest, err := os.ReadFile(filepath.Join(pinned, "azurite", "package.json"))
	if err != nil {
		return "", err
	}
	version := fmt.Sprintf("%x", sha256.Sum256(append(lock, manifest...)))[:16]
	return install(ctx, "azurite", version, filepath.Join("azurite", "dist", "src", "blob", "main.js"), func(dir string) ([]string, error) {
		for name, text := range map[string][]byte{"package.json": manifest, "package-lock.json": lock} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return nil, err
			}
		}
		return []string{"ci", "--prefix", dir, "--ignore-scripts"}, nil
	})
}

// install installs a server with npm in the cache, once, and returns the path of its script.
// prepare returns npm's arguments; the directory exists when it is called.
func install(ctx context.Context, name, version, script string, prepare func(dir string) ([]string, error)) (string, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("%s %w: there is no npm on PATH", name, errNotInstalled)
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

	dir := filepath.Join(cache, name+"-"+version)
	script = filepath.Join(dir, "node_modules", script)
	done := filepath.Join(dir, "installed")
	if _, err = os.Stat(done); err == nil {
		return script, nil
	}
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args, err := prepare(dir)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "npm", append(args, "--no-audit", "--no-fund", "--fetch-retries=1")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %w: npm: %w: %.200s", name, errNotInstalled, err, bytes.ReplaceAll(out, []byte("\n"), []byte(" ")))
	}
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	// This comes last, so that an interrupted installation does not look complete.
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
