package quorumstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// reserved is what the keys of the quorum's own objects begin with. They come early in a listing, so that
// one who empties a member in that order takes its marker first. A directory keeps names with ".leasehold" for itself.
const reserved = "!leasehold-quorum"

const (
	markerKey = reserved              // the member's marker
	nextKey   = reserved + "-next-"   // and a number: the configuration of that number, by the quorum of the one before
	asideKey  = reserved + "-values-" // and a version: a body that is too large for an acceptor
)

// readMarker gives the marker of a member, nil if it has none.
func readMarker(ctx context.Context, m store.Store) (*register.Marker, store.Version, error) {
	o, err := m.Get(ctx, markerKey, "")
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	marker, err := register.DecodeMarker(o.Body)
	if err != nil {
		return nil, "", &store.Error{Op: "get", Key: markerKey, Kind: store.ErrRefused, Cause: err}
	}
	return &marker, o.Version, nil
}

// at says at which member a request failed.
func at(m store.Store, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", m, err)
}

// writeMarker writes it over that version, or where there is none.
func writeMarker(ctx context.Context, m store.Store, marker register.Marker, over store.Version) error {
	body, err := marker.Encode()
	if err != nil {
		return err
	}
	only := store.IfAbsent()
	if over != "" {
		only = store.IfMatch(over)
	}
	_, err = m.Put(ctx, markerKey, body, only)
	return err
}

// A load is the finding out of the configuration, by one for all that call meanwhile.
type load struct {
	done chan struct{}
	view *view
	err  error
}

// view is the configuration in force.
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

// find ends by itself: each request to a member does.
func (s *Store) find(ctx context.Context, l *load) {
	v, err := s.load(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.view, l.err = v, err; s.loading == l { // nobody has asked to have it found out anew
		s.current, s.loading = v, nil
	}
	close(l.done)
}

// follow gives the configuration that has followed v's, of which a member has shown the number.
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

// anew has the configuration found out again.
func (s *Store) anew(ctx context.Context) (*view, error) {
	s.mu.Lock()
	s.current, s.loading = nil, nil
	s.mu.Unlock()
	return s.view(ctx)
}

// remember has a store opened for a place that a later configuration names.
func (s *Store) remember(st store.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = append(s.more, st)
}

// load finds the last configuration: the last one that a marker knows, and those that have followed it.
func (s *Store) load(ctx context.Context) (*view, error) {
	cfg, markers, err := s.known(ctx)
	if err != nil {
		return nil, err
	}
	for {
		members, err := s.open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		v := s.newView(cfg, members)
		for i, m := range cfg.Members {
			v.sees(i, markers[m.Place])
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

// known is the last configuration that any marker of the given members knows.
func (s *Store) known(ctx context.Context) (cfg register.Configuration, markers map[string]*register.Marker, err error) {
	type answer struct {
		place  string
		marker *register.Marker
		err    error
	}
	answers := make(chan answer, len(s.given))
	for _, m := range s.given {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
			defer cancel()
			marker, _, err := readMarker(ctx, m)
			answers <- answer{m.String(), marker, at(m, err)} // it may be no member any more, so its health is not noted
		}()
	}
	markers = map[string]*register.Marker{}
	var errs []error
	found, none, first := 0, 0, ""
	for range s.given {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return cfg, nil, ctx.Err()
		}
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
			continue
		case a.marker == nil:
			none++
			continue
		case found > 0 && a.marker.Known.Quorum != cfg.Quorum:
			return cfg, nil, refusal("open", "the members are of two quorums: %s is of %s, and %s of %s",
				first, cfg.Quorum, a.place, a.marker.Known.Quorum)
		}
		if found == 0 {
			first = a.place
		}
		markers[a.place] = a.marker
		if found++; found == 1 || a.marker.Known.Number > cfg.Number {
			cfg = a.marker.Known
		}
		// Any one configuration leads to those that have followed it, if a majority of its members
		// answers; later ones may have been brought by fewer.
		if found > len(s.given)/2 {
			return cfg, markers, nil
		}
	}
	switch {
	case found > 0:
		return cfg, markers, nil
	case none > len(s.given)/2:
		return cfg, nil, &store.Error{Op: "open", Kind: store.ErrNoBucket, Cause: fmt.Errorf("%w: leasehold quorum init makes one", ErrNoQuorum)}
	}
	return cfg, nil, errors.Join(append([]error{register.ErrNoMajority}, errs...)...)
}

// open gives the stores of a configuration's members.
func (s *Store) open(ctx context.Context, cfg register.Configuration) ([]store.Store, error) {
	s.mu.Lock()
	given := slices.Concat(s.given, s.more)
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

// next is the configuration that follows this one, nil if none does yet.
func (v *view) next(ctx context.Context) (*register.Configuration, error) {
	a := v.key(nextKey+strconv.Itoa(v.cfg.Number+1)).call(ctx, register.Call{Kind: register.Look})
	if a.Outcome != register.Done {
		return nil, a.Err
	}
	if !a.Value.Exists() {
		return nil, nil
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
