package s3store_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// The operations, each as a call that gives its error.
var operations = map[string]func(context.Context, *s3store.Store) error{
	"get": func(ctx context.Context, st *s3store.Store) error {
		_, err := st.Get(ctx, "k", `"v1"`)
		return err
	},
	"create": func(ctx context.Context, st *s3store.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfAbsent())
		return err
	},
	"update": func(ctx context.Context, st *s3store.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfMatch(`"v1"`))
		return err
	},
	"delete": func(ctx context.Context, st *s3store.Store) error { return st.Delete(ctx, "k") },
	"list": func(ctx context.Context, st *s3store.Store) error {
		_, err := drain(ctx, st, "k", "")
		return err
	},
}

var (
	reads  = []string{"get", "list"}
	puts   = []string{"create", "update"}
	writes = []string{"create", "update", "delete"}
	all    = []string{"get", "list", "create", "update", "delete"}
)

// kinds are all sentinels of package store.
var kinds = []error{
	store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrConflict,
	store.ErrThrottled, store.ErrDenied, store.ErrUnknownOutcome, store.ErrTooLarge,
	store.ErrInvalid, store.ErrNoBucket, store.ErrRefused, store.ErrUnavailable,
}

// checkError checks that err is a *store.Error which matches the wanted kinds
// and no other, the first of them being its Kind.
func checkError(t *testing.T, op string, err error, want ...error) {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		t.Fatalf("%s: %v is no *store.Error", op, err)
	}
	if op == "create" || op == "update" {
		op = "put"
	}
	if e.Op != op || e.Key != "k" {
		t.Errorf("the error is of %s %q, want %s %q", e.Op, e.Key, op, "k")
	}
	if e.Kind != want[0] { //nolint:errorlint // Kind is one of the sentinels itself
		t.Errorf("%s: the kind is %q, want %q (%v)", op, e.Kind, want[0], err)
	}
	for _, kind := range kinds {
		if got := errors.Is(err, kind); got != slices.Contains(want, kind) {
			t.Errorf("%s: matches %q: %v, want %v (%v)", op, kind, got, !got, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	ok := raw(200, "ETag: \"v2\"\r\n", "<x></x>")
	for _, c := range []struct {
		name   string
		answer string
		end    ending
		ops    []string
		want   []error
		says   string
	}{
		{"412", coded(412, "PreconditionFailed"), hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 without a body", raw(412, "", ""), hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body cut", cut(coded(412, "PreconditionFailed"), 20), fin, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body reset", cut(coded(412, "PreconditionFailed"), 20), rst, puts, []error{store.ErrPrecondition}, ""},
		{"412 in HTML", raw(412, "", "<html><p>no"), hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its headers cut", cutHeaders(coded(412, "PreconditionFailed")), fin, puts, []error{store.ErrUnknownOutcome}, ""},

		{"200 with its headers cut", cutHeaders(ok), fin, writes, []error{store.ErrUnknownOutcome}, ""},
		{"200 with its headers cut", cutHeaders(ok), fin, reads, []error{store.ErrUnavailable}, ""},
		{"200 without an ETag", raw(200, "", ""), hang, puts, []error{store.ErrUnknownOutcome}, "no ETag"},
		{"200 without an ETag", raw(200, "", "body"), hang, []string{"get"}, []error{store.ErrUnavailable}, "no ETag"},
		{"200 with its body cut", cut(ok, 3), fin, reads, []error{store.ErrUnavailable}, ""},
		{"200 with its body reset", cut(ok, 3), rst, reads, []error{store.ErrUnavailable}, ""},
		{
			"200 with its chunked body cut", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", fin,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"",
		},
		{
			"200 without a length", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\n\r\nbody", fin,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"how long",
		},
		{"200 of the same version", raw(200, "ETag: \"v1\"\r\n", "body"), hang, []string{"get"}, []error{store.ErrNotModified}, ""},
		{
			"200 too large", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1048577\r\n\r\nbody", fin,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"1048577 bytes",
		},
		{
			"200 too large, in chunks", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n" + strings.Repeat("x", 1<<20+1), hang,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"",
		},
		{"304", raw(304, "", ""), hang, []string{"get"}, []error{store.ErrNotModified}, ""},

		{"no answer", "", fin, writes, []error{store.ErrUnknownOutcome}, ""},
		{"no answer", "", fin, reads, []error{store.ErrUnavailable}, ""},
		{"a reset", "", rst, writes, []error{store.ErrUnknownOutcome}, ""},
		{"a reset", "", rst, reads, []error{store.ErrUnavailable}, ""},
		{"no HTTP", "220 mail.example ready\r\n", fin, writes, []error{store.ErrUnknownOutcome}, ""},

		{"404 of the object", coded(404, "NoSuchKey"), hang, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 with its body cut", cut(coded(404, "NoSuchKey"), 20), fin, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 with its body cut", cut(coded(404, "NoSuchBucket"), 20), fin, []string{"create", "list"}, []error{store.ErrNoBucket}, ""},
		{"404 of the bucket", coded(404, "NoSuchBucket"), hang, all, []error{store.ErrNoBucket}, "make the bucket"},

		{"409", coded(409, "ConditionalRequestConflict"), hang, puts, []error{store.ErrConflict}, ""},
		{"409 of an operation aborted", coded(409, "OperationAborted"), hang, puts, []error{store.ErrConflict}, ""},
		{"409 without a body", raw(409, "", ""), hang, puts, []error{store.ErrConflict}, ""},
		{"409 with its body cut", cut(coded(409, "ConditionalRequestConflict"), 20), fin, puts, []error{store.ErrConflict}, ""},
		{"409 for another reason", coded(409, "InvalidBucketState"), hang, puts, []error{store.ErrUnavailable}, "InvalidBucketState"},
		{"409 for the key", coded(409, "ObjectParentIsFile"), hang, puts, []error{store.ErrInvalid}, ""},

		{"401", raw(401, "", ""), hang, all, []error{store.ErrDenied}, ""},
		{"403", coded(403, "AccessDenied"), hang, all, []error{store.ErrDenied}, "AccessDenied"},
		{"403 of a read", coded(403, "AccessDenied"), hang, []string{"get"}, []error{store.ErrDenied}, "s3:ListBucket"},
		{"403 for the clock", coded(403, "RequestTimeTooSkewed"), hang, all, []error{store.ErrDenied}, "clock"},
		{"400 for a token", coded(400, "ExpiredToken"), hang, all, []error{store.ErrDenied}, ""},
		{"400 for the key", coded(400, "KeyTooLongError"), hang, puts, []error{store.ErrInvalid}, ""},
		// The four that follow used to be outcomes that are not known, or stores that are
		// away, and a candidate tried again for ever.
		{"400", coded(400, "InvalidRequest"), hang, all, []error{store.ErrRefused}, "InvalidRequest"},
		{"405", coded(405, "MethodNotAllowed"), hang, all, []error{store.ErrRefused}, "MethodNotAllowed"},
		{"411", coded(411, "MissingContentLength"), hang, puts, []error{store.ErrRefused}, "MissingContentLength"},
		{"501", coded(501, "NotImplemented"), hang, all, []error{store.ErrRefused}, "cannot carry locks"},
		{"501 without a body", raw(501, "", ""), hang, all, []error{store.ErrRefused}, "cannot carry locks"},
		{"400 for a body that broke off", coded(400, "IncompleteBody"), hang, puts, []error{store.ErrUnavailable}, "IncompleteBody"},

		{"429", raw(429, "", ""), hang, all, []error{store.ErrThrottled}, ""},
		{"503 slow down", coded(503, "SlowDown"), hang, writes, []error{store.ErrUnknownOutcome, store.ErrThrottled}, ""},
		{"503 slow down", coded(503, "SlowDown"), hang, reads, []error{store.ErrThrottled}, ""},
		{"503", raw(503, "", ""), hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"503", raw(503, "", ""), hang, reads, []error{store.ErrUnavailable}, ""},
		{"500", coded(500, "InternalError"), hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 without a body", raw(500, "", ""), hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 with its body cut", cut(coded(500, "InternalError"), 20), fin, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500", coded(500, "InternalError"), hang, reads, []error{store.ErrUnavailable}, ""},
		{"504 of a gateway", raw(504, "", "<html>"), hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"408 of a gateway", raw(408, "", ""), hang, writes, []error{store.ErrUnknownOutcome}, ""},

		{
			"301 with the region", raw(301, "X-Amz-Bucket-Region: eu-west-1\r\n", xmlError("PermanentRedirect", "words")), hang, all,
			[]error{store.ErrRefused},
			"region=eu-west-1",
		},
		{"301", raw(301, "", ""), hang, all, []error{store.ErrRefused}, ""},
		{"301 to elsewhere", raw(301, "Location: https://user:secret@host/dir/?a=b\r\n", ""), hang, all, []error{store.ErrRefused}, `"https://host/dir/"`},
		{"307", raw(307, "", ""), hang, all, []error{store.ErrUnavailable}, ""},
		{
			"400 for the region", raw(400, "", xmlError("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'")), hang, all,
			[]error{store.ErrRefused},
			"region=eu-west-1",
		},
	} {
		for _, op := range c.ops {
			t.Run(c.name+"/"+op, func(t *testing.T) {
				t.Parallel()
				server := newFaulty(t, c.answer, c.end)
				err := operations[op](t.Context(), server.store(t))
				checkError(t, op, err, c.want...)
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error says %q, want %q in it", err, c.says)
				}
				if n := len(server.seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

// The store's word on an object that is not there must not be taken from a
// service that was asked for credentials and answered 404.
func TestNoCredentials(t *testing.T) {
	notFound := &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 404, Header: http.Header{}}},
		Err:      errors.New("no role is attached"),
	}
	for op, do := range operations {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, raw(200, "ETag: \"v2\"\r\n", ""), hang)
			err := do(t.Context(), server.store(t, func(o *s3.Options) {
				o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{}, notFound
				})
			}))
			checkError(t, op, err, store.ErrDenied)
			if !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") || !strings.Contains(err.Error(), "no role is attached") {
				t.Errorf("the error says %q, want which settings to check and the cause", err)
			}
			if n := len(server.seen()); n != 0 {
				t.Errorf("%d requests reached the server, want none", n)
			}
		})
	}
}

// Certain cases in which no byte of the request left: no unknown outcome then.
func TestNothingSent(t *testing.T) {
	ln := listen(t)
	closed := ln.Addr().String()
	_ = ln.Close()
	noTLS := newFaulty(t, "", fin)

	for name, endpoint := range map[string]string{
		"connection refused":   "http://" + closed,
		"TLS handshake failed": "https://" + noTLS.addr,
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				checkError(t, op, do(t.Context(), newStore(t, client(endpoint))), store.ErrUnavailable)
			})
		}
	}
}

// A client that is not net/http shows nothing of its connections; then nobody
// can be certain that nothing was sent.
func TestForeignClient(t *testing.T) {
	for op, want := range map[string]error{"create": store.ErrUnknownOutcome, "get": store.ErrUnavailable} {
		st := newStore(t, client("http://store.invalid", func(o *s3.Options) { o.HTTPClient = failing{} }))
		checkError(t, op, operations[op](t.Context(), st), want)
	}
}

type failing struct{}

func (failing) Do(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// The clients of net/http follow a redirected PUT with a GET. Its success must
// not be taken for the PUT's.
func TestRedirectIsNoSuccess(t *testing.T) {
	for op, want := range map[string]error{
		"create": store.ErrUnknownOutcome,
		"update": store.ErrUnknownOutcome,
		"get":    store.ErrUnavailable,
	} {
		target := newFaulty(t, raw(200, "ETag: \"v2\"\r\n", ""), hang)
		server := newFaulty(t, raw(302, "Location: http://"+target.addr+"/login\r\n", ""), hang)
		st := server.store(t, func(o *s3.Options) { o.HTTPClient = &http.Client{} })
		err := operations[op](t.Context(), st)
		checkError(t, op, err, want)
		if !strings.Contains(err.Error(), "redirected") {
			t.Errorf("the error says %q, want that it was redirected", err)
		}
	}
}

// With HTTP/2 many requests share a connection; the same must be known of each.
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
	st := newStore(t, client(server.URL, func(o *s3.Options) { o.HTTPClient = server.Client() }))
	for _, op := range writes {
		checkError(t, op, operations[op](t.Context(), st), store.ErrUnknownOutcome)
	}
}

func TestDeleteOfNothing(t *testing.T) {
	server := newFaulty(t, coded(404, "NoSuchKey"), hang)
	if err := server.store(t).Delete(t.Context(), "k"); err != nil {
		t.Errorf("Delete of what is not there: %v", err)
	}
}

func TestDate(t *testing.T) {
	want := time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)
	for name, c := range map[string]struct {
		header string
		want   time.Time
	}{
		"from the store": {"", want},
		"from a cache":   {"Age: 3\r\n", time.Time{}},
		"by way of one":  {"Via: 1.1 cache.example\r\n", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			answered := newFaulty(t, raw(200, c.header+"ETag: \"v2\"\r\nLast-Modified: Fri, 20 Nov 2026 10:30:00 GMT\r\n", "body"), hang)
			object, err := answered.store(t).Get(t.Context(), "k", "")
			if err != nil {
				t.Fatal(err)
			}
			if !object.Date.Equal(c.want) {
				t.Errorf("the date of the object is %v, want %v", object.Date, c.want)
			}
			if modified := want.Add(-45 * time.Second); !object.LastModified.Equal(modified) {
				t.Errorf("the object was modified at %v, want %v", object.LastModified, modified)
			}
			refused := newFaulty(t, raw(412, c.header, ""), hang)
			err = operations["update"](t.Context(), refused.store(t))
			if got := store.DateOf(err); !got.Equal(c.want) {
				t.Errorf("the date of the error is %v, want %v", got, c.want)
			}
		})
	}
}
