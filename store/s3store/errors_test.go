package s3store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/internal/servers"
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

// notS3 are servers that are no S3 servers, and proxies before one that is gone.
var notS3 = map[string]http.HandlerFunc{
	"net/http's files": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
	"nginx": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "nginx/1.24.0")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n<hr><center>nginx/1.24.0</center>\r\n</body>\r\n</html>\r\n"))
	},
	"Python's http.server": func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusNotImplemented)
			_, _ = w.Write([]byte("<!DOCTYPE HTML>\n<html lang=\"en\"><body><p>Error code: 501</p><p>Message: Unsupported method ('PUT').</p></body></html>\n"))
			return
		}
		w.Header().Set("Server", "SimpleHTTP/0.6 Python/3.11.2")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<!DOCTYPE HTML>\n<html lang=\"en\"><body><h1>Error response</h1><p>Error code: 404</p></body></html>\n"))
	},
	"Traefik, whose server is gone": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("404 page not found\n"))
	},
	"Kubernetes' default backend": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("default backend - 404"))
	},
	"CloudFront": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Cf-Id", "id")
		w.WriteHeader(http.StatusNotFound)
	},
	"an API gateway": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-RequestId", "id")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"Not Found"}`))
	},
	"one that says nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
}

// TestNotS3: on a server that is none of S3 no object is absent, no bucket is missing
// and no listing is empty. Every lock on one used to be absent, and "make the bucket"
// was what there was to do.
func TestNotS3(t *testing.T) {
	for name, handler := range notS3 {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			t.Cleanup(server.Close)
			for _, op := range all {
				err := operations[op](t.Context(), newStore(t, client(server.URL)))
				e, ok := errors.AsType[*store.Error](err)
				if !ok || !errors.Is(e.Kind, store.ErrUnavailable) && !errors.Is(e.Kind, store.ErrRefused) {
					t.Errorf("%s: %v", op, err)
				}
				if !strings.Contains(err.Error(), "404") && !strings.Contains(err.Error(), "501") || strings.Contains(err.Error(), "make the bucket") {
					t.Errorf("%s: the error says %q, want the answer", op, err)
				}
			}
		})
	}
}

// TestListingOfAnotherServer: pages of a web server were listings without objects.
func TestListingOfAnotherServer(t *testing.T) {
	dir := t.TempDir()
	for name, handler := range map[string]http.Handler{
		"a directory": http.StripPrefix("/bucket", http.FileServer(http.Dir(dir))),
		"a page": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!DOCTYPE html>\n<html><head><meta charset=utf-8><title>It works!</title></head><body>It works!<br></body></html>"))
		}),
		"no page":                 http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"JSON":                    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) }),
		"S3, but a list of parts": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<ListParts/>")) }),
		"S3, but no list at all":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<CopyObjectResult/>")) }),
		"S3, but no list":         http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<ListAllMyBucketsResult/>")) }),
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		err := operations["list"](t.Context(), newStore(t, client(server.URL)))
		wiretest.CheckError(t, "list", err, store.ErrUnavailable)
		if !strings.Contains(err.Error(), "no listing of S3") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAbsent: each server that is one of S3 tells what is absent in a way that is
// understood, and what is not absent in another.
func TestAbsent(t *testing.T) {
	for _, name := range append([]string{"s3rver"}, servers.Selected()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var srv *servers.Server
			switch name {
			case "s3rver":
				srv = servers.StartS3rver(t)
			case "minio":
				srv = servers.StartIAM(t, name) // it knows that a stranger is one
			default:
				srv = servers.Start(t, name)
			}
			bucket := srv.Bucket(t)
			st := open(t, srv.Client(), bucket)
			_, err := st.Get(t.Context(), "absent", "")
			wantKind(t, "get", err, store.ErrNotExist)
			_, _, err = st.GetLarge(t.Context(), "absent")
			wantKind(t, "get of a large object", err, store.ErrNotExist)
			if name != "s3rver" { // which creates it, whatever the condition
				_, err = st.Put(t.Context(), "absent", []byte("x"), store.IfMatch(`"9e107d9d372bb6826bd81d3542a419d6"`))
				if !errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrPrecondition) {
					t.Errorf("update: %v", err)
				}
			}
			if err = st.Delete(t.Context(), "absent"); err != nil {
				t.Errorf("delete: %v", err)
			}

			none := open(t, srv.Client(), "no-such-bucket")
			_, err = none.Get(t.Context(), "absent", "")
			wantKind(t, "get in no bucket", err, store.ErrNoBucket)
			_, err = none.Put(t.Context(), "absent", []byte("x"), store.IfAbsent())
			wantKind(t, "create in no bucket", err, store.ErrNoBucket)
			for _, err = range none.List(t.Context(), "", "") {
				wantKind(t, "list of no bucket", err, store.ErrNoBucket)
			}

			// With an access key that nobody knows nothing is absent. Of versitygw, which
			// says 404, everything was.
			stranger := open(t, client(srv.Endpoint, func(o *s3.Options) {
				o.Credentials = credentials.NewStaticCredentialsProvider("stranger", "secret", "")
			}), bucket)
			if _, err = stranger.Get(t.Context(), "absent", ""); name != "gofakes3" && !store.Final(err) { // which lets everybody in
				t.Errorf("get by a stranger: %v", err)
			}
		})
	}
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if e, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(e.Kind, kind) {
		t.Errorf("%s: %v, want the kind %v", what, err, kind)
	}
}

// TestDirectoryAtKey: versitygw says that there is a directory at a key where there are keys
// below it, for good, and where it was just removing the directory that the object is to lie
// in, for a moment. A follower that came as its leader deleted its marker used to fail.
func TestDirectoryAtKey(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		below  string
		want   error
	}{
		"a key below it":        {http.StatusOK, "<Contents><Key>k/below</Key><Size>1</Size></Contents>", store.ErrInvalid},
		"nothing below it":      {http.StatusOK, "", store.ErrConflict},
		"listing is not to be":  {http.StatusForbidden, "", store.ErrInvalid},
		"the listing is broken": {http.StatusServiceUnavailable, "", store.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lists atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/xml")
				if r.Method == http.MethodPut {
					w.WriteHeader(http.StatusConflict)
					fmt.Fprint(w, xmlError("ExistingObjectIsDirectory", "Existing Object is a directory"))
					return
				}
				if lists.Add(1); r.URL.Query().Get("prefix") != "k/" {
					t.Errorf("asked for %v", r.URL)
				}
				w.WriteHeader(c.status)
				if c.status == http.StatusOK {
					fmt.Fprintf(w, "<ListBucketResult><Prefix>k/</Prefix>%s</ListBucketResult>", c.below)
				}
			}))
			t.Cleanup(server.Close)
			_, err := newStore(t, client(server.URL)).Put(t.Context(), "k", []byte("x"), store.IfAbsent())
			wiretest.CheckError(t, "put", err, c.want)
			if n := lists.Load(); n != 1 {
				t.Errorf("%d listings, want 1", n)
			}
		})
	}
}

func TestContextEndsInFlight(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer":   "",
		"cut headers": wiretest.CutHeaders(wiretest.Raw(200, "ETag: \"v2\"\r\n", "")),
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				server := newFaulty(t, answer, wiretest.Hang)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-server.Arrived
					cancel(errOwnCause)
				}()
				err := do(ctx, server.store(t))
				want := store.ErrUnavailable
				if slices.Contains(writes, op) {
					want = store.ErrUnknownOutcome
				}
				wiretest.CheckError(t, op, err, want)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v does not match context.Canceled", err)
				}
				if n := len(server.Seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

var errOwnCause = errors.New("a cause of its own")

// cancelling is an HTTP client that ends a context once it has an answer, whose body
// may still be on its way.
type cancelling struct{ cancel context.CancelCauseFunc }

func (c cancelling) Do(req *http.Request) (*http.Response, error) {
	answer, err := http.DefaultClient.Do(req)
	c.cancel(errOwnCause)
	return answer, err
}

func TestContextEndsWithinTheBody(t *testing.T) {
	for _, op := range reads {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, wiretest.Cut(wiretest.Raw(200, "ETag: \"v2\"\r\n", "<x></x>"), 3), wiretest.Hang)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := operations[op](ctx, server.store(t, func(o *s3.Options) { o.HTTPClient = cancelling{cancel} }))
			wiretest.CheckError(t, op, err, store.ErrUnavailable)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not match context.Canceled", err)
			}
		})
	}
}

// The answer came first: the context has not ended the call, whatever it did
// afterwards.
func TestContextEndsAfterTheAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"whole": wiretest.Raw(412, "", ""),
		"cut":   wiretest.Cut(coded(412, "PreconditionFailed"), 20),
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t, answer, wiretest.Hang)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := operations["update"](ctx, server.store(t, func(o *s3.Options) { o.HTTPClient = cancelling{cancel} }))
			wiretest.CheckError(t, "update", err, store.ErrPrecondition)
			if name == "whole" && errors.Is(err, context.Canceled) {
				t.Errorf("%v matches context.Canceled", err)
			}
		})
	}
}

func TestContextEndedBefore(t *testing.T) {
	for op, do := range operations {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := do(ctx, server.store(t))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not match context.Canceled", err)
			}
			if op == "create" || op == "update" {
				wiretest.CheckError(t, op, err, store.ErrUnavailable)
			}
			if n := len(server.Seen()); n != 0 {
				t.Errorf("%d requests reached the server, want none", n)
			}
		})
	}
}

// A body is one that an answer of any status may have.
type body struct {
	name   string
	text   string
	header http.Header
	s3     bool // what S3 says of an object that does not exist
}

var bodies = []body{
	{"no body", "", nil, false},
	{"no body, S3's headers", "", http.Header{"X-Amz-Request-Id": {"id"}}, true},
	{"no body, CloudFront's headers", "", http.Header{"X-Amz-Cf-Id": {"id"}, "Via": {"1.1 cloudfront"}}, false},
	{"a code that nobody knows", xmlError("NoSuchThing", "words"), http.Header{"X-Amz-Request-Id": {"id"}}, false},
	{"NoSuchKey", xmlError("NoSuchKey", "The specified key does not exist."), nil, true},
	{"a page", "<html><head><title>No</title></head><body><h1>No</h1></body></html>", http.Header{"Content-Type": {"text/html"}}, false},
	{"a page, S3's headers", "<html><body>No</body></html>", http.Header{"X-Amz-Request-Id": {"id"}}, false},
	{"text", "404 page not found\n", http.Header{"Content-Type": {"text/plain"}}, false},
	{"JSON", `{"code":"NoSuchKey"}`, http.Header{"Content-Type": {"application/json"}}, false},
}

// wanted gives the kind of error of an answer: the table of what each status means, one
// row for each group. A status that no row names tells nothing of a write.
func wanted(status int, op string, b body) error {
	writes := op == "create" || op == "update" || op == "delete"
	unsettled := store.ErrUnavailable
	if writes {
		unsettled = store.ErrUnknownOutcome
	}
	switch status {
	case 404:
		switch {
		case b.s3 && (op == "create" || op == "list"):
			return store.ErrNoBucket
		case b.s3 && op == "delete":
			return nil
		case b.s3:
			return store.ErrNotExist
		case strings.Contains(b.text, "<Code>"):
			return store.ErrRefused
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
		if writes && !strings.Contains(b.text, "<Code>") {
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
// by S3's own word, one call is one request, and a write that may have landed is never
// reported as not landed.
//
// A 404 of any kind used to be an absent object, so a plain web server, or a server that
// did not know the access key, had every lock free; and 400, 405, 411 and 501 were tried
// again for ever.
func TestStatuses(t *testing.T) {
	var requests atomic.Int64
	var answer func(w http.ResponseWriter)
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		answer(w)
	})
	st := newStore(t, client("http://s3.example", func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: wiretest.Direct{Server: server}}
	}))
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
				if n := requests.Load() - before; n != 1 {
					t.Errorf("%s: %d requests", name, n)
				}
				want := wanted(status, op, b)
				if e, ok := errors.AsType[*store.Error](err); want == nil && err != nil || want != nil && (!ok || e.Kind != want) { //nolint:errorlint // Kind is a sentinel itself
					t.Errorf("%s: %v, want the kind %v", name, err, want)
				}
				if errors.Is(err, store.ErrNotExist) && (status != 404 || !b.s3) {
					t.Errorf("%s: an absent object: %v", name, err)
				}
				if id := store.RequestIDOf(err); err != nil && id != b.header.Get("X-Amz-Request-Id") {
					t.Errorf("%s: the request's ID is %q", name, id)
				}
				if err != nil && (!strings.Contains(err.Error(), fmt.Sprint(status)) || strings.ContainsAny(err.Error(), "\n<") || strings.Contains(err.Error(), "operation error")) {
					t.Errorf("%s: it says %q, want the status, in one line, without the SDK's words", name, err)
				}
			}
		}
	}
}

// TestCodes: a code says more than its status, where a server gives one.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		ops    []string
		want   error
		final  bool
	}{
		{400, "RequestTimeout", all, store.ErrUnavailable, false},
		{400, "IncompleteBody", all, store.ErrUnavailable, false},
		{400, "BadDigest", all, store.ErrUnavailable, false},
		{400, "XAmzContentSHA256Mismatch", all, store.ErrUnavailable, false},
		{400, "SlowDown", all, store.ErrThrottled, false},
		{403, "SlowDown", all, store.ErrThrottled, false},
		{400, "RequestThrottled", all, store.ErrThrottled, false},
		{400, "ExpiredToken", all, store.ErrDenied, true},
		{400, "InvalidToken", all, store.ErrDenied, true},
		{403, "RequestTimeTooSkewed", all, store.ErrDenied, true},
		{400, "RequestTimeTooSkewed", all, store.ErrDenied, true},
		{403, "InvalidAccessKeyId", all, store.ErrDenied, true},
		{400, "KeyTooLongError", all, store.ErrInvalid, true},
		{400, "AuthorizationHeaderMalformed", all, store.ErrRefused, true},
		{400, "InvalidArgument", all, store.ErrRefused, true},
		{404, "NoSuchBucket", all, store.ErrNoBucket, true},
		{404, "NoSuchVersion", all, store.ErrRefused, true},
		{404, "XAdminUserNotFound", all, store.ErrRefused, true},
		{405, "MethodNotAllowed", all, store.ErrRefused, true},
		{411, "MissingContentLength", all, store.ErrRefused, true},
		{413, "EntityTooLarge", all, store.ErrRefused, true},
		{500, "NotImplemented", all, store.ErrRefused, true},
		{501, "NotImplemented", all, store.ErrRefused, true},
		{409, "OperationAborted", writes, store.ErrConflict, false},
		{409, "InvalidBucketState", writes, store.ErrUnavailable, false},
		{412, "SlowDown", writes, store.ErrPrecondition, false},
		{503, "SlowDown", writes, store.ErrUnknownOutcome, false},
		{503, "SlowDownWrite", reads, store.ErrThrottled, false},
		{503, "ServiceUnavailable", writes, store.ErrUnknownOutcome, false},
	} {
		for _, op := range c.ops {
			err := operations[op](t.Context(), newFaulty(t, coded(c.status, c.code), wiretest.Hang).store(t))
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Kind != c.want || store.Final(err) != c.final { //nolint:errorlint // Kind is a sentinel itself
				t.Errorf("%d %s, %s: %v, final %v", c.status, c.code, op, err, store.Final(err))
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%d %s: words", c.status, c.code)) {
				t.Errorf("%d %s, %s: it says %q, want the code and the message", c.status, c.code, op, err)
			}
		}
	}
}

// TestEndlessRefusal: an error's body is read so far and no further. The SDK used to read
// all of it into memory, however much came.
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
		wiretest.CheckError(t, op, operations[op](t.Context(), newStore(t, client(server.URL))), store.ErrDenied)
		if n := <-got; n > most/2 {
			t.Errorf("%s: the server got rid of %d bytes", op, n)
		}
	}
}

// TestRequestID: the server's name for a request is that of the header, or else of the body.
func TestRequestID(t *testing.T) {
	const text = "<Error><Code>AccessDenied</Code><RequestId> of-body </RequestId></Error>"
	for header, want := range map[string]string{"": "of-body", "X-Amz-Request-Id: of-header\r\n": "of-header"} {
		err := operations["get"](t.Context(), newFaulty(t, wiretest.Raw(403, header, text), wiretest.Hang).store(t))
		if id := store.RequestIDOf(err); id != want {
			t.Errorf("the ID is %q, want %q", id, want)
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
			"", wiretest.Raw(404, "X-Amz-Request-Id: 4711\r\n", xmlError("NoSuchBucket", "The specified bucket does not exist.")), "create",
			`put "k": no such bucket or directory: 404 NoSuchBucket: The specified bucket does not exist; make the bucket, or check its name and the endpoint`,
		},
		{
			"", wiretest.Raw(404, "", "404 page not found\n"), "get",
			`get "k": store unavailable: 404 Not Found: "404 page not found"; this is not how S3 says that an object does not exist: does the endpoint lead to an S3 server?`,
		},
		{
			"", wiretest.Raw(404, "", xmlError("XAdminUserNotFound", "No user exists with the provided access key ID.")), "get",
			`get "k": refused by the store: 404 XAdminUserNotFound: No user exists with the provided access key ID; the server does not know the access key: check the credentials`,
		},
		{"", coded(403, "SignatureDoesNotMatch"), "update", `put "k": access denied: 403 SignatureDoesNotMatch: words; check the credentials, and that they are those of this server`},
		{"", coded(403, "InvalidAccessKeyId"), "get", `get "k": access denied: 403 InvalidAccessKeyId: words; check the credentials, and that they are those of this server`},
		{"", coded(403, "AccessDenied"), "update", `put "k": access denied: 403 AccessDenied: words`},
		{"", coded(403, "AllAccessDisabled"), "get", `get "k": access denied: 403 AllAccessDisabled: words`},
		{"", wiretest.Raw(403, "", ""), "get", `get "k": access denied: 403 Forbidden, without a body; S3 also says so of an object that does not exist, where s3:ListBucket is not allowed`},
		{"", coded(404, "NoSuchUpload"), "update", `put "k": store unavailable: 404 NoSuchUpload: words; somebody else has ended this upload in parts: is there a lifecycle rule that ends them too soon?`},
		{"", coded(404, "NoSuchThing"), "get", `get "k": refused by the store: 404 NoSuchThing: words; this is about neither an object nor a bucket: check the credentials and the endpoint`},
		{"", coded(403, "RequestTimeTooSkewed"), "get", `get "k": access denied: 403 RequestTimeTooSkewed: words; set this machine's clock: it is too far from the server's`},
		{"", wiretest.Raw(301, "X-Amz-Bucket-Region: eu-west-1\r\n", ""), "get", `get "k": refused by the store: 301 Moved Permanently, without a body; the bucket is in the region eu-west-1: set region=eu-west-1 in its URL, or AWS_REGION`},
		{"", wiretest.Raw(411, "", ""), "update", `put "k": refused by the store: 411 Length Required, without a body`},
		{
			endpoint, "", "get",
			`get "k": store unavailable: GET ` + endpoint + `/bucket/k: dial tcp ` + testenv.Refused + `: connect: connection refused; no connection to the server, nothing was sent; check the endpoint and the network`,
		},
	} {
		if c.endpoint == "" {
			c.endpoint = "http://" + newFaulty(t, c.answer, wiretest.Hang).Addr
		}
		if err := operations[c.op](t.Context(), newStore(t, client(c.endpoint))); err == nil || err.Error() != c.want {
			t.Errorf("it says\n%v\nwant\n%s", err, c.want)
		}
	}
}
