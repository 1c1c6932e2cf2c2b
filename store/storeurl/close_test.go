package storeurl_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// labelled runs f, and counts the goroutines that f has left behind, and those that they have: goroutines
// inherit labels, so what other tests do does not matter.
func labelled(t *testing.T, f func(ctx context.Context)) (left func() int) {
	t.Helper()
	pprof.Do(t.Context(), pprof.Labels("of", t.Name()), f)
	mark := fmt.Sprintf("%q:%q", "of", t.Name())
	return func() (n int) {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			t.Fatal(err)
		}
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			var same int
			if _, err := fmt.Sscanf(strings.TrimSpace(stack), "%d @", &same); err == nil && strings.Contains(stack, mark) {
				n += same
			}
		}
		return n
	}
}

// gone waits until no goroutine is left.
func gone(t *testing.T, left func() int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); left() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left", left())
		}
	}
}

func openCloser(ctx context.Context, t *testing.T, rawurl string) (store.Store, io.Closer) {
	t.Helper()
	st, err := storeurl.Open(ctx, rawurl)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := st.(io.Closer)
	if !ok {
		t.Fatalf("the store %v is no io.Closer", st)
	}
	return st, c
}

// TestCloseLeavesNothing: a store that was closed has no connection and no goroutine any more, also
// one that was used after that and closed again.
func TestCloseLeavesNothing(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		srv := servers.Start(t, "gofakes3")
		noAWS(t)
		t.Setenv("AWS_ACCESS_KEY_ID", srv.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", srv.SecretKey)
		closeLeavesNothing(t, srv.URL(srv.Bucket(t)))
	})
	t.Run("gs", func(t *testing.T) {
		srv := servers.StartGCS(t)
		noGoogle(t)
		closeLeavesNothing(t, srv.GCSURL(srv.GCSBucket(t)))
	})
	t.Run("azblob", func(t *testing.T) {
		srv := servers.StartAzurite(t)
		noAzure(t)
		t.Setenv("AZURE_STORAGE_KEY", srv.Key)
		closeLeavesNothing(t, srv.URL(srv.Container(t)))
	})
}

func closeLeavesNothing(t *testing.T, at string) {
	t.Helper()
	var closer io.Closer
	var st store.Store
	left := labelled(t, func(ctx context.Context) {
		st, closer = openCloser(ctx, t, at)
		if _, err := st.Put(ctx, "jobs/backup", []byte("a"), store.IfAbsent()); err != nil {
			t.Error(err)
		}
	})
	if left() == 0 {
		t.Fatal("no goroutine was counted though a connection is kept")
	}
	for range 2 {
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
		gone(t, left)
	}
	again := labelled(t, func(ctx context.Context) {
		if _, err := st.Get(ctx, "jobs/backup", ""); err != nil {
			t.Errorf("a closed store is asked: %v", err)
		}
	})
	if again() == 0 {
		t.Error("no goroutine was counted though a connection was opened anew")
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, again)
}

// TestCloseCutsNothingOff: a request that is under way when the store is closed is answered, and its connection
// is closed then.
func TestCloseCutsNothingOff(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-answer
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write([]byte("body"))
	}))
	t.Cleanup(server.Close)
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var closer io.Closer
	got := make(chan error)
	left := labelled(t, func(ctx context.Context) {
		var st store.Store
		st, closer = openCloser(ctx, t, "s3://bucket?endpoint="+url.QueryEscape(server.URL))
		go func() {
			_, err := st.Get(ctx, "key", "")
			got <- err
		}()
		<-asked
	})
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	answer <- true
	if err := <-got; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
	gone(t, left)
}

// TestOtherStoresNeedNoClosing: they keep nothing.
func TestOtherStoresNeedNoClosing(t *testing.T) {
	for _, at := range []string{"mem://name", "file://" + t.TempDir()} {
		st, err := storeurl.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := st.(io.Closer); ok {
			t.Errorf("%v is an io.Closer", st)
		}
	}
}
