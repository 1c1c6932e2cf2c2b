package azstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// The operations, each as a call that gives its error.
var operations = map[string]func(context.Context, *azstore.Store) error{
	"get": func(ctx context.Context, st *azstore.Store) error {
		_, err := st.Get(ctx, "k", `"v1"`)
		return err
	},
	"create": func(ctx context.Context, st *azstore.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfAbsent())
		return err
	},
	"update": func(ctx context.Context, st *azstore.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfMatch(`"v1"`))
		return err
	},
	"delete": func(ctx context.Context, st *azstore.Store) error { return st.Delete(ctx, "k") },
	"list": func(ctx context.Context, st *azstore.Store) error {
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

// checkError is wiretest.CheckError, and checks that the error shows no secret.
func checkError(t *testing.T, op string, err error, want ...error) {
	t.Helper()
	wiretest.CheckError(t, op, err, want...)
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if strings.Contains(inner.Error(), secret) {
			t.Errorf("%s: the error shows the SAS: %v", op, inner)
		}
	}
	if failed, ok := errors.AsType[*url.Error](err); ok && strings.Contains(failed.URL, secret) {
		t.Errorf("%s: the URL in the error shows the SAS: %v", op, failed)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: the error has more than one line: %q", op, err)
	}
}

func TestAnswers(t *testing.T) {
	list := wiretest.Raw(200, "", "<EnumerationResults><Blobs></Blobs><NextMarker/></EnumerationResults>")
	created := wiretest.Raw(201, "ETag: \"v2\"\r\n", "")
	for _, c := range []struct {
		name   string
		answer string
		end    wiretest.Ending
		ops    []string
		want   []error
		says   string
	}{
		{"412", coded(412, "ConditionNotMet"), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 without a body", wiretest.Raw(412, "", ""), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body cut", wiretest.Cut(coded(412, "ConditionNotMet"), 20), wiretest.FIN, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its body reset", wiretest.Cut(coded(412, "ConditionNotMet"), 20), wiretest.RST, puts, []error{store.ErrPrecondition}, ""},
		{"412 in HTML", wiretest.Raw(412, "", "<html><p>no"), wiretest.Hang, puts, []error{store.ErrPrecondition}, ""},
		{"412 with its headers cut", wiretest.CutHeaders(coded(412, "ConditionNotMet")), wiretest.FIN, puts, []error{store.ErrUnknownOutcome}, ""},
		{"409 of a create", coded(409, "BlobAlreadyExists"), wiretest.Hang, []string{"create"}, []error{store.ErrPrecondition}, ""},
		{"409 with its body cut", wiretest.Cut(coded(409, "BlobAlreadyExists"), 20), wiretest.FIN, []string{"create"}, []error{store.ErrPrecondition}, ""},
		{"409 with its headers cut", wiretest.CutHeaders(coded(409, "BlobAlreadyExists")), wiretest.FIN, []string{"create"}, []error{store.ErrUnknownOutcome}, ""},
		{"409 without a code", wiretest.Raw(409, "", ""), wiretest.Hang, puts, []error{store.ErrConflict}, ""},

		{"201 with its headers cut", wiretest.CutHeaders(created), wiretest.FIN, puts, []error{store.ErrUnknownOutcome}, ""},
		{"201 without an ETag", wiretest.Raw(201, "", ""), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, "no ETag"},
		{"200 for a write", wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang, puts, []error{store.ErrUnknownOutcome}, ""},
		{"202 with its headers cut", wiretest.CutHeaders(wiretest.Raw(202, "ETag: \"v2\"\r\n", "")), wiretest.FIN, []string{"delete"}, []error{store.ErrUnknownOutcome}, ""},
		{"200 with its headers cut", wiretest.CutHeaders(list), wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"200 without an ETag", wiretest.Raw(200, "", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrUnavailable}, "no ETag"},
		{"200 with its body cut", wiretest.Cut(wiretest.Raw(200, "ETag: \"v2\"\r\n", "body"), 3), wiretest.FIN, []string{"get"}, []error{store.ErrUnavailable}, ""},
		{"200 with its body reset", wiretest.Cut(wiretest.Raw(200, "ETag: \"v2\"\r\n", "body"), 3), wiretest.RST, []string{"get"}, []error{store.ErrUnavailable}, ""},
		{"a listing cut", wiretest.Cut(list, 3), wiretest.FIN, []string{"list"}, []error{store.ErrUnavailable}, ""},
		{"a listing that ends too soon", wiretest.Raw(200, "", "<EnumerationResults><Blobs>"), wiretest.Hang, []string{"list"}, []error{store.ErrUnavailable}, ""},
		{
			"200 with its chunked body cut", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrUnavailable},
			"",
		},
		{"200 without a length", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\n\r\nbody", wiretest.FIN, []string{"get"}, []error{store.ErrUnavailable}, "how long"},
		{"200 of the same version", wiretest.Raw(200, "ETag: \"v1\"\r\n", "body"), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, ""},
		{
			"200 too large", "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1048577\r\n\r\nbody", wiretest.FIN,
			[]string{"get"},
			[]error{store.ErrTooLarge},
			"1048577 bytes",
		},
		{"304", wiretest.Raw(304, "", ""), wiretest.Hang, []string{"get"}, []error{store.ErrNotModified}, "304 Not Modified"},

		{"no answer", "", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"no answer", "", wiretest.FIN, reads, []error{store.ErrUnavailable}, ""},
		{"a reset", "", wiretest.RST, writes, []error{store.ErrUnknownOutcome}, ""},
		{"a reset", "", wiretest.RST, reads, []error{store.ErrUnavailable}, ""},
		{"no HTTP", "220 mail.example ready\r\n", wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},

		{"404 of the object", coded(404, "BlobNotFound"), wiretest.Hang, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 with its body cut", wiretest.Cut(coded(404, "BlobNotFound"), 20), wiretest.FIN, []string{"get", "update"}, []error{store.ErrNotExist}, ""},
		{"404 of the container", coded(404, "ContainerNotFound"), wiretest.Hang, all, []error{store.ErrNoBucket}, "make the container"},
		{"404 of no Azure", wiretest.Raw(404, "", "404 page not found\n"), wiretest.Hang, all, []error{store.ErrUnavailable}, "not how Azure says"},
		{"404 of no Azure, with a code in its body", wiretest.Raw(404, "", "<Error><Code>BlobNotFound</Code></Error>"), wiretest.Hang, all, []error{store.ErrUnavailable}, "not how Azure says"},

		{"401", wiretest.Raw(401, "", ""), wiretest.Hang, all, []error{store.ErrDenied}, ""},
		{"403 for a role", coded(403, "AuthorizationPermissionMismatch"), wiretest.Hang, all, []error{store.ErrDenied}, "Storage Blob Data Contributor"},
		{
			"403 for a SAS", detailed(403, "AuthenticationFailed", "<AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [a] - Expiry [b] -\n Current [c]</AuthenticationErrorDetail>"), wiretest.Hang, all,
			[]error{store.ErrDenied},
			"the SAS has expired or is not valid yet: Signature not valid in the specified time frame: Start [a] - Expiry [b] - Current [c]",
		},
		{
			"403 for the clock", detailed(403, "AuthenticationFailed", "<AuthenticationErrorDetail>Request date header too old: 'Fri'</AuthenticationErrorDetail>"), wiretest.Hang, all,
			[]error{store.ErrDenied},
			"clock",
		},
		{"429", wiretest.Raw(429, "", ""), wiretest.Hang, all, []error{store.ErrThrottled}, ""},
		{"503 busy", coded(503, "ServerBusy"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome, store.ErrThrottled}, ""},
		{"503 busy", coded(503, "ServerBusy"), wiretest.Hang, reads, []error{store.ErrThrottled}, ""},
		{"503", wiretest.Raw(503, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"503", wiretest.Raw(503, "", ""), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"500", coded(500, "InternalError"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 for the time", coded(500, "OperationTimedOut"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500 with its body cut", wiretest.Cut(coded(500, "InternalError"), 20), wiretest.FIN, writes, []error{store.ErrUnknownOutcome}, ""},
		{"500", coded(500, "InternalError"), wiretest.Hang, reads, []error{store.ErrUnavailable}, ""},
		{"504 of a gateway", wiretest.Raw(504, "", "<html>"), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"408 of a gateway", wiretest.Raw(408, "", ""), wiretest.Hang, writes, []error{store.ErrUnknownOutcome}, ""},
		{"501", wiretest.Raw(501, "", ""), wiretest.Hang, all, []error{store.ErrRefused}, "cannot carry locks"},
		{"301 to elsewhere", wiretest.Raw(301, "Location: https://user:secret@host/dir/?a=b\r\n", ""), wiretest.Hang, all, []error{store.ErrRefused}, `"https://host/dir/"`},
		{"307", wiretest.Raw(307, "", ""), wiretest.Hang, all, []error{store.ErrUnavailable}, ""},
		{"400 for the version", detailed(400, "InvalidHeaderValue", "<HeaderName>x-ms-version</HeaderName>"), wiretest.Hang, all, []error{store.ErrRefused}, "skipApiVersionCheck"},
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
				if n := len(server.Seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

// TestCodes: a code says more than its status. Most of these Azurite never says.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		ops    []string
		want   error
		final  bool
	}{
		{400, "Md5Mismatch", all, store.ErrUnavailable, false},
		{400, "InvalidResourceName", all, store.ErrInvalid, true},
		{400, "OutOfRangeInput", all, store.ErrInvalid, true},
		{400, "ConditionHeadersNotSupported", all, store.ErrRefused, true},
		{401, "NoAuthenticationInformation", all, store.ErrDenied, true},
		{403, "AuthenticationFailed", all, store.ErrDenied, true},
		{403, "AuthorizationFailure", all, store.ErrDenied, true},
		{403, "UnauthorizedBlobOverwrite", all, store.ErrDenied, true},
		{403, "AccountIsDisabled", all, store.ErrDenied, true},
		{404, "ResourceNotFound", all, store.ErrRefused, true},
		{404, "SomethingNotFound", all, store.ErrRefused, true},
		{404, "BlobNotFound", []string{"create", "list"}, store.ErrRefused, true},
		{409, "PublicAccessNotPermitted", all, store.ErrDenied, true},
		{409, "ContainerBeingDeleted", all, store.ErrNoBucket, true},
		{409, "BlobImmutableDueToPolicy", all, store.ErrRefused, true},
		{409, "BlobImmutableDueToLegalHold", all, store.ErrRefused, true},
		{409, "InvalidBlobType", all, store.ErrRefused, true},
		{409, "SnapshotsPresent", []string{"delete"}, store.ErrRefused, true},
		{409, "BlobArchived", all, store.ErrRefused, true},
		{409, "BlobBeingRehydrated", all, store.ErrUnavailable, false},
		{409, "ResourceTypeMismatch", all, store.ErrInvalid, true},
		{409, "PendingCopyOperation", writes, store.ErrConflict, false},
		{409, "AccountBeingCreated", all, store.ErrUnavailable, false},
		{409, "LeaseAlreadyPresent", all, store.ErrRefused, true},
		{412, "LeaseIdMissing", all, store.ErrRefused, true},
		{412, "LeaseIdMismatchWithBlobOperation", all, store.ErrRefused, true},
		{412, "TargetConditionNotMet", writes, store.ErrPrecondition, false},
		{413, "RequestBodyTooLarge", all, store.ErrRefused, true},
		{503, "ServerBusy", writes, store.ErrUnknownOutcome, false},
	} {
		for _, op := range c.ops {
			err := operations[op](t.Context(), newFaulty(t, coded(c.status, c.code), wiretest.Hang).store(t))
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Kind != c.want || store.Final(err) != c.final { //nolint:errorlint // Kind is a sentinel itself
				t.Errorf("%d %s, %s: %v, final %v", c.status, c.code, op, err, store.Final(err))
			}
			if http := http.StatusText(c.status); !strings.Contains(err.Error(), c.code+": words") || strings.Contains(err.Error(), "RequestId") || http == "" {
				t.Errorf("%d %s, %s: it says %q, want the code and the message", c.status, c.code, op, err)
			}
			if id := store.RequestIDOf(err); id != "id" {
				t.Errorf("%d %s, %s: the request's ID is %q", c.status, c.code, op, id)
			}
		}
	}
}

// TestAdvice: what a person can do about a code is said after it.
func TestAdvice(t *testing.T) {
	const role = "give the identity the role Storage Blob Data Contributor on the container, or the SAS the permissions to read, create, write, delete and list (sp=rcwdl)"
	for _, c := range []struct {
		status int
		code   string
		detail string // of credentials
		kind   error
		advice string
	}{
		{403, "AuthenticationFailed", "", store.ErrDenied, "check the credentials, and that they are those of this account"},
		{401, "InvalidAuthenticationInfo", "Lifetime validation\n failed", store.ErrDenied, "the token has expired: is this machine's clock right?"},
		{403, "AuthenticationFailed", "Request date header too old", store.ErrDenied, "set this machine's clock: it is too far from the server's"},
		{403, "AuthorizationPermissionMismatch", "", store.ErrDenied, role},
		{403, "UnauthorizedBlobOverwrite", "", store.ErrDenied, role},
		{403, "AuthorizationFailure", "", store.ErrDenied, "check the permissions, and the firewall of the account: it answers so to networks that it does not know"},
		{401, "NoAuthenticationInformation", "", store.ErrDenied, "the request had no credentials: give the store a token, a key or a SAS"},
		{403, "KeyBasedAuthenticationNotPermitted", "", store.ErrDenied, "the account takes no keys: use an identity of Microsoft Entra"},
		{403, "AuthorizationResourceTypeMismatch", "", store.ErrDenied, "the SAS is for something else: make one for the container"},
		{403, "AuthorizationServiceMismatch", "", store.ErrDenied, "the SAS is for something else: make one for the container"},
		{403, "InsufficientAccountPermissions", "", store.ErrDenied, ""},
		{409, "ContainerBeingDeleted", "", store.ErrNoBucket, "the container is being deleted; its name is free again after half a minute or more"},
		{403, "ContainerDisabled", "", store.ErrDenied, "an administrator has disabled it"},
		{403, "AccountIsDisabled", "", store.ErrDenied, "an administrator has disabled it"},
		{409, "PublicAccessNotPermitted", "", store.ErrDenied, "the request had no credentials, and the account lets nobody in without; give the store a token, a key or a SAS"},
		{409, "BlobImmutableDueToPolicy", "", store.ErrRefused, "a policy of immutability or a legal hold keeps this blob as it is: locks need a container without"},
		{409, "InvalidBlobType", "", store.ErrRefused, "the blob of this name is no block blob, so no store has written it: use another key or prefix, or delete it"},
		{409, "SnapshotsPresent", "", store.ErrRefused, "the blob has snapshots, which somebody made: delete them first"},
		{409, "BlobArchived", "", store.ErrRefused, "the blob was moved to the archive tier: exclude the locks from the rule that does so"},
		{409, "BlobUsesCustomerSpecifiedEncryption", "", store.ErrRefused, ""},
		{400, "BlobOperationNotSupported", "", store.ErrRefused, ""},
		{400, "InvalidBlockList", "", store.ErrUnavailable, "blocks of this upload are gone: did somebody else write the same key, or did it take more than a week?"},
		{409, "ServerBusy", "", store.ErrThrottled, ""},
		{400, "Crc64Mismatch", "", store.ErrUnavailable, ""},
		{400, "InvalidUri", "", store.ErrInvalid, ""},
		{400, "RequestUrlFailedToParse", "", store.ErrInvalid, ""},
		{404, "ResourceNotFound", "", store.ErrRefused, "Azure also says so of a private container to requests without credentials: check the credentials and the name of the container"},
		{404, "Other", "", store.ErrRefused, "this is about neither an object nor a container: check the credentials and the endpoint"},
	} {
		st := newStore(t, "http://account.example", func(o *azstore.Options) {
			o.Transport = &http.Client{Transport: wiretest.Direct{Server: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Ms-Error-Code", c.code)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, "<Error><Message>words.</Message><AuthenticationErrorDetail>"+c.detail+"</AuthenticationErrorDetail></Error>")
			})}}
		})
		want := fmt.Sprintf(`get "k": %v: %d %s: words`, c.kind, c.status, c.code)
		if c.advice != "" {
			want += "; " + c.advice
		}
		if err := operations["get"](t.Context(), st); err == nil || err.Error() != want || !errors.Is(err, c.kind) {
			t.Errorf("it says\n%v\nwant\n%s", err, want)
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
				err := do(t.Context(), newStore(t, endpoint))
				checkError(t, op, err, store.ErrUnavailable)
				if !strings.HasSuffix(err.Error(), "; no connection to the server, nothing was sent; check the endpoint, the name of the account and the network") || !strings.Contains(err.Error(), endpoint) {
					t.Errorf("it says %v", err)
				}
			})
		}
	}
}

// A tokens is a credential that gives what it is told to.
type tokens struct {
	err error
	n   int
}

func (f *tokens) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	f.n++
	return azcore.AccessToken{}, f.err
}

// TestConditionsAreSent: each write that has a condition sends it. The conformance suite runs none of DeleteIf.
func TestConditionsAreSent(t *testing.T) {
	for name, tt := range map[string]struct {
		do               func(*azstore.Store) error
		match, noneMatch string
	}{
		"create":   {func(st *azstore.Store) error { return operations["create"](t.Context(), st) }, "", "*"},
		"update":   {func(st *azstore.Store) error { return operations["update"](t.Context(), st) }, `"v1"`, ""},
		"DeleteIf": {func(st *azstore.Store) error { return st.DeleteIf(t.Context(), "k", `"v7"`) }, `"v7"`, ""},
		"Delete":   {func(st *azstore.Store) error { return st.Delete(t.Context(), "k") }, "", ""},
	} {
		server := newFaulty(t, wiretest.Raw(412, "", ""), wiretest.Hang)
		if err := tt.do(server.store(t)); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
		seen := server.Seen()
		if len(seen) != 1 || seen[0].Header.Get("If-Match") != tt.match || seen[0].Header.Get("If-None-Match") != tt.noneMatch {
			t.Errorf("%s: %d requests, the first with %v", name, len(seen), seen[0].Header)
		}
	}
}

// TestSentOnce: the SDK's own retries, which begin after seconds, are off for all but PutLarge. A retried write could
// land the first time and be told 412 the second. The time is virtual, so that a retry is seen, and not waited for.
func TestSentOnce(t *testing.T) {
	for op, do := range operations {
		for _, status := range []int{408, 429, 500, 503} {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					n++
					w.WriteHeader(status)
				})
				st := newStore(t, "http://store.invalid", func(o *azstore.Options) {
					o.Transport = &http.Client{Transport: wiretest.Direct{Server: server}}
					o.Retry = policy.RetryOptions{} // that of the SDK
				})
				began := time.Now()
				if err := do(t.Context(), st); err == nil || n != 1 || time.Since(began) > 0 {
					t.Errorf("%s, answered %d: %v, after %d requests in %v", op, status, err, n, time.Since(began))
				}
			})
		}
	}
}

// TestProxyThatRepeatsTheRequest: the SAS is in the URL that an error page or a redirect repeats.
func TestProxyThatRepeatsTheRequest(t *testing.T) {
	const url = "https://account.blob.core.windows.net/container/k?sp=rcwdl&" + secret
	for _, answer := range []string{
		wiretest.Raw(502, "", "<html><p>cannot reach "+url+" now"),
		wiretest.Raw(404, "", "<html><p>no "+strings.TrimPrefix(url, "https://account.blob.core.windows.net")),
		wiretest.Raw(403, "", "<html>"+strings.ReplaceAll(url, "&", "&amp;")),
		wiretest.Raw(400, "", "<Error><Code>Bad</Code><Message>Do not ask "+strings.ReplaceAll(url, "&", "&amp;")+" again.</Message></Error>"),
		wiretest.Raw(200, "ETag: \"v2\"\r\n", "<html>"+url), // of a listing
		wiretest.Raw(302, "Location: "+url+"\r\n", ""),
		wiretest.Raw(308, "Location: "+url+"\r\n", ""),
	} {
		for op, do := range operations {
			err := do(t.Context(), newFaulty(t, answer, wiretest.Hang).store(t))
			if err == nil {
				continue // 200 is no error of others than a listing
			}
			if e, ok := errors.AsType[*store.Error](err); !ok || strings.Contains(e.Error(), "c2VjcmV0") || strings.Contains(e.Error(), "sp=") {
				t.Errorf("%s, answered %q: %v", op, answer, err)
			}
		}
	}
}

// Azure's credentials make requests of their own. What they are answered says nothing about
// the object, least of all that it is absent, and where there is no token nothing was sent.
func TestNoToken(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"no credentials", errors.New("DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n\tEnvironmentCredential: missing\n--------\n"), store.ErrDenied},
		{"404 of the identity service", &azcore.ResponseError{StatusCode: 404, ErrorCode: "BlobNotFound"}, store.ErrDenied},
		{"503 of the identity service", &azcore.ResponseError{StatusCode: 503}, store.ErrUnavailable},
		{"429 of the identity service", &azcore.ResponseError{StatusCode: 429}, store.ErrUnavailable},
		{"no way to the identity service", &net.OpError{Op: "dial", Err: errors.New("no route to host")}, store.ErrUnavailable},
		{"a missing file of the identity", &fs.PathError{Op: "open", Path: "/token", Err: syscall.ENOENT}, store.ErrDenied}, // its errno is a net.Error
		{"a time-out", context.DeadlineExceeded, store.ErrUnavailable},
	} {
		for op, do := range operations {
			t.Run(c.name+"/"+op, func(t *testing.T) {
				server := newFaulty(t, wiretest.Raw(200, "", ""), wiretest.Hang)
				source := &tokens{err: c.err}
				err := do(t.Context(), newStore(t, "https://"+server.Addr, func(o *azstore.Options) { o.Token = source }))
				checkError(t, op, err, c.want)
				if !errors.Is(err, c.err) || source.n != 1 {
					t.Errorf("after %d requests for a token: %v", source.n, err)
				}
				if n := len(server.Seen()); n != 0 {
					t.Errorf("%d requests reached the server, want none", n)
				}
			})
		}
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
				checkError(t, op, err, want)
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

// cancelling is an HTTP client that ends a context once it has an answer.
type cancelling struct{ cancel context.CancelCauseFunc }

func (c cancelling) Do(req *http.Request) (*http.Response, error) {
	answer, err := http.DefaultClient.Do(req)
	c.cancel(errOwnCause)
	return answer, err
}

// The answer came first: the context has not ended the call, whatever the SDK says.
func TestContextEndsAfterTheAnswer(t *testing.T) {
	server := newFaulty(t, coded(412, "ConditionNotMet"), wiretest.Hang)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := operations["update"](ctx, server.store(t, func(o *azstore.Options) { o.Transport = cancelling{cancel} }))
	checkError(t, "update", err, store.ErrPrecondition)
	if errors.Is(err, context.Canceled) {
		t.Errorf("%v matches context.Canceled", err)
	}
}

func TestContextEndedBefore(t *testing.T) {
	for op, do := range operations {
		server := newFaulty(t, wiretest.Raw(200, "", ""), wiretest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := do(ctx, server.store(t))
		checkError(t, op, err, store.ErrUnavailable)
		if !errors.Is(err, context.Canceled) || len(server.Seen()) != 0 {
			t.Errorf("%s: %d requests, and then %v", op, len(server.Seen()), err)
		}
	}
}

// A body is one that an answer of any status may have, with the headers that come with it.
type body struct {
	name   string
	text   string
	header http.Header
}

var bodies = []body{
	{"no body", "", nil},
	{"BlobNotFound", "<Error><Code>BlobNotFound</Code><Message>words</Message></Error>", http.Header{"X-Ms-Error-Code": {"BlobNotFound"}, "X-Ms-Request-Id": {"id"}}},
	{"BlobNotFound without a body", "", http.Header{"X-Ms-Error-Code": {"BlobNotFound"}}},
	{"a code that nobody knows", "<Error><Message>words</Message></Error>", http.Header{"X-Ms-Error-Code": {"Unheard"}}},
	{"a page", "<html><head><title>No</title></head><body><h1>No</h1></body></html>", http.Header{"Content-Type": {"text/html"}}},
	{"text", "404 page not found\n", http.Header{"Content-Type": {"text/plain"}}},
	{"JSON", `{"error":{"code":"BlobNotFound"}}`, http.Header{"Content-Type": {"application/json"}}},
}

// wanted gives the kind of error of an answer: the table of what each status means, one
// row for each group. A status that no row names tells nothing of a write.
func wanted(status int, op, code string) error {
	writes := op == "create" || op == "update" || op == "delete"
	unsettled := store.ErrUnavailable
	if writes {
		unsettled = store.ErrUnknownOutcome
	}
	switch status {
	case 404:
		switch {
		case code == "":
			return store.ErrUnavailable
		case code == "BlobNotFound" && op == "delete":
			return nil
		case code == "BlobNotFound" && (op == "get" || op == "update"):
			return store.ErrNotExist
		}
		return store.ErrRefused
	case 401, 403:
		return store.ErrDenied
	case 412:
		if writes {
			return store.ErrPrecondition
		}
		return store.ErrUnavailable
	case 409:
		if writes && code == "" {
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
// by Azure's own word, one call is one request, and a write that may have landed is never
// reported as not landed.
func TestStatuses(t *testing.T) {
	var requests atomic.Int64
	var answer func(w http.ResponseWriter)
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		answer(w)
	})
	st := newStore(t, "http://account.example", func(o *azstore.Options) {
		o.Transport = &http.Client{Transport: wiretest.Direct{Server: server}}
	})
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
				want := wanted(status, op, b.header.Get("x-ms-error-code"))
				if e, ok := errors.AsType[*store.Error](err); want == nil && err != nil || want != nil && (!ok || e.Kind != want) { //nolint:errorlint // Kind is a sentinel itself
					t.Errorf("%s: %v, want the kind %v", name, err, want)
				}
				if id := store.RequestIDOf(err); err != nil && id != b.header.Get("x-ms-request-id") {
					t.Errorf("%s: the request's ID is %q", name, id)
				}
				if err != nil && (!strings.Contains(err.Error(), fmt.Sprint(status)) || strings.ContainsAny(err.Error(), "\n<")) {
					t.Errorf("%s: it says %q, want the status, in one line", name, err)
				}
			}
		}
	}
}

// TestWords: an error says what failed, on what, why and what to do, in this order.
func TestWords(t *testing.T) {
	for _, c := range []struct{ answer, op, want string }{
		{
			coded(404, "ContainerNotFound"), "create",
			`put "k": no such bucket or directory: 404 ContainerNotFound: words; make the container, or check its name and the account`,
		},
		{
			wiretest.Raw(404, "", "404 page not found\n"), "get",
			`get "k": store unavailable: 404 Not Found: "404 page not found"; this is not how Azure says that an object does not exist: does the endpoint lead to Azure Blob Storage?`,
		},
		{
			coded(412, "LeaseIdMissing"), "update",
			`put "k": refused by the store: 412 LeaseIdMissing: words; somebody holds a lease of Azure's own on this blob: break it, and keep such leases off the keys of locks`,
		},
		{wiretest.Raw(411, "", ""), "update", `put "k": refused by the store: 411 Length Required, without a body`},
	} {
		if err := operations[c.op](t.Context(), newFaulty(t, c.answer, wiretest.Hang).store(t)); err == nil || err.Error() != c.want {
			t.Errorf("it says\n%v\nwant\n%s", err, c.want)
		}
	}
}

// TestEndlessRefusal: an error's body is read so far and no further. The SDK would read all
// of it into memory, however much came.
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
		checkError(t, op, operations[op](t.Context(), newStore(t, server.URL)), store.ErrDenied)
		if n := <-got; n > most/2 {
			t.Errorf("%s: the server got rid of %d bytes", op, n)
		}
	}
}

// TestListingOfAnotherServer: what a web server gives is no listing without objects.
func TestListingOfAnotherServer(t *testing.T) {
	for name, text := range map[string]string{
		"a page":             "<!DOCTYPE html>\n<html><head><meta charset=utf-8><title>It works!</title></head><body>It works!<br></body></html>",
		"no page":            "",
		"JSON":               `{"items":[]}`,
		"S3":                 "<ListBucketResult/>",
		"Azure, but no list": "<BlockList/>",
	} {
		err := operations["list"](t.Context(), newFaulty(t, wiretest.Raw(200, "", text), wiretest.Hang).store(t))
		checkError(t, "list", err, store.ErrUnavailable)
		if !strings.Contains(err.Error(), "no listing of Azure") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
