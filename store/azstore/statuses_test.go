package azstore_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

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
