// Package e2e_test runs the library over every store, on real servers.
package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/s3store"
)

// TestMain lets more tests run at a time than there are cores: they wait for leases
// to end, most of the time.
func TestMain(m *testing.M) {
	if config := os.Getenv(candidateVariable); config != "" {
		if err := candidate(config); err != nil {
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

// everywhere runs test over each kind of store: in memory, in a directory, and on
// each server.
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
	for _, name := range servers.Names {
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
}
