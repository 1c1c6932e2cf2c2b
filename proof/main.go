// Proof runs every attack on leasehold and prints one table of the results.
//
//	go -C proof run . [-long] [-only WORD]
//
// make prove runs it. With -long every part runs longer, for hours in all. docs/reliability.md
// explains the parts. The exit code is 0 only if every part held.
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
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// A part is one kind of attack, with its short and its long command.
type part struct {
	name        string
	short, long []string
	apart       bool // see apart
}

var parts = []part{
	{
		name:  "mutations",
		short: words("go -C proof run ./mutate -share 1/12"),
		long:  words("go -C proof run ./mutate"),
	},
	general("./internal/protocol", "1/4", "./internal/protocol/candidate", "./internal/protocol/queue", "./internal/protocol/session"),
	general("./internal/protocol/candidate", "1/40"),
	general("./internal/protocol/queue", "1/10"),
	general("./internal/protocol/session", "1/4"),
	general("./internal/engine", "", ".", "./multilock", "./admin", "./semaphore", "./proof/sim"),
	general("./internal/record", "1/16"),
	general("./fence", ""),
	general("./fence/fencelog", ""),
	general("./fence/internal/request", ""),
	general("./fence/fencehttp", ""),
	general("./fence/fencesql", "", "./integration/sql"),
	general("./shard", ""),
	survey("./semaphore", ""), // 1/6 reviewed so far
	general("./admin", ""),
	general("./store/filestore", ""),
	inProcessesOfItsOwn(survey("./internal/guardian", "")),
	general(".", "", "./multilock"),
	general("./detached", "", "."),
	general("./multilock", "", "."),
	{
		name:  "simulation",
		short: words("go -C proof test ./sim -count 1 -v -timeout 1h -seeds 40000"),
		long:  words("go -C proof test ./sim -count 1 -v -timeout 3h -seeds 1000000"),
	},
	{
		name:  "models",
		short: words("env SHARE=1/4 spec/check quick"),
		long:  words("spec/check full"),
	},
	{
		name:  "lock order",
		short: words("make lockorder"),
		long:  []string{"make", "lockorder", "ORDERED=. ./multilock ./admin ./shard ./s3lect ./peer ./semaphore"},
	},
	{
		name:  "layouts",
		short: words("make layouts"),
		long:  words("make layouts"),
	},
	{
		name:  "long runs in virtual time",
		short: words("go test -tags prove . ./admin ./internal/cost ./semaphore ./shard -count 1 -v -timeout 1h -run Counted|TestTurns|TestHundred|TestDay|TestRandomCalls|TestCollectionRacesElections|TestTraceIsWhole|TestMoveContended"),
		long:  words("go test -tags prove . ./admin ./internal/cost ./semaphore ./shard -count 1 -v -timeout 1h -run Counted|TestTurns|TestHundred|TestDay|TestRandomCalls|TestCollectionRacesElections|TestTraceIsWhole|TestMoveContended"),
	},
	{
		name:  "histories of fences",
		short: words("go test ./fence ./fence/fencelog -count 1 -v -timeout 1h -run Histories -histories 20000"),
		long:  words("go test ./fence ./fence/fencelog -count 1 -v -timeout 1h -run Histories -histories 100000"),
	},
	{
		name:  "histories of registers",
		short: words("go -C proof test ./register -count 1 -v -timeout 1h -seeds 20000"),
		long:  words("go -C proof test ./register -count 1 -v -timeout 1h -seeds 80000"),
	},
	{
		name:  "linearizability",
		short: words("go -C proof test ./histories -count 1 -v -timeout 1h"),
		long:  words("go -C proof test ./histories -count 1 -v -timeout 3h -histories 100"),
	},
	{
		name:  "quorums",
		short: words("go -C proof test ./quorum -count 1 -v -timeout 1h"),
		long:  words("go -C proof test ./quorum -count 1 -v -timeout 1h"),
	},
	{
		name:  "processes",
		short: words("go -C proof test ./e2e -count 1 -v -timeout 1h"),
		long:  words("go -C proof test ./e2e -count 1 -v -timeout 2h -long"),
	},
	{
		name:  "the command, serve, peers and s3lect on real clocks",
		short: words("go -C proof test ./cli ./peer ./probe ./s3lect ./serve -p 1 -count 1 -v -timeout 1h"),
		long:  words("go -C proof test ./cli ./peer ./probe ./s3lect ./serve -p 1 -count 1 -v -timeout 1h"),
	},
	{
		name:  "the mutations' own tests",
		short: words("go -C proof test . ./mutate -count 1 -v -timeout 1h"),
		long:  words("go -C proof test . ./mutate -count 1 -v -timeout 1h"),
	},
	{
		name:  "chaos",
		short: words("go -C proof test ./chaos -count 1 -v -timeout 1h"),
		long:  words("go -C proof test ./chaos -count 1 -v -timeout 3h -long 5m -soak 30m"),
	},
	{
		name:  "races",
		short: nil, // CI runs the race detector
		long:  words("make racelong"),
	},
	{
		name:  "fuzzing",
		short: words("make fuzz FUZZTIME=5s"),
		long:  words("make fuzz FUZZTIME=3m"),
	},
}

// general returns the general mutations of a package: in short a share of them, or none. Tests of
// other packages may take part. A survivor is a finding unless its reason is written down.
func general(pkg, share string, others ...string) part {
	return generally("go -C proof run ./mutate -general "+pkg, pkg, share, others)
}

// survey is like general, but only counts survivors, because a busy machine may affect the result
// or not all survivors have been reviewed.
func survey(pkg, share string, others ...string) part {
	return generally("go -C proof run ./mutate -survey -general "+pkg, pkg, share, others)
}

func generally(command, pkg, share string, others []string) part {
	p := part{name: "general mutations of " + pkg, long: append(words(command), others...)}
	if share != "" {
		p.short = append(append(words(command), "-share", share), others...)
	}
	return p
}

func inProcessesOfItsOwn(p part) part {
	p.apart = true
	return p
}

// apart runs a command's tests in a PID namespace of their own, because a mutation of code that
// kills processes may kill any. Without such namespaces the part is left out.
func apart(ctx context.Context, command []string) []string {
	args := words("unshare --pid --fork --mount-proc --kill-child")
	if err := exec.CommandContext(ctx, args[0], append(args[1:], "true")...).Run(); err != nil {
		return []string{"echo", "figures: left out: a process namespace, which it needs, cannot be had here: " + err.Error()}
	}
	return append(slices.Clip(command), "-exec", strings.Join(append(args, "setsid"), " "))
}

func words(command string) []string { return strings.Fields(command) }

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
			if p.apart {
				command = apart(ctx, command)
			}
			results = append(results, attack(ctx, p.name, command))
		}
	}
	return results
}

func attack(ctx context.Context, name string, command []string) result {
	fmt.Printf("\n== %s: %s\n", name, strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = ".." // packages are named relative to it
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
	if n := strings.Count(said.String(), "--- PASS: "); n > 0 && len(r.figures) == 0 {
		r.figures = []string{fmt.Sprintf("%d tests passed, %d skipped", n, strings.Count(said.String(), "--- SKIP: "))}
	}
	if r.outcome == "held" && len(r.figures) == 0 {
		r.outcome = "FAILED: it says nothing of what it did"
	}
	return r
}

// said matches the lines with a part's figures.
var said = regexp.MustCompile(`figures: (.*)|^(\d+ mutations: .*)|^(\d+ hold, .*)`)

func figures(output string) (lines []string) {
	for s := bufio.NewScanner(strings.NewReader(output)); s.Scan(); {
		if m := said.FindStringSubmatch(s.Text()); m != nil {
			lines = append(lines, m[1]+m[2]+m[3])
		}
	}
	return lines
}

// table prints all results, and reports whether everything held.
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
