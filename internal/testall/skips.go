package main

import (
	"regexp"
	"strings"
)

// A skip is a test that was not run, and why not.
type skip struct {
	pkg, test, reason string
}

// allowed are the reasons for which a test may be skipped in CI. Everything
// else there is a test that somebody believes to have been run.
var allowed = []struct {
	reason *regexp.Regexp
	why    string
}{
	{regexp.MustCompile(`left out by ` + without), "the caller asked for it"},
	{regexp.MustCompile(`-short`), "the caller asked for it"},
	{regexp.MustCompile(`no storetest\.Planter`), "what a store in memory cannot hold, it cannot show"},
	{regexp.MustCompile(`no store\.Large`), "a store need not keep bodies of any size"},
	{regexp.MustCompile(`no store\.Conditional`), "a store need not delete on a condition"},
	{regexp.MustCompile(`the same in every layout`), "it is run over the default layout"},
	{regexp.MustCompile(`^(to )?a (plain )?marker\b`), "that is another thing with markers, which have tests of their own"},
	{regexp.MustCompile(`a holder that does not renew its marker|the layout marker does not renew leases`), "a plain marker's lease ends with its TTL"},
	{regexp.MustCompile(`^the layout marker has no tokens`), "what tells tokens apart is tested in the layouts that have them"},
	{regexp.MustCompile(`^the delete of a marker is not sent again`), "a lost delete of a marker is tested by itself"},
	{regexp.MustCompile(`only markers are shared with other tools|candidates that sweep markers`), "the markers' weaknesses are tested where they are"},
	{regexp.MustCompile(`^a heartbeat is written over`), "a server that knows of creations alone is there for locks with epochs"},
	{regexp.MustCompile(`no cgroup v2 of its own can be made here`), "a job is ended without one too, which is tested everywhere"},
	{regexp.MustCompile(`PostgreSQL is started on Linux only`), "SQLite is tested everywhere"},
	{regexp.MustCompile(`a command that sleeps is started on Unix only`), "what is served does not depend on the system"},
	{regexp.MustCompile(`s3rver cannot be installed here`), "s3rver is the second of two negative controls"},
	{regexp.MustCompile(`^there is no (bash|zsh|fish|groff|mandoc|curl|python3|node) here$`), "what is for a tool can be tried where that is; .ci/run installs it where it may"},
	{regexp.MustCompile(`^there is no chromium here$`), "the page can be tried where a browser is; .ci/run installs it where it may"},
	{regexp.MustCompile(`^there is no systemd-analyze here$`), "the units can be checked where systemd is; .ci/run installs it where it may"},
	{regexp.MustCompile(`^the older version \S+ is not in this clone`), "a clone without history has nothing to compare with"},
	{regexp.MustCompile(`^there is no promtool here$`), "the queries of the alerts are checked by a test of ours too"},
	{regexp.MustCompile(`^there is no terraform and no tofu here$`), "what they send is tested without them too, and they are no part of Debian"},
	{regexp.MustCompile(`^there is no PowerShell here$`), "Debian has none, and its script is that of cobra"},
	{regexp.MustCompile(`^-long D: a quorum is attacked by the long runs alone$`), "its members are attacked in package internal/proof/quorum, and its processes on other stores"},
	{regexp.MustCompile(`azurite cannot be installed here`), "where there is no npm, answers written by hand stand for Azure's"},
}

func (s skip) allowed() bool {
	for _, a := range allowed {
		if a.reason.MatchString(s.reason) {
			return true
		}
	}
	return false
}

func (s skip) String() string {
	if s.reason == "" {
		return s.pkg + " " + s.test + ": no reason given"
	}
	return s.pkg + " " + s.test + ": " + s.reason
}

// logged matches a line that t.Log or t.Skip printed first; the rest of their
// output follows, indented deeper.
var logged = regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)`)

// scripted matches what a script logs last that is left out: its whole log, with the
// line that says why at the end.
var scripted = regexp.MustCompile(`^WORK=.*> (?:\[[^]]*\] )*skip '([^']*)'$`)

// reason is the last thing that a skipped test logged, on one line.
func reason(said []string) string {
	var words []string
	for _, line := range said {
		if m := logged.FindStringSubmatch(line); m != nil {
			words = words[:0]
			line = m[1]
		} else if len(words) == 0 || strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	text := strings.Join(words, " ")
	if m := scripted.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}
