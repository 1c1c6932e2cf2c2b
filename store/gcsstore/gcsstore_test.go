package gcsstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		client *http.Client
		bucket string
		opts   gcsstore.Options
	}{
		{"no client", nil, "bucket", gcsstore.Options{}},
		{"no bucket", http.DefaultClient, "", gcsstore.Options{}},
		{"a path for a bucket", http.DefaultClient, "bucket/a", gcsstore.Options{}},
		{"a slash at the end", http.DefaultClient, "bucket", gcsstore.Options{Prefix: "a/"}},
		{"a slash at the start", http.DefaultClient, "bucket", gcsstore.Options{Prefix: "/a"}},
		{"dots", http.DefaultClient, "bucket", gcsstore.Options{Prefix: "a/../b"}},
		{"a prefix too long", http.DefaultClient, "bucket", gcsstore.Options{Prefix: strings.Repeat("a/", 127) + "aa"}},
		{"no scheme", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "127.0.0.1:4443"}},
		{"another scheme", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "gs://bucket"}},
		{"no host", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http://"}},
		{"nothing but a scheme", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http:"}},
		{"no URL", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http://%zz"}},
		{"a path", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http://127.0.0.1:4443/storage/v1"}},
		{"a password", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http://user:secret@127.0.0.1"}},
		{"parameters", http.DefaultClient, "bucket", gcsstore.Options{Endpoint: "http://127.0.0.1?a=b"}},
	} {
		st, err := gcsstore.New(c.client, c.bucket, &c.opts)
		if !errors.Is(err, store.ErrInvalid) || st != nil {
			t.Errorf("%s: New gives %v, %v, want ErrInvalid", c.name, st, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", c.name, err)
		}
	}
	if _, err := gcsstore.New(http.DefaultClient, "bucket", &gcsstore.Options{Prefix: strings.Repeat("a/", 127) + "a"}); err != nil {
		t.Errorf("a prefix of 255 bytes: %v", err)
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct {
		opts *gcsstore.Options
		want string
	}{
		{nil, "gs://bucket"},
		{&gcsstore.Options{Prefix: "a/b"}, "gs://bucket/a/b"},
		{&gcsstore.Options{Prefix: "100%?#"}, "gs://bucket/100%25%3F%23"},
		{&gcsstore.Options{Endpoint: "https://storage.googleapis.com/"}, "gs://bucket"},
		{&gcsstore.Options{Prefix: "a", Endpoint: "http://127.0.0.1:4443"}, "gs://bucket/a?endpoint=http://127.0.0.1:4443"},
		{&gcsstore.Options{UserProject: "example.com:p"}, "gs://bucket?user_project=example.com%3Ap"},
	} {
		st, err := gcsstore.New(http.DefaultClient, "bucket", c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.String(); got != c.want {
			t.Errorf("String() = %q, want %q", got, c.want)
		}
	}
}

// A request is one that came, with its body.
type request struct {
	*http.Request
	body string
}

// recorder answers every request with a success and keeps it.
func recorder(t *testing.T) (endpoint string, seen func() []request) {
	t.Helper()
	var all []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		all = append(all, request{r, string(body)})
		w.Header().Set("X-Goog-Generation", "2")
		_, _ = io.WriteString(w, `{"kind":"storage#objects","generation":"2"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []request { return all }
}

// A request carries the condition and the name of the object, every character of which stands for
// itself: a slash is no slash of the path, nor a plus a blank.
func TestRequests(t *testing.T) {
	const key = "d/ü +%?#&"
	for name, c := range map[string]struct {
		do   func(context.Context, *gcsstore.Store) error
		want string
	}{
		"create": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := st.Put(ctx, key, nil, store.IfAbsent())
				return err
			},
			"POST /upload/storage/v1/b/bucket/o?fields=generation%2CtimeCreated&ifGenerationMatch=0&name=p%2Fd%2F%C3%BC+%2B%25%3F%23%26&uploadType=multipart",
		},
		"update": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := st.Put(ctx, key, nil, store.IfMatch("1700000000000001"))
				return err
			},
			"POST /upload/storage/v1/b/bucket/o?fields=generation%2CtimeCreated&ifGenerationMatch=1700000000000001&name=p%2Fd%2F%C3%BC+%2B%25%3F%23%26&uploadType=multipart",
		},
		"get": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := st.Get(ctx, key, "")
				return err
			},
			"GET /storage/v1/b/bucket/o/p%2Fd%2F%C3%BC%20+%25%3F%23&?alt=media",
		},
		"get unless": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := st.Get(ctx, key, "1")
				return err
			},
			"GET /storage/v1/b/bucket/o/p%2Fd%2F%C3%BC%20+%25%3F%23&?alt=media&ifGenerationNotMatch=1",
		},
		"get unless it has a version of another store": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := st.Get(ctx, key, `"v1"`)
				return err
			},
			"GET /storage/v1/b/bucket/o/p%2Fd%2F%C3%BC%20+%25%3F%23&?alt=media",
		},
		"delete": {
			func(ctx context.Context, st *gcsstore.Store) error { return st.Delete(ctx, key) },
			"DELETE /storage/v1/b/bucket/o/p%2Fd%2F%C3%BC%20+%25%3F%23&?",
		},
		"list": {
			func(ctx context.Context, st *gcsstore.Store) error {
				_, err := drain(ctx, st, "k+", "k+1")
				return err
			},
			"GET /storage/v1/b/bucket/o?fields=kind%2CnextPageToken%2Citems%28name%2Cgeneration%2Csize%2CtimeCreated%29&maxResults=1000&prefix=p%2Fk%2B&startOffset=p%2Fk%2B1",
		},
	} {
		for _, project := range []string{"", "mine"} {
			endpoint, seen := recorder(t)
			if err := c.do(t.Context(), newStore(t, endpoint, &gcsstore.Options{Prefix: "p", UserProject: project})); err != nil {
				t.Fatal(err)
			}
			r := seen()[0]
			query := r.URL.Query()
			if got := query.Get("userProject"); got != project {
				t.Errorf("%s: userProject is %q, want %q", name, got, project)
			}
			if project != "" {
				continue
			}
			if got := r.Method + " " + r.RequestURI; got != strings.TrimSuffix(c.want, "?") {
				t.Errorf("%s: the request is\n%s, want\n%s", name, got, c.want)
			}
			// What comes compressed would be no record.
			if want := strings.HasPrefix(name, "get"); want != (r.Header.Get("Accept-Encoding") == "identity") {
				t.Errorf("%s: Accept-Encoding is %q", name, r.Header.Get("Accept-Encoding"))
			}
			if got := r.Header.Get("Authorization"); got != "" {
				t.Errorf("%s: there is an Authorization nobody gave", name)
			}
		}
	}
}

// A write has two parts: that no cache may keep the object, and the body as it is.
func TestBodyOfAWrite(t *testing.T) {
	for _, body := range [][]byte{nil, []byte("x"), []byte("\r\n--\r\n"), bytes.Repeat([]byte("0123456789"), 30<<10)} {
		endpoint, seen := recorder(t)
		if _, err := newStore(t, endpoint, nil).Put(t.Context(), "k", body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		r := seen()[0]
		if r.ContentLength != int64(len(r.body)) {
			t.Errorf("the length of the request is %d, want %d", r.ContentLength, len(r.body))
		}
		kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "multipart/related" {
			t.Fatalf("the request is of the type %q (%v)", kind, err)
		}
		var parts []string
		for m := multipart.NewReader(strings.NewReader(r.body), params["boundary"]); ; {
			part, err := m.NextRawPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(part)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part.Header.Get("Content-Type")+" "+string(text))
		}
		want := []string{
			`application/json; charset=UTF-8 {"cacheControl":"no-store, no-transform","contentType":"application/octet-stream"}`,
			"application/octet-stream " + string(body),
		}
		if !slices.Equal(parts, want) {
			t.Errorf("the parts are %.200q, want %.200q", parts, want)
		}
	}
}

// A version that no object can have is no condition that the server could misread: 0 would be
// that there is no object.
func TestVersionsOfElsewhere(t *testing.T) {
	endpoint, seen := recorder(t)
	st := newStore(t, endpoint, nil)
	for _, v := range []store.Version{`"v1"`, "0", "00", "01", "+1", "-1", "1.0", " 1", "9223372036854775808"} {
		if _, err := st.Put(t.Context(), "k", nil, store.IfMatch(v)); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a write over the version %q: %v, want ErrPrecondition", v, err)
		}
	}
	if n := len(seen()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// A page of a listing, as a server gives it.
type page struct {
	Kind          string   `json:"kind"`
	Items         []object `json:"items,omitempty"`
	NextPageToken string   `json:"nextPageToken,omitempty"`
}

type object struct {
	Name       string `json:"name"`
	Generation string `json:"generation"`
	Size       string `json:"size"`
	Created    string `json:"timeCreated"`
}

// lister answers with one page after the other, whatever it is asked, and then
// with the last again and again.
func lister(t *testing.T, pages ...page) (st *gcsstore.Store, asked func() []string) {
	t.Helper()
	var tokens []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := pages[min(len(tokens), len(pages)-1)]
		p.Kind = "storage#objects"
		tokens = append(tokens, r.URL.Query().Get("pageToken"))
		_ = json.NewEncoder(w).Encode(p)
	}))
	t.Cleanup(server.Close)
	return newStore(t, server.URL, &gcsstore.Options{Prefix: "p"}), func() []string { return tokens }
}

func keys(names ...string) []object {
	var all []object
	for _, name := range names {
		all = append(all, object{"p/" + name, "7", "1", "2026-11-20T10:30:45.678Z"})
	}
	return all
}

func TestListEntry(t *testing.T) {
	st, _ := lister(t, page{Items: keys("a")})
	for entry, err := range st.List(t.Context(), "", "") {
		if got := fmt.Sprintf("%s %s %d %s", entry.Key, entry.Version, entry.Size, entry.LastModified); err != nil || got != "a 7 1 2026-11-20 10:30:45 +0000 UTC" {
			t.Errorf("List gives %s, %v", got, err)
		}
	}
}

func TestListPages(t *testing.T) {
	st, asked := lister(t,
		page{Items: keys("a", "b"), NextPageToken: "1"},
		page{NextPageToken: "2"}, // empty, and not the last
		page{Items: keys("c")},
	)
	got, err := drain(t.Context(), st, "", "")
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("List gives %q, %v, want a, b, c", got, err)
	}
	if want := []string{"", "1", "2"}; !slices.Equal(asked(), want) {
		t.Errorf("the requests went on from %q, want %q", asked(), want)
	}
}

// The server begins with the key that is to be left out, if it is there.
func TestListAfter(t *testing.T) {
	for _, items := range [][]object{keys("a", "b"), keys("b")} {
		st, _ := lister(t, page{Items: items})
		if got, err := drain(t.Context(), st, "", "a"); err != nil || !slices.Equal(got, []string{"b"}) {
			t.Errorf("List of %v after a gives %q, %v, want b", items, got, err)
		}
	}
}

func TestListStopsAsking(t *testing.T) {
	st, asked := lister(t, page{Items: keys("a", "b"), NextPageToken: "1"}, page{Items: keys("c")})
	for entry, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Key == "b" { // the last of its page
			break
		}
	}
	if n := len(asked()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// List leaves out folders, as the console makes them: no store names a key so.
func TestListLeavesFoldersOut(t *testing.T) {
	st, _ := lister(t, page{Items: keys("", "a", "b/", "b/c")})
	got, err := drain(t.Context(), st, "", "")
	if err != nil || !slices.Equal(got, []string{"a", "b/c"}) {
		t.Errorf("List gives %q, %v, want a, b/c", got, err)
	}
}

func TestListRefusesWhatItCannotTrust(t *testing.T) {
	for _, c := range []struct {
		name  string
		after string
		pages []page
		want  []string
	}{
		{"no order in a page", "", []page{{Items: keys("b", "a")}}, []string{"b"}},
		{"no order over pages", "", []page{{Items: keys("b"), NextPageToken: "1"}, {Items: keys("a")}}, []string{"b"}},
		{"the same page for ever", "", []page{{Items: keys("a"), NextPageToken: "1"}}, []string{"a"}},
		{"what comes before", "b", []page{{Items: keys("a", "c")}}, nil},
		{"what comes after, and then itself", "b", []page{{Items: keys("b", "b")}}, nil},
	} {
		st, _ := lister(t, c.pages...)
		got, err := drain(t.Context(), st, "", c.after)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: List gives %q before its error, want %q", c.name, got, c.want)
		}
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrUnordered) {
			t.Errorf("%s: List gives the error %v, want ErrUnavailable for the order", c.name, err)
		}
	}
}

func TestListOfImpossiblePrefix(t *testing.T) {
	st, asked := lister(t, page{Items: keys("a")})
	if got, err := drain(t.Context(), st, "a//", ""); err != nil || got != nil {
		t.Errorf("List of a// gives %q, %v, want nothing", got, err)
	}
	if _, err := drain(t.Context(), st, "a\xff", ""); !errors.Is(err, store.ErrInvalid) || !strings.HasSuffix(err.Error(), ": the prefix is not valid UTF-8") {
		t.Errorf("List of a prefix that is not UTF-8 gives %v, want ErrInvalid", err)
	}
	if n := len(asked()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// The connections of a client that a store owns are closed with it, and those of the caller's are
// kept for other requests.
func TestCloseAndWhoseClientItIs(t *testing.T) {
	for _, owned := range []bool{false, true} {
		var connections atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"generation":"2"}`)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		st := newStore(t, server.URL, &gcsstore.Options{OwnClient: owned})
		for range 3 {
			if _, err := st.Put(t.Context(), "k", nil, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := connections.Load(); owned && n != 3 || !owned && n != 1 {
			t.Errorf("owned %v: %d connections for 3 requests, each followed by Close", owned, n)
		}
	}
}

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

// TestConditionsAreSent: each write that has a condition sends it. The conformance suite runs none of DeleteIf.
func TestConditionsAreSent(t *testing.T) {
	for name, tt := range map[string]struct {
		op   string
		do   func(*gcsstore.Store) error
		want string
	}{
		"create":   {"put", func(st *gcsstore.Store) error { return operations["create"](t.Context(), st) }, "0"},
		"update":   {"put", func(st *gcsstore.Store) error { return operations["update"](t.Context(), st) }, "1"},
		"DeleteIf": {"delete", func(st *gcsstore.Store) error { return st.DeleteIf(t.Context(), "k", "7") }, "7"},
		"Delete":   {"delete", func(st *gcsstore.Store) error { return st.Delete(t.Context(), "k") }, ""},
	} {
		st, server := faulty(t, wiretest.Raw(412, "", ""), wiretest.Hang)
		wiretest.CheckError(t, tt.op, tt.do(st), store.ErrPrecondition)
		if seen := server.Seen(); len(seen) != 1 || seen[0].URL.Query().Get("ifGenerationMatch") != tt.want {
			t.Errorf("%s: %d requests, the first for %v, want the generation %q", name, len(seen), seen[0].URL, tt.want)
		}
	}
}
