package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

var (
	needsCreate = []string{canCreate, createOver, newVersions, raceCreate, readsCurrent, clockRate}
	needsUpdate = []string{canUpdate, updateStale, updateAbsent, updateGone, raceUpdate}
	needsList   = []string{canList, listsCurrent}
	needsDelete = []string{canDelete, afterDelete}
)

// uses are what a store may be good for, and the findings that each rests on.
var uses = []struct {
	name  string
	needs []string
}{
	{"object", slices.Concat(needsCreate, needsUpdate)},
	{"epochs", slices.Concat(needsCreate, needsList)},
	{"epochs+if-match", slices.Concat(needsCreate, needsUpdate, needsList)},
	{"marker", slices.Concat(needsCreate, needsDelete)},
	{"marker+if-match", slices.Concat(needsCreate, needsUpdate, needsDelete)},
	{"fence.Object", slices.Concat(needsCreate, needsUpdate)},
	{"fence.Log", slices.Concat(needsCreate, needsList)},
	{"fast start", []string{createOver, tellsTime, tellsAge}},
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
	for _, use := range uses {
		v := Verdict{Use: use.name, Safe: true}
		for _, name := range use.needs {
			f := r.Finding(name)
			// A clock that could not be compared rules nothing out.
			if f.Result == OK || name == clockRate && f.Result != Bad {
				continue
			}
			v.Safe = false
			v.Why = append(v.Why, fmt.Sprintf("%s: %s", f.Name, f.Detail))
		}
		r.Verdicts = append(r.Verdicts, v)
	}
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

// Uses are all that verdicts are about.
func Uses() (names []string) {
	for _, use := range uses {
		names = append(names, use.name)
	}
	return names
}
