package probe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The uses that a store may be good for: the layouts, with If-Match and without, fast start and the fences. A lock
// under a session needs [useObject] too, because the session's heartbeat is an object of
// that layout.
const (
	useObject          = "object"
	useEpochs          = "epochs"
	useEpochsNoIfMatch = "epochs without If-Match"
	useMarker          = "marker"
	useMarkerNoIfMatch = "marker without If-Match"
	useFenceObject     = "fence.Object"
	useFenceLog        = "fencelog.Log"
	useFastStart       = "fast start"
)

var uses = []string{useObject, useEpochs, useEpochsNoIfMatch, useMarker, useMarkerNoIfMatch, useFenceObject, useFenceLog, useFastStart}

// The uses that rest on a finding. An experiment names one of these.
var (
	allUses     = uses
	byCreate    = []string{useObject, useEpochs, useEpochsNoIfMatch, useMarker, useMarkerNoIfMatch, useFenceObject, useFenceLog}
	byUpdate    = []string{useObject, useEpochs, useMarker, useFenceObject}
	byList      = []string{useEpochs, useEpochsNoIfMatch, useFenceLog}
	byDelete    = []string{useMarker, useMarkerNoIfMatch}
	byTimes     = []string{useFastStart}
	byLarge     = []string{useFenceObject, useFenceLog} // bodies larger than a record
	byLargeSwap = []string{useFenceObject}
)

// Against are the uses that the finding rules out: those that rest on it, if it is bad or
// could not be made. A bad finding on which nothing is said to rest rules out all, so that
// none can be overlooked.
func (f Finding) Against() []string {
	if f.Result != Bad && f.Result != Unknown {
		return nil
	}
	if f.Result == Bad && len(f.Uses) == 0 {
		return allUses
	}
	return slices.Clone(f.Uses)
}

// verdicts says what follows from the findings. missing are the experiments that were not
// made, because the probe ended before them or because it was told not to.
func verdicts(findings []Finding, missing []experiment) (all []Verdict) {
	for _, use := range uses {
		v := Verdict{Use: use}
		bad := false
		var skipped reasons
		for _, f := range findings {
			switch {
			case !slices.Contains(f.Against(), use):
			case f.because != "":
				skipped.add(fmt.Sprintf("not tried, because of %q", f.because), f.Name)
			default:
				bad = bad || f.Result == Bad
				v.Why = append(v.Why, f.Name+": "+f.Detail)
			}
		}
		v.Why = append(v.Why, skipped.lines()...)
		var untried reasons
		for _, e := range missing {
			if slices.Contains(e.uses, use) {
				untried.add("not tried", e.name)
			}
		}
		v.Untried = len(untried.names) > 0 && !bad
		v.Why = append(v.Why, untried.lines()...)
		v.Safe = len(v.Why) == 0
		all = append(all, v)
	}
	return all
}

// reasons are names by the reason that they share.
type reasons struct {
	order []string
	names map[string][]string
}

func (r *reasons) add(why, name string) {
	if r.names == nil {
		r.names = map[string][]string{}
	}
	if r.names[why] == nil {
		r.order = append(r.order, why)
	}
	r.names[why] = append(r.names[why], name)
}

func (r *reasons) lines() (all []string) {
	for _, why := range r.order {
		all = append(all, why+": "+strings.Join(r.names[why], ", "))
	}
	return all
}

// A TTL leaves room for so many of the slowest percent of writes, and is a second at least
// and the default of leasehold if that is enough.
const (
	room       = 30
	usualTTL   = 15 * time.Second
	leastTTL   = time.Second
	secondsTTL = time.Second
)

// conclude says what follows from the findings.
func (s *survey) conclude() {
	r := s.report
	r.Took = micros(time.Since(s.began))
	r.Latency = s.samples.latency()
	r.Verdicts = verdicts(r.Findings, s.missing())
	slowest := Micros(0)
	for _, l := range r.Latency {
		if l.Op == "create" || l.Op == "update" {
			slowest = max(slowest, l.P99)
		}
	}
	least := max((room * slowest.Duration()).Round(secondsTTL), leastTTL)
	r.TTL.Least, r.TTL.Suggested = micros(least), micros(max(least, usualTTL))
	if s.look != nil {
		if policy, err := s.look.Policy("get", "put", "list"); err == nil {
			r.Policy = json.RawMessage(policy)
		}
	}
}

// missing are the experiments without a finding.
func (s *survey) missing() (left []experiment) {
	for _, e := range s.experiments {
		if !slices.ContainsFunc(s.report.Findings, func(f Finding) bool { return f.Name == e.name }) {
			left = append(left, e)
		}
	}
	return left
}

// Uses are all that verdicts are about.
func Uses() []string { return slices.Clone(uses) }
