package probe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A past is what a store that lies by it remembers of an object.
type past struct {
	writes  int       // since it was created
	written time.Time // when it was last written
	created time.Time
}

// forgetful keeps no condition of a kind where when says so, of the object that there is, its past and the new body.
func forgetful(kind func(store.Condition) bool, when func(p past, now *store.Object, body []byte) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		all := map[string]past{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (o *store.Object, err error) {
			mu.Lock()
			defer mu.Unlock()
			now, _ := b.Store.Get(ctx, key, "")
			p := all[key]
			if now == nil {
				p = past{created: time.Now()}
			}
			if now != nil && kind(only) && when(p, now, body) {
				o, err = b.Force(ctx, key, body)
			} else {
				o, err = b.Store.Put(ctx, key, body, only)
			}
			if err == nil {
				p.written = time.Now()
				p.writes++
				all[key] = p
			}
			return o, err
		}
	}
}

// lengths compares the lengths of what there is and of the new body.
func lengths(ignored func(was, is int) bool) func(past, *store.Object, []byte) bool {
	return func(_ past, now *store.Object, body []byte) bool { return ignored(len(now.Body), len(body)) }
}

func smaller(was, is int) bool { return is < was }
func larger(was, is int) bool  { return is > was }
func unequal(was, is int) bool { return is != was }
func same(was, is int) bool    { return is == was }

// restedFor is of objects that nobody has written for so long.
func restedFor(d time.Duration) func(past, *store.Object, []byte) bool {
	return func(p past, _ *store.Object, _ []byte) bool { return time.Since(p.written) > d }
}

// shownAs changes when objects were last modified, by their past.
func shownAs(modified func(p past, o *store.Object) time.Time) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		all := map[string]past{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			mu.Lock()
			defer mu.Unlock()
			if p := all[key]; err == nil {
				if only.Absent() {
					p = past{created: o.LastModified}
				}
				p.written = modified(p, o)
				all[key] = p
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				o.LastModified = all[key].written
			}
			return o, err
		}
	}
}

// hot gives for so long what it has given so many times.
func hot(times int, keep time.Duration, kind func(unless store.Version) bool) func(*brokenstore.Store, func(int) bool) {
	return func(b *brokenstore.Store, _ func(int) bool) {
		type answer struct {
			o     *store.Object
			err   error
			times int
			at    time.Time
		}
		var mu sync.Mutex
		all := map[string]*answer{}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if !kind(unless) {
				return o, err
			}
			mu.Lock()
			defer mu.Unlock()
			name := key + " " + string(unless)
			a := all[name]
			switch {
			case a != nil && a.times >= times && time.Since(a.at) < keep:
				return a.o, a.err
			case a != nil && (a.err == nil) == (err == nil) && (err != nil || a.o.Version == o.Version):
				a.times++
			default:
				a = &answer{times: 1}
			}
			a.o, a.err, a.at = o, err, time.Now()
			all[name] = a
			return o, err
		}
	}
}

// part names a version by the sum of a part of the body.
func part(of func(body []byte) []byte) func(*brokenstore.Store, func(int) bool) {
	return versioned(func(body []byte) string { return fmt.Sprintf("%d-%d", crc32.ChecksumIEEE(of(body)), len(body)) })
}

func firstOf(b []byte, n int) []byte { return b[:min(n, len(b))] }
func lastOf(b []byte, n int) []byte  { return b[max(0, len(b)-max(n, 0)):] }

// bodyLies are about bodies, about what was written before, and about long listings.
var bodyLies = []lie{
	{"keeps no condition of a shorter body", forgetful(anyWrite, lengths(smaller)), locks, "", nil},
	{"keeps no condition of a longer body", forgetful(anyWrite, lengths(larger)), locks, "", nil},
	{"keeps no condition of a body of another length", forgetful(anyWrite, lengths(unequal)), locks, "", nil},
	{"keeps no condition of a body of the same length", forgetful(anyWrite, lengths(same)), locks, "", nil},
	{"keeps no condition of an update of another length", forgetful(updates, lengths(unequal)), swaps, "", nil},
	{"keeps no condition of an update with a shorter body", forgetful(updates, lengths(smaller)), swaps, "", nil},
	{"keeps no condition of bodies beyond ASCII", forgetful(anyWrite, func(_ past, _ *store.Object, body []byte) bool { return foreign(string(body)) }), locks, "", nil},
	{"keeps no condition over an object at rest for a second", forgetful(anyWrite, restedFor(time.Second)), locks, "fast start", []string{restCreate, restUpdate}},
	{"keeps no condition over an object at rest for 3 s", forgetful(anyWrite, restedFor(3*time.Second)), locks, "fast start", []string{restCreate, restUpdate}},
	{"keeps no condition of updates of an object at rest for 9 s", forgetful(updates, restedFor(9*time.Second)), swaps, "", []string{restUpdate}},
	{"keeps no condition after 30 writes of a key", forgetful(anyWrite, func(p past, _ *store.Object, _ []byte) bool { return p.writes > 30 }), swaps, "fast start", []string{updateStale}},
	{"has versions of the last 48 bytes", part(func(b []byte) []byte { return lastOf(b, 48) }), swaps, "", []string{newVersions}},
	{"has versions of the first 64 bytes and the last 16", part(func(b []byte) []byte { return slices.Concat(firstOf(b, 64), lastOf(b, 16)) }), swaps, "", []string{newVersions}},
	{"has versions of all but the first 8 bytes", part(func(b []byte) []byte { return b[8:] }), swaps, "", []string{newVersions}},
	{"has versions of all but the last 8 bytes", part(func(b []byte) []byte { return firstOf(b, len(b)-8) }), swaps, "", []string{newVersions}},
	{"has versions of the length", part(func([]byte) []byte { return nil }), swaps, "", []string{newVersions}},
	{"has versions of the sum of all bytes", part(func(b []byte) []byte {
		sum := 0
		for _, c := range b {
			sum += int(c)
		}
		return fmt.Append(nil, sum)
	}), swaps, "", []string{newVersions}},
	{"shows when an object was created as when it was modified", shownAs(func(p past, _ *store.Object) time.Time { return p.created }), startsFast, "", []string{tellsAge}},
	{"shows no modification from 8 s after the creation on", shownAs(func(p past, o *store.Object) time.Time {
		if o.LastModified.Sub(p.created) < 8*time.Second {
			return o.LastModified
		}
		return p.created
	}), startsFast, "", []string{tellsAge}},
	{"says 304 for ever from the fourth time on", hot(3, 1000*time.Hour, func(v store.Version) bool { return v != "" }), locks, "", []string{unchanged}},
	{"gives for 20 s what it has given four times", hot(4, 20*time.Second, func(v store.Version) bool { return v == "" }), locks, "", []string{unchanged}},
	{"lists for 20 s what it has listed three times", func(b *brokenstore.Store, _ func(int) bool) {
		var mu sync.Mutex
		all := map[string][][]store.Entry{}
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			mu.Lock()
			defer mu.Unlock()
			if len(all[prefix]) < 3 {
				var entries []store.Entry
				for e, err := range b.Store.List(ctx, prefix, after) {
					if err != nil {
						panic(err)
					}
					entries = append(entries, e)
				}
				all[prefix] = append(all[prefix], entries)
			}
			return func(yield func(store.Entry, error) bool) {
				for _, e := range all[prefix][len(all[prefix])-1] {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}, []string{"epochs", "epochs without If-Match", "fencelog.Log"}, "", []string{listsCurrent}},
}

// TestProbeRefusesLiesAboutBodies: rivals used to write bodies of one length, that differed in
// their first bytes and their last ones, over objects that nobody had left alone or written often. So
// all of these were called safe, and two candidates then held a lock in most of them.
func TestProbeRefusesLiesAboutBodies(t *testing.T) {
	for _, l := range bodyLies {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.refused(t, asked(t, l, 1, &Options{Races: 20, LargestBody: 1 << 10}))
		})
	}
}

// TestProbeListsMoreThanOnePage: a listing that ends after 1000 objects is found out by the objects of
// racing creates, and only where there are as many.
func TestProbeListsMoreThanOnePage(t *testing.T) {
	for _, c := range []struct {
		races int
		cut   int
		want  Result
	}{{onePage + 10, onePage, Bad}, {onePage + 10, 2 * onePage, OK}, {20, onePage, Note}, {20, 19, Bad}} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenstore.Store{Store: memstore.New()}
			brokenstore.ListThen(func(all []store.Entry) []store.Entry { return all[:min(c.cut, len(all))] })(b)
			r := probed(t, brokenstore.Bare{Store: b}, &Options{Races: c.races, LargestBody: 1 << 10})
			if f := r.Finding(longLists); f.Result != c.want || (r.Proves(r.Store, useFenceLog) == nil) && c.want == Bad {
				t.Errorf("a listing of %d is cut at %d: %+v", c.races, c.cut, f)
			}
			empty(t, b.Store)
		})
	}
}

// TestProbeOfValuesInParts: a store that loses what is in the second part of a large value is not safe for fences.
func TestProbeOfValuesInParts(t *testing.T) {
	cut := func(body []byte) []byte { return body[:min(len(body), 8<<20)] }
	for _, c := range []struct {
		name string
		put  func(body []byte) []byte
		want Result
	}{
		{"as it was sent", bytes.Clone, OK},
		{"cut at 8 MiB", cut, Bad},
		{"the first part twice", func(body []byte) []byte { return append(cut(body), body[:len(body)-8<<20]...) }, Bad},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &brokenstore.Store{Store: memstore.New()}
				b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
					body, err := io.ReadAll(r)
					if err != nil {
						return 0, err
					}
					_, err = b.Store.PutLarge(ctx, key, bytes.NewReader(c.put(body)))
					return int64(len(body)), err
				}
				r := probed(t, b, &Options{Races: 1})
				if f := r.Finding(largeBodies); f.Result != c.want || (r.Proves(r.Store, useFenceObject) == nil) != (c.want == OK) || r.Proves(r.Store, useObject) != nil {
					t.Errorf("%+v: %v, %v", f, r.Proves(r.Store, useFenceObject), r.Proves(r.Store, useObject))
				}
				empty(t, b)
			})
		})
	}
}

// One byte is enough of a difference, and every body is of the size that is asked for.
func TestBodies(t *testing.T) {
	s, err := newSurvey(t.Context(), memstore.New(), few)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	relations := map[int]int{}
	for _, most := range []int{smallBody, 2 << 10, store.MaxBody} {
		was := s.bodyOf(most)
		for range min(2000, 10*store.MaxBody/most) {
			body := s.bodyOver(was, most)
			if len(body) > most || len(body) < least(most) || seen[string(body)] {
				t.Fatalf("%d bytes, of at most %d; made before: %t", len(body), most, seen[string(body)])
			}
			if most <= smallBody {
				seen[string(body)] = true
				relations[cmp.Compare(len(body), len(was))]++
			}
			was = body
		}
	}
	for _, r := range []int{-1, 0, 1} {
		if relations[r] < 200 {
			t.Errorf("of 2000 bodies: %v", relations)
		}
	}
}

// TestBodyShapes: bodies are JSON like records, of the size that is asked for, and a changed one differs where it should.
func TestBodyShapes(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	for _, c := range []struct{ most, least int }{{100, leastBody}, {400, leastBody}, {401, 376}, {2048, 1920}, {store.MaxBody, store.MaxBody - store.MaxBody/16}} {
		if got := least(c.most); got != c.least {
			t.Errorf("of up to %d bytes the least has %d", c.most, got)
		}
	}
	if leastBody != 63 {
		t.Errorf("the smallest body has %d bytes", leastBody)
	}
	for _, size := range []int{0, leastBody, leastBody + 1, 400, 2048} {
		b := s.bodyOf(size)
		var record map[string]string
		if err := json.Unmarshal(b, &record); err != nil || len(b) != max(size, leastBody) || len(record["leasehold-probe"]) != 32 || strings.Trim(record["pad"], "x") != "" {
			t.Errorf("of %d bytes: %q, %v", size, b, err)
		}
	}
	seen := map[int]bool{}
	for range 1000 {
		seen[between(3, 5)] = true
	}
	if len(seen) != 3 || !seen[3] || !seen[4] || !seen[5] || between(7, 7) != 7 || between(7, 6) != 7 || between(7, 0) != 7 {
		t.Errorf("from 3 to 5 are %v", seen)
	}
	was := s.bodyOf(leastBody)
	at := map[int]map[int]bool{}
	for place := range places {
		at[place] = map[int]bool{}
		for range []int{atStart: 300, atEnd: 300, anywhere: 2000, swapped: 300}[place] {
			b := s.changed(was, place)
			var differ []int
			for i := range b {
				if b[i] != was[i] {
					differ = append(differ, i)
				}
			}
			if want := map[bool]int{true: 2, false: 1}[place == swapped]; len(differ) != want || len(b) != len(was) {
				t.Fatalf("changed in place %d, they differ at %d", place, differ)
			}
			if i := differ[len(differ)-1]; place == swapped && (b[differ[0]] != was[i] || b[i] != was[differ[0]]) {
				t.Fatalf("%q is no swap of %q", b, was)
			}
			at[place][differ[0]] = true
		}
	}
	for i := range was {
		if at[atStart][i] != (i < 8) || at[atEnd][i] != (i >= leastBody-8) || !at[anywhere][i] {
			t.Errorf("byte %d is changed: at the start %t, at the end %t, anywhere %t", i, at[atStart][i], at[atEnd][i], at[anywhere][i])
		}
	}
	same := bytes.Repeat([]byte("x"), 10)
	if b := s.changed(same, swapped); bytes.Equal(b, same) {
		t.Error("where all bytes are the same, nothing is changed")
	}
}

// TestBodyOver: a body that is written over another is shorter, longer or as long, and often the same but for a byte.
func TestBodyOver(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	const most, times = leastBody + 4, 2000
	for _, c := range []struct {
		was                   int
		shorter, same, longer bool
		sizes                 []int // that there must be
	}{
		{leastBody + 2, true, true, true, []int{0, 1, 2, 3, 4}},
		{leastBody, false, true, true, []int{0, 1, 2, 3, 4}},
		{most, true, true, false, []int{0, 1, 2, 3, 4}},
		{leastBody - 1, false, false, true, []int{0, 1, 2, 3, 4}},
		{most + 1, true, false, false, []int{0, 1, 2, 3, 4}},
	} {
		var shorter, same, longer, alike int
		sizes := map[int]bool{}
		was := bytes.Repeat([]byte("x"), c.was)
		if c.was >= leastBody {
			was = s.bodyOf(c.was)
		}
		for range times {
			b := s.bodyOver(was, most)
			switch {
			case len(b) < leastBody, len(b) > most:
				t.Fatalf("over %d bytes: %d", c.was, len(b))
			case len(b) < len(was):
				shorter++
			case len(b) > len(was):
				longer++
			default:
				same++
				if differences(b, was) <= 2 {
					alike++
				}
			}
			sizes[len(b)-leastBody] = true
		}
		if (shorter > times/10) != c.shorter || (longer > times/10) != c.longer || (same > times/2) != c.same || c.same && alike < times*4/10 {
			t.Errorf("over %d bytes, %d are shorter, %d longer, %d as long, %d of them alike", c.was, shorter, longer, same, alike)
		}
		for _, n := range c.sizes {
			if !sizes[n] {
				t.Errorf("over %d bytes none has %d", c.was, leastBody+n)
			}
		}
	}
}

func differences(a, b []byte) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// TestBodyBook: a body that is read must be one that was written, and that of its version.
func TestBodyBook(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	one, two := s.bodyOf(100), s.bodyOf(120)
	s.bodies.wrote("k", "1", one)
	s.bodies.wrote("k", "2", two)
	for _, c := range []struct {
		key    string
		v      store.Version
		body   []byte
		spoilt int
		first  string
	}{
		{"k", "2", two, 0, ""},
		{"k", "1", one, 0, ""}, // of a version that was there before, nothing is known
		{"k", "1", two, 0, ""},
		{"other", "2", one, 0, ""},
		{"k", "2", one, 1, "it was another body than was written as version 2"},
		{"k", "2", two[:50], 2, "it was another body than was written as version 2"},
		{"other", "2", nil, 3, "it was another body than was written as version 2"},
	} {
		s.bodies.saw(&store.Object{Version: c.v, Body: c.body}, c.key)
		if s.bodies.spoiled != c.spoilt || s.bodies.first != c.first {
			t.Errorf("%+v: %d are spoilt: %s", c, s.bodies.spoiled, s.bodies.first)
		}
	}
	if result, detail, err := s.wholeBodies(); result != Bad || detail != "3 of 7 bodies were not as they were written; of the first, it was another body than was written as version 2" || err != nil {
		t.Errorf("%s, %s, %v", result, detail, err)
	}
	s = surveyed(t, few)
	s.bodies.saw(&store.Object{Body: []byte("abc")}, "k")
	if result, detail, err := s.wholeBodies(); result != Bad || detail != "1 of 1 bodies were not as they were written; of the first, it had 3 bytes, which are not what was written" || err != nil {
		t.Errorf("%s, %s, %v", result, detail, err)
	}
}
