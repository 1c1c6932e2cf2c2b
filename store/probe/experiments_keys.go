package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store"
)

// families are keys that locks may have and that a store may take for one another: because
// it cuts them off, decodes, folds or cleans them. Each is made below a key of the probe's own.
// A family of a size goes up to that length, and its members differ at the end only.
var families = []struct {
	what string
	size int // of the whole key
	keys []string
}{
	{"long segments", 0, []string{strings.Repeat("s", 199) + "1", strings.Repeat("s", 199) + "2"}},
	{"300 bytes", 300, []string{"1", "2"}},
	{"512 bytes", 512, []string{"1", "2"}},
	{"the longest keys", store.MaxKey, []string{"1", "2"}},
	{"deep keys", 0, []string{strings.Repeat("d/", 99) + "1", strings.Repeat("d/", 99) + "2"}},
	{"upper and lower case", 0, []string{"Case/x", "case/x", "K", "k", "É", "é"}},
	{"composed and decomposed letters", 0, []string{"\u00e9t\u00e9", "e\u0301te\u0301", "ete", "\u212b", "\u00c5"}},
	{"letters of several alphabets", 0, []string{"ключ", "锁", "鎖", "ﬁ", "fi", "Ａ", "A", "ß", "ss"}},
	{"letters beyond 16 bits", 0, []string{"🔒", "🔓"}},
	{"dots", 0, []string{"a", "a.", "a..", ".a", "..a", "dir./a", "dir/a", ".../a"}},
	{"spaces and marks", 0, []string{"a b", "a+b", "a%20b", "a_b", "a-b", "a.b", "ab", "a b ", " a b"}},
	{"escapes", 0, []string{"x/y", "x%2Fy", "x%252Fy", "%41", "A", "&amp;", "&"}},
	{"what ends a path", 0, []string{"p", "p?q", "p#q", "p;q", "p:q", "p=q", "p@q"}},
	{"numbers", 0, []string{"7", "07", "+7", "7.0"}},
	{"one key the beginning of others", 0, []string{"n", "n1", "n10", "n1.json", "n-1"}},
}

// familyAsks is how many requests the experiments on keys make of one key, and of a family.
const (
	keyAsks    = 2 + 2*triedFew + 1 + 2*triedFew + 3
	familyAsks = 1
)

var familyKeys = func() (n int) {
	for _, f := range families {
		n += len(f.keys)
	}
	return n
}()

// keyed is what came of the families.
type keyed struct {
	tried, doubted           int
	refused                  []string // by the store itself
	creates, updates, listed trials
}

// trials are several that make one finding.
type trials struct {
	result Result // "": none was made
	detail string
	err    error
}

// add keeps the worst of all.
func (t *trials) add(result Result, detail string, err error) {
	if contradicts(err) {
		result, detail, err = Bad, "an answer contradicts those before it: "+err.Error(), nil
	}
	rank := []Result{"", OK, Note, Unknown, Bad}
	if slices.Index(rank, result) > slices.Index(rank, t.result) {
		*t = trials{result, detail, err}
	}
}

// oddKeys tries all that locks rest on with keys of all shapes. What comes of updates and of
// listings is told by findings of their own.
func (s *survey) oddKeys() (Result, string, error) {
	s.setRacing(true)
	defer s.setRacing(false)
	var all sync.WaitGroup
	for n, f := range families {
		all.Go(func() { s.family(fmt.Sprintf("keys-%d", n), f.what, f.keys, f.size) })
	}
	all.Wait()
	return s.keyed.said(&s.keyed.creates)
}

func (k *keyed) said(t *trials) (Result, string, error) {
	switch {
	case t.result == Bad:
		return t.result, t.detail, nil
	case k.doubted > k.tried/2 || t.result == "":
		return Unknown, fmt.Sprintf("of %d keys %d had a write without an answer", k.tried, k.doubted), nil
	case t.result != OK:
		return t.result, t.detail, t.err
	}
	said := fmt.Sprintf("%d keys, long, deep and much alike", k.tried-k.doubted)
	if k.refused != nil {
		said += fmt.Sprintf("; the store refused %d, such as %q", len(k.refused), k.refused[0])
	}
	return OK, said, nil
}

// keysOf gives the finding that the families made of one kind of request.
func keysOf(of func(*keyed) *trials) func(*survey) (Result, string, error) {
	return func(s *survey) (Result, string, error) { return s.keyed.said(of(&s.keyed)) }
}

// below is a key of a size, if it has one, that lies below dir and ends in name.
func (s *survey) below(dir, name string, size int) string {
	key := dir + "/" + name
	for spare := size - len(s.path(key)); spare > 1; spare = size - len(s.path(key)) {
		dir += "/" + strings.Repeat("x", min(spare-1, 127))
		key = dir + "/" + name
	}
	return key
}

// A relative is one key of a family, and its object.
type relative struct {
	name, key string
	o         *store.Object
}

// family makes an object of each key, and finds out whether it is one for itself and whether the
// store keeps the conditions of writes to it. It judges no key of which a request had no
// answer.
func (s *survey) family(dir, what string, names []string, size int) {
	var all []*relative
	k := &s.keyed
	note := func(t *trials, result Result, detail string, err error) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.add(result, what+": "+detail, err)
		return result == OK
	}
	of := func(t *trials, r *relative, result Result, detail string, err error) bool {
		return !s.settled(r.key) || note(t, result, fmt.Sprintf("of %q: %s", short(r.name), detail), err)
	}
	for n, name := range names {
		r := &relative{name: name, key: s.below(dir, name, size)}
		var err error
		r.o, err = s.write(s.either(n), r.key, s.body(), store.IfAbsent())
		switch {
		case isAny(err, store.ErrInvalid, store.ErrRefused):
			s.mu.Lock()
			k.refused = append(k.refused, short(name))
			s.mu.Unlock()
			continue
		case errors.Is(err, store.ErrPrecondition):
			of(&k.creates, r, Bad, "a create was refused as if there were an object: the store takes it for another key", nil)
			return
		case err != nil && s.settled(r.key):
			note(&k.creates, Unknown, "", err)
			return
		}
		all = append(all, r)
	}
	kept := func(n int) bool {
		r := all[n]
		result, detail, err := s.holds(s.either(n+1), r)
		if result == OK {
			result, detail, err = s.refuses(r.key, store.IfAbsent(), r.o, smallBody, triedFew)
		}
		return of(&k.creates, r, result, detail, err)
	}
	updated := func(n int) bool {
		r := all[n]
		was := r.o
		now, err := s.write(s.either(n), r.key, s.bodyOver(was.Body, smallBody), store.IfMatch(was.Version))
		if err != nil {
			return of(&k.updates, r, Unknown, "", err)
		}
		r.o = now
		result, detail, err := s.refuses(r.key, store.IfMatch(was.Version), now, smallBody, triedFew)
		return of(&k.updates, r, result, detail, err)
	}
	removed := func(n int) bool {
		r := all[n]
		result, detail, err := s.holds(s.either(n), r)
		if result == OK {
			if err = s.remove(s.either(n), r.key); err != nil {
				result = Unknown
			} else {
				result, detail, err = s.isGone(s.either(n+1), r.key, "")
			}
		}
		return of(&k.creates, r, result, detail, err)
	}
	each := func(f func(n int) bool) bool {
		for n, r := range all {
			if s.ctx.Err() != nil || s.settled(r.key) && !f(n) {
				return false
			}
		}
		return true
	}
	if !each(kept) || s.report.Finding(updateStale).Result == OK && !each(updated) {
		return
	}
	if s.report.Finding(canList).Result == OK {
		result, detail, err := s.lists(dir, all)
		note(&k.listed, result, detail, err)
	}
	each(removed)
	s.mu.Lock()
	k.tried += len(all)
	s.mu.Unlock()
	for _, r := range all {
		if !s.settled(r.key) {
			s.mu.Lock()
			k.doubted++
			s.mu.Unlock()
		}
	}
}

// holds finds out whether the object of the key is as it was written.
func (s *survey) holds(c *counted, r *relative) (Result, string, error) {
	switch o, err := s.read(c, r.key, ""); {
	case errors.Is(err, store.ErrNotExist):
		return Bad, "there is no object after it was written, or after one of another key was deleted", nil
	case err != nil:
		return Unknown, "", err
	case !bytes.Equal(o.Body, r.o.Body):
		return Bad, "it shows another body, perhaps that of another key", nil
	}
	return OK, "", nil
}

// lists finds out whether a listing has just the keys of a family.
func (s *survey) lists(dir string, all []*relative) (Result, string, error) {
	entries, err := s.list(s.b, dir+"/", "")
	if err != nil {
		return denied(err, "list")
	}
	var got, want []string
	for _, e := range entries {
		if s.settled(e.Key) {
			got = append(got, e.Key)
		}
	}
	for _, r := range all {
		if s.settled(r.key) {
			want = append(want, r.key)
		}
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		return Bad, fmt.Sprintf("%d keys were written, and %d are listed, or others", len(want), len(got)), nil
	}
	return OK, "", nil
}

// short is a name as a finding shows it.
func short(name string) string {
	if len(name) > 20 {
		return name[:8] + "…" + name[len(name)-8:]
	}
	return name
}
