package storeurl_test

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

type proof interface {
	Proves(storeName, use string) error
}

// abilities are the methods that only some stores have.
func abilities(st store.Store) (can [6]bool) {
	_, can[0] = st.(store.Hashed)
	_, can[1] = st.(store.Large)
	_, can[2] = st.(store.Conditional)
	_, can[3] = st.(store.Inspector)
	_, can[4] = st.(store.Purger)
	_, can[5] = st.(io.Closer)
	return can
}

// TestNoIfMatch: a store whose URL says that it has no If-Match refuses what needs it, and is the same otherwise.
func TestNoIfMatch(t *testing.T) {
	noAWS(t)
	noGoogle(t)
	noAzure(t)
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for _, url := range []string{
		"s3://bucket/p?endpoint=http://127.0.0.1:1", "gs://bucket/p?endpoint=http://127.0.0.1:1",
		"azblob://container/p?endpoint=http://127.0.0.1:1/acct", "file://" + filepath.ToSlash(t.TempDir()) + "?",
	} {
		open := func(value string) store.Store {
			t.Helper()
			st, err := storeurl.Open(t.Context(), strings.Replace(url+"&"+value, "?&", "?", 1))
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		st, plain := open("if_match=false"), open("if_match=true")
		if st.String() != plain.String() || abilities(st) != abilities(plain) {
			t.Errorf("%s %v, and by default %s %v", st, abilities(st), plain, abilities(plain))
		}
		if _, says := plain.(proof); says {
			t.Errorf("%s has an opinion", plain)
		}
		own, says := st.(proof)
		if !says {
			t.Fatalf("%s says nothing", st)
		}
		for use, want := range map[string]error{
			"object": store.ErrRefused, "epochs": store.ErrRefused, "marker": store.ErrRefused, "fence.Object": store.ErrRefused, "chess": store.ErrRefused,
			"epochs without If-Match": nil, "marker without If-Match": nil, "fencelog.Log": nil, "fast start": nil,
		} {
			if err := own.Proves(st.String(), use); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s, %s: %v", st, use, err)
			}
		}
	}
}
