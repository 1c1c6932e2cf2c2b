package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/store"
)

// ProbeOptions are the options of [Probe]. The zero value, like nil, gives the
// defaults.
type ProbeOptions struct {
	// Open opens the store once more, with connections of its own, as another process
	// would. Default: all requests go through the one store that Probe is given.
	Open func(context.Context) (store.Store, error)

	// Races is how many creates, and how many updates, race, two at a time. A store in
	// which one race in 500 goes wrong passes 1500 of them once in twenty times.
	// Default 1500; at least 1.
	Races int

	// OnFinding is called with each finding, as it is made.
	OnFinding func(Finding)
}

const defaultRaces = 1500

// Probe finds out by experiments whether a store can carry locks: what its conditions
// are worth when requests race, whether reads and listings are current, what its times
// say, how fast it is, and what these credentials may do. It works on scratch objects
// under one prefix, "leasehold-probe-" and 16 random digits, and removes them again.
//
// Unlike [Check], which tests the code of a store against the whole contract, Probe is
// for a bucket in use: it makes at most [ProbeOptions.Requests] requests, gets on with
// servers that fail now and then, and never fails because of what it finds.
//
// An error means that nothing was found out: the store cannot be reached, or nothing may
// be written to it. When ctx ends, Probe finishes the requests that are under way,
// removes its objects, and returns what it knows with ctx.Err(); the findings that are
// missing are not made, so that the verdicts that need them are no.
//
// Where the store is a [store.Inspector], its settings are asked for too, and quirks
// that it can live with are allowed for from then on: see [Report.Adapt].
func Probe(ctx context.Context, st store.Store, opts *ProbeOptions) (*Report, error) {
	s, err := newSurvey(ctx, st, opts)
	if err != nil {
		return nil, err
	}
	err = s.run()
	s.clean()
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	s.conclude()
	return s.report, err
}

// cleaning is how many requests are kept for removing what is there at the end.
const cleaning = 150 + lanes*spread

// Requests is the largest number of requests that [Probe] makes with these options:
// what all its experiments need, a tenth more for what has to be asked again, and what
// it takes to clean up.
func (o *ProbeOptions) Requests() int {
	n := 0
	for _, e := range experiments {
		n += e.fixed + e.each*o.races()
	}
	return n + n/10 + cleaning
}

func (o *ProbeOptions) races() int {
	if o == nil || o.Races == 0 {
		return defaultRaces
	}
	return o.Races
}

// A Report is what [Probe] found out. It is kept as JSON; the names stay.
type Report struct {
	Format   int       `json:"format"` // 1
	Store    string    `json:"store"`  // as it calls itself, with the quirks that are allowed for
	At       time.Time `json:"at"`
	Took     Micros    `json:"took_us"`
	Limit    int       `json:"requests_limit"`
	Requests Requests  `json:"requests"`
	Left     int       `json:"left_behind"` // scratch objects that could not be removed

	Findings []Finding `json:"findings"`
	Verdicts []Verdict `json:"verdicts"`
	Latency  []Latency `json:"latency"`
	Clock    *Clock    `json:"clock,omitempty"` // nil if the store does not tell its time

	// TTL is how long leases should be here, and the least that leaves a renewal time to
	// be tried again: thirty times what the slowest percent of writes takes.
	TTL struct {
		Suggested Micros `json:"suggested_us"`
		Least     Micros `json:"least_us"`
	} `json:"ttl"`

	// UnquotedETags: the store compares versions without their quotes.
	UnquotedETags bool `json:"unquoted_etags,omitempty"`
	// Policy is the smallest policy for a holder, where the store knows such a thing.
	Policy json.RawMessage `json:"policy,omitempty"`
}

// Requests are counted by kind.
type Requests struct {
	Get     int `json:"get"`
	Put     int `json:"put"`
	List    int `json:"list"`
	Delete  int `json:"delete"`
	Inspect int `json:"inspect"` // settings, past versions
}

// Total is the sum.
func (r Requests) Total() int { return r.Get + r.Put + r.List + r.Delete + r.Inspect }

// Micros is a duration in whole microseconds.
type Micros int64

// Duration converts it.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

func micros(d time.Duration) Micros { return Micros(d / time.Microsecond) }

// A Result says how an experiment came out.
type Result string

// The results.
const (
	OK      Result = "ok"      // as it must be
	Bad     Result = "bad"     // not as it must be: see the verdicts for what that rules out
	Note    Result = "note"    // worth knowing; no lock rests on it
	Unknown Result = "unknown" // could not be found out
)

// A Finding is the outcome of one experiment.
type Finding struct {
	Name   string `json:"name"` // of the experiment; it stays
	Result Result `json:"result"`
	Detail string `json:"detail"`
}

// A Verdict says whether the store can be trusted with one use: with locks of a layout,
// "object", "epochs" and so on, with "fast start", or with "fence.Object" and "fence.Log".
type Verdict struct {
	Use  string   `json:"use"`
	Safe bool     `json:"safe"`
	Why  []string `json:"why,omitempty"` // if not: the findings, name and detail
}

// Latency is how long one operation took, of those that did not race.
type Latency struct {
	Op    string `json:"op"`
	Count int    `json:"count"`
	P50   Micros `json:"p50_us"`
	P99   Micros `json:"p99_us"`
	Worst Micros `json:"worst_us"`
}

// Clock compares this machine's clock with the store's.
type Clock struct {
	// The store's clock minus this machine's lies between these two.
	OffsetFrom Micros `json:"offset_from_us"`
	OffsetTo   Micros `json:"offset_to_us"`
	// How many seconds pass by the store's clock in one of this machine's.
	RateFrom float64 `json:"rate_from"`
	RateTo   float64 `json:"rate_to"`
	// Resolution is the unit of the store's times.
	Resolution Micros `json:"resolution_us"`
	// Contradiction is by how much the times in answers contradict each other, as those
	// of a cached clock or of several machines do.
	Contradiction Micros `json:"contradiction_us"`
}

// ErrUnproven is matched by the errors of [Report.Proves].
var ErrUnproven = errors.New("not proven to be safe")

// Proves returns nil if the report says that the store, given by what it calls itself,
// is safe for the use. A report of a bucket counts for all prefixes in it. The error
// matches [ErrUnproven] and says what was found.
func (r *Report) Proves(storeName, use string) error {
	if !within(storeName, r.Store) {
		return fmt.Errorf("%w: the report is about %s, not %s", ErrUnproven, r.Store, storeName)
	}
	for _, v := range r.Verdicts {
		switch {
		case v.Use != use:
		case v.Safe:
			return nil
		default:
			return fmt.Errorf("%w: %s, for %s: %s", ErrUnproven, r.Store, use, strings.Join(v.Why, "; "))
		}
	}
	return fmt.Errorf("%w: the report on %s says nothing of %s", ErrUnproven, r.Store, use)
}

// within reports whether the store inner is outer or lies in it, by their URLs.
func within(inner, outer string) bool {
	in, errIn := url.Parse(inner)
	out, errOut := url.Parse(outer)
	if errIn != nil || errOut != nil || in.Scheme != out.Scheme || in.Host != out.Host || in.Query().Encode() != out.Query().Encode() {
		return false
	}
	dir := strings.TrimSuffix(out.Path, "/") + "/"
	return strings.HasPrefix(strings.TrimSuffix(in.Path, "/")+"/", dir)
}

// Adapt gives the store with the quirks allowed for that the report tells of.
func (r *Report) Adapt(st store.Store) store.Store {
	if i, ok := st.(store.Inspector); ok && r.UnquotedETags {
		if other := i.Inspect().Unquoted(); other != nil {
			return other
		}
	}
	return st
}

// ReadReport reads a report that was kept as JSON. The error says what is wrong with it.
func ReadReport(from io.Reader) (*Report, error) {
	r := new(Report)
	d := json.NewDecoder(io.LimitReader(from, 1<<20))
	switch err := d.Decode(r); {
	case err != nil:
		return nil, fmt.Errorf("no report of a probe: %w", err)
	case r.Format != 1:
		return nil, fmt.Errorf("a report of a probe in format %d; this version knows 1", r.Format)
	case r.Store == "" || len(r.Verdicts) == 0:
		return nil, errors.New("no report of a probe: it names no store, or has no verdicts")
	}
	return r, nil
}

// Finding gives the finding of that name, or one that is Unknown.
func (r *Report) Finding(name string) Finding {
	if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Name == name }); i >= 0 {
		return r.Findings[i]
	}
	return Finding{Name: name, Result: Unknown, Detail: "not tried"}
}
