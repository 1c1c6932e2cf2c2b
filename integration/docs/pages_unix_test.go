//go:build unix

package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/doctest"
	"github.com/leasehold/leasehold/internal/servers"
)

// root is the repository, from here.
const root = "../.."

// perStep is how long one step of a page may take. It only bounds what would never end.
const perStep = 10 * time.Minute

// program is the command that all pages run.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "leasehold-doctest")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "leasehold"), "./cmd/leasehold")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	built = dir
	return dir, nil
})

// built is where it lies, if it was built.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // it is a temporary directory
	}
	os.Exit(code)
}

// pages are all that have steps, but for those of other modules, whose own tests run them.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/recipes/*.md", "examples/*/README.md"} {
		match, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, match...)
	}
	return found
}

// TestPages runs what the pages show.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			steps, err := doctest.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if tool := missing(steps); tool != "" {
				t.Skipf("there is no %s here", tool)
			}
			if len(steps) > 0 {
				newReader(t, name).follow(steps)
			}
		})
	}
}

// usual are tools that most of a page may go by, and that a machine with nothing but Go lacks.
var usual = regexp.MustCompile(`\b(curl|python3)\b`)

// missing is one that the blocks of a page use, and that is not installed: "" if none is.
func missing(steps []doctest.Step) string {
	for _, s := range steps {
		if s.Do == "skip" || s.Do == "same" || s.Do == "prints" || len(s.Needs) > 0 {
			continue // it is not run, or left out by itself
		}
		for _, tool := range usual.FindAllString(s.Text, -1) {
			if _, err := exec.LookPath(tool); err != nil {
				return tool
			}
		}
	}
	return ""
}

// A reader does what one page says.
type reader struct {
	t       *testing.T
	page    string
	dir     string
	env     []string
	ports   map[string]string // a free one for each that the page names
	group   []*exec.Cmd
	printed string // by the last block
	ran     []string
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	srv := servers.Start(t, "gofakes3")
	home, dir := t.TempDir(), t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, page: page, dir: dir, ports: map[string]string{}}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "LEASEHOLD_") {
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env, srv.Env()...)
	r.env = append(r.env, "AWS_ENDPOINT_URL="+srv.Endpoint, "AWS_REGION=us-east-1", "XDG_STATE_HOME="+home,
		"PATH="+bin+":"+os.Getenv("PATH"), "REPOSITORY="+absolute, "PAGE_STATE="+filepath.Join(home, "state"), "GOFLAGS=-mod=mod", "GOWORK=off")
	for _, bucket := range []string{"my-bucket", "bucket"} {
		srv.MakeBucket(t, bucket)
	}
	t.Cleanup(r.end)
	return r
}

// follow does all steps of the page, and says what it did.
func (r *reader) follow(steps []doctest.Step) {
	r.t.Helper()
	for _, s := range steps {
		where := fmt.Sprintf("%s:%d", r.page, s.Line)
		if tool := slices.IndexFunc(s.Needs, func(tool string) bool { _, err := exec.LookPath(tool); return err != nil }); tool >= 0 {
			r.t.Logf("left out: %s: %s is not installed", where, s.Needs[tool])
			continue
		}
		switch s.Do {
		case "run", "setup":
			r.run(s, where)
		case "background":
			r.start(s, where)
		case "file":
			r.write(s, where)
		case "prints":
			if !doctest.Matches(s.Text, r.printed) {
				r.t.Fatalf("%s: the page shows\n%s\nand this was printed:\n%s", where, s.Text, r.printed)
			}
		case "same":
			r.same(s, where)
		case "skip":
			r.t.Logf("left out: %s: %s", where, s.Argument)
		}
	}
	r.t.Logf("ran %d blocks: %s", len(r.ran), strings.Join(r.ran, " | "))
}

// preamble makes the blocks of a page one shell: variables that one exports are there in the next.
const preamble = `set -euo pipefail
if [ -e "$PAGE_STATE" ]; then . "$PAGE_STATE"; fi
trap 'export -p > "$PAGE_STATE"' EXIT
`

func (r *reader) run(s doctest.Step, where string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), perStep)
	defer cancel()
	out, err := os.CreateTemp(r.dir, ".printed") // no pipe: what a block leaves in the background would keep it open
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	defer func() { _ = os.Remove(out.Name()) }() // it is in a temporary directory
	cmd := r.shell(ctx, s, out)
	err = cmd.Start()
	if err == nil {
		r.group = append(r.group, cmd)
		err = cmd.Wait()
	}
	printed, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		r.t.Fatal(readErr)
	}
	code := 0
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else if err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	if code != s.Exit {
		r.t.Fatalf("%s: it ended with %d, and not with %d:\n%s\n%s", where, code, s.Exit, s.Text, printed)
	}
	if s.Do == "run" {
		r.printed = string(printed)
		r.ran = append(r.ran, first(s.Text))
	}
}

// start runs a block until the page is over.
func (r *reader) start(s doctest.Step, where string) {
	r.t.Helper()
	cmd := r.shell(r.t.Context(), s, io.Discard)
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	r.group = append(r.group, cmd)
	r.ran = append(r.ran, first(s.Text))
}

// shell is a block as a command, in a process group of its own.
func (r *reader) shell(ctx context.Context, s doctest.Step, out io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", preamble+r.local(s.Text)) //nolint:contextcheck // a listener that is closed at once needs none
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// end ends all that the page has left.
func (r *reader) end() {
	for _, cmd := range r.group {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	}
	for _, cmd := range r.group {
		if cmd.ProcessState == nil {
			_ = cmd.Wait() // it was told to end
		}
	}
}

var onLoopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// local has the ports of this machine that a page names replaced by free ones: two pages may name one.
func (r *reader) local(text string) string {
	return onLoopback.ReplaceAllStringFunc(text, func(named string) string {
		if r.ports[named] == "" {
			listener, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				r.t.Fatal(err)
			}
			defer listener.Close()
			r.ports[named] = listener.Addr().String()
		}
		return r.ports[named]
	})
}

// write makes a file of the page, and what it takes to run it.
func (r *reader) write(s doctest.Step, where string) {
	r.t.Helper()
	mode := os.FileMode(0o644)
	if strings.HasPrefix(s.Text, "#!") {
		mode = 0o755
	}
	if err := os.WriteFile(filepath.Join(r.dir, s.Argument), []byte(r.local(s.Text)), mode); err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	if filepath.Ext(s.Argument) == ".go" {
		r.module()
	}
}

// module makes the page's directory a module that uses this one.
func (r *reader) module() {
	r.t.Helper()
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		r.t.Fatal(err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		r.t.Fatal(err)
	}
	const name = "module github.com/leasehold/leasehold\n"
	mod, found := strings.CutPrefix(string(own), name)
	if !found {
		r.t.Fatal("go.mod begins otherwise")
	}
	mod = "module example\n" + mod + "\nrequire github.com/leasehold/leasehold v0.0.0\nreplace github.com/leasehold/leasehold => " + absolute + "\n"
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		r.t.Fatal(err)
	}
	for file, text := range map[string]string{"go.mod": mod, "go.sum": string(sum)} {
		if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// same compares a block with a file of the repository.
func (r *reader) same(s doctest.Step, where string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.Dir(r.page), s.Argument))
	if err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	if !strings.Contains(string(text), s.Text) {
		r.t.Errorf("%s: %s has it otherwise", where, s.Argument)
	}
}

// first is the first line of a block, for the list of what was run.
func first(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if rest != "" {
		line += " …"
	}
	return line
}
