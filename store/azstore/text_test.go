package azstore_test

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
	"github.com/leasehold/leasehold/store/azstore"
)

// answering is a transport without a network: it answers every request, and counts the bodies of its answers that are not closed.
type answering struct {
	open    atomic.Int64
	sent    atomic.Int64
	endless bool // nobody says how long an answer is
	answer  func(r *http.Request) (status int, etag, body string)
}

func (a *answering) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	status, etag, body := a.answer(r)
	header := http.Header{}
	header.Set("Date", "Fri, 20 Nov 2026 10:30:45 GMT")
	header.Set("Last-Modified", "Fri, 20 Nov 2026 10:30:40 GMT")
	header.Set("X-Ms-Request-Id", "id")
	if etag != "" {
		header.Set("ETag", etag)
	}
	if status >= 400 {
		header.Set("X-Ms-Error-Code", "AuthorizationFailure")
	}
	a.open.Add(1)
	a.sent.Add(1)
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
// of the answer; that each request is sent once; and that no call leaves the body of an answer open, which would cost its connection.
func TestFailures(t *testing.T) {
	t.Parallel()
	const (
		no        = "access denied: 403 AuthorizationFailure: no; check the permissions, and the firewall of the account: it answers so to networks that it does not know"
		down      = "store unavailable: "
		html      = `the answer is no listing of Azure but "hello": does the endpoint lead to Azure Blob Storage?`
		other     = `the answer is no listing of Azure but "": does the endpoint lead to Azure Blob Storage?`
		noETag    = "the answer has no ETag: is this Azure Blob Storage?"
		unknown   = "unknown outcome: the write may have landed: "
		unchanged = "304 Not Modified, without a body"
		same      = `get "k": object not modified: `
	)
	deletes := [5]string{0: `delete "k": ` + no, 3: `delete "k": ` + unknown + unchanged}
	puts := [5]string{0: `put "k": ` + no, 1: `put "k": ` + unknown + noETag, 3: `put "k": ` + unknown + unchanged}
	lists := [5]string{`list "k": ` + no, `list "k": ` + down + html, `list "k": ` + down + other, `list "k": ` + down + unchanged}
	success := map[string]int{http.MethodPut: 201, http.MethodDelete: 202, http.MethodGet: 200, http.MethodHead: 200}
	answers := []func(r *http.Request) (int, string, string){
		func(*http.Request) (int, string, string) { return 403, "", "<Error><Message>no.</Message></Error>" },
		func(r *http.Request) (int, string, string) { return success[r.Method], "", "<html>hello" },
		func(r *http.Request) (int, string, string) { return success[r.Method], `"7"`, "<other/>" },
		func(*http.Request) (int, string, string) { return 304, `"7"`, "" },
		func(r *http.Request) (int, string, string) {
			return success[r.Method], `"8"`, "<EnumerationResults><Blobs/></EnumerationResults>"
		},
	}
	for _, op := range []struct {
		name string
		do   func(ctx context.Context, st *azstore.Store) error
		want [5]string // what it says of each answer
	}{
		{"get", func(ctx context.Context, st *azstore.Store) error { return second(st.Get(ctx, "k", "")) }, [5]string{0: `get "k": ` + no, 1: `get "k": ` + down + noETag, 3: same + unchanged}},
		{"get if it is another version", func(ctx context.Context, st *azstore.Store) error { return second(st.Get(ctx, "k", `"7"`)) }, [5]string{0: `get "k": ` + no, 1: `get "k": ` + down + noETag, 2: same + "the server sent the same version again", 3: same + unchanged}},
		{"put", func(ctx context.Context, st *azstore.Store) error {
			return second(st.Put(ctx, "k", []byte("x"), store.IfAbsent()))
		}, puts},
		{"delete", func(ctx context.Context, st *azstore.Store) error { return st.Delete(ctx, "k") }, deletes},
		{"delete if it is this version", func(ctx context.Context, st *azstore.Store) error { return st.DeleteIf(ctx, "k", `"7"`) }, deletes},
		{"list", func(ctx context.Context, st *azstore.Store) error { return second(drain(ctx, st, "k", "")) }, lists},
		{"large get", func(ctx context.Context, st *azstore.Store) error {
			r, _, err := st.GetLarge(ctx, "k")
			if err == nil {
				err = r.Close()
			}
			return err
		}, [5]string{0: `get "k": ` + no, 3: same + unchanged}},
		{"large put", func(ctx context.Context, st *azstore.Store) error {
			return second(st.PutLarge(ctx, "k", strings.NewReader("x")))
		}, puts},
		{"inspect: delete", func(ctx context.Context, st *azstore.Store) error { return st.Inspect().DeleteIf(ctx, "k", `"7"`) }, deletes},
		{"inspect: overwrite", func(ctx context.Context, st *azstore.Store) error {
			return st.Inspect().Overwrite(ctx, "k", []byte("x"))
		}, [5]string{0: `put "k": ` + no, 3: `put "k": ` + unknown + unchanged}},
		{"inspect: purge", func(ctx context.Context, st *azstore.Store) error { return second(st.Inspect().Purge(ctx, "k")) }, lists},
	} {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for i, answer := range answers {
				transport := &answering{answer: answer}
				st := newStore(t, "http://account.example", func(o *azstore.Options) { o.Prefix, o.Transport, o.Retry.MaxRetries = "p", transport, -1 })
				err := op.do(t.Context(), st)
				if n := transport.open.Load(); n != 0 {
					t.Errorf("answer %d: %d bodies are left open after %v", i, n, err)
				}
				if n := transport.sent.Load(); n != 1 {
					t.Errorf("answer %d: %d requests were sent, want 1", i, n)
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

func second[T any](_ T, err error) error { return err }

// TestObjects: all that Get and Put tell of an object, and the text of what is refused before anything is sent.
func TestObjects(t *testing.T) {
	t.Parallel()
	transport := &answering{answer: func(r *http.Request) (int, string, string) {
		if r.Method == http.MethodPut {
			return 201, `"8"`, ""
		}
		return 200, `"7"`, "body"
	}}
	st := newStore(t, "http://account.example", func(o *azstore.Options) { o.Transport = transport })
	at := func(second int) time.Time { return time.Date(2026, 11, 20, 10, 30, second, 0, time.UTC) }
	got, err := st.Get(t.Context(), "k", "")
	if err != nil {
		t.Fatal(err)
	}
	got.LastModified = got.LastModified.UTC()
	if want := (&store.Object{Key: "k", Body: []byte("body"), Version: `"7"`, LastModified: at(40), Date: at(45)}); !reflect.DeepEqual(got, want) {
		t.Errorf("it reads %+v, want %+v", got, want)
	}
	if got, err = st.Put(t.Context(), "k", []byte("x"), store.IfMatch(`"7"`)); err != nil {
		t.Fatal(err)
	}
	got.LastModified = got.LastModified.UTC()
	if want := (&store.Object{Key: "k", Version: `"8"`, LastModified: at(40), Date: at(45)}); !reflect.DeepEqual(got, want) {
		t.Errorf("it has written %+v, want %+v", got, want)
	}
	const dot = `"k.": invalid argument: the key has a segment that ends with a dot, as names on Azure should not`
	for want, err := range map[string]error{
		"get " + dot:    second(st.Get(t.Context(), "k.", "")),
		"put " + dot:    second(st.PutLarge(t.Context(), "k.", strings.NewReader("x"))),
		"delete " + dot: st.Delete(t.Context(), "k."),
		`list "\xff": invalid argument: the prefix is not valid UTF-8`: second(drain(t.Context(), st, "\xff", "")),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestNoLength: a large object of which the server does not say how long it is cannot be told from one that is cut.
func TestNoLength(t *testing.T) {
	t.Parallel()
	transport := &answering{endless: true, answer: func(*http.Request) (int, string, string) { return 200, `"7"`, "body" }}
	st := newStore(t, "http://account.example", func(o *azstore.Options) { o.Transport = transport })
	r, n, err := st.GetLarge(t.Context(), "k")
	if want := `get "k": store unavailable: the answer does not say how long the object is`; err == nil || err.Error() != want || r != nil || n != 0 || transport.open.Load() != 0 {
		t.Errorf("%v, %d, %v, and %d bodies are open; want %s", r, n, err, transport.open.Load(), want)
	}
}
