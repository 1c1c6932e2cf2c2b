package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
)

func list(p *trial) {
	if found := p.entries("", ""); len(found) != 0 {
		p.stop(opens, "the store has %d objects when it is opened", len(found))
	}
	// In byte order "-" and "." come before "/" and "0" comes after it, which is
	// not the order in which a tree of directories is walked. No key lies below
	// another, since a file system cannot keep both.
	keys := []string{
		"a-b", "a.b", "a/b.c", "a/b/c", "a/c", "a0", "aa/b", "ab", "B", "b/1", "b/10", "b/2",
		"leader", "leaders/x", "leaders/y", "lemon", "z é", "zz", "é", "ключ", "🔒",
	}
	written := make(map[string]*store.Object)
	for _, key := range keys {
		written[key] = p.create(key, []byte("the body of "+key))
	}
	slices.Sort(keys)

	for _, q := range []struct{ prefix, after string }{
		{"", ""},
		{"a", ""},
		{"a/", ""},
		{"a/b", ""},
		{"a/b/", ""},
		{"b/1", ""},
		{"le", ""},
		{"leaders", ""},
		{"leaders/", ""},
		{"z ", ""},
		{"é", ""},
		{"кл", ""},
		{"nothing", ""},
		{"a//", ""},
		{"/", ""},
		{"../", ""},
		{"a/../", ""},
		{"", "a.b"},
		{"", "a/"},
		{"", "a/b"},
		{"", "leaders/x"},
		{"", "🔒"},
		{"", "\U0010ffff"},
		{"a/", "a/b/c"},
		{"leaders/", "a"},
		{"leaders/", "leaders/x"},
		{"leaders/", "leaders/xx"},
		{"leaders/", "m"},
	} {
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, q.prefix) && key > q.after {
				want = append(want, key)
			}
		}
		found := p.entries(q.prefix, q.after)
		if got := keysOf(found); !slices.Equal(got, want) {
			p.report(listYields, "list %q after %q gave %q; there is %q", q.prefix, q.after, got, want)
			continue
		}
		for _, e := range found {
			if e.Version != written[e.Key].Version || e.Size != int64(len("the body of "+e.Key)) {
				p.report(listYields, "list %q gave %q the version %q and the size %d; it has %q and %d",
					q.prefix, e.Key, e.Version, e.Size, written[e.Key].Version, len("the body of "+e.Key))
			}
		}
	}
}

func listStops(p *trial) {
	for i := range 5 {
		p.create(fmt.Sprint("k/", i), []byte("body"))
	}
	// The iterator is called by hand: a range statement panics when it is
	// called back after it has stopped.
	calls := 0
	p.st.List(p.ctx, "", "")(func(store.Entry, error) bool {
		calls++
		return calls < 2
	})
	if calls != 2 {
		p.report(listStopsEarly, "the iteration was stopped at element 2 and went on to element %d", calls)
	}
	if found := p.entries("", ""); len(found) != 5 {
		p.report(listYields, "a listing after one that was stopped gave %d objects of 5", len(found))
	}
}

func listIsCurrent(p *trial) {
	for i := range 100 {
		key := fmt.Sprint("k/", i%10)
		o := p.create(key, fmt.Append(nil, "life ", i))
		found := p.entries("k/", "")
		if at := slices.IndexFunc(found, func(e store.Entry) bool { return e.Key == key }); at < 0 {
			p.report(listShowsAnswered, "a listing begun after the create of %q does not show it", key)
		} else if found[at].Version != o.Version {
			p.report(listShowsAnswered, "a listing begun after the create of %q shows the version %q; it has %q", key, found[at].Version, o.Version)
		}
		if err := p.delete(p.ctx, key); err != nil {
			p.stop(deleteRemoves, "delete %q said: %v", key, err)
		}
		if found := p.entries("k/", ""); len(found) != 0 {
			p.report(deleteRemoves, "a listing begun after the delete of %q shows %q", key, keysOf(found))
		}
	}
}

// listPages writes more objects than the 1000 that fit on a page of S3.
func listPages(p *trial) {
	const objects, writers = 1100, 16
	want := make([]string, objects)
	for i := range want {
		want[i] = fmt.Sprintf("page/%04d", i)
	}
	errs := make([]error, writers)
	together.Run(writers, func(w int) {
		for i := w; i < objects && errs[w] == nil; i += writers {
			_, errs[w] = p.put(p.ctx, want[i], []byte("body"), store.IfAbsent())
		}
	})
	for _, err := range errs {
		if err != nil {
			p.stop(putWrites, "a create said: %v", err)
		}
	}
	if got := keysOf(p.entries("page/", "")); !slices.Equal(got, want) {
		p.report(listYields, "of %d objects the listing gave %d, or gave them in another order", objects, len(got))
	}
	if got := keysOf(p.entries("page/", want[49])); !slices.Equal(got, want[50:]) {
		p.report(listYields, "of the %d objects after %q the listing gave %d, or gave them in another order", objects-50, want[49], len(got))
	}
}

func keysOf(entries []store.Entry) []string {
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}
