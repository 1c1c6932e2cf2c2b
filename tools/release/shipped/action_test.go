package shipped_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// An action as far as a composite one has it.
type action struct {
	Inputs map[string]struct {
		Default  string
		Required bool
	}
	Outputs map[string]struct{ Value string }
	Runs    struct {
		Using string
		Steps []step
	}
}

type step struct {
	Name, ID, If, Shell, Run string
	Env                      map[string]string
}

func theAction(t *testing.T) action {
	t.Helper()
	var a action
	if err := yaml.Unmarshal([]byte(read(t, root+"/action.yml")), &a); err != nil {
		t.Fatal(err)
	}
	if a.Runs.Using != "composite" || len(a.Runs.Steps) != 4 {
		t.Fatalf("the action is %q with %d steps", a.Runs.Using, len(a.Runs.Steps))
	}
	return a
}

// A workflow is one use of the action, as the runner has it.
type workflow struct {
	t       *testing.T
	path    string // PATH
	inputs  map[string]string
	outputs map[string]string // of the steps that have an ID, by "ID.NAME"
	dir     string
	failed  bool
	ran     []string // the names of the steps that were run
	output  string
	code    int // of the first step that failed
}

var expression = regexp.MustCompile(`\$\{\{ *([a-z.A-Z_]+) *\}\}`)

// expand replaces the expressions in a value.
func (w *workflow) expand(text string) string {
	return expression.ReplaceAllStringFunc(text, func(e string) string {
		name := expression.FindStringSubmatch(e)[1]
		switch kind, rest, _ := strings.Cut(name, "."); kind {
		case "inputs":
			value, ok := w.inputs[rest]
			if !ok {
				w.t.Fatalf("there is no input %q", rest)
			}
			return w.expand(value)
		case "steps":
			id, output, _ := strings.Cut(rest, ".outputs.")
			return w.outputs[id+"."+output]
		case "github":
			return map[string]string{"server_url": "https://github.example", "repository": "me/it", "run_id": "7", "job": "deploy"}[rest]
		}
		w.t.Fatalf("the test knows no %q", name)
		return ""
	})
}

// wanted evaluates the conditions that the action has.
func (w *workflow) wanted(condition string) bool {
	always := false
	for i, part := range strings.Split(condition, " && ") {
		name, isUnequal := strings.CutSuffix(part, " != ''")
		switch {
		case part == "":
		case part == "always()" && i == 0:
			always = true
		case isUnequal:
			if w.expand("${{ "+name+" }}") == "" {
				return false
			}
		default:
			w.t.Fatalf("the test knows no condition %q", part)
		}
	}
	return always || !w.failed
}

// use runs the action's steps as the runner does: each in a shell of its own, until one has failed, and those with
// always() after that too.
func use(t *testing.T, path string, inputs map[string]string) *workflow {
	t.Helper()
	a := theAction(t)
	w := &workflow{t: t, path: path, inputs: map[string]string{}, outputs: map[string]string{}, dir: t.TempDir()}
	for name, input := range a.Inputs {
		w.inputs[name] = input.Default
	}
	for name, value := range inputs {
		if _, ok := a.Inputs[name]; !ok {
			t.Fatalf("the action has no input %q", name)
		}
		w.inputs[name] = value
	}
	for _, s := range a.Runs.Steps {
		if s.Shell != "bash" {
			t.Fatalf("%s: the shell %q", s.Name, s.Shell)
		}
		if w.wanted(s.If) {
			w.step(s)
		}
	}
	return w
}

func (w *workflow) step(s step) {
	w.t.Helper()
	script, outputs, paths := filepath.Join(w.dir, "script.sh"), filepath.Join(w.dir, "output"), filepath.Join(w.dir, "path")
	write(w.t, script, s.Run)
	write(w.t, outputs, "")
	write(w.t, paths, "")
	env := []string{"PATH=" + w.path, "HOME=" + w.dir, "RUNNER_TEMP=" + w.dir, "GITHUB_OUTPUT=" + outputs, "GITHUB_PATH=" + paths}
	for name, value := range s.Env {
		env = append(env, name+"="+w.expand(value))
	}
	said := run(w.t, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	w.ran = append(w.ran, s.Name)
	w.output += said.output
	if said.code != 0 && !w.failed {
		w.failed, w.code = true, said.code
	}
	for line := range strings.Lines(read(w.t, outputs)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		w.outputs[s.ID+"."+name] = value
	}
	for line := range strings.Lines(read(w.t, paths)) {
		w.path = strings.TrimSpace(line) + ":" + w.path
	}
}

func (w *workflow) want(code int, steps int, words ...string) {
	w.t.Helper()
	if w.code != code || len(w.ran) != steps {
		w.t.Errorf("it ended with %d after the steps %q, want %d and %d steps: %s", w.code, w.ran, code, steps, w.output)
	}
	for _, word := range words {
		if !strings.Contains(w.output, word) {
			w.t.Errorf("it did not say %q: %s", word, w.output)
		}
	}
}

// TestActionHoldsNoExpression: an input in the text of a script would be run as a part of it.
func TestActionHoldsNoExpression(t *testing.T) {
	t.Parallel()
	a := theAction(t)
	for _, s := range a.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s has an expression in its script: hand it on in a variable", s.Name)
		}
	}
	for name, o := range a.Outputs {
		w := &workflow{t: t, outputs: map[string]string{"acquire." + name: "x"}}
		if w.expand(o.Value) != "x" {
			t.Errorf("the output %s is %q", name, o.Value)
		}
	}
}

// TestAction: the script runs under the lock, which is free afterwards, however the script ends.
func TestAction(t *testing.T) {
	t.Parallel()
	path := withCommand(t) + ":" + os.Getenv("PATH")
	for name, c := range map[string]struct {
		script string
		code   int
		words  []string
	}{
		"done":    {`leasehold status "$LEASEHOLD_LOCK"; echo "token <$LEASEHOLD_TOKEN>"`, 0, []string{"held", "me/it/7/deploy", "token <1"}},
		"failed":  {"echo before\nfalse\necho after", 1, []string{"before"}},
		"code":    {"exit 42", 42, nil},
		"unset":   {"set -u; echo $nothing", 1, []string{"nothing: unbound"}},
		"killed":  {"kill -9 $$", 137, nil},
		"renewed": {`leasehold renew "$(dirname "$(echo "$RUNNER_TEMP"/leasehold.*/lease.json)")/lease.json"`, 0, nil},
		"quotes":  {`echo "it's \"quoted\" $((1+1)) ` + "`echo run`" + `"`, 0, []string{`it's "quoted" 2 run`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := newLock(t)
			w := use(t, path, map[string]string{"lock": lock, "run": c.script})
			w.want(c.code, 4, c.words...)
			if strings.Contains(w.output, "after") {
				t.Error("the script went on after a failure")
			}
			if isHeld(t, lock) {
				t.Errorf("the lock was not released: %s", w.output)
			}
		})
	}
}

// TestActionHolds: without a script the lock is held for the steps that follow.
func TestActionHolds(t *testing.T) {
	t.Parallel()
	lock := newLock(t)
	w := use(t, withCommand(t)+":"+os.Getenv("PATH"), map[string]string{"lock": lock})
	w.want(0, 2)
	if !isHeld(t, lock) {
		t.Errorf("the lock is free: %s", w.output)
	}
	if w.outputs["acquire.token"] == "" {
		t.Error("it gave no token")
	}
	if said := leasehold(t, "release", w.outputs["acquire.lease"]); said.code != 0 || isHeld(t, lock) {
		t.Errorf("release of its output: %d: %s", said.code, said.output)
	}
}

// TestActionFails: without the lock nothing runs, nothing of another's is released, and the job says why.
func TestActionFails(t *testing.T) {
	t.Parallel()
	path := withCommand(t) + ":" + os.Getenv("PATH")
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		lock := newLock(t)
		hold(t, lock)
		w := use(t, path, map[string]string{"lock": lock, "wait": "0", "run": "echo it runs"})
		w.want(75, 2, "::error title=The lock is taken::another holds "+lock)
		if strings.Contains(w.output, "it runs") || !isHeld(t, lock) {
			t.Errorf("it ran, or has released another's lock: %s", w.output)
		}
	})
	t.Run("bad URL", func(t *testing.T) {
		t.Parallel()
		use(t, path, map[string]string{"lock": "ftp://x/y", "run": "echo it runs"}).want(64, 2, "::error title=No lock::", "ended with 64", "unknown scheme")
	})
	t.Run("a flag in the place of the lock", func(t *testing.T) {
		t.Parallel()
		use(t, path, map[string]string{"lock": "--help", "run": "echo it runs"}).want(64, 2, "::error title=No lock::")
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		lock := newLock(t)
		script := `leasehold break --token "$LEASEHOLD_TOKEN" "$LEASEHOLD_LOCK"`
		use(t, path, map[string]string{"lock": lock, "run": script}).want(76, 4, "::error title=The lock was lost::")
	})
}

// TestActionInstalls: where there is no command, that of a release is installed, if it is what the checksums say.
func TestActionInstalls(t *testing.T) {
	t.Parallel()
	t.Run("done", func(t *testing.T) {
		t.Parallel()
		from, _ := release(t)
		lock := newLock(t)
		use(t, bare(t, map[string]string{"curl": curl(from)}), map[string]string{"lock": lock, "version": "v1.2.3", "run": "leasehold version"}).want(0, 4, "leasehold ")
		if isHeld(t, lock) {
			t.Error("the lock was not released")
		}
	})
	t.Run("another file", func(t *testing.T) {
		t.Parallel()
		from, archive := release(t)
		write(t, filepath.Join(from, archive), "something else")
		use(t, bare(t, map[string]string{"curl": curl(from)}), map[string]string{"lock": newLock(t)}).want(1, 1, "::error title=leasehold::the checksum of "+archive)
	})
	t.Run("none for this machine", func(t *testing.T) {
		t.Parallel()
		from, _ := release(t)
		write(t, filepath.Join(from, "checksums.txt"), "00  leasehold_1.2.3_plan9_amd64.tar.gz\n")
		use(t, bare(t, map[string]string{"curl": curl(from)}), map[string]string{"lock": newLock(t)}).want(1, 1, "lists no archive for")
	})
	t.Run("no network", func(t *testing.T) {
		t.Parallel()
		use(t, bare(t, map[string]string{"curl": "#!/bin/sh\nexit 6\n"}), map[string]string{"lock": newLock(t)}).want(1, 1, "cannot download https://github.example/leasehold/leasehold/releases/latest/download/checksums.txt")
	})
	t.Run("no version", func(t *testing.T) {
		t.Parallel()
		for _, version := range []string{"../../x", "v1/../../../../evil/leasehold/releases/download/v1", "v1.2.3/..", "v1..2", "v1?x", "v1 2", "v1%2f..", "v1\n"} {
			use(t, bare(t, nil), map[string]string{"lock": newLock(t), "version": version}).want(1, 1, "neither latest nor such as v1.2.3")
		}
	})
	t.Run("another system", func(t *testing.T) {
		t.Parallel()
		path := bare(t, nil)
		if err := os.Remove(filepath.Join(path, "uname")); err != nil {
			t.Fatal(err)
		}
		writeScript(t, filepath.Join(path, "uname"), "#!/bin/sh\necho Plan9\n")
		use(t, path, map[string]string{"lock": newLock(t)}).want(1, 1, "no archive for Plan9")
	})
}
