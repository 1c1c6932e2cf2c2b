// Package servers starts object-storage servers for tests.
//
// gofakes3 runs inside the test process and starts at once, so `go test ./...` uses it. The
// others are real servers, pinned in modules of their own (directory pinned) to keep their
// dependencies out of the library's go.mod. The go command builds each server into its build
// cache when a test first needs it. This takes minutes for MinIO with a cold cache, and nothing
// afterwards.
//
//	srv := servers.Start(t, "versitygw")
//	client, bucket := srv.Client(), srv.Bucket(t)
//
// Tests of the main module run only on gofakes3: `go test ./...` builds no servers, and skips
// tests that need one, saying so. Tests of the modules integration and proof, and of the
// adapters, run on all servers. LEASEHOLD_TEST_SERVERS, a comma-separated list, selects servers
// in any module; `make integration` sets it for packages whose tests also run on real servers.
// A test fails if its server cannot be built or started.
package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Names are the S3 servers that support conditional writes, fastest first.
var Names = []string{Memory, "versitygw", "minio"}

// Memory is gofakes3, which runs inside the test process.
const Memory = "gofakes3"

// CreateOnly is the name of a server whose only condition is "create if absent", and which
// ignores If-Match: gofakes3 behind a proxy with [ProxyOptions.DropIfMatch].
const CreateOnly = "create-only"

// variable lists the servers that tests may start.
const variable = "LEASEHOLD_TEST_SERVERS"

// readyWithin is how long a server may take to answer. A ready server ends the wait at once.
const readyWithin = time.Minute

// Selected returns the S3 servers to test on, from [Names].
func Selected() []string {
	return slices.DeleteFunc(slices.Clone(Names), Skipped)
}

// Skipped reports whether tests of this module do not run on the server.
func Skipped(name string) bool {
	listed := listed()
	if len(listed) == 0 {
		return name != Memory && inMainModule()
	}
	return !slices.Contains(listed, name)
}

func listed() []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}

// inMainModule reports whether the working directory, which for a test is its package's
// directory, belongs to the main module of this repository.
func inMainModule() bool {
	dir, err := os.Getwd()
	if err != nil {
		return false
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			_, err = os.Stat(filepath.Join(dir, "internal", "servers"))
			return err == nil
		}
	}
	return false
}

// A Server is one server with its own data and loopback port. Client, Bucket, URL, Env and
// Restricted are safe for concurrent use. Only one goroutine at a time may call Stop, Restart,
// Pause and Resume.
type Server struct {
	Name         string
	Endpoint     string // http://127.0.0.1:PORT
	AccessKey    string
	SecretKey    string
	SessionToken string // of a [Server.Restricted] identity; otherwise ""

	port    *port
	cmd     command
	answers func(context.Context, *Server) error // returns nil once it serves requests
	proc    *process                             // nil while stopped
	out     tail
	memory  *memory // instead of proc, for gofakes3; nil while stopped
	iam     *Server // where its identities are made, if not here
	fragile bool    // requests can crash its process
}

// Start starts the server with an empty data directory, waits until it answers, and stops it
// when the test ends. Subtests may share it, each with its own bucket.
func Start(t testing.TB, name string) *Server {
	t.Helper()
	switch name {
	case CreateOnly:
		s := Start(t, Memory)
		s.Name, s.Endpoint = name, StartProxy(t, s.Endpoint, &ProxyOptions{DropIfMatch: true}).Endpoint
		return s
	case Memory:
		return startMemory(t)
	default:
		return StartProcess(t, name)
	}
}

// StartProcess is like Start, but gofakes3 also gets a process of its own, for comparisons
// between servers.
func StartProcess(t testing.TB, name string) *Server {
	t.Helper()
	path := binary(t, name)
	return start(t, name, listsBuckets, func(port *port, dir string) command {
		return pinned[name].command(path, port.addr, dir)
	})
}

// binary is like Binary, but skips the test if the server is not selected.
func binary(t testing.TB, name string) string {
	t.Helper()
	skip(t, name)
	path, err := Binary(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// StartS3rver starts s3rver, which ignores all conditions of writes. It is the second negative
// control, after
// [ProxyOptions.DropConditions]: a safety test must fail on it. The test is skipped if npm is missing or cannot reach packages.
// Concurrent writes and reads of an object can crash s3rver. That fails no test, and
// [Server.Bucket] restarts it.
func StartS3rver(t testing.TB) *Server {
	t.Helper()
	skip(t, "s3rver")
	script, err := installS3rver(t.Context())
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return start(t, "s3rver", listsBuckets, func(port *port, dir string) command {
		host, number := port.split()
		return command{path: "node", args: []string{script, "-s", "-a", host, "-p", number, "-d", dir}}
	})
}

func skip(t testing.TB, name string) {
	t.Helper()
	for _, n := range listed() {
		if n != "s3rver" && n != "azurite" && n != GCS && !slices.Contains(Names, n) {
			t.Fatalf("%s lists an unknown server %q; the servers are %s, %s, s3rver and azurite", variable, n, strings.Join(Names, ", "), GCS)
		}
	}
	switch {
	case !Skipped(name):
	case len(listed()) == 0:
		t.Skipf("needs %s: make integration runs it", name)
	default:
		t.Skipf("needs %s, which is not in %s", name, variable)
	}
}

// start runs a server on one free port after another until it answers, because any process may
// take a port before the server does.
func start(t testing.TB, name string, answers func(context.Context, *Server) error, cmd func(port *port, dir string) command) *Server {
	t.Helper()
	s := &Server{Name: name, AccessKey: accessKey, SecretKey: secretKey, answers: answers}
	if name == "s3rver" {
		s.AccessKey, s.SecretKey, s.fragile = "S3RVER", "S3RVER", true
	}
	home := t.TempDir()
	t.Cleanup(func() { s.cleanUp(t) })

	var err error
	for range 5 {
		if s.port, err = freePort(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.Endpoint = "http://" + s.port.addr
		data := filepath.Join(home, "data")
		if err = os.MkdirAll(data, 0o755); err != nil {
			t.Fatal(err)
		}
		s.cmd = cmd(s.port, data)
		s.cmd.env = append(s.cmd.env, "HOME="+home, "TMPDIR="+home, "PATH="+os.Getenv("PATH"))
		if err = s.run(t.Context()); err == nil {
			return s
		}
		s.Stop()
		s.port.free()
		if !errors.Is(err, errExited) {
			break
		}
	}
	t.Fatalf("start %s: %v\n%s", name, err, s.out.String())
	return nil
}

// run starts the process, and waits until it answers a request.
func (s *Server) run(ctx context.Context) error {
	proc, err := s.cmd.start(&s.out)
	if err != nil {
		return err
	}
	s.proc = proc
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("no answer within %v", readyWithin))
	defer cancel()
	for {
		answer := s.answers(ctx, s)
		if proc.over() {
			return fmt.Errorf("%w: %s", errExited, proc.ended())
		}
		if answer == nil {
			return nil
		}
		select {
		case <-proc.done:
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), answer)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// listsBuckets reports whether an S3 server serves requests.
func listsBuckets(ctx context.Context, s *Server) error {
	_, err := s.Client().ListBuckets(ctx, nil, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	return err
}

// Stop kills the server, as a crash would, and waits for its end. It does nothing if the server
// is stopped already.
func (s *Server) Stop() {
	if s.memory != nil {
		s.memory.stop()
		s.memory = nil
	}
	if s.proc == nil {
		return
	}
	s.proc.kill()
	s.proc = nil
}

// Restart stops the server, and starts it on the same port with the same data directory.
// gofakes3 keeps its data in memory and restarts without buckets. The others restart with all
// acknowledged data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if s.Name == Memory && s.cmd.path == "" {
		if err := s.restartMemory(t.Context()); err != nil {
			t.Fatalf("restart %s: %v", s.Name, err)
		}
		return
	}
	var err error
	// freePort in another process may be using the port.
	for range 50 {
		if err = s.run(t.Context()); err == nil {
			return
		}
		s.Stop()
		if !errors.Is(err, errExited) {
			break
		}
	}
	t.Fatalf("restart %s: %v\n%s", s.Name, err, s.out.String())
}

// Ended reports whether the server's process has ended by itself.
func (s *Server) Ended() bool { return s.proc != nil && s.proc.over() }

func (s *Server) cleanUp(t testing.TB) {
	t.Helper()
	if s.proc != nil && s.proc.over() && !s.fragile {
		t.Errorf("%s ended by itself during the test: %s", s.Name, s.proc.ended())
	}
	s.Stop()
	if s.port != nil {
		s.port.free()
	}
	if out := s.out.String(); t.Failed() && out != "" {
		t.Logf("output of %s:\n%s", s.Name, out)
	}
}

// Client returns an SDK client for the server, with the SDK's default retries and checksums.
func (s *Server) Client() *s3.Client { return s.ClientAt(s.Endpoint) }

// ClientAt is like Client, for a proxy in front of the server.
func (s *Server) ClientAt(endpoint string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "us-east-1",
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, s.SessionToken),
	})
}

// Bucket makes an empty bucket with a random name, and returns the name.
func (s *Server) Bucket(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	s.MakeBucket(t, name)
	return name
}

// MakeBucket makes an empty bucket with that name. After [Server.Restart], servers with data in
// memory need it.
func (s *Server) MakeBucket(t testing.TB, name string) {
	t.Helper()
	if s.fragile && s.proc.over() {
		s.Restart(t)
	}
	var err error
	if s.Name == GCS || s.Name == Front {
		err = s.gcs(t.Context(), http.MethodPost, `{"name":"`+name+`"}`)
	} else {
		_, err = s.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	}
	if err != nil {
		t.Fatalf("%s: make bucket %s: %v\n%s", s.Name, name, err, s.out.String())
	}
}

// URL returns the URL of a store ("bucket") or a lock ("bucket/key") on the server, without
// credentials: see [Server.Env].
func (s *Server) URL(bucket string) string { return s.URLAt(s.Endpoint, bucket) }

// URLAt is like URL, for a proxy in front of the server.
func (s *Server) URLAt(endpoint, bucket string) string {
	query := url.Values{"endpoint": {endpoint}, "region": {"us-east-1"}, "path_style": {"true"}}
	return "s3://" + bucket + "?" + query.Encode()
}

// Env returns the environment variables with which another process reaches the server. They
// also hide the AWS settings of the user who runs the tests.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_SESSION_TOKEN=" + s.SessionToken,
		"AWS_PROFILE=",
		"AWS_REGION=us-east-1",
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}
