package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
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
