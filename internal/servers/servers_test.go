package servers_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold/leasehold/internal/servers"
)

func TestStart(t *testing.T) {
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			bucket := srv.Bucket(t)
			if other := srv.Bucket(t); other == bucket {
				t.Fatalf("two buckets have the name %s", bucket)
			}
			put(t, srv, bucket, "k", "one")
			if got := get(t, srv, bucket, "k"); got != "one" {
				t.Errorf("k has %q, want %q", got, "one")
			}
		})
	}
}

func TestRestartKeepsData(t *testing.T) {
	for _, name := range servers.Selected() {
		if name == "gofakes3" {
			continue // it keeps its data in memory: see TestRestartOfMemoryServer
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			bucket := srv.Bucket(t)
			put(t, srv, bucket, "k", "one")
			endpoint := srv.Endpoint
			srv.Restart(t)
			if srv.Endpoint != endpoint {
				t.Errorf("after the restart the endpoint is %s, want %s", srv.Endpoint, endpoint)
			}
			if got := get(t, srv, bucket, "k"); got != "one" {
				t.Errorf("after the restart k has %q, want %q", got, "one")
			}
		})
	}
}

func TestRestartOfMemoryServer(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	bucket := srv.Bucket(t)
	srv.Restart(t)
	_, err := srv.Client().HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: &bucket})
	if _, gone := errors.AsType[*types.NotFound](err); !gone {
		t.Errorf("after the restart HeadBucket gives %v, want NotFound", err)
	}
}

func TestStop(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	srv.Stop()
	srv.Stop()
	_, err := srv.Client().ListBuckets(t.Context(), nil, once)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a stopped server gives %v, want a refused connection", err)
	}
}

// The kernel must kill a server whose test process was killed: here the test
// process is this binary run again, which starts a server, says so, and waits.
func TestServerDiesWithTheTestProcess(t *testing.T) {
	if os.Getenv("SERVERS_TEST_CHILD") != "" {
		srv := servers.Start(t, "gofakes3")
		fmt.Fprintln(os.Stderr, srv.Endpoint)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties the life of a child to its parent")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerDiesWithTheTestProcess$")
	child.Env = append(os.Environ(), "SERVERS_TEST_CHILD=1")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stderr, err := child.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = child.Start(); err != nil {
		t.Fatal(err)
	}
	endpoint := readLine(t, stderr)
	client := (&servers.Server{Endpoint: endpoint, AccessKey: "a", SecretKey: "s"}).Client()
	if _, err = client.ListBuckets(t.Context(), nil, once); err != nil {
		t.Fatalf("the child's server does not answer: %v", err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	for err = nil; err == nil; {
		_, err = client.ListBuckets(t.Context(), nil, once)
	}
}

func TestSelected(t *testing.T) {
	t.Setenv("LEASEHOLD_TEST_SERVERS", "")
	if got := servers.Selected(); !slices.Equal(got, []string{servers.Memory}) || !servers.Skipped("minio") {
		t.Errorf("by default tests run on %q, and minio is skipped: %t", got, servers.Skipped("minio"))
	}
	t.Setenv("LEASEHOLD_TEST_SERVERS", "minio, azurite")
	if got := servers.Selected(); !slices.Equal(got, []string{"minio"}) {
		t.Errorf("with minio and azurite listed, tests of S3 run on %q", got)
	}
	for name, want := range map[string]bool{servers.Memory: true, "versitygw": true, "minio": false, "azurite": false} {
		if got := servers.Skipped(name); got != want {
			t.Errorf("Skipped(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestBinaryOfUnknownServer(t *testing.T) {
	_, err := servers.Binary(t.Context(), "ceph")
	if err == nil || !strings.Contains(err.Error(), `unknown server "ceph"`) {
		t.Errorf("Binary(ceph) gives %v", err)
	}
}

func TestS3rver(t *testing.T) {
	srv := servers.StartS3rver(t)
	bucket := srv.Bucket(t)
	put(t, srv, bucket, "k", "one")
	if got := get(t, srv, bucket, "k"); got != "one" {
		t.Errorf("k has %q, want %q", got, "one")
	}
}

func put(t *testing.T, srv *servers.Server, bucket, key, body string) {
	t.Helper()
	_, err := srv.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(body)})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(t *testing.T, srv *servers.Server, bucket, key string) string {
	t.Helper()
	out, err := srv.Client().GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(body)
}

// once keeps the SDK from trying again.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("the child ended before it said anything but %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}
