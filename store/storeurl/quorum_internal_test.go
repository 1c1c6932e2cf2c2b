package storeurl

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
)

// TestMemberNames: a member has the URL by which every process reaches it, and what is a process's own is not in it.
func TestMemberNames(t *testing.T) {
	t.Setenv("AWS_REGION", "us-west-2")
	dir := filepath.ToSlash(t.TempDir())
	file := "file:///" + strings.TrimPrefix(dir, "/")
	u := &url.URL{Scheme: "quorum", Path: "/key", OmitHost: false}
	for raw, want := range map[string]string{
		"s3://b/p": "s3://b/p",
		"s3://b/p?region=eu-west-1&requester_pays=true":                  "s3://b/p?requester_pays=true&region=eu-west-1",
		"s3://b?path_style=true&region=a%26b":                            "s3://b?region=a%26b&path_style=true",
		"s3://b?endpoint=http://127.0.0.1:9&path_style=true&region=eu":   "s3://b?endpoint=http://127.0.0.1:9&region=eu&path_style=true",
		"gs://b?anonymous=true":                                          "gs://b",
		file + "/a//b/":                                                  file + "/a/b",
		"quorum:///x?member=file:///a&member=file:///b&member=file:///c": "bad store URL: quorum:///key: a member is a quorum itself: write the members of that one, or another store",
		"mem://x": "bad store URL: quorum:///key: a store in memory is no member: others have another one of that name",
		"file://": "quorum:///key: a member: bad store URL: file:: there is no directory: write file:///DIR",
		"s3://":   "quorum:///key: a member: bad store URL: s3:: there is no bucket: write s3://BUCKET",
	} {
		st, err := openMember(t.Context(), u, raw, &Options{})
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = st.String()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
}

// TestCallsOfALaterDirectory: every call of a directory that is not there says so, and works as soon as it is.
func TestCallsOfALaterDirectory(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "file", "d")
	raw := (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}).String()
	u := &url.URL{Scheme: "quorum", Path: "/key"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(above, "file"), nil, 0o600))
	m, err := openMember(t.Context(), u, raw+"//", &Options{MustExist: true})
	must(err)
	l, ok := m.(*later)
	if !ok || l.String() != raw {
		t.Fatalf("it is a %T, %s; want %s", m, m, raw)
	}
	ctx := t.Context()
	var version store.Version
	calls := []struct {
		op string
		do func() error
	}{
		{"put", func() error {
			o, err := l.Put(ctx, "k", []byte("body"), store.IfAbsent())
			if err == nil {
				version = o.Version
			}
			return err
		}},
		{"get", func() error {
			o, err := l.Get(ctx, "k", "")
			if err == nil && string(o.Body) != "body" {
				t.Errorf("the body is %q", o.Body)
			}
			if _, same := l.Get(ctx, "k", version); err == nil && !errors.Is(same, store.ErrNotModified) {
				t.Errorf("of the same version: %v", same)
			}
			return err
		}},
		{"list", func() error {
			var keys []string
			for e, err := range l.List(ctx, "k", "") {
				if err != nil {
					return err
				}
				keys = append(keys, e.Key)
			}
			if !slices.Equal(keys, []string{"k"}) {
				t.Errorf("the keys are %q", keys)
			}
			return nil
		}},
		{"delete", func() error { return l.DeleteIf(ctx, "k", version) }},
		{"put", func() error {
			size, err := l.PutLarge(ctx, "k", strings.NewReader("large"))
			if err == nil && size != 5 {
				t.Errorf("the size is %d", size)
			}
			return err
		}},
		{"get", func() error {
			r, size, err := l.GetLarge(ctx, "k")
			if err != nil {
				return err
			}
			if size != 5 {
				t.Errorf("the size is %d", size)
			}
			return r.Close()
		}},
		{"delete", func() error { return l.Delete(ctx, "k") }},
	}
	fails := func(kind error, says string) {
		t.Helper()
		for _, c := range calls {
			err := c.do()
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Op != c.op || e.Key != "k" || e.Kind != kind || errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), says) { //nolint:errorlint // the kind itself
				t.Errorf("%s gives %v, want %v that says %q", c.op, err, kind, says)
			}
		}
	}
	fails(store.ErrUnavailable, dir)
	must(os.Remove(filepath.Join(above, "file")))
	fails(store.ErrNoBucket, dir)
	must(os.MkdirAll(dir, 0o700))
	for range 2 {
		for _, c := range calls {
			if err := c.do(); err != nil {
				t.Errorf("%s when it is there: %v", c.op, err)
			}
		}
	}
}
