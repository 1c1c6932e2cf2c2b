package quorumstore

import (
	"bytes"
	"context"
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

// reserved is the prefix of the quorum's own objects. They sort early, so emptying a member in
// the order of a listing deletes its marker first. A directory reserves names with ".leasehold"
// for itself.
const reserved = "!leasehold-quorum"

const (
	markerKey = reserved              // the member's marker
	nextKey   = reserved + "-next-"   // plus a number: the configuration with that number, chosen by the one before
	asideKey  = reserved + "-values-" // plus a version: a body that is too large for an acceptor
)

// readMarker returns a member's marker, or nil if it has none.
func (s *Store) readMarker(ctx context.Context, m store.Store) (*register.Marker, store.Version, error) {
	o, err := s.timed(m).Get(ctx, markerKey, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	marker, err := s.decoded.marker(m.String(), o.Body)
	if err != nil {
		return nil, "", &store.Error{Op: "get", Key: markerKey, Kind: store.ErrRefused, Cause: err}
	}
	return &marker, o.Version, nil
}

// decoded caches the last marker of each member, because it is read with every first request
// for a key and rarely changes.
type decoded struct {
	mu   sync.Mutex
	last map[string]decodedMarker
}

type decodedMarker struct {
	body   []byte
	marker register.Marker // its members must not be changed
}

// marker decodes a member's marker, unless it has not changed.
func (d *decoded) marker(member string, body []byte) (register.Marker, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.last[member]; ok && bytes.Equal(last.body, body) {
		return last.marker, nil
	}
	marker, err := register.DecodeMarker(body)
	if err != nil {
		return register.Marker{}, err
	}
	if d.last == nil {
		d.last = map[string]decodedMarker{}
	}
	d.last[member] = decodedMarker{bytes.Clone(body), marker}
	return marker, nil
}

// at adds the member to an error.
func at(m store.Store, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", m, err)
}

// writeMarker overwrites a version of a marker, or creates a marker in two steps: it creates a
// placeholder with a name that no member has, and then replaces it. So if the member is emptied
// and the network then delivers one of the two requests again, the member still has no valid
// marker.
func (s *Store) writeMarker(ctx context.Context, m store.Store, marker register.Marker, over store.Version) error {
	var err error
	if over == "" {
		if over, err = s.putMarker(ctx, m, register.Marker{Name: begun(marker.Name), Known: marker.Known}, store.IfAbsent()); err != nil {
			return err
		}
	}
	_, err = s.putMarker(ctx, m, marker, store.IfMatch(over))
	return err
}

// begun returns the name in the placeholder for a marker.
func begun(name string) string { return name + "-begun" }

func (s *Store) putMarker(ctx context.Context, m store.Store, marker register.Marker, only store.Condition) (store.Version, error) {
	body, err := marker.Encode()
	if err != nil {
		return "", err
	}
	o, err := s.timed(m).Put(ctx, markerKey, body, only)
	if err != nil {
		return "", err
	}
	return o.Version, nil
}

// A load is a search for the configuration, shared by all calls that need it meanwhile.
type load struct {
	done chan struct{}
	view *view
	err  error
}

// view returns the configuration in force.
func (s *Store) view(ctx context.Context) (*view, error) {
	s.mu.Lock()
	if v := s.current; v != nil {
		s.mu.Unlock()
		return v, nil
	}
	l := s.loading
	if l == nil {
		l = &load{done: make(chan struct{})}
		s.loading = l
		go s.find(context.WithoutCancel(ctx), l)
	}
	s.mu.Unlock()
	select {
	case <-l.done:
		return l.view, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find takes no limit of its own, because each request to a member has one.
func (s *Store) find(ctx context.Context, l *load) {
	v, err := s.load(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v != nil && (s.last == nil || v.cfg.Number > s.last.cfg.Number) {
		s.last = v
	}
	if l.view, l.err = v, err; s.loading == l { // no newer search was requested
		s.current, s.loading = v, nil
	}
	close(l.done)
}

// follow returns the configuration after v's. A member has shown that there is one.
func (s *Store) follow(ctx context.Context, v *view) (*view, error) {
	s.mu.Lock()
	if s.current == v {
		s.current = nil
	}
	s.mu.Unlock()
	next, err := s.view(ctx)
	if err == nil && next.cfg.Number <= v.cfg.Number {
		err = fmt.Errorf("%w: a member has an object of a later one than configuration %d, which no marker leads to", register.ErrMoved, v.cfg.Number)
	}
	return next, err
}

// anew returns the configuration after a new search.
func (s *Store) anew(ctx context.Context) (*view, error) {
	s.mu.Lock()
	s.current, s.loading = nil, nil
	s.mu.Unlock()
	return s.view(ctx)
}

// remember makes a store available for a location in a later configuration.
func (s *Store) remember(st store.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = append(s.more, st)
}

// load finds the last configuration: it starts from the last one in a marker and follows its
// successors.
func (s *Store) load(ctx context.Context) (*view, error) {
	v, err := s.lead(ctx, false)
	if errors.Is(err, register.ErrMoved) { // a marker that was not read knows a later one
		v, err = s.lead(ctx, true)
	}
	return v, err
}

// lead reads the markers of a majority, or with all those of every member that answers, and
// follows the newest configuration among them to the last.
func (s *Store) lead(ctx context.Context, all bool) (*view, error) {
	seen, err := s.known(ctx, all)
	if err != nil {
		return nil, err
	}
	cfg := seen.cfg
	for {
		members, err := s.open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		v := s.newView(cfg, members)
		for i, m := range cfg.Members {
			v.sees(i, seen.markers[m.Place])
		}
		next, err := v.next(ctx)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return v, nil
		}
		cfg = *next
	}
}

// A sighting is what markers show about the configuration.
type sighting struct {
	cfg     register.Configuration      // the last one of the quorum; no Quorum: not known
	markers map[string]*register.Marker // of that quorum, by location
	found   int                         // how many of the members asked have such a marker
	none    int                         // how many have no marker
}

// known returns a configuration that leads to the last one: the last one that this Store used,
// or a later one in a marker of its members. The members passed to New are asked if there is
// none yet, or if too few of its members answer, because all of them may have been replaced
// since.
func (s *Store) known(ctx context.Context, all bool) (sighting, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	seen := sighting{markers: map[string]*register.Marker{}}
	if last != nil {
		seen.cfg = last.cfg
		if err := s.sight(ctx, last.members, all, &seen); err == nil && seen.found > len(last.members)/2 {
			return seen, nil
		}
	}
	err := s.sight(ctx, s.given, all, &seen)
	if seen.cfg.Quorum == "" && seen.none > len(s.given)/2 {
		err = &store.Error{Op: "open", Kind: store.ErrNoBucket, Cause: fmt.Errorf("%w: leasehold quorum init makes one", ErrNoQuorum)}
	}
	if s.outdated(seen.cfg) {
		err = nil // a majority of its members must confirm it
	}
	return seen, err
}

// outdated reports whether most of the given members belong to a configuration, and the rest
// have been replaced: then the remaining ones need not be a majority of the given members.
func (s *Store) outdated(cfg register.Configuration) bool {
	still := 0
	for _, m := range s.given {
		if slices.Contains(places(cfg), m.String()) {
			still++
		}
	}
	return still > len(s.given)/2 && still < len(s.given)
}

// enough is how long to wait for the markers of a majority, if the quorum is known and one
// marker has been seen.
const enough = time.Second

// sight reads the markers of these members. Any configuration leads to its successors if a
// majority of its members answers, so slow members are not waited for. A marker of another
// quorum than the known one is the fault of that member alone. If no quorum is known yet, it is
// the one that most members belong to, whatever the unresponsive ones say: a member restored
// from another quorum's backup must not lead anyone there.
func (s *Store) sight(ctx context.Context, members []store.Store, all bool, seen *sighting) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan shown, len(members))
	for _, m := range members {
		go func() { answers <- s.markerOf(ctx, m) }()
	}
	known := seen.cfg.Quorum
	t := tally{of: map[string][]shown{}, silent: len(members), errs: []error{register.ErrNoMajority}}
	var slow <-chan time.Time
	for late, heard := false, 0; heard < len(members) && !late && (all || !t.enough(known, len(members))); heard++ {
		if slow == nil && !all && len(t.of[known]) > 0 {
			slow = time.After(enough)
		}
		select {
		case a := <-answers:
			t.add(a)
		case <-slow:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	seen.none = t.none
	quorum := known
	var err error
	if known == "" {
		if quorum = t.most(); quorum == "" {
			quorum, err = t.undecided()
		}
	}
	for _, a := range t.of[quorum] {
		seen.markers[a.place] = a.marker
		seen.found++
		if seen.cfg.Quorum == "" || a.marker.Known.Number > seen.cfg.Number {
			seen.cfg = a.marker.Known
		}
	}
	return err
}

// again is the backoff before markerOf's retry.
const again = enough / 2

// markerOf reads a member's marker and retries once. It does not record the member's health,
// because the location may no longer be a member.
func (s *Store) markerOf(ctx context.Context, m store.Store) shown {
	marker, _, err := s.readMarker(ctx, m)
	if err != nil && !store.Final(err) && !errors.Is(err, context.DeadlineExceeded) {
		select {
		case <-time.After(again):
			marker, _, err = s.readMarker(ctx, m)
		case <-ctx.Done():
		}
	}
	return shown{m.String(), marker, at(m, err)}
}

// A shown is a member's marker, or nil if it has none.
type shown struct {
	place  string
	marker *register.Marker
	err    error
}

// A tally counts the markers of several members.
type tally struct {
	of     map[string][]shown // by quorum
	none   int                // how many members have no marker
	silent int                // how many members have not answered, or with an error
	errs   []error
}

func (t *tally) add(a shown) {
	if a.err != nil {
		t.errs = append(t.errs, a.err)
		return
	}
	t.silent--
	if a.marker == nil {
		t.none++
		t.errs = append(t.errs, fmt.Errorf("%s: %w", a.place, ErrLost))
		return
	}
	quorum := a.marker.Known.Quorum
	t.of[quorum] = append(t.of[quorum], a)
}

// enough reports whether more answers would change nothing.
func (t *tally) enough(known string, members int) bool {
	if known == "" {
		return t.most() != ""
	}
	return len(t.of[known]) > members/2
}

// most returns the quorum that most members belong to, whatever the unresponsive ones say, or
// "" if that is open.
func (t *tally) most() string {
	best, second, quorum := 0, 0, ""
	for q, members := range t.of {
		switch n := len(members); {
		case n > best:
			best, second, quorum = n, best, q
		case n > second:
			second = n
		}
	}
	if best <= second+t.silent {
		return ""
	}
	return quorum
}

var errMixed = errors.New("the members are of different quorums")

// undecided says why most returns "", and returns the only quorum that is possible.
func (t *tally) undecided() (string, error) {
	var of []string
	for quorum, members := range t.of {
		for _, m := range members {
			of = append(of, fmt.Sprintf("%s is of %s", m.place, quorum))
		}
	}
	slices.Sort(of)
	switch {
	case len(t.of) == 1:
		for quorum := range t.of {
			return quorum, errors.Join(t.errs...)
		}
	case len(t.of) > 1 && t.silent == 0:
		return "", refusal("open", "%w: %s", errMixed, strings.Join(of, ", "))
	case len(t.of) > 1:
		t.errs = append(t.errs, fmt.Errorf("%w: %s", errMixed, strings.Join(of, ", ")))
	}
	return "", errors.Join(t.errs...)
}

// open returns a configuration's stores.
func (s *Store) open(ctx context.Context, cfg register.Configuration) ([]store.Store, error) {
	s.mu.Lock()
	given := slices.Concat(s.given, s.more)
	if s.last != nil {
		given = append(given, s.last.members...)
	}
	s.mu.Unlock()
	members := make([]store.Store, len(cfg.Members))
	for i, m := range cfg.Members {
		for _, st := range given {
			if st.String() == m.Place {
				members[i] = st
			}
		}
		if members[i] != nil {
			continue
		}
		if s.opts.Open == nil {
			return nil, &store.Error{Op: "open", Kind: store.ErrInvalid, Cause: fmt.Errorf("%s is a member since configuration %d, and is not among the members given", m.Place, m.Since)}
		}
		var err error
		if members[i], err = s.opts.Open(ctx, m.Place); err != nil {
			return nil, fmt.Errorf("the member %s: %w", m.Place, err)
		}
	}
	return members, nil
}

// following returns the register of the next configuration.
func (v *view) following() *key { return v.key(nextKey + strconv.Itoa(v.cfg.Number+1)) }

// next returns the next configuration, or nil if there is none yet. If a member has accepted
// one and no majority has, a change was interrupted, and next settles it now. Otherwise it
// might later add a new member unexpectedly, when another member has been lost.
func (v *view) next(ctx context.Context) (*register.Configuration, error) {
	k := v.following()
	a := k.call(ctx, register.Call{Kind: register.Look})
	if a.Outcome == register.Done && !a.Value.Exists() && k.beyond(a.Value) {
		a = k.call(ctx, register.Call{Kind: register.Settle})
	}
	if a.Outcome != register.Done {
		return nil, a.Err
	}
	if !a.Value.Exists() {
		return nil, nil //nolint:nilnil // none has followed, which is no error
	}
	var cfg register.Configuration
	if err := json.Unmarshal(a.Value.Body, &cfg); err != nil {
		return nil, fmt.Errorf("%w: configuration %d: %w", register.ErrForeign, v.cfg.Number+1, err)
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Number != v.cfg.Number+1 || cfg.Quorum != v.cfg.Quorum {
		return nil, fmt.Errorf("%w: configuration %d of %s has followed %d of %s", register.ErrForeign, cfg.Number, cfg.Quorum, v.cfg.Number, v.cfg.Quorum)
	}
	return &cfg, nil
}
