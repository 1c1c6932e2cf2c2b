package faultstore_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestLargePut(t *testing.T) {
	for _, test := range []struct {
		kind  faultstore.Kind
		want  error
		lands string // "at once", "late" or ""
	}{
		{faultstore.Unavailable, store.ErrUnavailable, ""},
		{faultstore.LostRequest, store.ErrUnknownOutcome, ""},
		{faultstore.LostAnswer, store.ErrUnknownOutcome, "at once"},
		{faultstore.LateLanding, store.ErrUnknownOutcome, "late"},
		{faultstore.LateDuplicate, nil, "late"}, // deleted after it landed at once
	} {
		t.Run(fmt.Sprint(test.kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memstore.New()
				st := faultstore.Wrap(inner, &faultstore.Options{Faults: []faultstore.Fault{{Kind: test.kind, Op: "put", Delay: time.Minute}}})
				body := strings.NewReader("second")
				_, err := st.PutLarge(t.Context(), key, body)
				wantError(t, err, "put", test.want)
				body.Reset("gone") // a late delivery has what it was given
				if got := state(t, inner); (got == "second") != (test.lands == "at once" || test.want == nil) {
					t.Errorf("the store holds %q", got)
				}
				if err := inner.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				st.Wait()
				if got := state(t, inner); (got == "second") != (test.lands == "late") {
					t.Errorf("in the end the store holds %q", got)
				}
				if n := st.Counts(); n != (faultstore.Counts{Put: 1}) {
					t.Errorf("the requests are %+v", n)
				}
			})
		})
	}
}

func TestLargeGet(t *testing.T) {
	for _, test := range []struct {
		kind faultstore.Kind
		want error // of opening
		read string
		then error // of reading
	}{
		{faultstore.Unavailable, store.ErrUnavailable, "", nil},
		{faultstore.LostRequest, store.ErrUnavailable, "", nil},
		{faultstore.DelayAfter, nil, "first", nil},
		{faultstore.LostAnswer, nil, "fi", store.ErrUnavailable},
	} {
		t.Run(fmt.Sprint(test.kind), func(t *testing.T) {
			st, _, _ := begin(t, faultstore.Fault{Kind: test.kind})
			r, size, err := st.GetLarge(t.Context(), key)
			wantError(t, err, "get", test.want)
			if err != nil {
				return
			}
			defer r.Close()
			body, err := io.ReadAll(r)
			wantError(t, err, "get", test.then)
			if string(body) != test.read || size != int64(len("first")) {
				t.Errorf("of %d bytes came %q", size, body)
			}
			if log := st.Log(); len(log) != 1 || log[0].Fault != test.kind.String() {
				t.Errorf("the log is %v", log)
			}
		})
	}
}

// small is a store without large bodies.
type small struct{ store.Store }

func TestLargeNeedsALarge(t *testing.T) {
	st := faultstore.Wrap(small{memstore.New()}, nil)
	_, err := st.PutLarge(t.Context(), key, strings.NewReader("body"))
	wantError(t, err, "put", store.ErrInvalid)
	_, _, err = st.GetLarge(t.Context(), key)
	wantError(t, err, "get", store.ErrInvalid)
}

func TestLargeReaderFails(t *testing.T) {
	st, inner, _ := begin(t)
	pr, pw := io.Pipe()
	failure := errors.New("the reader's own error")
	go func() {
		_, _ = pw.Write([]byte("part"))
		_ = pw.CloseWithError(failure)
	}()
	_, err := st.PutLarge(t.Context(), key, pr)
	wantError(t, err, "put", store.ErrInvalid)
	if !errors.Is(err, failure) || state(t, inner) != "first" || st.Counts().Put != 0 {
		t.Errorf("%v; the store holds %q after %+v", err, state(t, inner), st.Counts())
	}
}
