package quorumstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// Init makes a quorum of three or five empty stores. If it is interrupted, run it again with
// the same members, and it continues. Several processes may call it at once. It does nothing to
// an existing quorum; a member that has lost its marker does not get a new one, because that is
// the task of [Store.Replace]. Init fails if two members are the same location under two names.
func (s *Store) Init(ctx context.Context) error {
	// All processes write the markers in the same order, so the first marker decides between
	// them.
	members := slices.SortedFunc(slices.Values(s.given), func(a, b store.Store) int { return strings.Compare(a.String(), b.String()) })
	mine := &register.Configuration{Quorum: rand.Text()}
	for _, m := range members {
		mine.Members = append(mine.Members, register.Member{Place: m.String(), Marker: rand.Text()})
	}
	err := s.mark(ctx, members, mine)
	for rounds := 3 * len(members); rounds > 0 && errors.Is(err, store.ErrPrecondition); rounds-- {
		err = s.mark(ctx, members, mine) // another process has written first
	}
	if errors.Is(err, errOnePlace) {
		err = errors.Join(err, s.withdraw(ctx, members, mine.Quorum))
	}
	return err
}

var errOnePlace = errors.New("are one place under two names: give each member a bucket, prefix or directory of its own")

// mark is one round of Init: it reads the configuration from the markers, or uses this one if
// there are none, and writes the missing markers.
func (s *Store) mark(ctx context.Context, members []store.Store, mine *register.Configuration) error {
	markers, overs := make([]*register.Marker, len(members)), make([]store.Version, len(members))
	cfg, whole := mine, false
	for i, m := range members {
		var err error
		if markers[i], overs[i], err = s.readMarker(ctx, m); err != nil {
			return at(m, err)
		}
		marker := markers[i]
		if marker == nil {
			if err := s.empty(ctx, m); err != nil {
				return err
			}
			continue
		}
		for j, other := range markers[:i] {
			switch {
			case other == nil:
			case other.Known.Quorum != marker.Known.Quorum:
				return refusal("init", "%s is a member of another quorum, %s", m, marker.Known.Quorum)
			case other.Name == marker.Name:
				return refusal("init", "%s and %s %w", members[j], m, errOnePlace)
			}
		}
		cfg, whole = &marker.Known, whole || marker.Whole
	}
	// Members vote only after all markers have been written and one is marked as whole. So a
	// missing marker was never written before that, and has been lost after it.
	for i, m := range members {
		who := slices.IndexFunc(cfg.Members, func(o register.Member) bool { return o.Place == m.String() })
		switch {
		case who < 0:
			return refusal("init", "%s is no member of the quorum that the others are of", m)
		case markers[i] != nil && markers[i].Name != begun(cfg.Members[who].Marker):
			continue
		case whole: // another process may have finished since the marker was read
			marker, _, err := s.readMarker(ctx, m)
			if err == nil && (marker == nil || marker.Name == begun(cfg.Members[who].Marker)) {
				err = refusal("init", "%s has lost its marker, and so its objects: replace it", m)
			}
			if err != nil {
				return at(m, err)
			}
			markers[i] = marker
			continue
		}
		markers[i] = &register.Marker{Name: cfg.Members[who].Marker, Known: *cfg}
		if err := s.writeMarker(ctx, m, *markers[i], overs[i]); err != nil {
			return at(m, err)
		}
	}
	for i, m := range members {
		marker, over, err := s.readMarker(ctx, m)
		switch {
		case err != nil:
			return at(m, err)
		case marker == nil || marker.Name != markers[i].Name:
			return refusal("init", "the marker of %s has changed meanwhile: run init again", m)
		case marker.Whole:
			continue
		}
		marker.Whole = true
		if err := s.writeMarker(ctx, m, *marker, over); err != nil {
			return at(m, err)
		}
	}
	return nil
}

// withdraw deletes the markers of a quorum this process has begun and cannot finish.
func (s *Store) withdraw(ctx context.Context, members []store.Store, quorum string) error {
	for _, m := range members {
		marker, version, err := s.readMarker(ctx, m)
		if err == nil && (marker == nil || marker.Known.Quorum != quorum) {
			continue
		}
		if err == nil {
			err = s.timed(m).DeleteIf(ctx, markerKey, version)
		}
		if err != nil {
			return fmt.Errorf("delete the object %q there: %w", markerKey, at(m, err))
		}
	}
	return nil
}

// refusal returns an error for a person to fix.
func refusal(op, format string, args ...any) error {
	return &store.Error{Op: op, Kind: store.ErrInvalid, Cause: fmt.Errorf(format, args...)}
}

// empty returns an error if a store has an object.
func (s *Store) empty(ctx context.Context, m store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	for e, err := range m.List(ctx, "", "") {
		if err != nil {
			return at(m, err)
		}
		if e.Key == markerKey { // created since it was looked up
			return at(m, &store.Error{Op: "init", Key: markerKey, Kind: store.ErrPrecondition})
		}
		return refusal("init", "%s is not empty: it has %q; a member has a bucket, prefix or directory of its own", m, e.Key)
	}
	return nil
}

// Replace replaces a member that has lost its objects, or that should be removed, by a new one.
// The new one may have the location of the old one, if that was emptied. Others may use the
// quorum meanwhile. If Replace is interrupted, [Store.Repair] or another Replace finishes it.
// Changes run one at a time.
func (s *Store) Replace(ctx context.Context, old string, by store.Store) error {
	v, err := s.anew(ctx)
	if err != nil {
		return err
	}
	who := slices.IndexFunc(v.cfg.Members, func(m register.Member) bool { return m.Place == old })
	if who < 0 {
		if i := slices.IndexFunc(v.cfg.Members, func(m register.Member) bool { return m.Place == by.String() }); i >= 0 && v.cfg.Members[i].Since > 0 {
			return s.Repair(ctx) // it was replaced before
		}
		return refusal("replace", "%s is no member; the members are %s", old, strings.Join(places(v.cfg), ", "))
	}
	for i, m := range v.cfg.Members {
		if i != who && m.Place == by.String() {
			return refusal("replace", "%s is a member already", by)
		}
		if i == who {
			continue
		}
		// A member that is not whole may lack objects the old member has.
		switch marker, _, failed := s.readMarker(ctx, v.members[i]); {
		case failed != nil:
			if len(v.cfg.Members) == 3 {
				return at(v.members[i], failed)
			}
		case marker == nil || marker.Name != m.Marker || !marker.Whole:
			return refusal("replace", "%s is not whole: repair the quorum first, or replace that one", m.Place)
		}
	}
	next, err := s.propose(ctx, v, who, by)
	if errors.Is(err, errWell) && by.String() == old && v.cfg.Members[who].Since == v.cfg.Number && v.cfg.Number > 0 {
		return s.Repair(ctx) // it was replaced before, by itself
	}
	if err != nil {
		return err
	}
	s.remember(by)
	if v, err = s.anew(ctx); err != nil {
		return err
	}
	if v.cfg.Members[who].Marker != next.Members[who].Marker {
		return refusal("replace", "another change came first: configuration %d; look at it, and try again", v.cfg.Number)
	}
	return s.Repair(ctx)
}

var errWell = errors.New("has not lost its objects")

// propose writes the new member's marker and then the next configuration, in this order,
// because a marker that is missing once its configuration is known counts as lost. The marker
// contains the present configuration: the next one may never be chosen, and must not be learned
// from the marker.
func (s *Store) propose(ctx context.Context, v *view, who int, by store.Store) (register.Configuration, error) {
	next := v.cfg
	next.Number++
	next.Members = slices.Clone(v.cfg.Members)
	marker, over, err := s.readMarker(ctx, by)
	switch {
	case err != nil:
		return next, at(by, err)
	case marker == nil && by.String() != v.cfg.Members[who].Place:
		if err = s.empty(ctx, by); err != nil {
			return next, err
		}
	case marker == nil:
	case marker.Known.Quorum != v.cfg.Quorum:
		return next, refusal("replace", "%s is a member of another quorum, %s", by, marker.Known.Quorum)
	default:
		// A member's marker would be overwritten before it is known that this change comes
		// first. If another change did, the quorum would have lost a healthy member, and two
		// changes at once could leave it without a majority.
		for i, m := range v.cfg.Members {
			switch {
			case m.Marker != marker.Name:
			case i != who:
				return next, refusal("replace", "%s is the member %s under another name: name a place that is no member", by, m.Place)
			case m.Place != by.String():
				return next, refusal("replace", "%s is %s under another name, and %w: name another place", by, m.Place, errWell)
			default:
				return next, refusal("replace", "%s %w: empty it first, or name another place", by, errWell)
			}
		}
	}
	next.Members[who] = register.Member{Place: by.String(), Marker: rand.Text(), Since: next.Number}
	if marker != nil && marker.Number == next.Number {
		// The marker is left by an interrupted attempt, whose configuration may still be
		// chosen.
		next.Members[who].Marker = marker.Name
	} else if err = s.writeMarker(ctx, by, register.Marker{Name: next.Members[who].Marker, Number: next.Number, Known: v.cfg}, over); err != nil {
		return next, at(by, err)
	}
	body, err := json.Marshal(next)
	if err != nil {
		return next, err
	}
	a := v.following().call(ctx, register.Call{Kind: register.Set, Value: register.Value{Version: rand.Text(), Body: body}})
	if a.Err != nil && !errors.Is(a.Err, register.ErrMoved) {
		return next, failed(ctx, "replace", nextKey, a.Outcome, a.Err)
	}
	return next, nil // or another change came first: the caller sees that next
}

// Repair finishes an interrupted change, and copies to every member what a majority has. A
// change that neither a majority nor any answering member knows is abandoned for good: run
// Replace again.
func (s *Store) Repair(ctx context.Context) error {
	v, err := s.settled(ctx)
	if err != nil {
		return err
	}
	// A view of its own, so an unresponsive member is asked once and not for every key.
	v = s.newView(v.cfg, v.members)
	v.once = true
	markers := make([]*register.Marker, len(v.members))
	took := 0
	for i, m := range v.members {
		marker, over, failed := s.readMarker(ctx, m)
		if marker == nil || marker.Name != v.cfg.Members[i].Marker {
			v.hears(i, errors.Join(failed, ErrLost))
			continue
		}
		if marker.Number < v.cfg.Number || marker.Known.Number < v.cfg.Number {
			marker.Number, marker.Known = v.cfg.Number, v.cfg
			if err = s.writeMarker(ctx, m, *marker, over); err != nil {
				return at(m, err)
			}
		}
		markers[i] = marker
		if marker.Whole {
			took++
		}
	}
	if took < v.cfg.Majority() {
		return fmt.Errorf("%w: %d of %d members are there and whole", register.ErrNoMajority, took, len(v.members))
	}
	missed, err := s.settle(ctx, v)
	if err != nil {
		return err
	}
	for i, m := range v.members {
		if markers[i] == nil || markers[i].Whole {
			continue
		}
		if missed>>i&1 != 0 {
			return refusal("repair", "%s has not taken every object: see what it says, and try again", v.cfg.Members[i].Place)
		}
		marker, over, err := s.readMarker(ctx, m)
		if err != nil {
			return at(m, err)
		}
		if marker == nil || marker.Name != v.cfg.Members[i].Marker {
			return refusal("repair", "%s has lost its objects meanwhile: replace it again", v.cfg.Members[i].Place)
		}
		marker.Whole = true
		if err := s.writeMarker(ctx, m, *marker, over); err != nil {
			return at(m, err)
		}
	}
	return nil
}

// settled returns the configuration in force, after which no earlier change can be chosen: a
// majority has accepted a deletion in place of the next configuration.
func (s *Store) settled(ctx context.Context) (*view, error) {
	for last := -1; ; {
		v, err := s.anew(ctx)
		if err != nil {
			return nil, err
		}
		none := register.Value{Version: rand.Text(), Deleted: true}
		switch a := v.following().call(ctx, register.Call{Kind: register.Set, Value: none}); {
		case a.Outcome == register.Done:
			return v, nil
		case (a.Outcome == register.Mismatch || errors.Is(a.Err, register.ErrMoved)) && v.cfg.Number > last:
			last = v.cfg.Number // a change is in force: continue from there
		default:
			return nil, failed(ctx, "repair", nextKey, a.Outcome, a.Err)
		}
	}
}

// settle makes all answering members accept the value of every key, and returns a bit for each
// member that has missed one.
func (s *Store) settle(ctx context.Context, v *view) (missed int, err error) {
	keys, err := v.list(ctx, "", "", true)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	all := 1<<len(v.members) - 1
	err = each(ctx, keys, func(ctx context.Context, key string) error {
		a := v.key(key).call(ctx, register.Call{Kind: register.Settle})
		if a.Outcome != register.Done {
			return failed(ctx, "repair", key, a.Outcome, a.Err)
		}
		if a.Value.Version == "" {
			return nil // it was never written
		}
		without := all &^ a.Votes
		if a.Value.Beside > 0 {
			without |= v.copies(ctx, a.Value)
		}
		mu.Lock()
		defer mu.Unlock()
		missed |= without
		return nil
	})
	return missed, err
}

func places(cfg register.Configuration) (names []string) {
	for _, m := range cfg.Members {
		names = append(names, m.Place)
	}
	return names
}

// A MemberStatus is the state of one member.
type MemberStatus struct {
	Place  string
	Since  int       // the configuration that added it
	Number int       // the configuration number in its marker
	Whole  bool      // it votes on every key
	Next   int       // the configuration that it has accepted in an interrupted change: Repair settles it
	Err    error     // why it does not vote at all; ErrLost: it must be replaced
	From   time.Time // since when this Store has seen Err
}

// Status asks every member, and returns the configuration's number. If no majority knows which
// configuration is in force, it is the last one that any member knows, or, if none answers, the
// members passed to New.
func (s *Store) Status(ctx context.Context) (number int, members []MemberStatus, err error) {
	v, err := s.anew(ctx)
	if err != nil {
		var e error
		if v, e = s.guess(ctx, err); e != nil {
			return 0, nil, e
		}
	}
	members = make([]MemberStatus, len(v.members))
	following := make([]register.Acceptor, len(v.members))
	var all sync.WaitGroup
	for i, m := range v.cfg.Members {
		all.Go(func() {
			st := MemberStatus{Place: m.Place, Since: m.Since}
			v.ask(i, func(ctx context.Context, place store.Store) error {
				marker, _, err := s.readMarker(ctx, place)
				switch {
				case err != nil:
					st.Err = err
				case marker == nil || marker.Name != m.Marker:
					st.Err = ErrLost
				default:
					st.Number, st.Whole = marker.Number, marker.Whole
					s.health.found(m.Place)
					following[i], st.Err = v.accepted(ctx, place)
				}
				return st.Err
			})
			st.From, _ = s.health.of(m.Place)
			members[i] = st
		})
	}
	all.Wait()
	for i, a := range following {
		if a.Value.Exists() && !v.over(a.Accepted, following) {
			members[i].Next = v.cfg.Number + 1
		}
	}
	return v.cfg.Number, members, nil
}

// accepted returns what a member has accepted as the next configuration.
func (v *view) accepted(ctx context.Context, place store.Store) (register.Acceptor, error) {
	o, err := place.Get(ctx, nextKey+strconv.Itoa(v.cfg.Number+1), "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return register.Acceptor{}, nil
	case err != nil:
		return register.Acceptor{}, err
	}
	return register.Decode(v.cfg.Quorum, o.Body)
}

// over reports whether a majority has accepted something with a later ballot than b, so what
// was accepted with b cannot be chosen.
func (v *view) over(b register.Ballot, accepted []register.Acceptor) bool {
	later := map[register.Ballot]int{}
	for _, a := range accepted {
		if b.Below(a.Accepted) {
			later[a.Accepted]++
		}
	}
	for _, n := range later {
		if n >= v.cfg.Majority() {
			return true
		}
	}
	return false
}

// guess returns a view for Status if the configuration in force cannot be found.
func (s *Store) guess(ctx context.Context, why error) (*view, error) {
	for _, lasting := range []error{ErrNoQuorum, errMixed, store.ErrInvalid, register.ErrForeign} {
		if errors.Is(why, lasting) {
			return nil, why
		}
	}
	seen, _ := s.known(ctx, false)
	cfg := seen.cfg
	if cfg.Quorum == "" {
		for _, m := range s.given {
			cfg.Members = append(cfg.Members, register.Member{Place: m.String()})
		}
	}
	members, err := s.open(ctx, cfg)
	if err != nil {
		return nil, why
	}
	return s.newView(cfg, members), nil
}

// Over returns the same quorum with a wrapper around each member, such as a counter of
// requests. The wrapper must have the member's name.
func (s *Store) Over(around func(member store.Store) store.Store) (*Store, error) {
	opts := s.opts
	opts.Prefix = strings.TrimSuffix(opts.Prefix, "/")
	if s.opts.Open != nil {
		opts.Open = func(ctx context.Context, place string) (store.Store, error) {
			m, err := s.opts.Open(ctx, place)
			if err != nil {
				return nil, err
			}
			return around(m), nil
		}
	}
	var members []store.Store
	for _, m := range s.given {
		members = append(members, around(m))
	}
	return New(members, &opts)
}

// Forget deletes all objects of each member whose keys begin with the prefix, usually the
// deletion markers of deleted objects. Such keys must never be used again, and no calls for
// them may be in progress. If a member fails, the others are still asked; their errors are
// joined.
func (s *Store) Forget(ctx context.Context, prefix string) error {
	if err := s.check("delete", prefix); err != nil {
		return err
	}
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(v.members))
	var all sync.WaitGroup
	for i, m := range v.members {
		all.Go(func() { errs[i] = at(m, s.forget(ctx, m, s.opts.Prefix+prefix)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *Store) forget(ctx context.Context, m store.Store, prefix string) error {
	var keys []string
	if err := s.listing(ctx, m, prefix, "", func(e store.Entry) { keys = append(keys, e.Key) }); err != nil {
		return err
	}
	return each(ctx, keys, s.timed(m).Delete)
}

// Members returns the members of the configuration in force, to inspect each one.
func (s *Store) Members(ctx context.Context) ([]store.Store, error) {
	v, err := s.anew(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(v.members), nil
}

// Scratch is a prefix for the keys of test objects in a single member. The quorum never reads
// them.
const Scratch = reserved + "-scratch-"
