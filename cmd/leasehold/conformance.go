package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/conformance"
	"github.com/leasehold/leasehold/internal/plain"
)

// exitFailed is the code of a run in which a case has failed.
const exitFailed = 1

// A conformanceRun is one use of the command conformance.
type conformanceRun struct {
	*app
	store, run string
	list       bool
	parallel   int
	ttl        time.Duration
}

func (a *app) conformance() *cobra.Command {
	c := conformanceRun{app: a}
	cmd := &cobra.Command{
		Use:   "conformance --store URL -- COMMAND [ARG…]",
		Short: "Run the conformance tests against another implementation",
		Long: `Run the conformance tests against another implementation of the lock format.

COMMAND is a program that implements docs/format.md. It acquires and releases
locks as it is told on stdin, and responds on stdout, in the messages that
docs/format.md describes. Each case starts it again, with a local proxy between
it and the store. The proxy drops, delays, duplicates and rejects requests. Some
cases stop, kill or cut off the program.

URL is that of an S3-compatible bucket, or of a prefix in it, with endpoint=….
The server must ignore the host name that it is called by; AWS does not. The
cases write below a prefix of their own, and remove it at the end.

Environment of COMMAND:
  CONFORMANCE_BUCKET    the bucket
  CONFORMANCE_PREFIX    the prefix, which is empty or ends in a slash
  CONFORMANCE_ENDPOINT, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3
                        the proxy, for paths that begin with the bucket
  AWS_REGION            the region
Credentials are in the variables of AWS tools, as in leasehold's own
environment.

Output: a line per case. A failed case also has the sentence of docs/format.md
that was violated, the observation, the requests, and the lines of both sides.

Exit codes:
  0      all cases passed
  1      a case failed
  64     usage
  69     the store could not be reached
  77     the store denied access
  128+n  signal n ended the tests`,
		Example: `  URL='s3://bucket/tests?endpoint=http://127.0.0.1:9000'
  leasehold conformance --store "$URL" -- python3 subject.py
  leasehold conformance --list
  leasehold conformance --run '^takes-over' -o json --store "$URL" -- ./subject`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern, err := regexp.Compile(c.run)
			switch {
			case err != nil:
				return usage("--run %q: %w", c.run, err)
			case c.parallel < 1:
				return usage("--parallel %d is less than 1", c.parallel)
			case c.ttl < time.Second || c.ttl > time.Minute || c.ttl%time.Millisecond != 0:
				return usage("--ttl %v is not from 1s to 1m0s, in whole milliseconds", c.ttl)
			case c.list && len(args) > 0:
				return usage("--list runs no command, and there is one: %s", seeHelp(cmd))
			case c.list:
				return c.tell(pattern)
			case c.store == "":
				return usage("--store is missing: %s", seeHelp(cmd))
			case len(args) == 0:
				return usage("the command is missing, after --: %s", seeHelp(cmd))
			}
			return c.try(cmd.Context(), pattern, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.store, "store", "", "`URL` of a bucket, or of a prefix in it, with endpoint=…")
	f.StringVar(&c.run, "run", "", "run only cases whose names match this regular `expression`")
	f.BoolVar(&c.list, "list", false, "list the cases, and run none of them")
	f.IntVar(&c.parallel, "parallel", 8, "number of cases to run at a time")
	f.DurationVar(&c.ttl, "ttl", 2*time.Second, "lease `duration` in most cases; increase it for a slow\nmachine or store")
	return cmd
}

// tell lists the cases.
func (c *conformanceRun) tell(pattern *regexp.Regexp) error {
	type row struct {
		Case  string `json:"case"`
		About string `json:"about"`
	}
	rows, text := []row{}, ""
	for _, one := range conformance.Cases() {
		if pattern.MatchString(one.Name) {
			rows = append(rows, row{one.Name, one.About})
			text += fmt.Sprintf("%-26s %s\n", one.Name, one.About)
		}
	}
	if len(rows) == 0 {
		return usage("--run %q: no case has such a name: see leasehold conformance --list", c.run)
	}
	return c.print(text, rows)
}

// place splits the URL of the store, as far as the proxy and the program need to know.
func (c *conformanceRun) place() (endpoint *url.URL, bucket, prefix, region string, err error) {
	u, err := url.Parse(c.store)
	if err != nil {
		return nil, "", "", "", usage("--store: %w", err)
	}
	if u.Scheme != "s3" || u.Host == "" {
		return nil, "", "", "", usage("--store %q is not the URL of a bucket: write one such as s3://bucket/prefix?endpoint=http://127.0.0.1:9000", c.store)
	}
	endpoint, err = url.Parse(u.Query().Get("endpoint"))
	if err != nil || endpoint.Host == "" {
		return nil, "", "", "", usage("--store %q has no endpoint=… with the address of a server, such as http://127.0.0.1:9000: AWS itself cannot be reached through a proxy", c.store)
	}
	if u.Query().Get("path_style") == "false" {
		return nil, "", "", "", usage("--store %q has path_style=false: behind the proxy all paths begin with the bucket", c.store)
	}
	if prefix = strings.Trim(u.Path, "/"); prefix != "" {
		prefix += "/"
	}
	return endpoint, u.Host, prefix, u.Query().Get("region"), nil
}

// try puts a command through the cases.
func (c *conformanceRun) try(ctx context.Context, pattern *regexp.Regexp, command []string) error {
	endpoint, bucket, prefix, region, err := c.place()
	if err != nil {
		return err
	}
	if err = c.tellNone(pattern); err != nil { //nolint:contextcheck // no case is run, and each has the context of its run
		return err
	}
	p := target{storeURL: c.store}
	if err = p.open(ctx); err != nil {
		return err
	}
	if region == "" && os.Getenv("AWS_REGION") == "" {
		region = "us-east-1" // as for ourselves: see storeurl
	}
	ctx, sig := c.interruptible(ctx)
	opts := conformance.Options{
		Store: p.store, Endpoint: endpoint, Bucket: bucket, Prefix: prefix, Region: region,
		Command: command, Env: conformance.Environ(), TTL: c.ttl, Parallel: c.parallel, Run: pattern,
	}
	var broken error // stdout
	if c.output != "json" {
		opts.OnResult = func(r conformance.Result) { broken = errors.Join(broken, c.write(resultText(r))) }
	}
	results, err := conformance.Run(ctx, opts)
	if sig := sig(); sig != nil {
		return stopped(sig, errors.New("interrupted: not all cases were tried"))
	}
	if err = errors.Join(err, broken); err != nil {
		return failed(err)
	}
	return c.outcome(results)
}

// tellNone refuses a pattern that no case has.
func (c *conformanceRun) tellNone(pattern *regexp.Regexp) error {
	for _, one := range conformance.Cases() {
		if pattern.MatchString(one.Name) {
			return nil
		}
	}
	return usage("--run %q: no case has such a name: see leasehold conformance --list", c.run)
}

// outcome sums up.
func (c *conformanceRun) outcome(results []conformance.Result) error {
	sum := struct {
		Passed  int                  `json:"passed"`
		Failed  int                  `json:"failed"`
		Skipped int                  `json:"skipped"`
		Cases   []conformance.Result `json:"cases"`
	}{Cases: results}
	for _, r := range results {
		switch {
		case r.Skipped != "":
			sum.Skipped++
		case r.Passed:
			sum.Passed++
		default:
			sum.Failed++
		}
	}
	text := fmt.Sprintf("\n%d passed, %d failed, %d not tried\n", sum.Passed, sum.Failed, sum.Skipped)
	if err := c.print(text, sum); err != nil {
		return err
	}
	if sum.Failed > 0 {
		return &exit{exitFailed, fmt.Errorf("%d of %d cases have failed", sum.Failed, len(results))}
	}
	return nil
}

// resultText is what is said of a case.
func resultText(r conformance.Result) string {
	switch {
	case r.Skipped != "":
		return fmt.Sprintf("skip  %s: %s\n", r.Case, r.Skipped)
	case r.Passed:
		return fmt.Sprintf("pass  %s  (%.1f s)\n", r.Case, r.Seconds)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FAIL  %s: %s\n", r.Case, r.About)
	for _, f := range r.Failures {
		if f.Sentence != "" {
			fmt.Fprintf(&b, "      %s of docs/format.md: %s\n", f.Rule, f.Sentence)
		}
		fmt.Fprintf(&b, "      seen: %s\n", plain.Word(f.What))
	}
	for _, part := range []struct {
		name  string
		lines []string
	}{{"requests", r.Requests}, {"said (> by the runner)", r.Said}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(&b, "      %s:\n", part.name)
		}
		for _, l := range part.lines {
			first, second, _ := strings.Cut(l, "\n") // a body follows on a line of its own
			fmt.Fprintf(&b, "        %s\n", plain.Word(first))
			if second = strings.TrimSpace(second); second != "" {
				fmt.Fprintf(&b, "                   %s\n", plain.Word(second))
			}
		}
	}
	return b.String()
}
