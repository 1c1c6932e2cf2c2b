package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// TestTwoLocksUnderOneName: a bucket, other than a directory, can have an object and epochs under
// one name. No command guesses which one is meant, least of all one that writes; --layout says it.
// Nor is guessed where the store lists nothing for this user.
func TestTwoLocksUnderOneName(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "demo")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("LEASEHOLD_LAYOUT", "")
	for _, v := range os.Environ() { // those that the tests read, the command would warn of
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "LEASEHOLD_TEST_") {
			t.Setenv(name, "")
		}
	}
	server, err := startDemoServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	behind, err := url.Parse(server.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	without := func(status int, code string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("list-type") {
				w.WriteHeader(status)
				_, _ = w.Write([]byte("<Error><Code>" + code + "</Code></Error>"))
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		return s
	}
	unlisting, refusing := without(http.StatusForbidden, "AccessDenied"), without(http.StatusNotImplemented, "NotImplemented")
	down := without(http.StatusServiceUnavailable, "SlowDown")
	where := "s3://" + demoBucket
	st, err := storeurl.Open(t.Context(), where+"?endpoint="+server.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	for name, layouts := range map[string][]leasehold.Layout{
		"both": {leasehold.LayoutObject, leasehold.LayoutEpochs}, "alone": {leasehold.LayoutObject},
	} {
		for _, l := range layouts {
			lock, failed := leasehold.NewLock(st, name, &leasehold.LockOptions{Layout: l, Holder: "me"})
			if failed != nil {
				t.Fatal(failed)
			}
			if err = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	slots, err := semaphore.New(st, "slots", 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := slots.Acquire(t.Context(), 1)
	if err == nil {
		err = errors.Join(lease.Release(t.Context()), slots.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	both := where + "/both?endpoint=" + server.endpoint
	unlisted := where + "/alone?endpoint=" + unlisting.URL
	for _, tt := range []struct {
		args string
		code int
		out  string
		says string
	}{
		{"status " + both, exitForeign, "", "the name has locks of two layouts: object and epochs: give --layout, to say which one is meant\n"},
		{"status --exit-code " + both, exitForeign, "", "object and epochs"},
		{"watch " + both, exitForeign, "", "object and epochs"},
		{"history " + both, exitForeign, "", "object and epochs"},
		{"break --token 1 " + both, exitForeign, "", "object and epochs"},
		{"status --layout epochs " + both, 0, "token 1\n", ""},
		{"status --layout object " + both, 0, "last      me, token ", ""},
		{"break --layout epochs --token 1 " + both, 0, "was free already: token 1\n", ""},

		{"status " + unlisted, 0, "last      me, token ", "a lock with epochs under the same name would not be seen: access denied: 403 AccessDenied"},
		{"status " + strings.Replace(unlisted, unlisting.URL, refusing.URL, 1), 0, "last      me, token ", "a lock with epochs under the same name would not be seen: refused by the store: 501 NotImplemented"},
		{"status " + strings.Replace(unlisted, unlisting.URL, down.URL, 1), exitUnavailable, "", "throttled by the store: 503 SlowDown"},
		{"status --layout object " + unlisted, 0, "last      me, token ", ""},
		{"break --token 1 " + unlisted, exitDenied, "", "the lock is left as it is, because another may lie under the same name: give --layout"},
		{"break --layout object --token 1 " + unlisted, 0, "was free already", ""},
		{"status " + strings.Replace(unlisted, "alone", "slots", 1), 0, "kind      semaphore, 0 of 2 slots taken\n", "): the semaphore is shown\n"},
		{"break --token 5 " + strings.Replace(unlisted, "alone", "slots", 1), 0, "was free already\n", ""},
		{"status " + strings.Replace(unlisted, "alone", "none", 1), exitDenied, "", "access denied: 403 AccessDenied"},
	} {
		var stdout, stderr bytes.Buffer
		code := exec(t.Context(), strings.Fields(tt.args), &stdout, &stderr)
		if code != tt.code || !strings.Contains(stdout.String(), tt.out) || tt.out == "" && stdout.Len() > 0 ||
			!strings.Contains(stderr.String(), tt.says) || tt.says == "" && stderr.Len() > 0 {
			t.Errorf("leasehold %s\nexits with %d, want %d; it writes %q, want %q, and says %q, want %q", tt.args, code, tt.code, stdout.String(), tt.out, stderr.String(), tt.says)
		}
	}
}
