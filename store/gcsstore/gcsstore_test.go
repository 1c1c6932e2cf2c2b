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
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
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
