package gcsstore_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

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
