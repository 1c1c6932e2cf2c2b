package s3store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
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

func TestAnswers(t *testing.T) {
	ok := wiretest.Raw(200, "ETag: \"v2\"\r\n", "<x></x>")
	for _, c := range []struct {
		name   string
		answer string
		end    wiretest.Ending
		ops    []string
		want   []error
		says   string
	}{
		{"412", coded(412, "PreconditionFailed"), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 without a body", wiretest.Raw(412, "", ""), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body cut", wiretest.Cut(coded(412, "PreconditionFailed"), 20), wiretest.FIN, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body reset", wiretest.Cut(coded(412, "PreconditionFailed"), 20), wiretest.RST, puts, []error{store.ErrPrecondition}, ""},
		{"412 in HTML", wiretest.Raw(412, "", "<html><p>no"), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its headers cut", wiretest.CutHeaders(coded(412, "PreconditionFailed")), wiretest.FIN, puts, []error{store.ErrUnknownOutcome}, ""},

		{"200 with its headers cut", wiretest.CutHeaders(ok), wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"200 with its headers cut", wiretest.CutHeaders(ok), wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"200 without an ETag", wiretest.Raw(200, "", ""), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, "no ETag"},
		{"200 without an ETag", wiretest.Raw(200, "", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrUnavailable}, "no ETag"},
		{"200 with its body cut", wiretest.Cut(ok, 3), wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"200 with its body reset", wiretest.Cut(ok, 3), wiretest.RST, reads, []error{store.ErrUnavailable}, ""},
		{
			"200 with its chunked body cut", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"",
		},
		{
			"200 without a length", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\n\r\nbody", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"how long",
		},
		{"200 of the same version", wiretest.Raw(200, "ETag: \"v1\"\r\n", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, ""},
		{
			"200 too large", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1048577\r\n\r\nbody", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"1048577 bytes",
		},
		{
			"200 too large, in chunks", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n" + strings.Repeat("x", 1<<20+1), wiretest.Hang,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"",
		},
		{"304", wiretest.Raw(304, "", ""), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, ""},

		{"no answer", "", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"no answer", "", wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"a reset", "", wiretest.RST, writes, []error{store.ErrUnknownOutcome}, ""},
		{"a reset", "", wiretest.RST, reads, []error{store.ErrUnavailable}, ""},
		{"no HTTP", "220 mail.example ready\r\n", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},

		{"404 of the object", coded(404, "NoSuchKey"), wiretest.Hang, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 with its body cut", wiretest.Cut(coded(404, "NoSuchKey"), 20), wiretest.FIN, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 with its body cut", wiretest.Cut(coded(404, "NoSuchBucket"), 20), wiretest.FIN, []string{"create", "list"}, []error{store.ErrNoBucket}, ""},
		{"404 of the bucket", coded(404, "NoSuchBucket"), wiretest.Hang, all, []error{store.ErrNoBucket}, "make the bucket"},

		{"409", coded(409, "ConditionalRequestConflict"), wiretest.Hang, puts, []error{store.ErrConflict}, ""},
		{"409 of an operation aborted", coded(409, "OperationAborted"), wiretest.Hang, puts, []error{store.ErrConflict}, ""},
		{"409 without a body", wiretest.Raw(409, "", ""), wiretest.Hang, puts, []error{store.ErrConflict}, ""},
		{"409 with its body cut", wiretest.Cut(coded(409, "ConditionalRequestConflict"), 20), wiretest.FIN, puts, []error{store.ErrConflict}, ""},
		{"409 for another reason", coded(409, "InvalidBucketState"), wiretest.Hang, puts, []error{store.ErrUnavailable}, "InvalidBucketState"},
		{"409 for the key", coded(409, "ObjectParentIsFile"), wiretest.Hang, puts, []error{store.ErrInvalid}, ""},

		{"401", wiretest.Raw(401, "", ""), wiretest.Hang, all, []error{store.ErrDenied}, ""},
		{"403", coded(403, "AccessDenied"), wiretest.Hang, all, []error{store.ErrDenied}, "AccessDenied"},
		{"403 of a read", coded(403, "AccessDenied"), wiretest.Hang, []string{"get"}, []error{store.ErrDenied}, "s3:ListBucket"},
		{"403 for the clock", coded(403, "RequestTimeTooSkewed"), wiretest.Hang, all, []error{store.ErrDenied}, "clock"},
		{"400 for a token", coded(400, "ExpiredToken"), wiretest.Hang, all, []error{store.ErrDenied}, ""},
		{"400 for the key", coded(400, "KeyTooLongError"), wiretest.Hang, puts, []error{store.ErrInvalid}, ""},
		// The four that follow used to be outcomes that are not known, or stores that are
		// away, and a candidate tried again for ever.
		{"400", coded(400, "InvalidRequest"), wiretest.Hang, all, []error{store.ErrRefused}, "InvalidRequest"},
		{"405", coded(405, "MethodNotAllowed"), wiretest.Hang, all, []error{store.ErrRefused}, "MethodNotAllowed"},
		{"411", coded(411, "MissingContentLength"), wiretest.Hang, puts, []error{store.ErrRefused}, "MissingContentLength"},
		{"501", coded(501, "NotImplemented"), wiretest.Hang, all, []error{store.ErrRefused}, "cannot carry locks"},
		{"501 without a body", wiretest.Raw(501, "", ""), wiretest.Hang, all, []error{store.ErrRefused}, "cannot carry locks"},
		{"400 for a body that broke off", coded(400, "IncompleteBody"), wiretest.Hang, puts, []error{store.ErrUnavailable}, "IncompleteBody"},

		{"429", wiretest.Raw(429, "", ""), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"503 slow down", coded(503, "SlowDown"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome, store.ErrThrottled}, ""},
		{"503 slow down", coded(503, "SlowDown"), wiretest.Hang, reads, []error{store.ErrThrottled}, ""},
		{"503", wiretest.Raw(503, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"503", wiretest.Raw(503, "", ""), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"500", coded(500, "InternalError"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 without a body", wiretest.Raw(500, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 with its body cut", wiretest.Cut(coded(500, "InternalError"), 20), wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500", coded(500, "InternalError"), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"504 of a gateway", wiretest.Raw(504, "", "<html>"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"408 of a gateway", wiretest.Raw(408, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},

		{
			"301 with the region", wiretest.Raw(301, "X-Amz-Bucket-Region: eu-west-1\r\n", xmlError("PermanentRedirect", "words")), wiretest.Hang, all,
			[]error{store.ErrRefused},
			"region=eu-west-1",
		},
		{"301", wiretest.Raw(301, "", ""), wiretest.Hang, all, []error{store.ErrRefused}, ""},
		{"301 to elsewhere", wiretest.Raw(301, "Location: https://user:secret@host/dir/?a=b\r\n", ""), wiretest.Hang, all, []error{store.ErrRefused}, `"https://host/dir/"`},
		{"307", wiretest.Raw(307, "", ""), wiretest.Hang, all, []error{store.ErrUnavailable}, ""},
		{
			"400 for the region", wiretest.Raw(400, "", xmlError("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'")), wiretest.Hang, all,
			[]error{store.ErrRefused},
			"region=eu-west-1",
		},
	} {
		for _, op := range c.ops {
			t.Run(c.name+"/"+op, func(t *testing.T) {
				t.Parallel()
				server := newFaulty(t, c.answer, c.end)
				err := operations[op](t.Context(), server.store(t))
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

// The store's word on an object that is not there must not be taken from a
// service that was asked for credentials and answered 404.
func TestNoCredentials(t *testing.T) {
	notFound := &smithy.OperationError{ServiceID: "ec2imds", OperationName: "GetMetadata", Err: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 404, Header: http.Header{}}},
		Err:      errors.New("no role is attached"),
	}}
	for op, do := range operations {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang)
			err := do(t.Context(), server.store(t, func(o *s3.Options) {
				o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{}, notFound
				})
			}))
			wiretest.CheckError(t, op, err, store.ErrDenied)
			if !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") || !strings.Contains(err.Error(), "no role is attached") {
				t.Errorf("the error says %q, want which settings to check and the cause", err)
			}
			if n := len(server.Seen()); n != 0 {
				t.Errorf("%d requests reached the server, want none", n)
			}
		})
	}
}

// TestProviderThatJudges: a provider of credentials that knows whether it may pass is believed, and says so in its words.
func TestProviderThatJudges(t *testing.T) {
	for kind, text := range map[error]string{store.ErrUnavailable: "store unavailable", store.ErrDenied: "access denied"} {
		server := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang)
		err := operations["create"](t.Context(), server.store(t, func(o *s3.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, fmt.Errorf("no service answers: %w", kind)
			})
		}))
		wiretest.CheckError(t, "create", err, kind)
		if want := `put "k": ` + text + ": no service answers: " + text + "; nothing was sent to the store"; err.Error() != want || len(server.Seen()) != 0 {
			t.Errorf("after %d requests it says\n%v\nwant\n%s", len(server.Seen()), err, want)
		}
	}
}

// Certain cases in which no byte of the request left: no unknown outcome then.
func TestNothingSent(t *testing.T) {
	noTLS := newFaulty(t, "", wiretest.FIN)

	for name, endpoint := range map[string]string{
		"connection refused":   "http://" + testenv.Refused,
		"TLS handshake failed": "https://" + noTLS.Addr,
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				wiretest.CheckError(t, op, do(t.Context(), newStore(t, client(endpoint))), store.ErrUnavailable)
			})
		}
	}
}

// A client that is not net/http shows nothing of its connections; then nobody
// can be certain that nothing was sent.
func TestForeignClient(t *testing.T) {
	for op, want := range map[string]error{"create": store.ErrUnknownOutcome, "get": store.ErrUnavailable} {
		st := newStore(t, client("http://store.invalid", func(o *s3.Options) { o.HTTPClient = failing{} }))
		wiretest.CheckError(t, op, operations[op](t.Context(), st), want)
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
		target := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang)
		server := newFaulty(t, wiretest.Raw(302, "Location: http://"+target.Addr+"/login?secret=yes\r\n", ""), wiretest.Hang)
		st := server.store(t, func(o *s3.Options) { o.HTTPClient = &http.Client{} })
		err := operations[op](t.Context(), st)
		wiretest.CheckError(t, op, err, want)
		if !strings.Contains(err.Error(), "redirected") || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error says %q, want that it was redirected", err)
		}
		if n := len(target.Seen()); n > 0 {
			t.Errorf("%s: the redirect was followed %d times", op, n)
		}
	}
}

// TestRedirectsToItself: the client of the SDK follows 307 without an end, ten thousand times a second.
func TestRedirectsToItself(t *testing.T) {
	for name, by := range map[string]s3.HTTPClient{"of the SDK": nil, "of net/http": &http.Client{}} {
		for op := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) > 20 {
						panic(http.ErrAbortHandler)
					}
					http.Redirect(w, r, r.URL.Path+"?X-Amz-Signature=secret", http.StatusTemporaryRedirect)
				}))
				t.Cleanup(server.Close)
				st := newStore(t, client(server.URL, func(o *s3.Options) {
					if by != nil {
						o.HTTPClient = by
					}
				}))
				err := operations[op](t.Context(), st)
				wiretest.CheckError(t, op, err, store.ErrUnavailable)
				if n := asked.Load(); n != 1 || !strings.Contains(err.Error(), "redirected to") || strings.Contains(err.Error(), "secret") {
					t.Errorf("after %d requests: %v", n, err)
				}
			})
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
		wiretest.CheckError(t, op, operations[op](t.Context(), st), store.ErrUnknownOutcome)
	}
}

func TestDeleteOfNothing(t *testing.T) {
	server := newFaulty(t, coded(404, "NoSuchKey"), wiretest.Hang)
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
			answered := newFaulty(t, wiretest.Raw(200, c.header+"ETag: \"v2\"\r\nLast-Modified: Fri, 20 Nov 2026 10:30:00 GMT\r\n", "body"), wiretest.Hang)
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
			refused := newFaulty(t, wiretest.Raw(412, c.header, ""), wiretest.Hang)
			err = operations["update"](t.Context(), refused.store(t))
			if got := store.DateOf(err); !got.Equal(c.want) {
				t.Errorf("the date of the error is %v, want %v", got, c.want)
			}
		})
	}
}
