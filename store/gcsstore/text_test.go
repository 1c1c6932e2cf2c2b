package gcsstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
)

// answering is a transport without a network: it answers every request, and counts the bodies of its answers that are not closed.
type answering struct {
	open    atomic.Int64
	endless bool // nobody says how long an answer is
	answer  func(r *http.Request) (status int, body string)
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	status, body := a.answer(r)
	header := http.Header{}
	header.Set("Date", "Fri, 20 Nov 2026 10:30:45 GMT")
	header.Set("Last-Modified", "Fri, 20 Nov 2026 10:30:40 GMT")
	header.Set("X-Guploader-Uploadid", "id")
	header.Set("X-Goog-Generation", "7")
	a.open.Add(1)
	length := int64(len(body))
	if a.endless {
		length = -1
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: &closing{Reader: strings.NewReader(body), open: &a.open}, ContentLength: length, Request: r,
	}, nil
}

type closing struct {
	io.Reader
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *closing) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return nil
}

// TestFailures: the whole text of what each call says when the server refuses it, or says something else, with the time and the ID
// of the answer; and that no call leaves the body of an answer open, which would cost its connection.
func TestFailures(t *testing.T) {
	t.Parallel()
	const (
		html    = `the answer is not what Google Cloud Storage says but "hello": does the endpoint lead there?`
		broken  = `the answer is not what Google Cloud Storage says but "{\"kind\":\"storage#": does the endpoint lead there?`
		denied  = "access denied: 403 forbidden: no"
		onPut   = denied + "; writing needs storage.objects.create and storage.objects.delete"
		onGet   = denied + "; Google Cloud Storage also says so of an object that does not exist, where storage.objects.list is not allowed"
		unknown = `put "k": unknown outcome: the write may have landed: `
		down    = "store unavailable: "
		again   = `get "k": object not modified: the server sent the same version again`
	)
	puts := [5]string{`put "k": ` + onPut, unknown + html, unknown + broken, unknown + "the answer has no generation: is this Google Cloud Storage?"}
	refused := func(*http.Request) (int, string) { return 403, jsonError(403, "forbidden", "no.") }
	elsewhere := func(*http.Request) (int, string) { return 200, "<html>hello" }
	cut := func(*http.Request) (int, string) { return 200, `{"kind":"storage#` }
	other := func(*http.Request) (int, string) { return 200, `{"kind":"other"}` }
	well := func(r *http.Request) (int, string) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/o") && r.Method == http.MethodGet:
			return 200, `{"kind":"storage#objects"}`
		case r.Method == http.MethodPost:
			return 200, `{"generation":"8"}`
		case r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "/o/"):
			return 200, `{"kind":"storage#bucket"}`
		}
		return 200, "body"
	}
	drained := func(ctx context.Context, st *gcsstore.Store, prefix, after string) error {
		_, err := drain(ctx, st, prefix, after)
		return err
	}
	setting := func(ctx context.Context, st *gcsstore.Store) error {
		var all error
		for _, set := range st.Inspect().Settings(ctx) {
			if all == nil || set.Name == "noncurrent versions" {
				all = errors.Join(all, set.Err)
			}
		}
		return all
	}
	for _, op := range []struct {
		name string
		do   func(ctx context.Context, st *gcsstore.Store) error
		want [5]string // what it says of each answer
	}{
		{"get", func(ctx context.Context, st *gcsstore.Store) error {
			_, err := st.Get(ctx, "k", "")
			return err
		}, [5]string{`get "k": ` + onGet}},
		{"get if it is another version", func(ctx context.Context, st *gcsstore.Store) error {
			_, err := st.Get(ctx, "k", "7")
			return err
		}, [5]string{`get "k": ` + onGet, again, again, again, again}},
		{"put", func(ctx context.Context, st *gcsstore.Store) error {
			_, err := st.Put(ctx, "k", []byte("x"), store.IfAbsent())
			return err
		}, puts},
		{"delete", func(ctx context.Context, st *gcsstore.Store) error { return st.Delete(ctx, "k") }, [5]string{`delete "k": ` + denied}},
		{"list", func(ctx context.Context, st *gcsstore.Store) error { return drained(ctx, st, "k", "") }, [5]string{`list "k": ` + denied, `list "k": ` + down + html, `list "k": ` + down + broken, `list "k": ` + down + `the answer is no listing of Google Cloud Storage but of the kind "other": does the endpoint lead there?`}},
		{"large put", func(ctx context.Context, st *gcsstore.Store) error {
			_, err := st.PutLarge(ctx, "k", strings.NewReader("x"))
			return err
		}, puts},
		{"large get", func(ctx context.Context, st *gcsstore.Store) error {
			r, _, err := st.GetLarge(ctx, "k")
			if err == nil {
				err = r.Close()
			}
			return err
		}, [5]string{`get "k": ` + onGet}},
		{"inspect: delete", func(ctx context.Context, st *gcsstore.Store) error { return st.Inspect().DeleteIf(ctx, "k", "7") }, [5]string{`delete "k": ` + denied}},
		{"inspect: overwrite", func(ctx context.Context, st *gcsstore.Store) error {
			return st.Inspect().Overwrite(ctx, "k", []byte("x"))
		}, puts},
		{"inspect: settings", setting, [5]string{
			`inspect "bucket": ` + denied + "\n" + `list "": ` + denied,
			`inspect "bucket": ` + down + html + "\n" + `list "": ` + down + html,
			`inspect "bucket": ` + down + broken + "\n" + `list "": ` + down + broken,
			`inspect "bucket": ` + down + `the answer is no bucket of Google Cloud Storage but of the kind "other"`,
		}},
		{"inspect: purge", func(ctx context.Context, st *gcsstore.Store) error {
			_, err := st.Inspect().Purge(ctx, "k")
			return err
		}, [5]string{`list "k/": ` + denied, `list "k/": ` + down + html, `list "k/": ` + down + broken}},
	} {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for i, answer := range []func(*http.Request) (int, string){refused, elsewhere, cut, other, well} {
				transport := &answering{answer: answer}
				st, err := gcsstore.New(&http.Client{Transport: transport}, "bucket", &gcsstore.Options{Prefix: "p"})
				if err != nil {
					t.Fatal(err)
				}
				err = op.do(t.Context(), st)
				if n := transport.open.Load(); n != 0 {
					t.Errorf("answer %d: %d bodies are left open after %v", i, n, err)
				}
				var got string
				if err != nil {
					got = err.Error()
				}
				if got != op.want[i] {
					t.Errorf("answer %d: it says\n%s\nwant\n%s", i, got, op.want[i])
				}
				if e, ok := errors.AsType[*store.Error](err); ok && (!e.Date.Equal(time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)) || e.RequestID != "id") {
					t.Errorf("answer %d: the error has the time %v and the ID %q", i, e.Date, e.RequestID)
				}
			}
		})
	}
}

// TestObjects: all that Get and Put tell of an object, and the text of what is refused before anything is sent.
func TestObjects(t *testing.T) {
	t.Parallel()
	transport := &answering{answer: func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost {
			return 200, `{"generation":"8","timeCreated":"2026-11-20T10:30:44.678Z"}`
		}
		return 200, "body"
	}}
	st, err := gcsstore.New(&http.Client{Transport: transport}, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Date(2026, 11, 20, 10, 30, second, 0, time.UTC) }
	got, err := st.Get(t.Context(), "k", "")
	if want := (&store.Object{Key: "k", Body: []byte("body"), Version: "7", LastModified: at(40), Date: at(45)}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it reads %+v, %v, want %+v", got, err, want)
	}
	got, err = st.Put(t.Context(), "k", []byte("x"), store.IfMatch("7"))
	if want := (&store.Object{Key: "k", Version: "8", LastModified: at(44), Date: at(45)}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it has written %+v, %v, want %+v", got, err, want)
	}
	for want, err := range map[string]error{
		`put "k": precondition failed: "seven" is no generation of Google Cloud Storage, so no object has it`:    second(st.Put(t.Context(), "k", nil, store.IfMatch("seven"))),
		`delete "k": precondition failed: "seven" is no generation of Google Cloud Storage, so no object has it`: st.DeleteIf(t.Context(), "k", "seven"),
		`delete "k": precondition failed: "seven" is no generation of Google Cloud Storage`:                      st.Inspect().DeleteIf(t.Context(), "k", "seven"),
		`put "/": invalid argument: the key begins or ends with a slash, or has two in a row`:                    st.Inspect().Overwrite(t.Context(), "/", nil),
		`delete "/": invalid argument: the key begins or ends with a slash, or has two in a row`:                 st.Inspect().DeleteIf(t.Context(), "/", "7"),
		`list "\xff": invalid argument: the prefix is not valid UTF-8`:                                           second(drain(t.Context(), st, "\xff", "")),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestRedirects: a redirected request is not sent to another place, where a write would become a read.
func TestRedirects(t *testing.T) {
	t.Parallel()
	asked := 0
	redirect := func(*http.Request) (int, string) {
		if asked++; asked > 1 {
			return 200, `{"generation":"8"}`
		}
		return 302, ""
	}
	st, err := gcsstore.New(&http.Client{Transport: redirecting{&answering{answer: redirect}}}, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = st.Put(t.Context(), "k", []byte("x"), store.IfAbsent()); err == nil || asked != 1 {
		t.Errorf("%d requests, %v", asked, err)
	}
}

// redirecting says where a redirected request is to go.
type redirecting struct{ *answering }

func (r redirecting) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.answering.RoundTrip(req)
	if answer != nil {
		answer.Header.Set("Location", "https://elsewhere.test/")
	}
	return answer, err
}

// TestNoLength: a large object of which the server does not say how long it is cannot be told from one that is cut.
func TestNoLength(t *testing.T) {
	t.Parallel()
	transport := &answering{endless: true, answer: func(*http.Request) (int, string) { return 200, "body" }}
	st, err := gcsstore.New(&http.Client{Transport: transport}, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, n, err := st.GetLarge(t.Context(), "k")
	if want := `get "k": store unavailable: the answer does not say how long the object is`; err == nil || err.Error() != want || r != nil || n != 0 || transport.open.Load() != 0 {
		t.Errorf("%v, %d, %v, and %d bodies are open; want %s", r, n, err, transport.open.Load(), want)
	}
}
