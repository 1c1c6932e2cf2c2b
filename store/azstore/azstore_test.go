package azstore_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

const onAzure = "https://account.blob.core.windows.net/container"

func TestNewRefuses(t *testing.T) {
	key, err := container.NewSharedKeyCredential("account", "a2V5")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url  string
		opts azstore.Options
	}{
		"no URL":                    {"", azstore.Options{}},
		"no container":              {"https://account.blob.core.windows.net/?" + secret, azstore.Options{}},
		"a blob":                    {"https://host/account/container/blob?" + secret, azstore.Options{}},
		"another scheme":            {"ftp://host/container?" + secret, azstore.Options{}},
		"no URL at all":             {"https://host:port/\x7f?" + secret, azstore.Options{}},
		"two credentials":           {onAzure, azstore.Options{Token: &tokens{}, SharedKey: key}},
		"a token without TLS":       {"http://127.0.0.1/account/container", azstore.Options{Token: &tokens{}}},
		"a prefix that ends in a /": {onAzure, azstore.Options{Prefix: "a/"}},
		"a prefix too long":         {onAzure, azstore.Options{Prefix: strings.Repeat("a/", 127) + "aa"}},
	} {
		st, refused := azstore.New(c.url, &c.opts)
		if !errors.Is(refused, store.ErrInvalid) || st != nil || strings.Contains(refused.Error(), secret) {
			t.Errorf("%s: New gives %v, %v, want ErrInvalid", name, st, refused)
		}
	}
	if _, err = azstore.New(onAzure, &azstore.Options{Prefix: strings.Repeat("a/", 127) + "a"}); err != nil {
		t.Errorf("a prefix of 255 bytes: %v", err)
	}
	for _, c := range []string{"", "x", "AccountName=account", "AccountName=account;AccountKey=?"} {
		if _, err := azstore.NewFromConnectionString(c, "container", nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("the connection string %q: %v", c, err)
		}
	}
	if _, err := azstore.NewFromConnectionString("AccountName=account;AccountKey=a2V5", "container", &azstore.Options{SharedKey: key}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a connection string and a key: %v", err)
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct{ url, prefix, want string }{
		{onAzure, "", "azblob://container?account=account"},
		{onAzure + "?" + secret, "a/b", "azblob://container/a/b?account=account"},
		{onAzure + "/", "100%?#", "azblob://container/100%25%3F%23?account=account"},
		{"http://account.blob.core.windows.net/container", "", "azblob://container?endpoint=http://account.blob.core.windows.net"},
		{"https://account.blob.core.windows.net/account/container", "", "azblob://container?endpoint=https://account.blob.core.windows.net/account"},
		{"https://account.blob.core.chinacloudapi.cn/container", "", "azblob://container?endpoint=https://account.blob.core.chinacloudapi.cn"},
		{"http://user:word@127.0.0.1:10000/account/container?" + secret, "a", "azblob://container/a?endpoint=http://127.0.0.1:10000/account"},
	} {
		st, err := azstore.New(c.url, &azstore.Options{Prefix: c.prefix})
		if err != nil {
			t.Fatal(err)
		}
		if got := st.String(); got != c.want {
			t.Errorf("String() = %q, want %q", got, c.want)
		}
	}
	st, err := azstore.NewFromConnectionString("AccountName=account;AccountKey=a2V5", "container", nil)
	if err != nil || st.String() != "azblob://container?account=account" {
		t.Errorf("from a connection string: %v, %v", st, err)
	}
	// The account of a key is told where the host does not tell it.
	for endpoint, want := range map[string]string{
		"https://blobs.example":                      "azblob://container?account=account&endpoint=https://blobs.example",
		"https://account.blobs.example":              "azblob://container?account=account&endpoint=https://account.blobs.example",
		"https://accounts.blob.example":              "azblob://container?account=account&endpoint=https://accounts.blob.example",
		"https://account.blob.core.chinacloudapi.cn": "azblob://container?endpoint=https://account.blob.core.chinacloudapi.cn",
		"http://127.0.0.1:10000/account":             "azblob://container?endpoint=http://127.0.0.1:10000/account",
	} {
		o := &azstore.Options{}
		withKey(t)(o)
		if st, err := azstore.New(endpoint+"/container", o); err != nil || st.String() != want {
			t.Errorf("%s with a key is %v, %v; want %s", endpoint, st, err, want)
		}
	}
}

// Names that Azure has no place for are refused before anything is sent.
func TestImpossibleKeys(t *testing.T) {
	const dot = "the key has a segment that ends with a dot, as names on Azure should not"
	for key, why := range map[string]string{
		"a.": dot, "a./b": dot, strings.Repeat("a/", 252) + "a": "with its prefix the key has more than 254 segments",
		"a/": "the key begins or ends with a slash, or has two in a row",
	} {
		server := newFaulty(t, coded(500, "InternalError"), wiretest.Hang)
		st, err := azstore.New("http://"+server.Addr+"/account/container", &azstore.Options{Prefix: "a/b"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Get(t.Context(), key, "")
		wantKind(t, "get", err, store.ErrInvalid)
		if want := fmt.Sprintf("get %q: invalid argument: %s", key, why); err.Error() != want {
			t.Errorf("it says %v, want %s", err, want)
		}
		_, err = st.Put(t.Context(), key, nil, store.IfAbsent())
		wantKind(t, "put", err, store.ErrInvalid)
		wantKind(t, "delete", st.Delete(t.Context(), key), store.ErrInvalid)
		wantKind(t, "DeleteIf", st.DeleteIf(t.Context(), key, `"v1"`), store.ErrInvalid)
		_, err = st.PutLarge(t.Context(), key, strings.NewReader(""))
		wantKind(t, "large put", err, store.ErrInvalid)
		_, _, err = st.GetLarge(t.Context(), key)
		wantKind(t, "large get", err, store.ErrInvalid)
		if n := len(server.Seen()); n != 0 {
			t.Errorf("%d requests for %q", n, key)
		}
	}
}

// A request carries the condition and the key under its prefix.
func TestRequests(t *testing.T) {
	const list = "<EnumerationResults/>"
	for _, c := range []struct {
		name    string
		do      func(context.Context, *azstore.Store) error
		answer  string
		request string
		headers map[string]string
	}{
		{
			"create", operations["create"], wiretest.Raw(201, "ETag: \"v2\"\r\n", ""), "PUT /account/container/a%2Fb%2Fk",
			map[string]string{"If-None-Match": "*", "If-Match": "", "X-Ms-Blob-Type": "BlockBlob", "Expect": ""},
		},
		{
			"update", operations["update"], wiretest.Raw(201, "ETag: \"v2\"\r\n", ""), "PUT /account/container/a%2Fb%2Fk",
			map[string]string{"If-None-Match": "", "If-Match": `"v1"`},
		},
		{
			"get", operations["get"], wiretest.Raw(200, "ETag: \"v2\"\r\n", "x"), "GET /account/container/a%2Fb%2Fk",
			map[string]string{"If-None-Match": `"v1"`, "Accept-Encoding": ""},
		},
		{
			"delete", operations["delete"], wiretest.Raw(202, "", ""), "DELETE /account/container/a%2Fb%2Fk",
			map[string]string{"If-Match": "", "X-Ms-Delete-Snapshots": ""},
		},
		{
			"list", func(ctx context.Context, st *azstore.Store) error {
				_, err := drain(ctx, st, "k", "k1")
				return err
			}, wiretest.Raw(200, "", list), "GET /account/container?comp=list&prefix=a%2Fb%2Fk&restype=container&startFrom=a%2Fb%2Fk1", nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newFaulty(t, c.answer, wiretest.Hang)
			if err := c.do(t.Context(), server.store(t, withKey(t), func(o *azstore.Options) { o.Prefix = "a/b" })); err != nil {
				t.Fatal(err)
			}
			req := server.Seen()[0]
			if got := req.Method + " " + req.RequestURI; got != c.request {
				t.Errorf("the request is %s, want %s", got, c.request)
			}
			if !strings.HasPrefix(req.Header.Get("Authorization"), "SharedKey account:") {
				t.Errorf("the request is not signed: %q", req.Header.Get("Authorization"))
			}
			for name, want := range c.headers {
				if got := req.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)
	const modified = "ETag: \"v2\"\r\nLast-Modified: Fri, 20 Nov 2026 10:30:00 GMT\r\n"
	got, err := newFaulty(t, wiretest.Raw(200, modified, "body"), wiretest.Hang).store(t).Get(t.Context(), "k", "")
	if err != nil || !got.Date.Equal(at) || !got.LastModified.Equal(at.Add(-45*time.Second)) {
		t.Errorf("get: %+v, %v", got, err)
	}
	put, err := newFaulty(t, wiretest.Raw(201, modified, ""), wiretest.Hang).store(t).Put(t.Context(), "k", nil, store.IfAbsent())
	if err != nil || !put.Date.Equal(at) || !put.LastModified.Equal(at.Add(-45*time.Second)) {
		t.Errorf("put: %+v, %v", put, err)
	}
	err = operations["update"](t.Context(), newFaulty(t, coded(412, "ConditionNotMet"), wiretest.Hang).store(t))
	if date := store.DateOf(err); !date.Equal(at) {
		t.Errorf("the date of the error is %v", date)
	}
}

// A page of a listing, as Azure gives it.
type page struct {
	XMLName    xml.Name `xml:"EnumerationResults"`
	Blobs      []item   `xml:"Blobs>Blob"`
	NextMarker string
}

type item struct {
	Name       string
	Properties properties
}

type properties struct {
	Etag         string
	Size         int64  `xml:"Content-Length"`
	ResourceType string `xml:",omitempty"`
}

// lister answers with one page after the other, whatever it is asked, and then
// with the last again and again.
func lister(t *testing.T, pages ...page) (st *azstore.Store, asked func() []string) {
	t.Helper()
	var markers []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := pages[min(len(markers), len(pages)-1)]
		markers = append(markers, r.URL.Query().Get("marker"))
		_ = xml.NewEncoder(w).Encode(p)
	}))
	t.Cleanup(server.Close)
	st = newStore(t, server.URL, func(o *azstore.Options) { o.Prefix = "p" })
	return st, func() []string { return markers }
}

func blobs(names ...string) []item {
	var all []item
	for _, name := range names {
		all = append(all, item{"p/" + name, properties{Etag: "0x8D1", Size: 1}})
	}
	return all
}

func TestListPages(t *testing.T) {
	st, asked := lister(t,
		page{Blobs: blobs("a", "b"), NextMarker: "1"},
		page{NextMarker: "2"}, // empty, and not the last
		page{Blobs: append(blobs("c", "d/"), item{"p/dir", properties{Etag: "0x8D2", ResourceType: "directory"}}, item{"q", properties{Etag: "0x8D1", Size: 1}})},
	)
	var got []string
	for entry, err := range st.List(t.Context(), "", "a") { // what comes before, a server may show
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, entry.Key); entry.Version != `"0x8D1"` || entry.Size != 1 {
			t.Errorf("an entry of version %s and %d bytes", entry.Version, entry.Size)
		}
	}
	if !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("List gives %q, want b and c: directories and what no store wrote are left out", got)
	}
	if want := []string{"", "1", "2"}; !slices.Equal(asked(), want) {
		t.Errorf("the requests went on from %q, want %q", asked(), want)
	}
}

func TestListStopsAsking(t *testing.T) {
	st, asked := lister(t, page{Blobs: blobs("a", "b"), NextMarker: "1"}, page{Blobs: blobs("c")})
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

func TestListRefusesWhatItCannotTrust(t *testing.T) {
	for name, c := range map[string]struct {
		pages []page
		want  []string
		says  string
	}{
		"no order in a page":         {[]page{{Blobs: blobs("ab", "aa")}}, []string{"ab"}, `"p/aa" after "p/ab"`},
		"no order over pages":        {[]page{{Blobs: blobs("ab"), NextMarker: "1"}, {Blobs: blobs("aa")}}, []string{"ab"}, `"p/aa" after "p/ab"`},
		"the same page for ever":     {[]page{{Blobs: blobs("a"), NextMarker: "1"}}, []string{"a"}, `"p/a" after "p/a"`},
		"a hierarchy, not its bytes": {[]page{{Blobs: blobs("a/b", "a.c")}}, []string{"a/b"}, `"p/a.c" after "p/a/b"`},
	} {
		st, _ := lister(t, c.pages...)
		got, err := drain(t.Context(), st, "a", "")
		if !slices.Equal(got, c.want) || !errors.Is(err, store.ErrUnordered) || !errors.Is(err, store.ErrUnavailable) ||
			err.Error() != `list "a": store unavailable: the server lists `+c.says+": not in byte order" {
			t.Errorf("%s: List gives %q and %v", name, got, err)
		}
	}
}

func TestListOfImpossiblePrefix(t *testing.T) {
	st, asked := lister(t, page{Blobs: blobs("a")})
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

// TestCloseAndWhoseClientItIs: the connections of a store's own client are closed with it, and
// those of the caller's are kept for other requests.
func TestCloseAndWhoseClientItIs(t *testing.T) {
	for _, owned := range []bool{false, true} {
		var connections atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(http.StatusCreated)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		st := newStore(t, server.URL, func(o *azstore.Options) {
			if !owned {
				o.Transport = &http.Client{Transport: transport}
			}
		})
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

// A token that has been revoked is replaced, and the request sent again: that one time, since a
// request that was answered with 401 has changed nothing.
func TestRevokedToken(t *testing.T) {
	var answers atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers.Add(1) == 1 {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer authorization_uri=%q resource_id=%q", "https://login.example/tenant/oauth2/authorize", "https://storage.azure.com"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	source := new(tokens)
	st := newStore(t, server.URL, func(o *azstore.Options) { o.Token, o.Transport = source, server.Client() })
	if _, err := st.Put(t.Context(), "k", []byte("x"), store.IfAbsent()); err != nil || answers.Load() != 2 || source.n != 2 {
		t.Errorf("%d requests with %d tokens: %v", answers.Load(), source.n, err)
	}
}

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
