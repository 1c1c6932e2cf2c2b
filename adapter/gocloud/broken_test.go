package gocloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/store"
)

// broken is a bucket of a driver that lists and reads what the test has it.
type broken struct {
	driver.Bucket
	pages [][]string // of keys; after the last one comes failed, if there is one
	fails error
	body  string
	size  int64
}

func (b *broken) As(any) bool                        { return false }
func (b *broken) ErrorCode(error) gcerrors.ErrorCode { return gcerrors.Unknown }
func (b *broken) Close() error                       { return nil }

func (b *broken) ListPaged(_ context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	n := len(opts.PageToken)
	if n == len(b.pages) {
		return nil, b.fails
	}
	page := new(driver.ListPage)
	for _, key := range b.pages[n] {
		page.Objects = append(page.Objects, &driver.ListObject{Key: key, MD5: []byte(key)})
	}
	if n+1 < len(b.pages) || b.fails != nil {
		page.NextPageToken = make([]byte, n+1)
	}
	return page, nil
}

func (b *broken) NewRangeReader(context.Context, string, int64, int64, *driver.ReaderOptions) (driver.Reader, error) {
	return &reader{strings.NewReader(b.body), b.size}, nil
}

type reader struct {
	io.Reader
	size int64
}

func (r *reader) Close() error                         { return nil }
func (r *reader) As(any) bool                          { return false }
func (r *reader) Attributes() *driver.ReaderAttributes { return &driver.ReaderAttributes{Size: r.size} }

// TestListings: a listing is whole and in order, or ends in an error. One whose connection breaks
// says io.EOF, among other things: were that the end, epochs would be missing from it.
func TestListings(t *testing.T) {
	for name, c := range map[string]struct {
		b    broken
		want string
		kind error
		why  error
	}{
		"two pages":      {broken{pages: [][]string{{"a", "b"}, {"c"}}}, "a b c", nil, nil},
		"an empty page":  {broken{pages: [][]string{{"a"}, {}, {"c"}}}, "a c", nil, nil},
		"what is no key": {broken{pages: [][]string{{"a", "a/", "b"}}}, "a b", nil, nil},
		"breaks":         {broken{pages: [][]string{{"a"}}, fails: fmt.Errorf("get page 2: %w", io.EOF)}, "a", store.ErrUnavailable, io.EOF},
		"breaks at once": {broken{fails: fmt.Errorf("get page 1: %w", io.EOF)}, "", store.ErrUnavailable, io.EOF},
		"in no order":    {broken{pages: [][]string{{"a", "c", "b"}}}, "a c", store.ErrUnavailable, store.ErrUnordered},
		"the same page":  {broken{pages: [][]string{{"a"}, {"a"}}}, "a", store.ErrUnavailable, store.ErrUnordered},
	} {
		t.Run(name, func(t *testing.T) {
			st := open(t, blob.NewBucket(&c.b), "test://broken", gocloud.CreateOnly{})
			var keys []string
			var last error
			for e, err := range st.List(t.Context(), "", "") {
				if last = err; err == nil {
					keys = append(keys, e.Key)
				}
			}
			if got := strings.Join(keys, " "); got != c.want {
				t.Errorf("it lists %q, want %q", got, c.want)
			}
			if c.kind != nil {
				wantKind(t, "it ends", last, c.kind)
			}
			if !errors.Is(last, c.why) {
				t.Errorf("it ends with %v, want %v", last, c.why)
			}
		})
	}
}

// TestShortBody: a body that breaks off without an error is no body.
func TestShortBody(t *testing.T) {
	st := open(t, blob.NewBucket(&broken{body: "half", size: 8}), "test://broken", gocloud.CreateOnly{})
	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, "half a body", err, store.ErrUnavailable)
}
