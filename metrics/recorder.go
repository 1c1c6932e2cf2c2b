package metrics

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold/leasehold/locktrace"
)

// Options are the options of [New]. The zero value and nil mean the defaults.
type Options struct {
	// Keys are patterns for path.Match. Matching keys are measured separately, all others as
	// "other". Each key adds a series to each instrument with keys, so list only the few that
	// matter. Default: keys are not measured, except those of elections, which are few in a
	// process.
	Keys []string
	// MaxKeys is how many keys are measured separately. After the first MaxKeys, all others are
	// "other". Default 100; from 1 to 1000.
	MaxKeys int
}

// Default and maximum of Options.MaxKeys.
const (
	defaultMaxKeys = 100
	mostKeys       = 1000
)

// A Recorder turns the events of a Trace into measurements. One is enough for a process. It is
// safe for concurrent use.
type Recorder struct {
	sink Sink
	opts Options

	mu      sync.Mutex
	keys    map[string]bool   // measured separately
	pending map[*pending]bool // acquisitions in progress
	known   map[subject]bool  // subjects with at least one acquisition
}

// pending is an acquisition in progress.
type pending struct {
	of    subject
	began time.Time
}

// A subject is what a measurement is about. There are few.
type subject struct {
	kind string
	key  string // empty: not measured
}

// New returns a recorder that sends measurements to the sink. It fails if the options are
// invalid.
func New(sink Sink, opts *Options) (*Recorder, error) {
	r := &Recorder{sink: sink, keys: map[string]bool{}, pending: map[*pending]bool{}, known: map[subject]bool{}}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.MaxKeys == 0 {
		r.opts.MaxKeys = defaultMaxKeys
	}
	if r.opts.MaxKeys < 1 || r.opts.MaxKeys > mostKeys {
		return nil, fmt.Errorf("metrics: the option MaxKeys %d is not between 1 and %d", r.opts.MaxKeys, mostKeys)
	}
	for _, pattern := range r.opts.Keys {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("metrics: the option Keys: %q: %w", pattern, err)
		}
	}
	sink.Observe(acquireOldest, r.oldest)
	return r, nil
}

// Trace returns the Trace to set in the options of locks and the like. locktrace.Join
// combines it with others.
func (r *Recorder) Trace() *locktrace.Trace {
	return &locktrace.Trace{
		AcquireStart: r.acquireStart,
		AcquireDone:  r.acquireDone,
		Renewed:      r.renewed,
		Lost:         r.lost,
		Released:     r.released,
		Trouble:      r.trouble,
		Leader:       r.leader,
		Request:      r.request,
	}
}

// named returns key if it is measured separately, else OtherKey. It reserves a place for a new
// key that matches.
func (r *Recorder) named(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[key] {
		return key
	}
	if len(r.keys) >= r.opts.MaxKeys || !r.matches(key) {
		return OtherKey
	}
	r.keys[key] = true
	return key
}

func (r *Recorder) matches(key string) bool {
	for _, pattern := range r.opts.Keys {
		if ok, _ := path.Match(pattern, key); ok { // New has checked the pattern
			return true
		}
	}
	return r.opts.Keys == nil
}

func (r *Recorder) subject(of locktrace.Subject) subject {
	s := subject{kind: of.Kind.String()}
	if r.opts.Keys != nil || of.Kind == locktrace.Election {
		s.key = r.named(of.Key)
	}
	return s
}

// with adds the subject's attributes.
func (s subject) with(attributes ...Attr) []Attr {
	attributes = append(attributes, Attr{AttrKind, s.kind})
	if s.key != "" {
		attributes = append(attributes, Attr{AttrKey, s.key})
	}
	return attributes
}

// pendingKey is the context key for one recorder's pending acquisition.
type pendingKey struct{ r *Recorder }

func (r *Recorder) acquireStart(ctx context.Context, e locktrace.AcquireStart) context.Context {
	p := &pending{of: r.subject(e.Subject), began: e.Time}
	r.mu.Lock()
	r.pending[p] = true
	first := !r.known[p.of]
	r.known[p.of] = true
	r.mu.Unlock()
	if first {
		r.begin(ctx, e.Kind, p.of)
	}
	r.sink.Record(ctx, acquirePending, 1, p.of.with()...)
	return context.WithValue(ctx, pendingKey{r}, p)
}

// begin starts series for rare but important events. Prometheus does not see an increase in a
// counter that appears with the value 1, so alerts would not fire.
func (r *Recorder) begin(ctx context.Context, kind locktrace.Kind, s subject) {
	for _, i := range []*Instrument{acquireTakeovers, renewalLate, storeTroubles, leasesHeld} {
		r.sink.Record(ctx, i, 0, s.with()...)
	}
	for _, cause := range causes {
		r.sink.Record(ctx, leaseLosses, 0, s.with(Attr{AttrCause, cause})...)
	}
	if kind == locktrace.Election {
		r.sink.Record(ctx, masterStatus, 0, Attr{AttrName, s.key})
		r.sink.Record(ctx, slowPath, 0, Attr{AttrName, s.key})
		r.sink.Record(ctx, leaderKnown, 0, Attr{AttrKey, s.key})
		r.sink.Record(ctx, leaderChanges, 0, Attr{AttrKey, s.key})
	}
}

func (r *Recorder) acquireDone(ctx context.Context, e locktrace.AcquireDone) {
	s := r.subject(e.Subject)
	if p, ok := ctx.Value(pendingKey{r}).(*pending); ok {
		r.mu.Lock()
		delete(r.pending, p)
		r.mu.Unlock()
		r.sink.Record(ctx, acquirePending, -1, p.of.with()...)
	}
	r.sink.Record(ctx, acquireDuration, e.Took.Seconds(), s.with(
		Attr{AttrOutcome, AcquireOutcome(e.Err)}, Attr{AttrWaited, strconv.FormatBool(e.Waited)},
	)...)
	if e.Err != nil {
		return
	}
	r.sink.Record(ctx, leasesHeld, 1, s.with()...)
	if e.TookOver {
		r.sink.Record(ctx, acquireTakeovers, 1, s.with()...)
	}
	if e.Kind == locktrace.Election {
		r.sink.Record(ctx, masterStatus, 1, Attr{AttrName, s.key})
	}
}

// oldest yields the age of each subject's oldest acquisition in progress.
func (r *Recorder) oldest(yield func(value float64, attributes ...Attr)) {
	oldest := map[subject]time.Duration{}
	r.mu.Lock()
	for s := range r.known {
		oldest[s] = 0
	}
	for p := range r.pending {
		oldest[p.of] = max(oldest[p.of], time.Since(p.began))
	}
	r.mu.Unlock()
	for s, age := range oldest {
		yield(age.Seconds(), s.with()...)
	}
}

func (r *Recorder) renewed(ctx context.Context, e locktrace.Renewed) {
	s := r.subject(e.Subject)
	r.sink.Record(ctx, renewalDuration, e.Took.Seconds(), s.with()...)
	r.sink.Record(ctx, renewalRemaining, max(e.Left.Seconds(), 0), s.with()...)
	if e.Left < e.TTL/3 {
		r.sink.Record(ctx, renewalLate, 1, s.with()...)
	}
	if e.Requests > 1 && e.Kind == locktrace.Election {
		r.sink.Record(ctx, slowPath, 1, Attr{AttrName, s.key})
	}
}

func (r *Recorder) lost(ctx context.Context, e locktrace.Lost) {
	s := r.subject(e.Subject)
	r.sink.Record(ctx, leaseLosses, 1, s.with(Attr{AttrCause, lossCause(e.Cause)})...)
	r.ended(ctx, e.Kind, s, e.Held, "lost")
}

func (r *Recorder) released(ctx context.Context, e locktrace.Released) {
	s := r.subject(e.Subject)
	switch {
	case e.Lost:
	case e.Detached:
		r.ended(ctx, e.Kind, s, e.Held, "detached")
		return
	default:
		r.ended(ctx, e.Kind, s, e.Held, "released")
	}
	outcome := "confirmed"
	if e.Err != nil {
		outcome = "unconfirmed"
	}
	r.sink.Record(ctx, releaseDuration, e.Took.Seconds(), s.with(Attr{AttrOutcome, outcome})...)
}

// ended records that a lease is no longer held.
func (r *Recorder) ended(ctx context.Context, kind locktrace.Kind, s subject, held time.Duration, how string) {
	r.sink.Record(ctx, leasesHeld, -1, s.with()...)
	r.sink.Record(ctx, leaseDuration, held.Seconds(), s.with(Attr{AttrEnd, how})...)
	if kind == locktrace.Election {
		r.sink.Record(ctx, masterStatus, -1, Attr{AttrName, s.key})
	}
}

func (r *Recorder) trouble(ctx context.Context, e locktrace.Trouble) {
	r.sink.Record(ctx, storeTroubles, 1, r.subject(e.Subject).with()...)
}

func (r *Recorder) leader(ctx context.Context, e locktrace.Leader) {
	key := Attr{AttrKey, r.subject(e.Subject).key}
	change := 0.0
	switch {
	case e.Known && !e.WasKnown:
		change = 1
	case !e.Known && e.WasKnown:
		change = -1
	}
	r.sink.Record(ctx, leaderKnown, change, key)
	if e.New {
		r.sink.Record(ctx, leaderChanges, 1, key)
	}
}

func (r *Recorder) request(ctx context.Context, e locktrace.Request) {
	r.sink.Record(ctx, requestDuration, e.Took.Seconds(),
		Attr{AttrOperation, e.Op}, Attr{AttrOutcome, Outcome(e.Err)}, Attr{AttrKind, e.Kind.String()})
}
