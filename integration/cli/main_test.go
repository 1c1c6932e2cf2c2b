// Package cli_test tests the command leasehold with real servers, shells and other tools.
package cli_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they wait for processes
		panic(err)
	}
	os.Exit(clitest.Build(m))
}

// TestScripts runs those that need shells or other tools.
func TestScripts(t *testing.T) {
	t.Parallel()
	clitest.Scripts{Dir: filepath.Join("testdata", "script")}.Run(t)
}

// ways are those that a server can carry.
func ways(server string) []leasetest.Way {
	if server == servers.CreateOnly {
		return []leasetest.Way{leasetest.EpochsNoIfMatch, leasetest.MarkerNoIfMatch}
	}
	return leasetest.Ways
}

// TestScriptsWithServer runs those for any server, and those for S3, on each server and over each
// layout.
func TestScriptsWithServer(t *testing.T) {
	t.Parallel()
	for _, name := range append(servers.Selected(), servers.CreateOnly) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			dirs := []string{"../../cmd/leasehold/testdata/server", "testdata/server", "testdata/s3"}
			if name == "versitygw" || name == "minio" { // they check signatures
				dirs = append(dirs, "testdata/s3-signed")
			}
			for _, way := range ways(name) {
				for _, dir := range dirs {
					// The scripts go on when this function has returned, so that the
					// server must be stopped by a test that waits for them.
					t.Run(way.String()+"/"+filepath.Base(dir), func(t *testing.T) {
						clitest.Scripts{Dir: filepath.FromSlash(dir), Way: way, Setup: clitest.Bucket(t, srv)}.Run(t)
					})
				}
			}
		})
	}
}

// TestScriptsWithClouds runs the same scripts on the emulators of other clouds, and some for each.
func TestScriptsWithClouds(t *testing.T) {
	t.Parallel()
	t.Run("gs", func(t *testing.T) {
		t.Parallel()
		srv := servers.StartGCS(t)
		unsafe := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{Alter: func(r *http.Request) {
			query := r.URL.Query()
			query.Del("ifGenerationMatch")
			r.URL.RawQuery = query.Encode()
		}})
		for _, dir := range []string{"../../cmd/leasehold/testdata/server", "testdata/server", "testdata/gs"} {
			t.Run(dir, func(t *testing.T) {
				clitest.Scripts{Dir: filepath.FromSlash(dir), Setup: func(env *testscript.Env) error {
					env.Setenv("BUCKET", srv.GCSURL(srv.GCSBucket(t)))
					env.Setenv("NO_BUCKET", srv.GCSURL("leasehold-no-such-bucket"))
					env.Setenv("UNSAFE", servers.GCSURLAt(unsafe.Endpoint, srv.GCSBucket(t)))
					return nil
				}}.Run(t)
			})
		}
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		srv := servers.StartAzurite(t)
		unsafe := servers.StartProxy(t, srv.Host(), &servers.ProxyOptions{DropIfMatch: true})
		for _, dir := range []string{"../../cmd/leasehold/testdata/server", "testdata/server", "testdata/azblob"} {
			t.Run(dir, func(t *testing.T) {
				clitest.Scripts{Dir: filepath.FromSlash(dir), Setup: func(env *testscript.Env) error {
					env.Vars = append(env.Vars, srv.Env()...)
					container := srv.Container(t)
					env.Setenv("BUCKET", srv.URL(container))
					env.Setenv("NO_BUCKET", srv.URL("leasehold-no-such-container"))
					// With a SAS, conditions are no part of the signature.
					env.Setenv("UNSAFE", srv.URLAt(unsafe.Endpoint+"/"+srv.Account, container))
					env.Setenv("SAS", srv.SAS(t, container, time.Hour))
					env.Setenv("EXPIRED", srv.SAS(t, container, -time.Minute))
					if dir != "testdata/azblob" {
						return nil
					}
					return srv.Append(t.Context(), container, "appended")
				}}.Run(t)
			})
		}
	})
}
