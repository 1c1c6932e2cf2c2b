package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

func random(size int64) *io.LimitedReader {
	return &io.LimitedReader{R: rand.NewChaCha8([32]byte{}), N: size}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestLargeThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "k", "first")
	failure := errors.New("the reader's own error")
	for _, key := range []string{"k", "large"} {
		n, err := st.PutLarge(t.Context(), key, io.MultiReader(random(1<<20), failing{failure}))
		if n != 0 {
			t.Errorf("of what has failed %d bytes were written", n)
		}
		wantKind(t, err, store.ErrInvalid)
		if !errors.Is(err, failure) {
			t.Errorf("%v does not match the reader's error", err)
		}
	}
	if got, want := names(t, dir), []string{".leasehold.lock", "k"}; !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
	wantBody(t, st, "k", "first")
}

// A body can be endless, so the context has to end it while it is read.
func TestLargeEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	const size = 4 << 20
	rest := random(size)
	_, err := open(t, dir).PutLarge(ctx, "k", io.TeeReader(rest, cancelling(cancel)))
	wantKind(t, err, store.ErrUnavailable)
	if !errors.Is(err, context.Canceled) || rest.N == 0 {
		t.Errorf("%d bytes were left, and the error is %v", rest.N, err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the directory has %q", got)
	}
}

// cancelling ends a context when something is written to it.
type cancelling context.CancelFunc

func (c cancelling) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

func TestLargeTakesLittleMemory(t *testing.T) {
	const size = 16 << 20
	st := open(t, t.TempDir())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := st.PutLarge(t.Context(), "k", random(size)); err != nil || n != size {
		t.Fatalf("PutLarge gives %d, %v", n, err)
	}
	r, _, err := st.GetLarge(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); err != nil || n != size {
		t.Fatalf("%d bytes were read, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes were allocated for a body of %d", allocated, size)
	}
}

// A file that somebody cuts short while it is read must not look whole.
func TestLargeCutShort(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	for _, left := range []int64{1 << 20, 2<<20 - 1, 0} {
		cutShort(t, st, dir, left)
	}
}

func cutShort(t *testing.T, st *filestore.Store, dir string, left int64) {
	t.Helper()
	if _, err := st.PutLarge(t.Context(), "k", random(2<<20)); err != nil {
		t.Fatal(err)
	}
	r, _, err := st.GetLarge(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err = os.Truncate(filepath.Join(dir, "k"), left); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	wantKind(t, err, store.ErrUnavailable)
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Op != "get" || e.Key != "k" {
		t.Errorf("%v, want what could not be read", err)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) || n != left {
		t.Errorf("%d bytes were read, %v", n, err)
	}
}

func TestLargeObstacles(t *testing.T) {
	st := open(t, t.TempDir())
	create(t, st, "file", "body")
	create(t, st, "dir/file", "body")
	for _, key := range []string{"file/below", "dir", ".leasehold.lock", "a//b"} {
		n, err := st.PutLarge(t.Context(), key, bytes.NewReader([]byte("body")))
		wantKind(t, err, store.ErrInvalid)
		_, size, err := st.GetLarge(t.Context(), key)
		wantKind(t, err, store.ErrInvalid)
		if n != 0 || size != 0 {
			t.Errorf("%q: %d bytes were written, and %d can be read", key, n, size)
		}
	}
	_, size, err := st.GetLarge(t.Context(), "absent")
	wantKind(t, err, store.ErrNotExist)
	if size != 0 {
		t.Errorf("of an object that is not there %d bytes can be read", size)
	}
}
