// Package probe finds out by experiments whether a bucket in use is safe for locks, for which
// layouts, and whether its times and listings can be relied on. `leasehold doctor` prints its
// findings; a [Report] is a proof that a lock can ask for. Package storetest tests the code of
// a store instead.
package probe

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

// Options are the options of [Run]. The zero value, like nil, gives the
// defaults.
type Options struct {
	// Open opens the store once more, with connections of its own, as another process
	// would. Default: all requests go through the one store that Run is given.
	Open func(context.Context) (store.Store, error)

	// Races is how many creates, and how many updates, race, two at a time. A store in
	// which one race in 500 goes wrong passes 1500 of them once in twenty times. Bodies
	// of 2 KiB are raced a tenth as often, of 64 KiB a fiftieth, of 1 MiB a 300th, and
	// ten, four and two times at least. With 1000 races or fewer no listing of more than
	// one page is tried. Default 1500; at least 1.
	Races int

	// LargestBody leaves out the experiments whose bodies have more bytes; a use that
	// rests on them is then not said to be safe. Most bytes of a probe are in the few
	// bodies of 1 MiB, and in one of 8 MiB that is left out with them; see [Options.Bytes]. Default: [store.MaxBody].
	LargestBody int

	// Prefix is what the keys of all scratch objects begin with, before "leasehold-probe-". Default: nothing.
	Prefix string

	// OnFinding is called with each finding, as it is made.
	OnFinding func(Finding)

	// OnProgress is called at most ten times a second, between two findings too, from one
	// goroutine at a time. It must not take long.
	OnProgress func(Progress)
}

// Progress is how far a probe has come.
type Progress struct {
	Doing    string // the name of the experiment
	Requests int    // so far
	Limit    int    // the most that there can be
}

const (
	defaultRaces  = 1500
	progressEvery = 100 * time.Millisecond
)

// Run finds out by experiments whether a store can carry locks: whether its conditions hold
// when requests race, also with large bodies, over objects at rest and where something was deleted, whether reads
// and listings are current and whole, whether answered writes stay so, how far its clock is
// off, how fast it is, and which rights these credentials have. It works on scratch objects
// under one prefix, "leasehold-probe-" and 16 random digits, and removes them again.
//
// Run is for a bucket in use: it makes at most [Options.Requests] requests, sends at most
// [Options.Bytes] in bodies, gets on with servers that fail now and then, and never fails
// because of a finding.
//
// An error means that there is no finding: the store cannot be reached, or nothing may be
// written to it. An answer that contradicts those before it is a finding, not an error: so
// it ends in a verdict where two connections lead to two copies. When ctx ends, Run
// finishes the requests that are under way, removes its objects, and returns what it knows
// with ctx.Err(); verdicts that need a finding that was not made are [Verdict.Untried].
//
// Where the store is a [store.Inspector], its settings are asked for too, and quirks
// that it can live with are allowed for from then on: see [Report.Adapt].
func Run(ctx context.Context, st store.Store, opts *Options) (*Report, error) {
	s, err := newSurvey(ctx, st, opts)
	if err != nil {
		return nil, err
	}
	err = s.all() //nolint:contextcheck // the survey has it
	return s.report, err
}

// all makes the experiments, cleans up and concludes. With an error that is not that of
// the context there is no report.
func (s *survey) all() error {
	err := s.run()
	ended := s.ctx.Err()
	s.begin("cleaning up")
	s.clean()
	if err != nil && ended == nil {
		s.report = nil
		return err
	}
	s.conclude()
	return ended
}

// cleaning is how many requests are kept for removing what is there at the end.
func (o *Options) cleaning() int {
	return 250 + lanes*spread + crowdKeys + mostWatched + mostDoubtful + o.kept()
}

// kept is how many objects of racing creates are there at a time to be listed: more than
// go into one page, if there are as many.
func (o *Options) kept() int { return min(o.races(), 1100) }

// Requests is the largest number of requests that [Run] makes with these options: what
// all its experiments need, a tenth more for repeated requests, and enough to clean up.
func (o *Options) Requests() int {
	n := 0
	for _, e := range experiments {
		if e.size <= o.largestBody() {
			n += e.requests(o)
		}
	}
	return n + n/10 + o.cleaning()
}

// Purges is how many requests more [Run] makes at most where the store keeps past versions:
// some stores take one for each version that is deleted.
func (o *Options) Purges() int { return o.Requests() + o.Requests()/10 }

// Bytes is the most that [Run] sends in bodies with these options.
func (o *Options) Bytes() int64 {
	large := int64(0)
	for _, e := range experiments {
		if e.size <= o.largestBody() {
			large += e.bytes(o)
		}
	}
	return large + large/4 + int64(o.Requests()*smallBody)
}

func (o *Options) races() int {
	if o == nil || o.Races == 0 {
		return defaultRaces
	}
	return o.Races
}

func (o *Options) largestBody() int {
	if o == nil || o.LargestBody == 0 {
		return store.MaxBody
	}
	return o.LargestBody
}

// A Report is what [Run] found out. It is kept as JSON; the names stay.
type Report struct {
	Format    int       `json:"format"` // 1
	Store     string    `json:"store"`  // as it calls itself, with the quirks that are allowed for
	At        time.Time `json:"at"`
	Took      Micros    `json:"took_us"`
	Limit     int       `json:"requests_limit"`
	SentLimit int64     `json:"bytes_sent_limit"`
	Requests  Requests  `json:"requests"`
	Sent      int64     `json:"bytes_sent"`  // in bodies
	Left      int       `json:"left_behind"` // scratch objects that could not be removed

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

	// Uses are what rests on it: see [Verdict].
	Uses []string `json:"uses,omitempty"`

	because string // the name of the finding for which it was not tried
}

// A Verdict says whether the store can be trusted with one use: with locks of a layout,
// "object", "epochs", "epochs without If-Match", "marker" or "marker without If-Match", with
// "fast start", or with "fence.Object" and "fencelog.Log".
type Verdict struct {
	Use  string `json:"use"`
	Safe bool   `json:"safe"`

	// Untried: nothing was found against it, but the probe ended, or was told to end,
	// before all that it rests on had been tried. It is not Safe then.
	Untried bool     `json:"untried,omitempty"`
	Why     []string `json:"why,omitempty"` // if not Safe: the findings, name and detail
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

// ErrUnproven: a report does not prove that the store is safe for this use. Run the probe again, or
// use the store in another way.
var ErrUnproven = errors.New("not proven to be safe")

// Proves returns nil if the report says that the store, given by its own name, is safe
// for the use. A report of a bucket counts for all prefixes in it, and one of a prefix for what lies below it. The error matches
// [ErrUnproven] and says what was found.
func (r *Report) Proves(storeName, use string) error {
	if !within(storeName, r.Store) {
		return fmt.Errorf("%w: the report is about %s, not %s", ErrUnproven, r.Store, storeName)
	}
	i := slices.IndexFunc(r.Verdicts, func(v Verdict) bool { return v.Use == use })
	if i < 0 {
		return fmt.Errorf("%w: the report on %s says nothing of %s", ErrUnproven, r.Store, use)
	}
	v := r.Verdicts[i]
	// A finding counts even if a verdict has overlooked it.
	for _, f := range r.Findings {
		if v.Safe && slices.Contains(f.Against(), use) {
			v.Safe, v.Why = false, []string{fmt.Sprintf("%s: %s", f.Name, f.Detail)}
		}
	}
	if v.Safe {
		return nil
	}
	return fmt.Errorf("%w: %s, for %s: %s", ErrUnproven, r.Store, use, strings.Join(v.Why, "; "))
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

// format is the format of reports.
const format = 1

// ReadReport reads a report that was kept as JSON. The error says what is wrong with it.
func ReadReport(from io.Reader) (*Report, error) {
	r := new(Report)
	d := json.NewDecoder(io.LimitReader(from, 1<<20))
	switch err := d.Decode(r); {
	case err != nil:
		return nil, fmt.Errorf("no report of a probe: %w", err)
	case d.Decode(new(json.RawMessage)) != io.EOF:
		return nil, errors.New("no report of a probe: something follows it")
	case r.Format != format:
		return nil, fmt.Errorf("a report of a probe in format %d; this version knows %d", r.Format, format)
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
