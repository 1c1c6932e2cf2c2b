package s3store_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

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
