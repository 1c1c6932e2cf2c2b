package shipped_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const root = "../../.."

// command is the directory of the command, built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "leasehold")
	if err != nil {
		return "", err
	}
	made = dir
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "leasehold"), "./cmd/leasehold")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return dir, nil
})

var made string // what is to be removed

func TestMain(m *testing.M) {
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(code)
}

func withCommand(t *testing.T) (dir string) {
	t.Helper()
	dir, err := command()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// An ended process.
type ended struct {
	code   int
	output string
}

// run waits for a process, whose environment has nothing but what is given.
func run(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = env
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", args, err)
	}
	return ended{cmd.ProcessState.ExitCode(), output.String()}
}

// leasehold runs the command.
func leasehold(t *testing.T, args ...string) ended {
	t.Helper()
	return run(t, os.Environ(), append([]string{filepath.Join(withCommand(t), "leasehold")}, args...)...)
}

// isHeld reports whether a lock is held, by what status says.
func isHeld(t *testing.T, lock string) bool {
	t.Helper()
	said := leasehold(t, "status", "-o", "json", lock)
	if said.code != 0 && said.code != 1 && said.code != 66 {
		t.Fatalf("status of %s: %d: %s", lock, said.code, said.output)
	}
	return strings.Contains(said.output, `"state": "held"`)
}

// hold has another hold a lock until the end of the test.
func hold(t *testing.T, lock string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "other.json")
	if said := leasehold(t, "acquire", "--ttl", "10m", "--file", file, lock); said.code != 0 {
		t.Fatalf("acquire %s: %d: %s", lock, said.code, said.output)
	}
}

// newLock is one in a directory of its own.
func newLock(t *testing.T) string { t.Helper(); return "file://" + t.TempDir() + "/deploy" }

// bare is a directory with the tools that a job has, and no leasehold: a PATH for what is to install it.
func bare(t *testing.T, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"awk", "bash", "cat", "cp", "grep", "gzip", "mkdir", "mktemp", "rm", "sed", "sh", "sha256sum", "tar", "uname"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range more {
		writeScript(t, filepath.Join(dir, name), script)
	}
	return dir
}

// writeScript lets no child be forked meanwhile: it would keep the file open, and exec would
// fail with "text file busy".
func writeScript(t *testing.T, path, script string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// A release as it lies on a server: a directory with an archive and its checksum.
func release(t *testing.T) (dir, archive string) {
	t.Helper()
	dir = t.TempDir()
	goarch, err := exec.CommandContext(t.Context(), "go", "env", "GOHOSTOS", "GOHOSTARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive = "leasehold_1.2.3_" + strings.Join(strings.Fields(string(goarch)), "_") + ".tar.gz"
	script := `set -e; cd "$1"; tar -czf "$2" -C "$3" leasehold; cp "$2" leasehold_1.2.3_plan9_amd64.tar.gz; sha256sum leasehold_*.tar.gz >checksums.txt`
	if said := run(t, os.Environ(), "sh", "-c", script, "sh", dir, archive, withCommand(t)); said.code != 0 {
		t.Fatal(said.output)
	}
	return dir, archive
}

// curl stands for the network: the last word of an URL is a file of a release.
func curl(release string) string {
	return `#!/bin/sh
while [ $# -gt 1 ]; do
	case "$1" in --output) to="$2"; shift ;; esac
	shift
done
cp "` + release + `/${1##*/}" "$to"
`
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
