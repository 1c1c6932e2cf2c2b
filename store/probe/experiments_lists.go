package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// listed are names whose byte order is not that of words or numbers.
var listed = []string{"b", "a", "B", "A", "10", "9", "a-b", "a.b", "a b", "ab", "é", "a~", "a_b", "a%b", "0000000042.json", "0000000041.json"}

func (s *survey) listing() (Result, string, error) {
	var want []string
	for _, name := range listed {
		if _, err := s.write(s.a, "list/"+name, s.body(), store.IfAbsent()); err != nil {
			return Unknown, "", err
		}
		want = append(want, "list/"+name)
	}
	slices.Sort(want)
	for _, look := range []struct{ prefix, after string }{{"list/", ""}, {"list/a", ""}, {"list/", "list/a"}, {"list/a_", ""}, {"list/a%", ""}} {
		entries, err := s.list(s.b, look.prefix, look.after)
		switch {
		case errors.Is(err, store.ErrUnordered):
			return Bad, err.Error(), nil
		case err != nil:
			return denied(err, "list")
		}
		var got, expected []string
		for _, e := range entries {
			got = append(got, e.Key)
		}
		for _, key := range want {
			if strings.HasPrefix(key, look.prefix) && key > look.after {
				expected = append(expected, key)
			}
		}
		if !slices.Equal(got, expected) {
			return Bad, fmt.Sprintf("of what begins with %q and comes after %q it lists %q, not %q", look.prefix, look.after, got, expected), nil
		}
	}
	for _, name := range listed {
		if err := s.remove(s.a, "list/"+name); err != nil {
			return Unknown, "", err
		}
	}
	return OK, "in byte order, from where it is told to", nil
}

// fresh is how often a listing, and reads how often a read must show what was written
// the moment before over other connections.
const (
	fresh = 25
	reads = 200
)

func (s *survey) freshListings() (Result, string, error) {
	for n := range fresh {
		result, detail, err := s.certain(fmt.Sprintf("fresh/%02d", n), func(key string) (Result, string, error) { return s.freshListing(key, n%mostListed) })
		if result != OK {
			return result, detail, err
		}
	}
	return OK, fmt.Sprintf("%d writes and %[1]d deletes", fresh), nil
}

// mostListed is how often nothing is listed where something is then written: a cache may keep
// what is asked for often.
const mostListed = 4

// freshListing looks at one key only: others may have come late.
func (s *survey) freshListing(key string, asked int) (Result, string, error) {
	for range asked {
		if _, err := s.list(s.b, key, ""); err != nil {
			return Unknown, "", err
		}
	}
	made, err := s.write(s.a, key, s.body(), store.IfAbsent())
	if err != nil {
		return Unknown, "", err
	}
	listed, err := s.list(s.b, key, "")
	switch {
	case err != nil:
		return Unknown, "", err
	case len(listed) != 1:
		return Bad, "a listing did not show what had just been written", nil
	case listed[0].Version != made.Version:
		return Bad, fmt.Sprintf("it lists version %s of an object of version %s", listed[0].Version, made.Version), nil
	}
	if err = s.remove(s.a, key); err != nil {
		return Unknown, "", err
	}
	if listed, err = s.list(s.b, key, ""); err != nil {
		return Unknown, "", err
	} else if len(listed) > 0 {
		return Bad, "a listing showed what had just been deleted", nil
	}
	return OK, "", nil
}

// onePage is how many objects the stores list with one request, and listPages how many requests
// it takes to list all that are kept.
const (
	onePage   = 1000
	listPages = 3
)

// listsAll finds out whether a listing has all the objects that are there.
func (s *survey) listsAll(prefix string, there map[string]bool) (Result, string, error) {
	entries, err := s.list(s.b, prefix, "")
	if err != nil {
		return Unknown, "", err
	}
	missing := maps.Clone(there)
	for n, e := range entries {
		if n > 0 && e.Key <= entries[n-1].Key {
			return Bad, fmt.Sprintf("it lists %q after %q", e.Key, entries[n-1].Key), nil
		}
		delete(missing, e.Key)
	}
	switch {
	case len(missing) > 0:
		return Bad, fmt.Sprintf("of %d objects %d were not listed", len(there), len(missing)), nil
	case len(there) <= onePage:
		return Note, fmt.Sprintf("not tried: that takes more than %d races; %d objects were listed", onePage, len(there)), nil
	}
	return OK, fmt.Sprintf("%d objects", len(there)), nil
}

// longListing says what came of the listing after the racing creates.
func (s *survey) longListing() (Result, string, error) {
	if t := s.longLists; t.result != "" {
		return t.result, t.detail, t.err
	}
	return Unknown, "there was nothing to list", nil
}
