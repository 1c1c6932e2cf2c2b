package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// TestTrials: of several trials the worst is told, with what was said of it.
func TestTrials(t *testing.T) {
	t.Parallel()
	gone, busy, refused := &store.Error{Op: "get", Kind: store.ErrNotExist}, &store.Error{Op: "get", Kind: store.ErrThrottled}, &store.Error{Op: "get", Kind: store.ErrRefused}
	ranks := []trials{{OK, "fine", nil}, {Note, "noted", nil}, {Unknown, "unknown", refused}, {Bad, "bad", nil}}
	for i, first := range ranks {
		for j, then := range ranks {
			var all trials
			all.add(first.result, first.detail, first.err)
			all.add(then.result, "again "+then.detail, then.err)
			want := first
			if j > i {
				want = trials{then.result, "again " + then.detail, then.err}
			}
			if all != want {
				t.Errorf("of %s and %s: %+v", first.result, then.result, all)
			}
		}
	}
	for err, want := range map[error]trials{
		gone:    {Bad, `an answer contradicts those before it: get "": object does not exist`, nil},
		busy:    {Unknown, "this", busy},
		refused: {Unknown, "this", refused},
	} {
		var all trials
		if all.add(Unknown, "this", err); all != want {
			t.Errorf("after %v: %+v", err, all)
		}
	}
}

// TestWhatKeysSay: what came of all keys, by how many were tried, were in doubt or were refused.
func TestWhatKeysSay(t *testing.T) {
	t.Parallel()
	refused := &store.Error{Op: "put", Kind: store.ErrRefused}
	for _, c := range []struct {
		k      keyed
		t      trials
		result Result
		detail string
		err    error
	}{
		{keyed{tried: 10}, trials{result: OK}, OK, "10 keys, long, deep and much alike", nil},
		{keyed{tried: 10, doubted: 5}, trials{result: OK}, OK, "5 keys, long, deep and much alike", nil},
		{keyed{tried: 10, doubted: 6}, trials{result: OK}, Unknown, "of 10 keys 6 had a write without an answer", nil},
		{keyed{tried: 10, doubted: 6}, trials{result: Bad, detail: "bad"}, Bad, "bad", nil},
		{keyed{tried: 10}, trials{}, Unknown, "of 10 keys 0 had a write without an answer", nil},
		{keyed{tried: 10}, trials{Unknown, "this", refused}, Unknown, "this", refused},
		{keyed{tried: 10, refused: []string{"a", "b"}}, trials{result: OK}, OK, `10 keys, long, deep and much alike; the store refused 2, such as "a"`, nil},
	} {
		result, detail, err := c.k.said(&c.t)
		if result != c.result || detail != c.detail || err != c.err { //nolint:errorlint // this one
			t.Errorf("%+v, %+v: %s, %s, %v", c.k, c.t, result, detail, err)
		}
	}
	for name, want := range map[string]string{"": "", "abc": "abc", strings.Repeat("x", 20): strings.Repeat("x", 20), "12345678" + strings.Repeat("x", 5) + "87654321": "12345678…87654321"} {
		if got := short(name); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
}

// TestKeysOfASize: a key of a size has that size, or one byte less, lies where it should, and no part of it is long.
func TestKeysOfASize(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	for size := range store.MaxKey + 1 {
		key := s.below("dir", "name", size)
		path := s.path(key)
		if least := len(s.path("dir/name")); size <= least+1 {
			if key != "dir/name" {
				t.Errorf("of %d: %q", size, key)
			}
			continue
		}
		if len(path) != size && len(path) != size-1 || !strings.HasPrefix(key, "dir/x") || !strings.HasSuffix(key, "x/name") || strings.Contains(key, "//") {
			t.Fatalf("of %d bytes: %d, %q", size, len(path), key)
		}
		for part := range strings.SplitSeq(key, "/") {
			if len(part) > 127 {
				t.Fatalf("of %d bytes: %q", size, part)
			}
		}
		if size > 300 && !strings.Contains(key, "/"+strings.Repeat("x", 127)+"/") {
			t.Errorf("of %d bytes: %q", size, key)
		}
	}
	var told []string
	for _, f := range families {
		told = append(told, fmt.Sprintf("%s: %d: %q", f.what, f.size, f.keys))
		for i, key := range f.keys {
			if slices.Contains(f.keys[:i], key) {
				t.Errorf("%q is there twice", key)
			}
			if n := len(s.path(s.below("keys-1", key, f.size))); f.size > 0 && n != f.size || n > store.MaxKey {
				t.Errorf("%s: a key of %d bytes", f.what, n)
			}
		}
	}
	kept(t, "keys", told)
}

// TestListsAll: a listing must have all objects, in order.
func TestListsAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		objects int
		change  func([]store.Entry) []store.Entry
		result  Result
		detail  string
	}{
		{3, nil, Note, "not tried: that takes more than 1000 races; 3 objects were listed"},
		{1000, nil, Note, "not tried: that takes more than 1000 races; 1000 objects were listed"},
		{1001, nil, OK, "1001 objects"},
		{3, func(all []store.Entry) []store.Entry { return all[1:] }, Bad, "of 3 objects 1 were not listed"},
		{1001, func(all []store.Entry) []store.Entry { return all[:1000] }, Bad, "of 1001 objects 1 were not listed"},
		{3, func(all []store.Entry) []store.Entry { slices.Reverse(all); return all }, Bad, `it lists "k-0002" after "k-0003"`},
		{3, func(all []store.Entry) []store.Entry { return slices.Insert(all, 2, all[1]) }, Bad, `it lists "k-0002" after "k-0002"`},
		{3, func(all []store.Entry) []store.Entry { all[1], all[2] = all[2], all[1]; return all }, Bad, `it lists "k-0002" after "k-0003"`},
		{3, func(all []store.Entry) []store.Entry { return append(all, store.Entry{Key: all[2].Key + "x"}) }, Note, "not tried: that takes more than 1000 races; 3 objects were listed"},
	} {
		b := &brokenstore.Store{Store: memstore.New()}
		if c.change != nil {
			brokenstore.ListThen(c.change)(b)
		}
		s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, few)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for n := range c.objects {
			key := fmt.Sprintf("k-%04d", n+1)
			there[key] = n%2 == 0
			if _, err := b.Store.Put(t.Context(), s.prefix+key, nil, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		if result, detail, err := s.listsAll("k-", there); result != c.result || detail != c.detail || err != nil || len(there) != c.objects {
			t.Errorf("of %d: %s, %s, %v", c.objects, result, detail, err)
		}
		if result, detail, _ := s.longListing(); result != Unknown || detail != "there was nothing to list" {
			t.Errorf("%s, %s", result, detail)
		}
		s.longLists.add(Bad, "this", nil)
		if result, detail, _ := s.longListing(); result != Bad || detail != "this" {
			t.Errorf("%s, %s", result, detail)
		}
	}
}

// closed is a body that knows whether it was closed.
type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error { c.times++; return nil }

// TestLargeBodies: no part of a large value is like another, or like that of another value; it is compared to its end, and closed.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	some := func(seed uint64) []byte {
		b, err := io.ReadAll(io.LimitReader(largeBody(seed), 1<<10))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, seed := range []uint64{0, 1 << 8, 1 << 63} {
		if !bytes.Equal(some(seed), some(seed)) || bytes.Equal(some(seed), some(seed+1)) || bytes.Equal(some(seed)[:512], some(seed)[512:]) {
			t.Errorf("the value of %d is that of another", seed)
		}
	}
	long := strings.Repeat("x", 40<<10)
	for _, c := range []struct {
		got, want string
		at        int
		same      bool
	}{
		{"", "", 0, true},
		{"abc", "abc", 3, true},
		{"abc", "abd", 0, false},
		{"abc", "ab", 0, false},
		{"ab", "abc", 0, false},
		{long, long, 40 << 10, true},
		{long + "a", long + "b", 32 << 10, false},
		{long, long + "b", 32 << 10, false},
		{long[:32<<10], long[:32<<10], 32 << 10, true},
		{long[:32<<10], long, 32 << 10, false},
		{long, long[:32<<10], 32 << 10, false},
	} {
		at, same, err := compare(strings.NewReader(c.got), strings.NewReader(c.want))
		if at != c.at || same != c.same || err != nil {
			t.Errorf("%d bytes and %d: %d, %t, %v", len(c.got), len(c.want), at, same, err)
		}
	}
	for _, before := range []string{"", long} {
		if at, same, err := compare(io.MultiReader(strings.NewReader(before), broken{}), strings.NewReader(long)); same || err == nil || at > len(before) {
			t.Errorf("after %d bytes: %d, %t, %v", len(before), at, same, err)
		}
	}
	b := &brokenstore.Store{Store: memstore.New()}
	body := &closed{Reader: strings.NewReader("")}
	b.OnGetLarge = func(context.Context, string) (io.ReadCloser, int64, error) { return body, largeValue, nil }
	s, err := newSurvey(t.Context(), b, &Options{Races: 1})
	if err != nil {
		t.Fatal(err)
	}
	for times := 1; times < 3; times++ {
		result, detail, err := s.a.isLarge(s.path("a"), largeBody(1))
		if want := "of 8454144 bytes that were written, those after the first 0 are others, or missing"; result != Bad || detail != want || err != nil || body.times != times {
			t.Errorf("%s, %s, %v; closed %d times", result, detail, err, body.times)
		}
	}
	b.OnPutLarge = func(_ context.Context, key string, _ io.Reader) (int64, error) {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
	}
	if err := s.a.putLarge(s.path("b"), largeBody(1)); !errors.Is(err, store.ErrUnknownOutcome) || !s.keys[s.path("b")] || s.settled("b") || s.report.Sent != largeValue {
		t.Errorf("%v; it may be there: %t, %d bytes were sent", err, s.keys[s.path("b")], s.report.Sent)
	}
	s.report.SentLimit = 2*largeValue - 1
	if err := s.a.putLarge(s.path("c"), largeBody(1)); !errors.Is(err, errNoBudget) {
		t.Errorf("with one byte too few left: %v", err)
	}
	s.report.Limit = s.reserve
	if result, _, err := s.a.isLarge(s.path("a"), largeBody(1)); result != Unknown || !errors.Is(err, errNoBudget) {
		t.Errorf("with no request left: %s, %v", result, err)
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

// TestWaits: objects are read again 3 s after the youngest came, and written to again after 10 s, and not when the probe has ended.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := surveyed(t, few)
		s.watch(watch{key: "a"}, false)
		if err := s.leaveCreated(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		s.watch(watch{key: "b"}, false)
		if err := s.leaveUpdated(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		result, detail, err := s.seenLater()
		if took := time.Since(begin); result != OK || detail != "2 objects, 0 of them after a write without an answer, were as they had been left" || err != nil || took != 2*time.Second {
			t.Errorf("%s, %s, %v after %v", result, detail, err, took)
		}
		result, detail, err = s.creatingOverRested()
		if took := time.Since(begin); result != OK || detail != "18 writes over 6 objects, refused after 10s" || err != nil || took != 9*time.Second {
			t.Errorf("%s, %s, %v after %v", result, detail, err, took)
		}
		// Those of which a write may yet arrive are left out.
		s.doubt(s.path("rests-0"), store.ErrUnknownOutcome)
		s.doubt(s.path("rests-1"), store.ErrUnknownOutcome)
		s.retire("rests-updated-0")
		if result, detail, err = s.creatingOverRested(); result != OK || detail != "9 writes over 3 objects, refused after 10s" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		if result, detail, err = s.updatingRested(); result != OK || detail != "2 objects after 10s: old versions were refused, the current one was not" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		s.doubt(s.path("rests-2"), store.ErrUnknownOutcome)
		if result, detail, err = s.creatingOverRested(); result != Unknown || detail != "too many writes had no answer" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		s.doubt(s.path("rests-updated-1"), store.ErrUnknownOutcome)
		if result, detail, err = s.updatingRested(); result != Unknown || detail != "too many writes had no answer" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}

		for _, leave := range []func(*survey) error{(*survey).leaveCreated, (*survey).leaveUpdated} {
			s = surveyed(t, few)
			if err = leave(s); err != nil {
				t.Error(err)
			}
			begin := time.Now()
			if result, detail, err = s.creatingOverRested(); result != OK || detail != "9 writes over 3 objects, refused after 10s" || err != nil || time.Since(begin) != 10*time.Second {
				t.Errorf("%s, %s, %v after %v", result, detail, err, time.Since(begin))
			}
		}
		s = surveyed(t, few)
		if err = errors.Join(s.leaveCreated(), s.leaveUpdated()); err != nil {
			t.Error(err)
		}
		s.doubt(s.path("rests-gone"), store.ErrUnknownOutcome)
		if _, err = s.write(s.a, "rests-gone", s.body(), store.IfAbsent()); err != nil { // it lands later
			t.Error(err)
		}
		if result, detail, err = s.updatingRested(); result != OK || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}

		ended, end := context.WithCancel(t.Context())
		end()
		s = surveyed(t, few)
		if result, detail, err = s.seenLater(); result != Note || detail != "there is nothing to be read again" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		if went, err := s.deletingRested(); went || err != nil {
			t.Errorf("%t, %v", went, err)
		}
		s.watch(watch{key: "a"}, false)
		s.resting.last, s.ctx = time.Now(), ended
		for _, run := range []func(*survey) (Result, string, error){(*survey).seenLater, (*survey).creatingOverRested, (*survey).updatingRested} {
			begin := time.Now()
			if result, detail, err := run(s); result != Unknown || detail != "" || !errors.Is(err, context.Canceled) || time.Since(begin) > 0 {
				t.Errorf("%s, %s, %v", result, detail, err)
			}
		}
	})
}

// TestCleaning: what deletes leave at first is deleted again, and what stays is told.
func TestCleaning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ignore int // so many deletes of each object are answered and not done
		purge  error
		left   int
		said   string
		sent   Requests
		known  Result // whether deletes work
	}{
		{"at once", 0, nil, 0, "", Requests{Put: 2, Delete: 2, List: 1, Inspect: 1}, OK},
		{"at the second time", 1, nil, 0, "", Requests{Put: 2, Delete: 4, List: 2, Inspect: 2}, OK},
		{"at the fourth time", 3, nil, 0, "", Requests{Put: 2, Delete: 8, List: 4, Inspect: 4}, OK},
		{"at the fifth time", 4, nil, 2, "", Requests{Put: 2, Delete: 8, List: 4, Inspect: 4}, OK},
		{"never", 4, nil, 2, "", Requests{Put: 2, Delete: 2, Inspect: 1}, Bad},
		{"denied", -1, nil, 2, "", Requests{Put: 2, Delete: 2, Inspect: 1}, Unknown},
		{"but for past versions", 0, errors.New("broken"), 0, "those of the probe's own objects stay: broken", Requests{Put: 2, Delete: 2, List: 1, Inspect: 1}, OK},
	} {
		b := &brokenstore.Store{Store: memstore.New()}
		var mu sync.Mutex
		done := map[string]int{}
		b.OnDelete = func(ctx context.Context, key string) error {
			if c.ignore < 0 {
				return &store.Error{Op: "delete", Key: key, Kind: store.ErrDenied}
			}
			mu.Lock()
			defer mu.Unlock()
			if done[key]++; done[key] <= c.ignore {
				return nil
			}
			return b.Store.Delete(ctx, key)
		}
		st := &unpurged{inspected{Store: b}, c.purge}
		s, err := newSurvey(t.Context(), st, few)
		if err != nil {
			t.Fatal(err)
		}
		s.purge = true
		s.report.Findings = []Finding{{Name: canDelete, Result: c.known}}
		for _, key := range []string{"a", "b"} {
			if _, err := s.write(s.a, key, s.body(), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		s.ctx = ended //nolint:fatcontext // of this survey alone
		s.clean()
		if want := few.Requests() + few.Purges(); s.report.Limit != want {
			t.Errorf("%s: the limit is %d, not %d", c.name, s.report.Limit, want)
		}
		n := 0
		for range b.Store.List(t.Context(), "", "") { //nolint:errcheck // memory does not fail
			n++
		}
		f := s.report.Finding("past versions removed")
		if s.report.Requests != c.sent {
			t.Errorf("%s: it sends %+v", c.name, s.report.Requests)
		}
		if told := s.report.Left; told != c.left && c.known != Bad || n != c.left || (c.said == "") != (f.Detail == "not tried") || c.said != "" && (f.Detail != c.said || f.Result != Unknown) {
			t.Errorf("%s: %d are left, it tells of %d: %+v", c.name, n, s.report.Left, f)
		}
	}
}

// TestCleaningHasItsRequests: those that were kept for it, to the last.
func TestCleaningHasItsRequests(t *testing.T) {
	t.Parallel()
	for more, left := range []int{2, 1, 0, 0} {
		s := surveyed(t, few)
		s.connect(memstore.New(), memstore.New())
		for _, key := range []string{"a", "b"} {
			if _, err := s.write(s.a, key, s.body(), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		s.report.Limit = s.report.Requests.Total() + more
		if s.clean(); s.report.Left != left {
			t.Errorf("with %d requests %d objects are left", more, s.report.Left)
		}
	}
}

// TestNothingIsSentBeyond: a request that must not be sent reaches no store.
func TestNothingIsSentBeyond(t *testing.T) {
	t.Parallel()
	c := &counter{Store: memstore.New()}
	s, err := newSurvey(t.Context(), c, few)
	if err != nil {
		t.Fatal(err)
	}
	s.report.Limit = s.reserve
	_, get := s.read(s.a, "a", "")
	_, put := s.write(s.a, "a", s.body(), store.IfAbsent())
	_, list := s.list(s.a, "a", "")
	for _, err := range []error{get, put, list, s.remove(s.a, "a"), s.deleteIf("a", "1")} {
		if !errors.Is(err, errNoBudget) {
			t.Error(err)
		}
	}
	if n := c.calls.Load(); n > 0 || s.report.Requests.Total() > 0 || s.report.Sent > 0 {
		t.Errorf("%d requests were sent: %+v, %d bytes", n, s.report.Requests, s.report.Sent)
	}
}

// unpurged is a store that fails to delete past versions.
type unpurged struct {
	inspected
	err error
}

func (u *unpurged) Inspect() store.Inspection                  { return u }
func (u *unpurged) Purge(context.Context, string) (int, error) { return 1, u.err }

// TestTry: an answer that contradicts those before it is bad, unless nothing was written, or its object was replaced.
func TestTry(t *testing.T) {
	t.Parallel()
	gone := &store.Error{Op: "get", Kind: store.ErrNotExist}
	for _, c := range []struct {
		err    error
		wrote  bool
		retire bool
		want   Finding
		failed bool
	}{
		{nil, true, true, Finding{Result: Note, Detail: "done"}, false},
		{gone, true, false, Finding{Result: Bad, Detail: `an answer contradicts those before it: get "": object does not exist`}, false},
		{gone, false, false, Finding{Result: Unknown, Detail: `get "": object does not exist`}, true},
		{gone, true, true, Finding{Result: Unknown, Detail: "too many writes had no answer"}, false},
		{gone, false, true, Finding{Result: Unknown, Detail: "too many writes had no answer"}, false},
		{errNoBudget, true, true, Finding{Result: Unknown, Detail: errNoBudget.Error()}, true},
	} {
		s := surveyed(t, few)
		s.wrote = c.wrote
		s.retire("before")
		f, err := s.try(experiment{name: "this", uses: byList, run: func(s *survey) (Result, string, error) {
			if c.retire {
				s.retire("a")
			}
			return Note, "done", c.err
		}})
		c.want.Name, c.want.Uses = "this", byList
		if fmt.Sprintf("%+v", f) != fmt.Sprintf("%+v", c.want) || (err != nil) != c.failed {
			t.Errorf("%v: %+v, %v", c.err, f, err)
		}
	}
}

// TestFaultsCountWhateverEnds: a fault that an experiment has seen counts if the probe ends meanwhile; what else it says does not.
func TestFaultsCountWhateverEnds(t *testing.T) {
	t.Parallel()
	for _, result := range []Result{OK, Note, Unknown, Bad} {
		s := surveyed(t, few)
		ctx, end := context.WithCancel(t.Context())
		s.ctx = ctx //nolint:fatcontext // of this survey alone
		s.experiments = []experiment{{name: "this", run: func(*survey) (Result, string, error) { end(); return result, "seen", nil }}, {name: "next"}}
		err := s.run()
		if told := len(s.report.Findings) > 0; told != (result == Bad) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", result, s.report.Findings, err)
		}
	}
}
