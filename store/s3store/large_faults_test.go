package s3store_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// purpose says in a word what a request is for.
func purpose(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPut && query.Has("partNumber"):
		return "part " + query.Get("partNumber")
	case r.Method == http.MethodPost && query.Has("uploads"):
		return "begin"
	case r.Method == http.MethodPost:
		return "complete"
	case r.Method == http.MethodDelete:
		return "abort"
	}
	return r.Method
}

func TestLargeFaults(t *testing.T) {
	for _, name := range []string{"gofakes3", "versitygw"} {
		if !servers.Skipped(name) {
			size := int64(part)
			if name == "gofakes3" { // it takes parts of any size
				size = 64 << 10
			}
			t.Run(name, func(t *testing.T) { largeFaults(t, servers.Start(t, name), size) })
		}
	}
}

func largeFaults(t *testing.T, srv *servers.Server, part int64) {
	t.Helper()
	lost, refused, denied, busy := servers.DropAnswer, servers.DropRequest, servers.Status(403), servers.Status(503)
	for _, c := range []struct {
		name   string
		faults map[string][]servers.Fault // of a purpose, one request after the other
		want   []error                    // nil: success
		there  bool
		says   string
	}{
		// One fault is made up for by a repetition.
		{"small, lost answer", map[string][]servers.Fault{"PUT": {lost}}, nil, true, ""},
		{"small, lost request", map[string][]servers.Fault{"PUT": {refused}}, nil, true, ""},
		{"small, busy", map[string][]servers.Fault{"PUT": {busy}}, nil, true, ""},
		{"begin, lost request", map[string][]servers.Fault{"begin": {refused}}, nil, true, ""},
		{"part, lost answer", map[string][]servers.Fault{"part 2": {lost}}, nil, true, ""},
		{"part, lost request", map[string][]servers.Fault{"part 2": {refused}}, nil, true, ""},
		{"part, busy", map[string][]servers.Fault{"part 1": {busy}, "part 3": {busy, busy}}, nil, true, ""},
		{"complete, lost request", map[string][]servers.Fault{"complete": {refused}}, nil, true, ""},

		// More are not, and then it matters which request it was.
		{"small, lost answers", map[string][]servers.Fault{"PUT": {lost, lost, lost}}, []error{store.ErrUnknownOutcome}, true, ""},
		{"small, lost requests", map[string][]servers.Fault{"PUT": {refused, refused, refused}}, []error{store.ErrUnknownOutcome}, false, ""},
		{"small, denied", map[string][]servers.Fault{"PUT": {denied}}, []error{store.ErrDenied}, false, ""},
		{"small, lost answer, then denied", map[string][]servers.Fault{"PUT": {lost, denied}}, []error{store.ErrUnknownOutcome}, true, ""},
		{"small, broken down, then denied", map[string][]servers.Fault{"PUT": {servers.StatusAfter(500), denied}}, []error{store.ErrUnknownOutcome}, true, ""},
		{"begin, lost requests", map[string][]servers.Fault{"begin": {refused, refused, refused}}, []error{store.ErrUnavailable}, false, ""},
		{"begin, denied", map[string][]servers.Fault{"begin": {denied}}, []error{store.ErrDenied}, false, ""},
		{"part, lost answers", map[string][]servers.Fault{"part 2": {lost, lost, lost}}, []error{store.ErrUnavailable}, false, ""},
		{"part, lost answer, then denied", map[string][]servers.Fault{"part 3": {lost, denied}}, []error{store.ErrDenied}, false, ""},
		{"complete, lost answers", map[string][]servers.Fault{"complete": {lost, refused, refused}}, []error{store.ErrUnknownOutcome}, true, ""},
		{"complete, lost requests", map[string][]servers.Fault{"complete": {refused, refused, refused}}, []error{store.ErrUnknownOutcome}, false, ""},
		{"complete, denied", map[string][]servers.Fault{"complete": {denied}}, []error{store.ErrDenied}, false, ""},
		{"abort, lost answer", map[string][]servers.Fault{"part 2": {denied}, "abort": {lost}}, []error{store.ErrDenied}, false, ""},
		{"abort, lost request", map[string][]servers.Fault{"part 2": {denied}, "abort": {refused}}, []error{store.ErrDenied}, false, ""},
		{"abort, denied", map[string][]servers.Fault{"part 2": {denied}, "abort": {denied}}, []error{store.ErrDenied}, false, "its parts stay, under the upload ID "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			left := c.faults
			proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
				mu.Lock()
				defer mu.Unlock()
				what := purpose(r)
				if len(left[what]) == 0 {
					return servers.Pass
				}
				fault := left[what][0]
				left[what] = left[what][1:]
				return fault
			}})
			bucket := srv.Bucket(t)
			direct := open(t, srv.Client(), bucket)
			size := 2*part + 1
			if strings.HasPrefix(c.name, "small") {
				size = 1
			}
			st := open(t, atOnce(srv.ClientAt(proxy.Endpoint)), bucket)
			st.Parts(part)
			_, err := st.PutLarge(t.Context(), "k", random(size))
			if c.want == nil && err != nil {
				t.Errorf("PutLarge gives %v", err)
			}
			if c.want != nil {
				wiretest.CheckError(t, "put", err, c.want...)
			}
			mu.Lock()
			defer mu.Unlock()
			for what, faults := range left {
				if len(faults) > 0 {
					t.Errorf("%d faults of %q never happened", len(faults), what)
				}
			}
			if c.says != "" {
				ids := direct.uploads(t)
				if len(ids) != 1 || !strings.Contains(err.Error(), c.says+ids[0]) {
					t.Errorf("the uploads left over are %q; the error says: %v", ids, err)
				}
				return
			}
			if c.there {
				direct.wantLarge(t, size)
			} else {
				direct.wantNothing(t)
			}
		})
	}
}

// The outcome of the last request says nothing about those before it. The SDK
// repeats a request that is answered with 400 RequestTimeout.
func TestLargeRepeats(t *testing.T) {
	const (
		unconnected = 0
		lost        = 1
	)
	for _, c := range []struct {
		name    string
		answers []int // one request after the other
		want    error
	}{
		{"refused", []int{400, 403}, store.ErrDenied},
		{"refused, then lost", []int{400, lost, lost}, store.ErrUnknownOutcome},
		{"refused, then lost, then refused", []int{400, lost, 403}, store.ErrUnknownOutcome},
		{"no connection", []int{unconnected, unconnected, unconnected}, store.ErrUnavailable},
		{"no connection, then refused", []int{unconnected, 403}, store.ErrDenied},
		{"refused, then no connection", []int{400, unconnected, unconnected}, store.ErrUnavailable},
		{"lost, then no connection", []int{lost, unconnected, unconnected}, store.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			answers := c.answers
			// next takes the next answer away, if it is for the caller.
			next := func(dialling bool) (answer int, mine bool) {
				mu.Lock()
				defer mu.Unlock()
				if dialling && answers[0] != unconnected {
					return 0, false
				}
				answer, answers = answers[0], answers[1:]
				return answer, true
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer, _ := next(false)
				if answer == lost {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(answer)
				_, _ = io.WriteString(w, xmlError(map[int]string{400: "RequestTimeout", 403: "AccessDenied"}[answer], "words"))
			}))
			t.Cleanup(server.Close)
			dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
				if _, mine := next(true); mine {
					return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			client := atOnce(client(server.URL, func(o *s3.Options) {
				o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
			}))
			_, err := newStore(t, client).PutLarge(t.Context(), "k", random(1))
			wiretest.CheckError(t, "put", err, c.want)
			mu.Lock()
			defer mu.Unlock()
			if len(answers) != 0 {
				t.Errorf("%d requests were not sent", len(answers))
			}
		})
	}
}

// A body whose connection breaks ends in an error, never as if it were whole.
func TestLargeBreaksOff(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	proxy := servers.StartProxy(t, srv.Endpoint, nil)
	st := open(t, srv.ClientAt(proxy.Endpoint), srv.Bucket(t))
	if _, err := st.PutLarge(t.Context(), "k", random(40*mib)); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(cancel func()){
		"connection": func(func()) { proxy.Refuse() },
		"context":    func(cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, _, err := st.GetLarge(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err = io.CopyN(io.Discard, r, mib); err != nil {
				t.Fatal(err)
			}
			end(cancel)
			n, err := io.Copy(io.Discard, r) // of what was on its way some still comes
			wiretest.CheckError(t, "get", err, store.ErrUnavailable)
			if got := errors.Is(err, context.Canceled); got != (name == "context") || n >= 39*mib {
				t.Errorf("%d bytes came, and then: %v", n, err)
			}
			proxy.Restore(t)
		})
	}
}

func TestLargeAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		end    wiretest.Ending
		opens  bool
		says   string
	}{
		{"cut", wiretest.Cut(wiretest.Raw(200, "ETag: \"v\"\r\n", "the body"), 3), wiretest.FIN, true, "unexpected EOF"},
		{"reset", wiretest.Cut(wiretest.Raw(200, "ETag: \"v\"\r\n", "the body"), 3), wiretest.RST, true, ""},
		{"without a length", "HTTP/1.1 200 OK\r\nETag: \"v\"\r\n\r\nthe body", wiretest.FIN, false, "how long"},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", wiretest.FIN, false, "how long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, size, err := newFaulty(t, c.answer, c.end).store(t).GetLarge(t.Context(), "k")
			if c.opens {
				if err != nil || size != int64(len("the body")) {
					t.Fatalf("GetLarge gives the size %d, %v", size, err)
				}
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			wiretest.CheckError(t, "get", err, store.ErrUnavailable)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want %q in it", err, c.says)
			}
		})
	}
}

// S3 answers 200 before it knows whether it can complete an upload.
func TestLargeCompleteSays200(t *testing.T) {
	for name, body := range map[string]string{
		"error":   xmlError("InternalError", "words"),
		"cut":     "<CompleteMultipartUploadResult><ETag>",
		"empty":   "",
		"no ETag": "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				switch purpose(r) {
				case "begin":
					_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
				case "complete":
					_, _ = io.WriteString(w, body)
				case "abort":
					w.WriteHeader(http.StatusNoContent)
				default:
					w.Header().Set("ETag", `"v"`)
				}
			}))
			t.Cleanup(server.Close)
			_, err := newStore(t, atOnce(client(server.URL))).PutLarge(t.Context(), "k", random(part))
			wiretest.CheckError(t, "put", err, store.ErrUnknownOutcome)
		})
	}
	_, err := newFaulty(t, wiretest.Raw(200, "", ""), wiretest.Hang).store(t).PutLarge(t.Context(), "k", random(1))
	wiretest.CheckError(t, "put", err, store.ErrUnknownOutcome)
	if !strings.Contains(err.Error(), "no ETag") {
		t.Errorf("without an ETag: %v", err)
	}
}
