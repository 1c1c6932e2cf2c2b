// Package e2e_test runs the library and the command over every store, on real servers,
// in the layout that the variable LEASEHOLD_LAYOUT names, and without If-Match if
// LEASEHOLD_TEST_NO_IF_MATCH is set.
package e2e_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/s3store"
	"github.com/leasehold/leasehold/store/storeurl"
)

var long = flag.Bool("long", false, "do what is counted or measured many times more often")

// TestMain lets more tests run at a time than there are cores: they wait for leases
// to end, most of the time.
func TestMain(m *testing.M) {
	becomeHolder()
	if config := os.Getenv(candidateVariable); config != "" {
		if err := candidate(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if config := os.Getenv(tenantVariable); config != "" {
		if err := tenant(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// underTest is the way that all locks here are stored in.
var underTest = leasetest.UnderTest()

// renewals reports that leases are renewed. Where they are not, a holder that is gone
// has to be swept away: every candidate here does.
func renewals() bool { return underTest.Renews() }

// serverNames are the servers that can carry the layout.
func serverNames() []string {
	names := slices.Clone(servers.Names)
	if underTest.NoIfMatch {
		names = append(names, servers.CreateOnly)
	}
	return names
}

// built is the path of the command, if a test has built it.
var built string

// A place is one store of the kinds that there are. Every call of open gives the
// same place, over connections of its own.
type place struct {
	name string
	open func(t *testing.T) store.Store
	// requests counts the HTTP requests that reached the place since it was
	// made, by method; nil where there are none.
	requests func() map[string]int
}

// counts are the requests so far, if there are any.
func (p place) counts() map[string]int {
	if p.requests == nil {
		return map[string]int{}
	}
	return p.requests()
}

// everywhere runs test over each kind of store: in memory, in a directory, on each
// server of S3, on the emulators of other clouds, and on a quorum of three kinds.
func everywhere(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	run := func(p place) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
	mem := memstore.New()
	run(place{name: "mem", open: func(*testing.T) store.Store { return mem }})
	dir := t.TempDir()
	run(place{name: "file", open: func(t *testing.T) store.Store {
		st, err := filestore.New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}})
	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Start(t, name)
			proxy := servers.StartProxy(t, server.Endpoint, nil)
			bucket := server.Bucket(t)
			test(t, place{
				name: name, requests: proxy.Counts,
				open: func(t *testing.T) store.Store {
					st, err := s3store.New(server.ClientAt(proxy.Endpoint), bucket, nil)
					if err != nil {
						t.Fatal(err)
					}
					return st
				},
			})
		})
	}
	t.Run(servers.GCS, func(t *testing.T) {
		t.Parallel()
		server := servers.StartGCS(t)
		// Its requests are not counted: a write is a POST, and where the emulator does not say
		// what is missing there is one more.
		test(t, place{name: servers.GCS, open: opens(server.GCSURL(server.GCSBucket(t)))})
	})
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		test(t, aQuorum(t))
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		server := servers.StartAzurite(t)
		proxy := servers.StartProxy(t, server.Host(), nil)
		at := proxy.Endpoint + "/" + server.Account + "/" + server.Container(t)
		test(t, place{
			name: "azurite", requests: proxy.Counts,
			open: func(t *testing.T) store.Store { return azuriteStore(t, server, at) },
		})
	})
}

// aQuorum is a store over a directory, a server of S3 and the emulator of Google's.
func aQuorum(t *testing.T) place {
	t.Helper()
	s3, gcs := servers.Start(t, "gofakes3"), servers.StartGCS(t)
	bucket, google := s3.Bucket(t), opens(gcs.GCSURL(gcs.GCSBucket(t)))
	// Not t.TempDir: the slowest of the three members may still get a write after the test has ended.
	dir, err := os.MkdirTemp("", "quorum") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	open := func(t *testing.T) *quorumstore.Store {
		t.Helper()
		file, err := filestore.New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		amazon, err := s3store.New(s3.Client(), bucket, nil)
		if err != nil {
			t.Fatal(err)
		}
		st, err := quorumstore.New([]store.Store{file, amazon, google(t)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if err := open(t).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return place{name: "quorum", open: func(t *testing.T) store.Store { return open(t) }}
}

// azuriteStore opens a container by its URL, which may be that of a proxy.
func azuriteStore(t *testing.T, server *servers.Azurite, at string) store.Store {
	t.Helper()
	key, err := container.NewSharedKeyCredential(server.Account, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	st, err := azstore.New(at, &azstore.Options{SharedKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// opens opens the store of a URL.
func opens(rawurl string) func(t *testing.T) store.Store {
	return func(t *testing.T) store.Store {
		st, err := storeurl.Open(t.Context(), rawurl)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := st.(io.Closer); ok {
			t.Cleanup(func() { _ = c.Close() })
		}
		return st
	}
}
