package s3store_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// TestCloseAndWhoseClientItIs: the connections of a client that a store owns are closed with it, and those
// of the caller's are kept for his other requests.
func TestCloseAndWhoseClientItIs(t *testing.T) {
	for _, owned := range []bool{false, true} {
		var connections atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		client := client(server.URL, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: transport} })
		st, err := s3store.New(client, "bucket", &s3store.Options{OwnClient: owned})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err = st.Put(t.Context(), "key", nil, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			if err = st.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := connections.Load(); owned && n != 3 || !owned && n != 1 {
			t.Errorf("owned %v: %d connections for 3 requests, each followed by Close", owned, n)
		}
	}
}

// TestOwnClientThatCannotBeClosed: Close would promise what it cannot keep, so New says it.
func TestOwnClientThatCannotBeClosed(t *testing.T) {
	_, err := s3store.New(client("http://127.0.0.1:9"), "bucket", &s3store.Options{OwnClient: true})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "CloseIdleConnections") {
		t.Errorf("the SDK's own client: %v", err)
	}
	if err = newStore(t, client("http://127.0.0.1:9")).Close(); err != nil {
		t.Errorf("a store whose client is the caller's: %v", err)
	}
}
