package leasecertmagic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold/leasehold"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newStorage(t testing.TB, st store.Store, opts *leasehold.LockOptions) *leasecertmagic.Storage {
	t.Helper()
	s, err := leasecertmagic.New(st, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Directories and files of the comparison. None is both, which certmagic never asks for.
var (
	dirs = []string{
		"certificates", "certificates/acme-v02.api.letsencrypt.org-directory",
		"certificates/acme-v02.api.letsencrypt.org-directory/example.com",
		"certificates/acme-v02.api.letsencrypt.org-directory/wildcard_.example.com",
		"certificates/acme", "a", "a/b", "a-b", "a.b", "A", "%41", "a b", "ünïcode", strings.Repeat("d", 230), "nothing",
	}
	files = []string{
		"example.com.crt", "example.com.key", "wildcard_.example.com.json", "x", "x-y", "X", "%58", "x y", ".x", "x.", "☃",
		strings.Repeat("f", 189), strings.Repeat("f", 190), strings.Repeat("f", 191), strings.Repeat("f", 250), "100%", "q?x=1#y",
	}
)

func randomKey(r *rand.Rand, file bool) string {
	dir := dirs[r.IntN(len(dirs))]
	switch {
	case !file && r.IntN(2) == 0:
		return dir
	case r.IntN(8) == 0:
		return "file-" + files[r.IntN(len(files))] // in no directory
	}
	return dir + "/file-" + files[r.IntN(len(files))]
}

func randomValue(r *rand.Rand) []byte {
	switch r.IntN(20) {
	case 0:
		return nil
	case 1:
		return []byte("leasehold-value-apart x 1\n")
	case 2:
		return bytes.Repeat([]byte{byte(r.Uint32())}, store.MaxBody+r.IntN(2))
	}
	return fmt.Appendf(nil, "%x", r.Uint64())
}

// kind is what a caller can tell of an error.
func kind(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	}
	return "another"
}

// answer makes one random call and says all that must be the same.
func answer(r *rand.Rand, s certmagic.Storage) string {
	ctx := context.Background()
	op := r.IntN(10)
	file := op < 4
	key := randomKey(r, file || op == 4)
	value := randomValue(r)
	switch recursive := r.IntN(2) == 0; op {
	case 0, 1, 2, 3:
		return fmt.Sprintf("store %q: %s", key, kind(s.Store(ctx, key, value)))
	case 4:
		got, err := s.Load(ctx, key)
		return fmt.Sprintf("load %q: %d bytes of %.99q, %s", key, len(got), got, kind(err))
	case 5:
		if r.IntN(2) == 0 { // seldom, or nothing is there
			key = randomKey(r, true)
		}
		return fmt.Sprintf("delete %q: %s", key, kind(s.Delete(ctx, key)))
	case 6:
		return fmt.Sprintf("exists %q: %v", key, s.Exists(ctx, key))
	case 7:
		if r.IntN(20) == 0 {
			key = ""
		}
		info, err := s.Stat(ctx, key)
		if !info.IsTerminal {
			info.Size = 0 // of a directory it depends on the file system
		}
		return fmt.Sprintf("stat %q: %q %d %v, time %v, %s", key, info.Key, info.Size, info.IsTerminal,
			!info.Modified.IsZero() || key == "", kind(err))
	default:
		if r.IntN(5) == 0 {
			key = ""
		}
		keys, err := s.List(ctx, key, recursive)
		slices.Sort(keys)
		return fmt.Sprintf("list %q, %v: %q, %s", key, recursive, keys, kind(err))
	}
}

// prune removes empty directories, which a bucket does not have.
func prune(t *testing.T, dir string) (empty bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := len(entries)
	for _, e := range entries {
		if sub := filepath.Join(dir, e.Name()); e.IsDir() && prune(t, sub) {
			if err := os.Remove(sub); err != nil {
				t.Fatal(err)
			}
			n--
		}
	}
	return n == 0
}

// TestAsFileStorage: the same random calls have the same results as those of certmagic's own storage, on every store.
func TestAsFileStorage(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		steps := 400
		if p.Name == "memory" {
			steps = 4000
		}
		s, dir := newStorage(t, p.Open(t), nil), t.TempDir()
		oracle := &certmagic.FileStorage{Path: dir}
		seed := rand.Uint64()
		r, twin := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
		for i := range steps {
			want := answer(twin, oracle)
			prune(t, dir)
			if got := answer(r, s); got != want {
				t.Fatalf("seed %d, call %d:\n%.2000s, and certmagic's\n%.2000s", seed, i, got, want)
			}
		}
	})
}

// TestValues: what lies in the store is the value as it is; a large one is gone with the value, and locks are not shown.
func TestValues(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx, st := t.Context(), p.Open(t)
		s := newStorage(t, st, nil)
		must(t, s.Lock(ctx, "issue_cert_example.com"))
		must(t, s.Store(ctx, "certificates/ca/example.com/example.com.crt", []byte("pem")))
		must(t, s.Unlock(ctx, "issue_cert_example.com"))
		if o, err := st.Get(ctx, "values/certificates/ca/example.com/example.com.crt=", ""); err != nil || string(o.Body) != "pem" {
			t.Error(o, err)
		}
		for _, size := range []int{5 << 20, 3 << 20, 4 << 20} { // each replaces the one before
			value := bytes.Repeat([]byte{'a', 'b', 'c', byte(size >> 20)}, size/4)
			must(t, s.Store(ctx, "large", value))
			if got, err := s.Load(ctx, "large"); err != nil || !bytes.Equal(got, value) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if info, err := s.Stat(ctx, "large"); err != nil || info.Size != int64(size) || !info.IsTerminal {
				t.Errorf("%+v, %v", info, err)
			}
			if keys := objects(t, st, "large/"); len(keys) != 1 {
				t.Errorf("there are %q, want one", keys)
			}
		}
		keys, err := s.List(ctx, "", false)
		if slices.Sort(keys); err != nil || !slices.Equal(keys, []string{"certificates", "large"}) {
			t.Errorf("%q, %v", keys, err)
		}
		must(t, s.Delete(ctx, "large"))
		must(t, s.Delete(ctx, "certificates"))
		if keys := append(objects(t, st, "large/"), objects(t, st, "values/")...); len(keys) != 0 {
			t.Errorf("there are %q yet", keys)
		}
		// A name may be a file after it was a directory, and a directory after that.
		must(t, s.Store(ctx, "certificates", nil))
		must(t, s.Delete(ctx, "certificates"))
		must(t, s.Store(ctx, "certificates/ca", nil))
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func objects(t testing.TB, st store.Store, prefix string) (keys []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), prefix, "") {
		must(t, err)
		keys = append(keys, e.Key)
	}
	return keys
}

// TestBadKeys: keys that are none are refused by each call, and reach nothing.
func TestBadKeys(t *testing.T) {
	ctx, st := t.Context(), memstore.New()
	s := newStorage(t, st, nil)
	for _, key := range []string{
		"", ".", "..", "/", "a/", "/a", "a//b", "a/./b", "a/../b", "../a", "a\xffb", strings.Repeat("a/", 400) + "a",
	} {
		if key != "" {
			_, err := s.Stat(ctx, key)
			wantInvalid(t, "stat", key, err)
			_, err = s.List(ctx, key, true)
			wantInvalid(t, "list", key, err)
			if s.Exists(ctx, key) {
				t.Errorf("%q exists", key)
			}
		}
		_, err := s.Load(ctx, key)
		wantInvalid(t, "load", key, err)
		wantInvalid(t, "store", key, s.Store(ctx, key, []byte("x")))
		wantInvalid(t, "delete", key, s.Delete(ctx, key))
	}
	if keys := objects(t, st, ""); len(keys) != 0 {
		t.Errorf("there are %q", keys)
	}
}

func wantInvalid(t *testing.T, op, key string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrInvalid) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), op) {
		t.Errorf("%s %.40q: %v", op, key, err)
	}
}

// TestOddKeys: keys that no store takes as they are lie apart from all others, and are listed as they are.
func TestOddKeys(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ctx, s := t.Context(), newStorage(t, p.Open(t), nil)
		long := strings.Repeat("x", 190)
		keys := []string{
			"a\\b", "a\x00b", "a\nb", "a%5cb", "a%00b", "a%5Cb", "A", "a", ".leasehold.lock", "nul.", " ", "%", "%%", "...",
			long, long + "%", long + "-", long + "x", long + "%-x", long + "%/x", long + "-/x", strings.Repeat("☃", 60),
		}
		for i, key := range keys {
			must(t, s.Store(ctx, key, fmt.Append(nil, i)))
		}
		for i, key := range keys {
			if got, err := s.Load(ctx, key); err != nil || string(got) != fmt.Sprint(i) {
				t.Errorf("%.40q is %q, %v, want %d", key, got, err, i)
			}
		}
		listed, err := s.List(ctx, "", true)
		must(t, err)
		for _, key := range keys {
			if !slices.Contains(listed, key) {
				t.Errorf("%.40q is not listed", key)
			}
		}
	})
}

// TestFailures: a store that fails, loses answers and delivers late or twice changes no result, as far as a caller at a time
// can tell; and what is lost for good is said.
func TestFailures(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		seed := rand.Uint64()
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Seed: seed})
		for _, k := range []faultstore.Kind{faultstore.Unavailable, faultstore.Throttled, faultstore.Conflict, faultstore.LostRequest, faultstore.LostAnswer} {
			st.Inject(faultstore.Fault{Kind: k, Probability: 0.03})
		}
		s, plain := newStorage(t, st, nil), newStorage(t, memstore.New(), nil)
		r, twin := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
		for i := range 1000 {
			if got, want := answer(r, s), answer(twin, plain); got != want {
				t.Fatalf("seed %d, call %d:\n%.2000s, want\n%.2000s\n%v", seed, i, got, want, st.Log())
			}
		}
	})
}

// TestStoreIsGone: every call ends, in bounded time or with its context, and says why.
func TestStoreIsGone(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newStorage(t, st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		defer st.Close()
		for op, call := range map[string]func(ctx context.Context) error{
			"store":  func(ctx context.Context) error { return s.Store(ctx, "a", nil) },
			"load":   func(ctx context.Context) error { _, err := s.Load(ctx, "a"); return err },
			"delete": func(ctx context.Context) error { return s.Delete(ctx, "a") },
			"stat":   func(ctx context.Context) error { _, err := s.Stat(ctx, "a"); return err },
			"list":   func(ctx context.Context) error { _, err := s.List(ctx, "a", true); return err },
		} {
			begin := time.Now()
			err := call(t.Context())
			if err == nil || errors.Is(err, fs.ErrNotExist) || time.Since(begin) > 2*time.Minute || !strings.Contains(err.Error(), op) {
				t.Errorf("%s: %v after %v", op, err, time.Since(begin))
			}
			begin = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
				t.Errorf("%s: %v after %v", op, err, time.Since(begin))
			}
		}
		if s.Exists(t.Context(), "a") {
			t.Error("it exists, and nobody could look")
		}
	})
}

// TestTogether: values that are stored at the same time stay whole, and what is replaced leaves nothing.
func TestTogether(t *testing.T) {
	ctx, st := t.Context(), memstore.New()
	s := newStorage(t, st, nil)
	must(t, s.Store(ctx, "k", []byte("a")))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				size := 10
				if j%3 == 0 {
					size = store.MaxBody + 1
				}
				if err := s.Store(ctx, "k", bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
					t.Error(err)
				}
				got, err := s.Load(ctx, "k")
				if err != nil || len(got) == 0 || len(bytes.Trim(got, string(got[:1]))) > 0 {
					t.Errorf("%.20q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	must(t, s.Store(ctx, "k", []byte("a")))
	if keys := objects(t, st, "large/"); len(keys) > 0 {
		t.Errorf("there are %q yet", keys)
	}
}
