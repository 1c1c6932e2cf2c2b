// Prove attacks leasehold in every way that it has, and prints one table of what came out.
//
//	go run ./internal/prove [-long] [-only WORD]
//
// Without -long it takes under a quarter of an hour on two cores; docs/reliability.md
// says what each part is. The exit code is 0 only if nothing was found.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// A part is one kind of attack: what is run for it, shortly and at length.
type part struct {
	name        string
	short, long []string
}

var parts = []part{
	{
		"mutations",
		words("go run ./internal/mutate -share 1/4"),
		words("go run ./internal/mutate"),
	},
	general("./internal/protocol", "1/10"),
	general("./internal/record", "1/4"),
	survey("./fence", "1/60"),
	survey("./fence/fencehttp", "1/20"),
	survey("./fence/fencesql", "1/30", "./internal/sqltest"),
	survey("./shard", "1/100"),
	survey("./store/filestore", "1/60"),
	apart(survey("./internal/guardian", "1/100")),
	survey(".", "1/100"),
	{
		"simulation",
		words("go test ./internal/sim -count 1 -v -timeout 1h -run TestSimulation -seeds 30000"),
		words("go test ./internal/sim -count 1 -v -timeout 3h -run TestSimulation -seeds 1000000"),
	},
	{
		"models",
		words("spec/check quick"),
		words("spec/check full"),
	},
	{
		"histories of fences",
		words("go test ./fence -count 1 -v -timeout 1h -run Histories -histories 20000"),
		words("go test ./fence -count 1 -v -timeout 1h -run Histories -histories 100000"),
	},
	{
		"linearizability",
		words("go test ./internal/linear -count 1 -v -timeout 1h"),
		words("go test ./internal/linear -count 1 -v -timeout 3h -histories 100"),
	},
	{
		"a former holder wakes up",
		nil, // it is one of the everyday tests
		words("go test ./internal/e2e -count 1 -v -timeout 1h -run TestFormerHolder -long"),
	},
	{
		"chaos",
		words("go test ./internal/chaos -count 1 -v -timeout 1h -run TestChaos|TestNoLock|TestLink"),
		words("go test ./internal/chaos -count 1 -v -timeout 3h -run TestChaos -long 5m"),
	},
	{
		"soak",
		words("go test ./internal/chaos -count 1 -v -timeout 1h -run TestSoak"),
		words("go test ./internal/chaos -count 1 -v -timeout 3h -run TestSoak -soak 30m"),
	},
	{
		"fuzzing",
		words("make fuzz FUZZTIME=30s"),
		words("make fuzz FUZZTIME=3m"),
	},
}

// general is the mutations of all the code of a package: a share of them in short. The tests
// of other packages take part at length. Each that survives is a finding, unless its reason is
// written down.
func general(pkg, share string, others ...string) part {
	return generally("go run ./internal/mutate -general "+pkg, pkg, share, others)
}

// survey is the same where not each survivor has its reason yet: they are counted, and are no
// finding.
func survey(pkg, share string, others ...string) part {
	return generally("go run ./internal/mutate -survey -general "+pkg, pkg, share, others)
}

func generally(command, pkg, share string, others []string) part {
	return part{"general mutations of " + pkg, append(words(command), "-share", share), append(words(command), others...)}
}

// apart runs the tests in process numbers of their own, since a mutation of what kills
// processes may kill any. Where that cannot be had it is left out.
func apart(p part) part {
	args := words("unshare --pid --fork --mount-proc --kill-child")
	if err := exec.CommandContext(context.Background(), args[0], append(args[1:], "true")...).Run(); err != nil {
		p.short = []string{"echo", "figures: left out: a process namespace, which it needs, cannot be had here: " + err.Error()}
		p.long = p.short
		return p
	}
	own := []string{"-exec", strings.Join(append(args, "setsid"), " ")}
	p.short, p.long = append(p.short, own...), append(p.long, own...)
	return p
}

func words(command string) []string { return strings.Fields(command) }

// A result is what came of a part.
type result struct {
	name    string
	outcome string
	took    time.Duration
	figures []string
}

func main() {
	long := flag.Bool("long", false, "attack for hours")
	only := flag.String("only", "", "only the parts with this `word` in their names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	results := run(ctx, *long, *only)
	stop()
	if !table(os.Stdout, results) {
		os.Exit(1)
	}
}

func run(ctx context.Context, long bool, only string) (results []result) {
	for _, p := range parts {
		command := p.short
		if long {
			command = p.long
		}
		if command != nil && strings.Contains(p.name, only) && ctx.Err() == nil {
			results = append(results, attack(ctx, p.name, command))
		}
	}
	return results
}

// attack runs one part. What it says is shown as it comes.
func attack(ctx context.Context, name string, command []string) result {
	fmt.Printf("\n== %s: %s\n", name, strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var said bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &said)
	cmd.Stderr = cmd.Stdout
	begun := time.Now()
	r := result{name: name, outcome: "held"}
	if err := cmd.Run(); err != nil {
		r.outcome = "FAILED: " + err.Error()
	}
	r.took, r.figures = time.Since(begun), figures(said.String())
	if r.outcome == "held" && len(r.figures) == 0 {
		r.outcome = "FAILED: it says nothing of what it did"
	}
	return r
}

// said matches the lines in which a part says what it did.
var said = regexp.MustCompile(`figures: (.*)|^(\d+ mutations: .*)|^(\d+ hold, .*)`)

func figures(output string) (lines []string) {
	for s := bufio.NewScanner(strings.NewReader(output)); s.Scan(); {
		if m := said.FindStringSubmatch(s.Text()); m != nil {
			lines = append(lines, m[1]+m[2]+m[3])
		}
	}
	return lines
}

// table prints what came of all, and reports whether everything held.
func table(w io.Writer, results []result) bool {
	held := len(results) > 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nattack\toutcome\ttime\tfigures")
	for _, r := range results {
		held = held && r.outcome == "held"
		lines := append(r.figures, "")
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\n", r.name, r.outcome, r.took.Round(time.Second), lines[0])
		for _, line := range lines[1:max(len(lines)-1, 1)] {
			fmt.Fprintf(t, "\t\t\t%s\n", line)
		}
	}
	_ = t.Flush()
	return held
}
