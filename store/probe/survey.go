package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// scratch is how the prefixes of all probes begin.
const scratch = "leasehold-probe-"

// tries is how often an experiment asks a server that fails, and limit how long one
// request may take.
const (
	tries = 4
	limit = 30 * time.Second
)

// A survey is one probe under way.
type survey struct {
	ctx          context.Context // its end is noticed between two requests
	opts         Options
	experiments  []experiment
	a, b         *counted // two sets of connections
	look         store.Inspection
	prefix       string
	purge        bool // the store keeps past versions
	purged       bool // and requests are kept for deleting them
	createOnly   bool // the store refuses every update, whatever its condition is
	report       *Report
	reserve      int // requests that are kept for cleaning up
	began        time.Time
	samples      samples
	crowdUpdates races
	spells       spells         // objects whose age is asked for in the end
	longLists    trials         // the listing after the racing creates
	resting      resting        // objects that are written to again in the end
	retired      map[string]int // how often another object took the place of the key's

	mu      sync.Mutex
	keys    map[string]bool // that may exist
	busy    map[error]int   // answers that were none, by kind
	bodies  bodyBook
	watched watched
	witness witness
	keyed   keyed
	wrote   bool      // a write has landed
	doing   string    // the name of the experiment
	told    time.Time // when OnProgress was last called
}

var errNoBudget = errors.New("the store failed so often that the requests are used up")

func newSurvey(ctx context.Context, st store.Store, opts *Options) (*survey, error) {
	s := &survey{
		ctx: ctx, began: time.Now(), experiments: experiments,
		keys: map[string]bool{}, retired: map[string]int{}, busy: map[error]int{}, bodies: bodyBook{made: map[uint32]bool{}},
	}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Races, s.opts.LargestBody = opts.races(), opts.largestBody()
	switch {
	case s.opts.Races < 1:
		return nil, fmt.Errorf("%w: %d races", store.ErrInvalid, s.opts.Races)
	case s.opts.LargestBody < 0:
		return nil, fmt.Errorf("%w: a largest body of %d bytes", store.ErrInvalid, s.opts.LargestBody)
	}
	other := st
	if s.opts.Open != nil {
		var err error
		if other, err = s.opts.Open(ctx); err != nil {
			return nil, err
		}
		if other.String() != st.String() {
			return nil, fmt.Errorf("%w: the store is %s, and Open opens %s", store.ErrInvalid, st, other)
		}
	}
	s.connect(st, other)
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails, see crypto/rand
	s.prefix = s.opts.Prefix + scratch + hex.EncodeToString(random[:]) + "/"
	s.report = &Report{Format: format, Store: st.String(), At: s.began.UTC().Truncate(time.Second), Limit: opts.Requests(), SentLimit: opts.Bytes()}
	s.reserve = s.opts.cleaning()
	return s, nil
}

func (s *survey) connect(st, other store.Store) {
	s.a, s.b = &counted{Store: st, s: s}, &counted{Store: other, s: s}
	if i, ok := st.(store.Inspector); ok {
		s.look = i.Inspect()
	}
}

// either gives the one or the other set of connections.
func (s *survey) either(n int) *counted {
	if n%2 == 0 {
		return s.a
	}
	return s.b
}

// run makes the experiments. It skips each that needs one which did not succeed.
func (s *survey) run() error {
	for _, e := range s.experiments {
		if e.size > s.opts.LargestBody {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		s.begin(e.name)
		f, err := s.try(e)
		// A fault that was seen counts, whatever ended the experiment.
		if ended := s.ctx.Err(); ended != nil && f.Result != Bad {
			return ended
		}
		if err != nil && e.vital {
			return err
		}
		s.found(f)
	}
	return s.ctx.Err()
}

// try makes one experiment. An error that comes with a finding says why it is unknown.
func (s *survey) try(e experiment) (Finding, error) {
	f := Finding{Name: e.name, Uses: e.uses, Result: Unknown}
	missing := func(name string) bool {
		if name == canUpdate && e.anew && s.createOnly {
			return false
		}
		return s.report.Finding(name).Result != OK
	}
	if i := slices.IndexFunc(e.after, missing); i >= 0 {
		f.because = e.after[i]
		f.Detail = fmt.Sprintf("not tried, because of %q", f.because)
		return f, nil
	}
	retired := s.retirements()
	var err error
	f.Result, f.Detail, err = e.run(s)
	switch {
	case err == nil:
	case contradicts(err) && s.retirements() > retired:
		// The experiment asked for the object that took the place of one of its own.
		f.Result, f.Detail, err = Unknown, "too many writes had no answer", nil
	case contradicts(err) && s.hasWritten():
		// The experiments ask for what they have just made, so this answer is about
		// another copy of the store, or what was made is gone.
		f.Result, f.Detail, err = Bad, "an answer contradicts those before it: "+err.Error(), nil
	default:
		f.Result, f.Detail = Unknown, err.Error()
	}
	return f, err
}

// hasWritten reports that a write has landed, so that there is a place for it.
func (s *survey) hasWritten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrote
}

// contradicts reports that the error is an answer, and not the one that followed from
// what was answered before.
func contradicts(err error) bool {
	return !transient(err) && isAny(err, store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrNoBucket)
}

// begin names the experiment that progress is told of.
func (s *survey) begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = name
}

func (s *survey) found(f Finding) {
	s.report.Findings = append(s.report.Findings, f)
	if s.opts.OnFinding != nil {
		s.opts.OnFinding(f)
	}
}
