package shipped_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A template as far as the one for GitLab has it.
type template struct {
	Variables    map[string]string
	BeforeScript []string `yaml:"before_script"`
	AfterScript  []string `yaml:"after_script"`
}

// A job is one that extends the template, as a runner has it.
type job struct {
	code, after int
	output      string
}

// extend runs a job as the runner does: before_script and script are one shell's, and after_script is another's, which
// is run whatever became of them.
func extend(t *testing.T, shell, path string, variables map[string]string, script string) job {
	t.Helper()
	var all map[string]template
	if err := yaml.Unmarshal([]byte(read(t, root+"/dist/gitlab/leasehold.gitlab-ci.yml")), &all); err != nil {
		t.Fatal(err)
	}
	hidden, ok := all[".leasehold"]
	if !ok || len(all) != 1 || len(hidden.BeforeScript) == 0 || len(hidden.AfterScript) == 0 {
		t.Fatalf("the template has %+v", all)
	}
	dir := t.TempDir()
	env := []string{"PATH=" + path, "HOME=" + dir, "CI_PROJECT_DIR=" + dir, "CI_JOB_ID=7", "CI_PROJECT_PATH=me/it"}
	for name, value := range hidden.Variables {
		if _, given := variables[name]; !given {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	main, after := filepath.Join(dir, "main.sh"), filepath.Join(dir, "after.sh")
	write(t, main, "set -e\n"+strings.Join(append(hidden.BeforeScript, script), "\n")+"\n")
	write(t, after, strings.Join(hidden.AfterScript, "\n")+"\n")
	first := run(t, env, shell, main)
	last := run(t, env, shell, after)
	if _, err := os.Stat(filepath.Join(dir, ".leasehold-7")); err == nil {
		t.Error("its directory was not removed")
	}
	return job{first.code, last.code, first.output + last.output}
}

func (j job) want(t *testing.T, code, after int, words ...string) {
	t.Helper()
	if j.code != code || j.after != after {
		t.Errorf("it ended with %d, and after_script with %d, want %d and %d: %s", j.code, j.after, code, after, j.output)
	}
	for _, word := range words {
		if !strings.Contains(j.output, word) {
			t.Errorf("it did not say %q: %s", word, j.output)
		}
	}
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	path := withCommand(t) + ":" + os.Getenv("PATH")
	for _, shell := range []string{"sh", "bash"} {
		for name, c := range map[string]struct {
			script      string
			code, after int
			words       []string
		}{
			"done":   {`leasehold status "$LEASE_LOCK"; echo "token <$LEASEHOLD_TOKEN>"`, 0, 0, []string{"held", "me/it/7", "token <1", "released"}},
			"unset":  {"echo $nothing", 0, 0, []string{"released"}},
			"failed": {"exit 42", 42, 0, []string{"released"}},
			"killed": {"kill -9 $$", -1, 0, []string{"released"}},
			"lost":   {`leasehold break --token "$LEASEHOLD_TOKEN" "$LEASE_LOCK"`, 0, 76, []string{"was over before the work was"}},
		} {
			t.Run(shell+"/"+name, func(t *testing.T) {
				t.Parallel()
				lock := newLock(t)
				extend(t, shell, path, map[string]string{"LEASE_LOCK": lock}, c.script).want(t, c.code, c.after, c.words...)
				if isHeld(t, lock) {
					t.Error("the lock was not released")
				}
			})
		}
		t.Run(shell+"/taken", func(t *testing.T) {
			t.Parallel()
			lock := newLock(t)
			hold(t, lock)
			j := extend(t, shell, path, map[string]string{"LEASE_LOCK": lock, "LEASE_WAIT": "0"}, "echo it runs")
			j.want(t, 75, 0, "leasehold: another holds "+lock, "no lease to release")
			if strings.Contains(j.output, "it runs") || !isHeld(t, lock) {
				t.Errorf("it ran, or has released another's lock: %s", j.output)
			}
		})
		t.Run(shell+"/no lock", func(t *testing.T) {
			t.Parallel()
			extend(t, shell, path, nil, "echo it runs").want(t, 64, 0, "set the variable LEASE_LOCK", "no lease to release")
		})
		t.Run(shell+"/bad URL", func(t *testing.T) {
			t.Parallel()
			extend(t, shell, path, map[string]string{"LEASE_LOCK": "ftp://x/y"}, "echo it runs").want(t, 64, 0, "leasehold acquire ended with 64", "unknown scheme")
		})
		t.Run(shell+"/installs", func(t *testing.T) {
			t.Parallel()
			from, archive := release(t)
			lock := newLock(t)
			tools := bare(t, map[string]string{"curl": curl(from)})
			extend(t, shell, tools, map[string]string{"LEASE_LOCK": lock}, "leasehold version").want(t, 0, 0, "leasehold ", "released")
			write(t, filepath.Join(from, archive), "something else")
			extend(t, shell, tools, map[string]string{"LEASE_LOCK": lock}, "echo it runs").want(t, 1, 0, "the checksum of "+archive)
			write(t, filepath.Join(from, "checksums.txt"), "")
			extend(t, shell, tools, map[string]string{"LEASE_LOCK": lock}, "echo it runs").want(t, 1, 0, "lists no archive for")
			extend(t, shell, tools, map[string]string{"LEASE_LOCK": lock, "LEASE_VERSION": "x"}, "echo it runs").want(t, 64, 0, "neither latest nor such as v1.2.3")
		})
	}
}
