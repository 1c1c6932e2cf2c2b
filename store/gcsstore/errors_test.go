package gcsstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// What Google Cloud Storage says of what is missing. The text of an object was seen on the wire
// (https://github.com/firebase/firebase-tools/pull/3647), by a GET with alt=media.
const (
	noObject = "No such object: bucket/k"
	noBucket = "The specified bucket does not exist."
)

func TestAnswers(t *testing.T) {
	const generation = "X-Goog-Generation: 2\r\n"
	media := wiretest.Raw(200, generation, "body")
	written := wiretest.Raw(200, "Content-Type: application/json\r\n", `{"generation":"2","timeCreated":"2026-11-20T10:30:45.678Z"}`)
	for _, c := range []struct {
		name   string
		answer string
		end    wiretest.Ending
		ops    []string
		want   []error
		says   string
	}{
		{"412", reason(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold."), wiretest.Hang, puts, []error{store.ErrPrecondition}, "conditionNotMet"},
		{"412 without a body", wiretest.Raw(412, "", ""), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body cut", wiretest.Cut(reason(412, "conditionNotMet", "words"), 20), wiretest.FIN, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body reset", wiretest.Cut(reason(412, "conditionNotMet", "words"), 20), wiretest.RST, puts, []error{store.ErrPrecondition}, ""},
		{"412 in HTML", wiretest.Raw(412, "", "<html><p>no"), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its headers cut", wiretest.CutHeaders(reason(412, "conditionNotMet", "words")), wiretest.FIN, puts, []error{store.ErrUnknownOutcome}, ""},

		{"200 with its headers cut", wiretest.CutHeaders(written), wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"200 with its headers cut", wiretest.CutHeaders(media), wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"200 with its body cut", wiretest.Cut(written, 3), wiretest.FIN, puts, []error{store.ErrUnknownOutcome}, ""},
		{"200 with its body reset", wiretest.Cut(written, 3), wiretest.RST, puts, []error{store.ErrUnknownOutcome}, ""},
		{"200 without a body", wiretest.Raw(200, "", ""), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, ""},
		{"200 without a generation", wiretest.Raw(200, "", "{}"), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, "no generation"},
		{"200 of generation 0", wiretest.Raw(200, "", `{"generation":"0"}`), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, "no generation"},
		{"200 of a page", wiretest.Raw(200, "", "<html>Welcome!"), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, "Welcome!"},
		{"200 without a generation", wiretest.Raw(200, "", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrUnavailable}, "no generation"},
		{"200 with its body cut", wiretest.Cut(media, 3), wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"200 with its body reset", wiretest.Cut(media, 3), wiretest.RST, reads, []error{store.ErrUnavailable}, ""},
		{
			"200 with its chunked body cut", "HTTP/1.1 200 OK\r\n" + generation + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"",
		},
		{
			"200 without a length", "HTTP/1.1 200 OK\r\n" + generation + "\r\nbody", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"how long",
		},
		// So answers the emulator, which overlooks ifGenerationNotMatch.
		{"200 of the same version", wiretest.Raw(200, "X-Goog-Generation: 1\r\n", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, ""},
		{
			"200 too large", "HTTP/1.1 200 OK\r\n" + generation + "Content-Length: 1048577\r\n\r\nbody", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"1048577 bytes",
		},
		{
			"200 too large, in chunks", "HTTP/1.1 200 OK\r\n" + generation + "Transfer-Encoding: chunked\r\n\r\n100001\r\n" + strings.Repeat("x", 1<<20+1), wiretest.Hang,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"",
		},
		{"304", wiretest.Raw(304, "", ""), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, ""},
		{"200 of a page", wiretest.Raw(200, "", "<html>Welcome!"), wiretest.Hang, []string{"list"}, []error{store.ErrUnavailable}, "Welcome!"},
		{"200 of other JSON", wiretest.Raw(200, "", `{"kind":"storage#bucket"}`), wiretest.Hang, []string{"list"}, []error{store.ErrUnavailable}, "storage#bucket"},

		{"no answer", "", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"no answer", "", wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"a reset", "", wiretest.RST, writes, []error{store.ErrUnknownOutcome}, ""},
		{"a reset", "", wiretest.RST, reads, []error{store.ErrUnavailable}, ""},
		{"no HTTP", "220 mail.example ready\r\n", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},

		{"404 of the object", text(404, noObject), wiretest.Hang, []string{"get"}, []error{store.ErrNotExist}, noObject},
		{"404 of the object in JSON", reason(404, "notFound", noObject), wiretest.Hang, []string{"get"}, []error{store.ErrNotExist}, noObject},
		{"404 of the bucket", text(404, noBucket), wiretest.Hang, []string{"get", "create", "update"}, []error{store.ErrNoBucket}, "make the bucket"},
		{"404 of the bucket in JSON", reason(404, "notFound", noBucket), wiretest.Hang, all, []error{store.ErrNoBucket}, "make the bucket"},
		// Neither a write nor a listing can miss an object.
		{"404", reason(404, "notFound", "Not Found"), wiretest.Hang, []string{"create", "update", "list"}, []error{store.ErrNoBucket}, ""},
		{"404 in text", text(404, "Not Found"), wiretest.Hang, []string{"create", "update", "list"}, []error{store.ErrNoBucket}, ""},

		{"409", reason(409, "conflict", "words"), wiretest.Hang, writes, []error{store.ErrConflict}, ""},
		{"409 without a body", wiretest.Raw(409, "", ""), wiretest.Hang, puts, []error{store.ErrConflict}, ""},
		{"409 for another reason", reason(409, "other", "words"), wiretest.Hang, puts, []error{store.ErrUnavailable}, "other"},

		{"401", reason(401, "authError", "Invalid Credentials"), wiretest.Hang, all, []error{store.ErrDenied}, "check the credentials"},
		{"403", reason(403, "forbidden", "words"), wiretest.Hang, all, []error{store.ErrDenied}, "words"},
		{"403 of a read", text(403, "me@example.com does not have storage.objects.get access to the Google Cloud Storage object."), wiretest.Hang, []string{"get"}, []error{store.ErrDenied}, "storage.objects.list is not allowed"},
		{"403 of a write", reason(403, "forbidden", "words"), wiretest.Hang, puts, []error{store.ErrDenied}, "storage.objects.delete"},
		{"403 for the retention", reason(403, "retentionPolicyNotMet", "words"), wiretest.Hang, writes, []error{store.ErrDenied}, "without a retention policy"},
		{"403 for a hold", reason(403, "objectUnderActiveHold", "words"), wiretest.Hang, writes, []error{store.ErrDenied}, "without holds"},
		{"400", reason(400, "invalid", "words"), wiretest.Hang, all, []error{store.ErrRefused}, "400 invalid: words"},
		{"400 for who pays", reason(400, "required", "Bucket is requester pays bucket but no user project provided."), wiretest.Hang, all, []error{store.ErrRefused}, "UserProject"},
		{"411", wiretest.Raw(411, "", ""), wiretest.Hang, puts, []error{store.ErrRefused}, ""},
		{"501", wiretest.Raw(501, "", ""), wiretest.Hang, all, []error{store.ErrRefused}, "cannot carry locks"},

		{"429", reason(429, "rateLimitExceeded", "words"), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"429 of a write", reason(429, "rateLimitExceeded", "words"), wiretest.Hang, puts, []error{store.ErrThrottled}, "one write a second"},
		{"429 without a body", wiretest.Raw(429, "", ""), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"429 of a write without a body", wiretest.Raw(429, "", ""), wiretest.Hang, puts, []error{store.ErrThrottled}, "one write a second"},
		{"403 for the rate without words", reason(403, "rateLimitExceeded", ""), wiretest.Hang, all, []error{store.ErrThrottled}, "403 rateLimitExceeded"},
		{"403 for the rate", reason(403, "rateLimitExceeded", "words"), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"403 for the user's rate", reason(403, "userRateLimitExceeded", "words"), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"503 for the rate", reason(503, "rateLimitExceeded", "words"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome, store.ErrThrottled}, ""},
		{"503 for the rate", reason(503, "rateLimitExceeded", "words"), wiretest.Hang, reads, []error{store.ErrThrottled}, ""},
		{"503", reason(503, "backendError", "words"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"503", reason(503, "backendError", "words"), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"500", reason(500, "internalError", "words"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 with its body cut", wiretest.Cut(reason(500, "internalError", "words"), 20), wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"504 of a gateway", wiretest.Raw(504, "", "<html>"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"408 of a gateway", wiretest.Raw(408, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},

		// A redirection is not followed: a POST would become a GET, and its success that of the write.
		{"301 to elsewhere", wiretest.Raw(301, "Location: https://user:secret@host/dir/?a=b\r\n", ""), wiretest.Hang, all, []error{store.ErrRefused}, `"https://host/dir/"`},
		{"302", wiretest.Raw(302, "Location: /login\r\n", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"302", wiretest.Raw(302, "Location: /login\r\n", ""), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"307", wiretest.Raw(307, "Location: /login\r\n", ""), wiretest.Hang, all, []error{store.ErrUnavailable}, ""},
	} {
		for _, op := range c.ops {
			t.Run(c.name+"/"+op, func(t *testing.T) {
				t.Parallel()
				st, server := faulty(t, c.answer, c.end)
				err := operations[op](t.Context(), st)
				wiretest.CheckError(t, op, err, c.want...)
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error says %q, want %q in it", err, c.says)
				}
				if n := len(server.Seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

// What is missing where an answer of 404 does not name it, a listing tells. All its answers but
// a listing leave it open, and the object is not taken for absent.
func TestListingSettlesNotFound(t *testing.T) {
	const empty = `{"kind":"storage#objects"}`
	for _, c := range []struct {
		name, answer string
		status       int
		want         error
	}{
		{"nothing", empty, 200, store.ErrNotExist},
		{"another object", `{"kind":"storage#objects","items":[{"name":"k/below","generation":"1","size":"1"}]}`, 200, store.ErrNotExist},
		{"the object, which somebody has just written", `{"kind":"storage#objects","items":[{"name":"k","generation":"1","size":"1"}]}`, 200, store.ErrUnavailable},
		{"nothing on this page", `{"kind":"storage#objects","nextPageToken":"a"}`, 200, store.ErrUnavailable},
		{"no bucket", jsonError(404, "notFound", "Not Found"), 404, store.ErrNoBucket},
		{"a page", "<html>404", 404, store.ErrUnavailable},
		{"another page", "<html>Welcome!", 200, store.ErrUnavailable},
		{"other JSON", "{}", 200, store.ErrUnavailable},
		{"no right", jsonError(403, "forbidden", "words"), 403, store.ErrUnavailable},
		{"too much", jsonError(429, "rateLimitExceeded", "words"), 429, store.ErrUnavailable},
		{"a failure", "", 500, store.ErrUnavailable},
	} {
		for _, said := range []string{"Not Found\n", "<html>404", jsonError(404, "notFound", "Not Found"), "No such object: bucket/other", "No such object: buck"} {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.RequestURI())
				if r.URL.Query().Get("alt") == "media" {
					w.WriteHeader(404)
					_, _ = w.Write([]byte(said))
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			t.Cleanup(server.Close)
			st := newStore(t, server.URL, nil)
			_, err := st.Get(t.Context(), "k", "")
			wiretest.CheckError(t, "get", err, c.want)
			_, _, err = st.GetLarge(t.Context(), "k")
			wiretest.CheckError(t, "get", err, c.want)
			if len(asked) != 4 || !strings.HasPrefix(asked[1], "/storage/v1/b/bucket/o?") || !strings.Contains(asked[1], "prefix=k") {
				t.Errorf("%s: the requests were %q", c.name, asked)
			}
		}
	}
}

// A token that cannot be had is known to have sent nothing, and says whether it is worth another try.
func TestToken(t *testing.T) {
	errOwn := errors.New("the metadata server does not answer")
	for op, do := range operations {
		for _, c := range []struct{ err, want error }{
			{errOwn, store.ErrUnavailable},
			{fmt.Errorf("%w: invalid_grant", store.ErrDenied), store.ErrDenied},
			{context.DeadlineExceeded, store.ErrUnavailable},
		} {
			server := wiretest.New(t, wiretest.Raw(200, "", ""), wiretest.Hang)
			st := newStore(t, "http://"+server.Addr, &gcsstore.Options{Token: func(context.Context) (string, error) { return "", c.err }})
			err := do(t.Context(), st)
			wiretest.CheckError(t, op, err, c.want)
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), "no access token") {
				t.Errorf("%s: the error is %v", op, err)
			}
			if n := len(server.Seen()); n != 0 {
				t.Errorf("%s: %d requests reached the server", op, n)
			}
		}
		server := wiretest.New(t, wiretest.Raw(400, "", ""), wiretest.Hang)
		st := newStore(t, "http://"+server.Addr, &gcsstore.Options{Token: func(context.Context) (string, error) { return "secret", nil }})
		err := do(t.Context(), st)
		wiretest.CheckError(t, op, err, store.ErrRefused)
		if got := server.Seen()[0].Header.Get("Authorization"); got != "Bearer secret" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the header is %q, the error %v", op, got, err)
		}
	}
}

// A client that adds tokens itself, as golang.org/x/oauth2 makes them, fails inside of net/http: what
// became of a write then nobody knows.
func TestTokenOfTheClient(t *testing.T) {
	server := wiretest.New(t, wiretest.Raw(200, "", ""), wiretest.Hang)
	client := &http.Client{Transport: tokenless{}}
	st, err := gcsstore.New(client, "bucket", &gcsstore.Options{Endpoint: "http://" + server.Addr})
	if err != nil {
		t.Fatal(err)
	}
	wiretest.CheckError(t, "create", operations["create"](t.Context(), st), store.ErrUnknownOutcome)
	wiretest.CheckError(t, "get", operations["get"](t.Context(), st), store.ErrUnavailable)
}

type tokenless struct{}

func (tokenless) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("oauth2: cannot fetch token")
}

// Certain cases in which no byte of the request left: no unknown outcome then.
func TestNothingSent(t *testing.T) {
	noTLS := wiretest.New(t, "", wiretest.FIN)
	for name, endpoint := range map[string]string{
		"connection refused":   "http://" + testenv.Refused,
		"TLS handshake failed": "https://" + noTLS.Addr,
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				wiretest.CheckError(t, op, do(t.Context(), newStore(t, endpoint, nil)), store.ErrUnavailable)
			})
		}
	}
}

// With HTTP/2, which Google Cloud Storage speaks, many requests share a connection; the same must
// be known of each.
func TestHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request came over %s", r.Proto)
		}
		panic(http.ErrAbortHandler) // resets the stream
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	st, err := gcsstore.New(server.Client(), "bucket", &gcsstore.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range writes {
		wiretest.CheckError(t, op, operations[op](t.Context(), st), store.ErrUnknownOutcome)
	}
}

func TestDeleteOfNothing(t *testing.T) {
	for _, answer := range []string{
		reason(404, "notFound", noObject), text(404, noObject), reason(404, "notFound", "Not Found"), wiretest.Raw(204, "", ""),
		wiretest.Raw(404, "", `{"error":{"message":"`+noObject+`"}}`),
	} {
		st, _ := faulty(t, answer, wiretest.Hang)
		if err := st.Delete(t.Context(), "k"); err != nil {
			t.Errorf("Delete of what is not there: %v", err)
		}
	}
}

func TestContextEndedBefore(t *testing.T) {
	for op, do := range operations {
		st, server := faulty(t, wiretest.Raw(200, "", "{}"), wiretest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := do(ctx, st)
		wiretest.CheckError(t, op, err, store.ErrUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match context.Canceled", err)
		}
		if n := len(server.Seen()); n != 0 {
			t.Errorf("%s: %d requests reached the server, want none", op, n)
		}
	}
}

func TestContextEndsUnderWay(t *testing.T) {
	for op, do := range operations {
		st, server := faulty(t, "", wiretest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-server.Arrived
			cancel()
		}()
		want := store.ErrUnknownOutcome
		if op == "get" || op == "list" {
			want = store.ErrUnavailable
		}
		err := do(ctx, st)
		wiretest.CheckError(t, op, err, want)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match context.Canceled", err)
		}
	}
}

func TestTimes(t *testing.T) {
	date := time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)
	for name, c := range map[string]struct {
		header string
		want   time.Time
	}{
		"from the store": {"", date},
		"from a cache":   {"Age: 3\r\n", time.Time{}},
		"by way of one":  {"Via: 1.1 google\r\n", time.Time{}},
	} {
		got, _ := faulty(t, wiretest.Raw(200, c.header+"X-Goog-Generation: 2\r\nLast-Modified: Fri, 20 Nov 2026 10:30:00 GMT\r\n", "body"), wiretest.Hang)
		object, err := got.Get(t.Context(), "k", "")
		if err != nil {
			t.Fatal(err)
		}
		if modified := date.Add(-45 * time.Second); !object.Date.Equal(c.want) || !object.LastModified.Equal(modified) {
			t.Errorf("%s: a get gives the times %v and %v, want %v and %v", name, object.Date, object.LastModified, c.want, modified)
		}
		// Of the milliseconds nothing is left: the Date would be before the object.
		put, _ := faulty(t, wiretest.Raw(200, c.header, `{"generation":"2","timeCreated":"2026-11-20T10:30:45.678Z"}`), wiretest.Hang)
		object, err = put.Put(t.Context(), "k", nil, store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		if !object.Date.Equal(c.want) || !object.LastModified.Equal(date) {
			t.Errorf("%s: a put gives the times %v and %v, want %v and %v", name, object.Date, object.LastModified, c.want, date)
		}
		refused, _ := faulty(t, wiretest.Raw(412, c.header, ""), wiretest.Hang)
		if got := store.DateOf(operations["update"](t.Context(), refused)); !got.Equal(c.want) {
			t.Errorf("%s: the date of the error is %v, want %v", name, got, c.want)
		}
	}
}

// TestWords: an error says what failed, on what, why and what to do, in this order.
func TestWords(t *testing.T) {
	const endpoint = "http://" + testenv.Refused
	for _, c := range []struct {
		endpoint, answer, op, want string
	}{
		{
			"", reason(404, "notFound", noBucket), "create",
			`put "k": no such bucket or directory: 404 notFound: The specified bucket does not exist; make the bucket, or check its name and the endpoint`,
		},
		{
			"", wiretest.Raw(404, "", "404 page not found\n"), "create",
			`put "k": store unavailable: 404 Not Found: "404 page not found"; this is not how Google Cloud Storage says that an object does not exist: does the endpoint lead there?`,
		},
		{
			"", reason(403, "insufficientPermissions", "Insufficient Permission"), "get",
			`get "k": access denied: 403 insufficientPermissions: Insufficient Permission; Google Cloud Storage also says so of an object that does not exist, where storage.objects.list is not allowed`,
		},
		{"", reason(403, "accountDisabled", "Disabled"), "get", `get "k": access denied: 403 accountDisabled: Disabled`},
		{"", wiretest.Raw(403, "", `{"error":{"message":"without a list of errors"}}`), "delete", `delete "k": access denied: 403 Forbidden: without a list of errors`},
		{"", text(404, noObject), "get", `get "k": object does not exist: 404 Not Found: No such object: bucket/k`},
		{
			"", reason(429, "rateLimitExceeded", "The object bucket/k exceeded the rate limit for object mutation operations."), "update",
			`put "k": throttled by the store: 429 rateLimitExceeded: The object bucket/k exceeded the rate limit for object mutation operations; Google Cloud Storage takes about one write a second to one object: write less often, or spread the writes over more objects`,
		},
		{"", text(400, strings.Repeat("x", 3000)), "create", `put "k": refused by the store: 400 Bad Request: "` + strings.Repeat("x", 100) + `…"`},
		{"", wiretest.Raw(411, "", ""), "update", `put "k": refused by the store: 411 Length Required, without a body`},
		{
			endpoint, "", "create",
			`put "k": store unavailable: POST ` + endpoint + `/upload/storage/v1/b/bucket/o: dial tcp ` + testenv.Refused + `: connect: connection refused; no connection to the server, nothing was sent; check the endpoint and the network`,
		},
	} {
		if c.endpoint == "" {
			c.endpoint = "http://" + wiretest.New(t, c.answer, wiretest.Hang).Addr
		}
		if err := operations[c.op](t.Context(), newStore(t, c.endpoint, nil)); err == nil || err.Error() != c.want {
			t.Errorf("it says\n%v\nwant\n%s", err, c.want)
		}
	}
}

// TestRevokedToken: a token that is refused before its end used to be sent until then, and waiting commands ended.
func TestRevokedToken(t *testing.T) {
	var refuses atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Load() && r.Header.Get("Authorization") == "Bearer old" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, jsonError(401, "authError", "Invalid Credentials"))
			return
		}
		_, _ = io.WriteString(w, `{"kind":"storage#objects"}`)
	}))
	defer server.Close()
	token := "old"
	st := newStore(t, server.URL, &gcsstore.Options{
		Token:        func(context.Context) (string, error) { return token, nil },
		TokenRefused: func() { token = "new" },
	})
	list := func() error {
		for _, err := range st.List(t.Context(), "", "") {
			return err
		}
		return nil
	}
	if err := list(); err != nil {
		t.Fatal(err)
	}
	refuses.Store(true)
	if err := list(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "Invalid Credentials") {
		t.Errorf("with a revoked token: %v", err)
	}
	if err := list(); err != nil {
		t.Errorf("with the next: %v", err)
	}
}

// A body is one that an answer of any status may have.
type body struct {
	name   string
	text   string
	header http.Header
	says   string // what is missing, in the words of Google Cloud Storage: "object", "something" or ""
}

var google = http.Header{"X-Guploader-Uploadid": {"id"}}

var bodies = []body{
	{"no body", "", nil, ""},
	{"no body, Google's headers", "", google, ""},
	{"the object, in text", noObject, google, "object"},
	{"the object, in JSON", jsonError(404, "notFound", noObject), nil, "object"},
	{"another object, in text", "No such object: bucket/k2", google, "something"},
	{"nothing by name, in JSON", jsonError(404, "notFound", "Not Found"), google, "something"},
	{"the object, by somebody else", noObject, nil, ""},
	{"a reason that nobody knows", jsonError(404, "noSuchThing", "words"), nil, ""},
	{"a long message, in JSON", jsonError(404, "noSuchThing", strings.Repeat("words ", 300)), google, ""},
	{"a long message, in text", strings.Repeat("words\n", 300), google, "something"},
	{"an error of OAuth", `{"error":"invalid_grant","error_description":"words"}`, google, ""},
	{"a page", "<html><head><title>No</title></head><body><h1>No</h1></body></html>", http.Header{"Content-Type": {"text/html"}}, ""},
	{"a page, Google's headers", "<html><body>No</body></html>", google, ""},
	{"text", "404 page not found\n", http.Header{"Content-Type": {"text/plain"}}, ""},
	{"S3's words", "<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>words</Message></Error>", nil, ""},
}

// wanted gives the kind of error of an answer: the table of what each status means, one row for
// each group. A status that no row names tells nothing of a write.
func wanted(status int, op string, b body) error {
	writes := op == "create" || op == "update" || op == "delete"
	unsettled := store.ErrUnavailable
	if writes {
		unsettled = store.ErrUnknownOutcome
	}
	switch status {
	case 404:
		switch {
		case b.says != "" && op == "delete":
			return nil
		case b.says == "object" && op == "get":
			return store.ErrNotExist
		case b.says != "" && op != "get":
			return store.ErrNoBucket
		}
		return store.ErrUnavailable
	case 401, 403:
		return store.ErrDenied
	case 412:
		if writes {
			return store.ErrPrecondition
		}
		return store.ErrUnavailable
	case 409:
		if writes && !strings.Contains(b.text, `"reason"`) {
			return store.ErrConflict
		}
		return store.ErrUnavailable
	case 429:
		return store.ErrThrottled
	case 408:
		return unsettled
	case 307, 421, 423, 424, 425:
		return store.ErrUnavailable
	case 501, 301, 308, 451:
		return store.ErrRefused
	case 304:
		if op == "get" {
			return store.ErrNotModified
		}
		return unsettled
	}
	if status >= 400 && status <= 431 {
		return store.ErrRefused
	}
	return unsettled
}

// TestStatuses sends every operation every status that says no, with every kind of body
// where the status has a name. The error is the table's. Besides, an object is absent only
// by the word of Google Cloud Storage, one call is one request, and a write that may have
// landed is never reported as not landed.
func TestStatuses(t *testing.T) {
	var requests atomic.Int64
	var answer func(w http.ResponseWriter)
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		answer(w)
	})
	st := direct(t, server, nil)
	for status := 300; status < 600; status++ {
		for _, b := range wiretest.Bodies(status, bodies) {
			for _, op := range all {
				name := fmt.Sprintf("%d %s, %s", status, b.name, op)
				answer = func(w http.ResponseWriter) {
					for key, values := range b.header {
						w.Header()[key] = values
					}
					w.WriteHeader(status)
					if status != 304 {
						_, _ = w.Write([]byte(b.text))
					}
				}
				before := requests.Load()
				err := operations[op](t.Context(), st)
				want := wanted(status, op, b)
				most := int64(1)
				if op == "get" && status == 404 && b.says != "object" {
					most = 2 // the second one is a listing: see TestListingSettlesNotFound
					if b.says == "something" {
						want = store.ErrNoBucket // as the listing is answered
					}
				}
				if n := requests.Load() - before; n != most {
					t.Errorf("%s: %d requests", name, n)
				}
				if e, ok := errors.AsType[*store.Error](err); want == nil && err != nil || want != nil && (!ok || e.Kind != want) { //nolint:errorlint // Kind is a sentinel itself
					t.Errorf("%s: %v, want the kind %v", name, err, want)
				}
				if errors.Is(err, store.ErrNotExist) && (status != 404 || b.says != "object") {
					t.Errorf("%s: an absent object: %v", name, err)
				}
				if id := store.RequestIDOf(err); err != nil && id != b.header.Get("X-Guploader-Uploadid") {
					t.Errorf("%s: the request's ID is %q", name, id)
				}
				if err != nil && (!strings.Contains(err.Error(), fmt.Sprint(status)) || strings.ContainsAny(err.Error(), "\n<") || len(err.Error()) > 1000) {
					t.Errorf("%s: it says %q, want the status, in one line", name, err)
				}
			}
		}
	}
}

// TestEndlessRefusal: an error's body is read so far and no further.
func TestEndlessRefusal(t *testing.T) {
	const most = 64 << 20 // so that a failure is one of the test, not of the machine
	for _, op := range all {
		got := make(chan int, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			n := 0
			for block := make([]byte, 32<<10); n < most; n += len(block) {
				if _, err := w.Write(block); err != nil {
					break
				}
			}
			got <- n
		}))
		t.Cleanup(server.Close)
		wiretest.CheckError(t, op, operations[op](t.Context(), newStore(t, server.URL, nil)), store.ErrDenied)
		if n := <-got; n > most/2 {
			t.Errorf("%s: the server got rid of %d bytes", op, n)
		}
	}
}
