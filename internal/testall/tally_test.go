package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The streams in testdata were recorded with go test -json over packages made
// for the purpose.
func TestTally(t *testing.T) {
	for _, tc := range []struct {
		stream                  string
		passed, failed, skipped int
		shows, hides            []string
	}{
		// One alone, three subtests at two depths, a fuzz seed and an example:
		// the tests that hold them are not counted.
		{
			stream: "pass", passed: 6,
			shows: []string{"ok    example.com/rec/pass ", " 6 tests "},
			hides: []string{"fine", "FAIL", "RUN"},
		},
		{stream: "count", passed: 6, shows: []string{" 6 tests "}},
		// A parent that failed by its child's fault is not counted, one that
		// failed by its own is.
		{
			stream: "fail", passed: 3, failed: 2,
			shows: []string{
				"FAIL  example.com/rec/fail ", "said on stdout", "got 1, want 2\n        and a second line\n",
				"--- FAIL: TestBad/child", "the parent itself",
			},
			hides: []string{"not to be shown", "sibling"},
		},
		{
			stream: "panic", passed: 1, failed: 1,
			shows: []string{"FAIL  example.com/rec/panics ", "panic: assignment to entry in nil map", "a_test.go:10"},
			hides: []string{"TestBefore"},
		},
		// The running test never ended: no event says that it failed.
		{
			stream: "timeout", passed: 1, failed: 1,
			shows: []string{"panic: test timed out after 1s", "did not finish: TestHangs\n", "did not finish: TestHangs/sub\n"},
			hides: []string{"TestDone"},
		},
		{
			stream: "exit", passed: 1, failed: 1,
			shows: []string{"leaving", "did not finish: TestExits\n"},
		},
		{
			stream: "build", failed: 1,
			shows: []string{"broken/a_test.go:5:28: undefined: undefined\n", "[build failed]"},
		},
		{
			stream: "vet", failed: 1,
			shows: []string{"vetted/a_test.go:8:40: fmt.Printf format %d has arg \"x\" of wrong type string\n"},
		},
		{
			stream: "setup", failed: 1,
			shows: []string{"no required module provides package example.com/rec/nowhere", "[setup failed]"},
		},
		{stream: "none", shows: []string{"-     example.com/rec/none "}, hides: []string{"ok", "FAIL"}},
		{
			stream: "skip", passed: 2, skipped: 3,
			shows: []string{"ok    example.com/rec/skip "},
			hides: []string{"FAIL"},
		},
	} {
		t.Run(tc.stream, func(t *testing.T) {
			var out strings.Builder
			tally := &tally{out: &out}
			feed(t, tally, tc.stream)
			if tally.passed != tc.passed || tally.failed != tc.failed || len(tally.skips) != tc.skipped {
				t.Errorf("%d passed, %d failed, %d skipped; want %d, %d, %d",
					tally.passed, tally.failed, len(tally.skips), tc.passed, tc.failed, tc.skipped)
			}
			for _, want := range tc.shows {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not show %q", want)
				}
			}
			for _, bad := range tc.hides {
				if strings.Contains(out.String(), bad) {
					t.Errorf("shows %q", bad)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", out.String())
			}
		})
	}
}

func TestSkipReasons(t *testing.T) {
	var out strings.Builder
	tally := &tally{out: &out}
	feed(t, tally, "skip")
	var got []string
	for _, s := range tally.skips {
		got = append(got, s.String())
	}
	want := []string{
		"example.com/rec/skip TestSkips: s3rver cannot be installed here: there is no npm on PATH",
		"example.com/rec/skip TestSub/windows: needs Windows, not this one",
		"example.com/rec/skip TestSilent: no reason given",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A script that is left out logs all that it knows, and at the end why.
func TestReasonOfScript(t *testing.T) {
	said := []string{
		"    cmd.go:380: the same in every layout\n",
		"    testscript.go:609: WORK=$WORK\n", "        PATH=/bin:/usr/bin\n", "        \n",
		"        > [!object] skip 'the same in every layout'\n", "        \n",
		"--- SKIP: TestScripts/demo (0.00s)\n",
	}
	if got := reason(said); got != "the same in every layout" {
		t.Errorf("the reason is %q", got)
	}
}

// In CI only the skip with an allowed reason is a skip.
func TestSkipsInCI(t *testing.T) {
	var out strings.Builder
	tally := &tally{out: &out, ci: true}
	feed(t, tally, "skip")
	if tally.passed != 2 || tally.failed != 2 || len(tally.skips) != 1 {
		t.Errorf("%d passed, %d failed, %d skipped; want 2, 2, 1", tally.passed, tally.failed, len(tally.skips))
	}
	for _, want := range []string{"FAIL  example.com/rec/skip ", "not allowed in CI: example.com/rec/skip TestSilent: no reason given\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not show %q in:\n%s", want, out.String())
		}
	}
}

func TestVerboseShowsWhatPassed(t *testing.T) {
	var out strings.Builder
	feed(t, &tally{out: &out, verbose: true}, "pass")
	if !strings.Contains(out.String(), "a_test.go:5: fine\n") {
		t.Errorf("does not show what TestAlone logged:\n%s", out.String())
	}
}

// A go command that was killed leaves a stream without an end, perhaps in the
// middle of a line.
func TestStreamCutShort(t *testing.T) {
	whole := recorded(t, "pass")
	begun := strings.Index(string(whole), "\n") // after the package's start event
	for _, n := range []int{begun, begun + 1, len(whole) / 2, len(whole) - 2} {
		var out strings.Builder
		tally := &tally{out: &out}
		_, _ = tally.Write(whole[:n])
		tally.end()
		if tally.failed == 0 {
			t.Errorf("cut at byte %d of %d: nothing failed:\n%s", n, len(whole), out.String())
		}
	}
}

// The pipe cuts the stream wherever it likes.
func TestStreamInSmallParts(t *testing.T) {
	var out strings.Builder
	tally := &tally{out: &out}
	for _, b := range recorded(t, "fail") {
		_, _ = tally.Write([]byte{b})
	}
	tally.end()
	if tally.passed != 3 || tally.failed != 2 {
		t.Errorf("%d passed, %d failed; want 3, 2", tally.passed, tally.failed)
	}
}

func TestMessagesThatAreNoEvents(t *testing.T) {
	var out strings.Builder
	tally := &tally{out: &out}
	_, _ = tally.Write([]byte("go: updates to go.mod needed\n{\"a\": 1}\n"))
	tally.end()
	if want := "go: updates to go.mod needed\n{\"a\": 1}\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func feedEvent(t *tally, line string) { _, _ = t.Write([]byte(line + "\n")) }

func TestSummary(t *testing.T) {
	var out strings.Builder
	tally := &tally{out: &out}
	feed(t, tally, "skip")
	feed(t, tally, "fail")
	for i := range longest + 1 {
		feedEvent(tally, fmt.Sprintf(`{"Action":"pass","Package":"p","Test":"Test%d","Elapsed":%d}`, i, slow-1+i))
	}
	feedEvent(tally, `{"Action":"pass","Package":"p","Elapsed":140}`)
	tally.layout = "epochs"
	feedEvent(tally, `{"Action":"pass","Package":"p","Elapsed":150}`)
	out.Reset()
	tally.summary(outcome{ready: []string{"gofakes3"}, leftOut: []string{"minio"}, broken: []string{"versitygw"}})
	want := `
tested against: gofakes3
left out: minio (by LEASEHOLD_TEST_WITHOUT)
could not be built: versitygw
skipped: example.com/rec/skip TestSkips: s3rver cannot be installed here: there is no npm on PATH
skipped: example.com/rec/skip TestSub/windows: needs Windows, not this one
skipped: example.com/rec/skip TestSilent: no reason given
package took  150.0s: p in the layout epochs
package took  140.0s: p
`
	for i := range longest {
		want += fmt.Sprintf("took %6.1fs: p Test%d\n", float64(slow-1+longest-i), longest-i)
	}
	want += `failed: example.com/rec/fail TestBad
failed: example.com/rec/fail TestBad/child
failed: example.com/rec/fail TestParentAlone
18 passed, 2 failed, 3 skipped
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// A run in which no test was run has failed, and so has one that go test
// refused to begin.
func TestNothingRunIsAFailure(t *testing.T) {
	inModule(t, "package x_test\nimport \"testing\"\nfunc TestX(t *testing.T) {}\n")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"test", "-json", "-run", "TestAbsent", "./..."}, "no test was run"},
		{[]string{"test", "-json", "-nosuchflag"}, "exit status 2"},
	} {
		var out, stderr strings.Builder
		tally := &tally{out: &out}
		goTest(t.Context(), tally, tc.args, outcome{}, &stderr)
		if tally.failed != 1 || !strings.Contains(out.String(), tc.want) {
			t.Errorf("go %s: %d failed, want 1 and %q in:\n%s", strings.Join(tc.args, " "), tally.failed, tc.want, out.String())
		}
	}
}

// A server that did not build is left out of the tests, next to what the caller
// left out.
func TestBrokenServerIsLeftOut(t *testing.T) {
	inModule(t, `package x_test
import ("os"; "testing")
func TestX(t *testing.T) {
	if got := os.Getenv("LEASEHOLD_TEST_WITHOUT"); got != "minio,versitygw" { t.Fatal(got) }
	if got := os.Getenv("LEASEHOLD_LAYOUT"); got != "epochs" { t.Fatal(got) }
}
`)
	t.Setenv(without, "minio")
	var out, stderr strings.Builder
	tally := &tally{out: &out, layout: "epochs"}
	goTest(t.Context(), tally, []string{"test", "-json", "./..."}, outcome{broken: []string{"versitygw"}}, &stderr)
	if tally.passed != 1 || tally.failed != 0 {
		t.Errorf("%d passed, %d failed; want 1, 0:\n%s%s", tally.passed, tally.failed, out.String(), stderr.String())
	}
}

// A context that has ended must not leave a half-counted run as a success.
func TestEndedContextIsAFailure(t *testing.T) {
	inModule(t, "package x_test\nimport \"testing\"\nfunc TestX(t *testing.T) {}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, stderr strings.Builder
	tally := &tally{out: &out}
	goTest(ctx, tally, []string{"test", "-json", "./..."}, outcome{}, &stderr)
	if tally.failed != 1 {
		t.Errorf("%d failed, want 1:\n%s", tally.failed, out.String())
	}
}

// feed writes a recorded stream to the tally.
func feed(t *testing.T, tally *tally, name string) {
	t.Helper()
	_, _ = tally.Write(recorded(t, name))
	tally.end()
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	stream, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// inModule goes to a fresh module that has one test file.
func inModule(t *testing.T, source string) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module example.com/x\n\ngo 1.26.0\n")
	write(t, "x_test.go", source)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each part is run, or named as one that is not.
func TestParts(t *testing.T) {
	for _, tc := range []struct{ what, these, others, problem string }{
		{what: "root", these: "root", others: "proofs layouts modules"},
		{what: "modules,layouts", these: "modules layouts", others: "root proofs"},
		{what: "layouts,root,proofs,modules", these: "layouts root proofs modules"},
		{what: "adapters", problem: `no part "adapters"`},
		{what: "", problem: `no part ""`},
	} {
		these, others, err := parse(tc.what)
		if tc.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("-what %q: %v, want %q", tc.what, err, tc.problem)
			}
			continue
		}
		if a, b := strings.Join(these, " "), strings.Join(others, " "); err != nil || a != tc.these || b != tc.others {
			t.Errorf("-what %q runs %q and leaves out %q (%v), want %q and %q", tc.what, a, b, err, tc.these, tc.others)
		}
	}
	for _, args := range [][]string{{"-what", "layouts", "./store"}, {"-what", "modules", "-run", "TestX"}, {"-what", "modules", "-C", "bench"}, {"-what", "no"}} {
		var stderr strings.Builder
		if code := run(t.Context(), args, io.Discard, &stderr); code != 2 || !strings.Contains(stderr.String(), "-what") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr.String())
		}
	}
}

// Nothing is begun after -within, and all of it is named.
func TestWithin(t *testing.T) {
	t.Setenv(without, "gofakes3,versitygw,minio,fake-gcs-server")
	var out, stderr strings.Builder
	code := run(t.Context(), []string{"-within", "1ns", "-what", "proofs,layouts,modules"}, &out, &stderr)
	for _, want := range []string{
		"\nleft out, since 1ns had passed: ./internal/proof/chaos ./internal/proof/linear, ",
		", the layout marker, ", ", internal/pagetest, ", "\nnot run: root; for these: go run ./internal/testall -what root\n", "\n0 passed, 0 failed, 0 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s%s", want, out.String(), stderr.String())
		}
	}
	if code != 1 {
		t.Errorf("nothing was run, and the exit code is %d", code)
	}
}
