package s3store_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

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
	closed := wiretest.Listen(t)
	endpoint := "http://" + closed.Addr().String()
	_ = closed.Close()
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
			`get "k": store unavailable: GET ` + endpoint + `/bucket/k: dial tcp ` + closed.Addr().String() + `: connect: connection refused; no connection to the server, nothing was sent; check the endpoint and the network`,
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
