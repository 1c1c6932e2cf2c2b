package shipped_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const unitDir = root + "/dist/systemd"

func units(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.service", "*.timer"} {
		files, err := filepath.Glob(filepath.Join(unitDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	if len(all) < 3 {
		t.Fatalf("there are %d units", len(all))
	}
	return all
}

// TestUnits: systemd understands the units without a warning, and finds their services well enough confined.
func TestUnits(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	check := func(t *testing.T, change func(string) string) ended {
		t.Helper()
		dir := t.TempDir()
		args := []string{tool, "verify", "--man=no", "--generators=no", "--recursive-errors=no"}
		for _, unit := range units(t) {
			to := filepath.Join(dir, filepath.Base(unit))
			// What they start is not installed here.
			write(t, to, change(strings.ReplaceAll(read(t, unit), "/usr/bin/leasehold", filepath.Join(withCommand(t), "leasehold"))))
			args = append(args, to)
		}
		return run(t, append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":"), args...)
	}
	if said := check(t, func(unit string) string { return unit }); said.code != 0 || said.output != "" {
		t.Errorf("systemd-analyze verify: %d: %s", said.code, said.output)
	}
	for from, to := range map[string]string{
		"KillMode=mixed":   "KillMode=some",
		"Type=notify":      "Typ=notify",
		"minutely":         "each minute",
		" -- /bin/sh":      " -- \"/bin/sh",
		"WatchdogSec=60s":  "WatchdogSec=often",
		"DynamicUser=yes":  "DynamicUser=perhaps",
		"ExecStart=/":      "ExecStart=/nowhere/",
		"AccuracySec=1s":   "AccuracySec=one",
		"@system-service":  "@no-such-set",
		"RestartSec=5s":    "RestartSec=x",
		"[Timer]":          "[Clock]",
		"TimeoutStopSec=9": "TimeoutStopSec=z",
	} {
		said := check(t, func(unit string) string { return strings.ReplaceAll(unit, from, to) })
		if said.output == "" {
			t.Errorf("%q in the place of %q was not found out", to, from)
		}
	}
	for _, unit := range units(t) {
		if filepath.Ext(unit) != ".service" {
			continue
		}
		said := run(t, os.Environ(), tool, "security", "--offline=true", "--threshold=30", unit)
		if said.code != 0 {
			t.Errorf("systemd-analyze security: %d: %s", said.code, said.output)
		}
	}
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)\}`)

// settings are those of a unit, or of a file of variables, by name.
func settings(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(name, "#") {
			all[name] = append(all[name], value)
		}
	}
	return all
}

// TestUnitsRun: the command line of each service runs as systemd would start it, with the variables of its example:
// each in braces is one argument, whatever is in it.
func TestUnitsRun(t *testing.T) {
	t.Parallel()
	for service, c := range map[string]struct {
		more []string // by which it ends
		code int
	}{
		"leasehold-cron@.service":  {nil, 0},
		"leasehold-elect@.service": {[]string{"LEASEHOLD_ONCE=true"}, 0},
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			unit := settings(read(t, filepath.Join(unitDir, service)))
			kind := strings.TrimPrefix(strings.TrimSuffix(service, "@.service"), "leasehold-")
			example := settings(read(t, filepath.Join(unitDir, kind+".env.example")))
			if got := unit["EnvironmentFile"]; !slices.Equal(got, []string{"/etc/leasehold/" + kind + "/%i.env"}) {
				t.Errorf("its variables are in %q", got)
			}
			lock, file := newLock(t), filepath.Join(t.TempDir(), "ran")
			values := map[string]string{"LOCK": lock, "COMMAND": `echo "ran  $LEASEHOLD_TOKEN" >"` + file + `"; exec true`}
			for _, assignment := range unit["Environment"] {
				name, value, _ := strings.Cut(assignment, "=")
				values[name] = value
			}
			for name := range values {
				if example[name] == nil {
					t.Errorf("the example does not have %s", name)
				}
			}
			if len(unit["ExecStart"]) != 1 {
				t.Fatalf("it starts %q", unit["ExecStart"])
			}
			words := strings.Fields(unit["ExecStart"][0])
			if words[0] != "/usr/bin/leasehold" {
				t.Errorf("it starts %q", words[0])
			}
			words[0] = filepath.Join(withCommand(t), "leasehold")
			for i, word := range words {
				if m := variable.FindStringSubmatch(word); m != nil {
					if m[0] != word || values[m[1]] == "" {
						t.Fatalf("the argument %q is not one variable that is known: %v", word, slices.Collect(maps.Keys(values)))
					}
					words[i] = values[m[1]]
				}
			}
			env := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_") }), c.more...)
			if said := run(t, env, words...); said.code != c.code {
				t.Errorf("%q: %d: %s", words, said.code, said.output)
			}
			if text, err := os.ReadFile(file); err != nil || !regexp.MustCompile(`^ran  [0-9]+\n$`).Match(text) {
				t.Errorf("its job has written %q, %v", text, err)
			}
			if kind == "cron" { // the second machine, a moment later
				if said := run(t, env, words...); said.code != 75 || !slices.Equal(unit["SuccessExitStatus"], []string{"75"}) {
					t.Errorf("the second time: %d, which counts as success: %q: %s", said.code, unit["SuccessExitStatus"], said.output)
				}
			}
		})
	}
}

// TestExamplesAreTaken: the variables of the examples that are for leasehold are variables of flags.
func TestExamplesAreTaken(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"cron", "elect"} {
		subcommand := map[string]string{"cron": "run", "elect": "elect"}[kind]
		help := leasehold(t, subcommand, "--help").output
		text := strings.ReplaceAll(read(t, filepath.Join(unitDir, kind+".env.example")), "\n#LEASEHOLD_", "\nLEASEHOLD_")
		for name := range settings(text) {
			flag, ours := strings.CutPrefix(name, "LEASEHOLD_")
			if ours && !strings.Contains(help, "--"+strings.ToLower(strings.ReplaceAll(flag, "_", "-"))+" ") {
				t.Errorf("%s: leasehold %s has no flag for %s", kind, subcommand, name)
			}
		}
	}
}
