// Package adaptertest is what the tests of all adapters share: the stores that they run on, the rounds in which a
// holder is cut off from its store in mid-work, the tests of the other project, run against the adapter, and the
// adapter's row in docs/adapters.md.
package adaptertest

import (
	"flag"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/s3store"
)

var update = flag.Bool("update", false, "write what the tests find into docs/adapters")

// A Place is where objects lie.
type Place struct {
	Name string
	// Open gives a store of the caller's own, of the same objects each time. It is closed when the test of t ends, and
	// with it its connections.
	Open func(t testing.TB) store.Store
}

// Everywhere runs f in memory, in a directory, and on each S3 server; those but gofakes3 are for long tests.
func Everywhere(t *testing.T, f func(t *testing.T, p Place)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		st := memstore.New()
		f(t, Place{"memory", func(testing.TB) store.Store { return st }})
	})
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		f(t, Place{"directory", func(t testing.TB) store.Store {
			t.Helper()
			st, err := filestore.New(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}})
	})
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) {
			server := servers.Start(t, name)
			bucket := server.Bucket(t)
			f(t, Place{name, func(t testing.TB) store.Store { return open(t, server, server.Endpoint, bucket) }})
		})
	}
}

// open gives a store of a bucket, with connections of its own.
func open(t testing.TB, server *servers.Server, endpoint, bucket string) store.Store {
	t.Helper()
	options := server.ClientAt(endpoint).Options()
	options.HTTPClient = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	st, err := s3store.New(s3.New(options), bucket, &s3store.Options{OwnClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := io.Closer(st).Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}
