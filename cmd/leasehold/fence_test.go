package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A movingStore has a value that lies apart replaced by the next one before each of the first reads of it.
type movingStore struct {
	*memstore.Store
	first, reads int
	breaks       error // is how a read ends after some bytes
}

func (s *movingStore) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if s.reads++; s.reads <= s.first {
		return nil, 0, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	}
	r, n, err := s.Store.GetLarge(ctx, key)
	if s.breaks != nil {
		r = io.NopCloser(io.MultiReader(io.LimitReader(r, 5), brokenReader{s.breaks}))
	}
	return r, n, err
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestFenceGetOfMovingValue: of a value that is replaced while it is read the next one is read, but not for ever, and of one
// that breaks off it is said where.
func TestFenceGetOfMovingValue(t *testing.T) {
	t.Parallel()
	reset := &store.Error{Op: "get", Key: "state.data", Kind: store.ErrUnavailable}
	for name, tt := range map[string]struct {
		first  int
		breaks error
		reads  int
		out    string
		code   int
		says   string
	}{
		"it stays":               {0, nil, 1, "the value", 0, ""},
		"it was replaced":        {1, nil, 2, "the value", 0, ""},
		"it was replaced often":  {10, nil, 11, "the value", 0, ""},
		"it is replaced forever": {100, nil, 11, "", exitInternal, "mem:// state: the value was replaced meanwhile"},
		"it breaks off":          {0, reset, 1, "the v", exitUnavailable, "state: after 5 of 9 bytes: "},
		"it ends too soon":       {0, io.EOF, 1, "the v", exitInternal, "state: after 5 of 9 bytes: mem:// state: what lies at state.data/"},
		"it fails in some way":   {0, errors.New("wrong"), 1, "the v", exitInternal, "state: after 5 of 9 bytes: wrong"},
	} {
		st := &movingStore{memstore.New(), tt.first, 0, tt.breaks}
		o, err := fence.NewObject(st, "state", &fence.ObjectOptions{Apart: true})
		if err == nil {
			err = o.Put(t.Context(), fence.Token(5), strings.NewReader("the value"))
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		g := &fenceCmd{app: &app{stdout: &out}}
		err = g.show(t.Context(), "state", o)
		end, code := &exit{}, 0
		if errors.As(err, &end) {
			code = end.code
		}
		if code != tt.code || err != nil && !strings.Contains(end.err.Error(), tt.says) || (err == nil) != (tt.code == 0) || out.String() != tt.out || st.reads != tt.reads {
			t.Errorf("%s: it writes %q after %d reads, and ends with %v; want %q, %d, code %d, %q", name, &out, st.reads, err, tt.out, tt.reads, tt.code, tt.says)
		}
		// What cannot be written is no fault of the value.
		g.stdout = brokenWriter{}
		if tt.out == "the value" {
			if err = g.show(t.Context(), "state", o); err == nil || err.Error() != "exit code 70: cannot write to stdout: full" {
				t.Errorf("%s: it cannot be written, and it ends with %v", name, err)
			}
		}
	}
}

// TestClaims: a claimed resource is next to the lock, or where its URL says. What looks like a URL or a path is not taken for a name.
func TestClaims(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock := target{name: "l", key: "l", store: memstore.New()}
	for name, want := range map[string]string{
		"state":                      "mem:// state",
		"file://" + dir + "/a/state": "exit code 66: ",
		"file://" + dir + "/state":   "file://" + dir + " state",
		"s3:/bucket/state":           "exit code 64: s3:/bucket/state is not a URL: did you mean s3://bucket/state?",
		"ftp://host/state":           "exit code 64: ",
		"a//b":                       "exit code 64: ",
	} {
		c := claims{names: []string{name}}
		got := fmt.Sprint(c.open(t.Context(), lock))
		if len(c.objects) > 0 {
			got = c.objects[0].String()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
