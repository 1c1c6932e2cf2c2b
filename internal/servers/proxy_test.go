package servers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/internal/servers"
)

// Both check the signature, which covers the Host header.
func TestProxyKeepsSignaturesValid(t *testing.T) {
	for _, name := range []string{"versitygw", "minio"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			bucket := srv.Bucket(t)
			proxy := servers.StartProxy(t, srv.Endpoint, nil)
			if err := putAbsent(t.Context(), srv.ClientAt(proxy.Endpoint), bucket, "a b/ü+%?"); err != nil {
				t.Fatal(err)
			}
			err := putAbsent(t.Context(), srv.ClientAt(proxy.Endpoint), bucket, "a b/ü+%?")
			if status(err) != http.StatusPreconditionFailed {
				t.Errorf("the second create gives %v, want 412", err)
			}
			if got := proxy.Counts()["PUT"]; got != 2 {
				t.Errorf("the proxy counted %d PUTs, want 2", got)
			}
		})
	}
}

func TestProxyDropsConditions(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	bucket := srv.Bucket(t)
	proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{DropConditions: true})
	for n := range 2 {
		if err := putAbsent(t.Context(), srv.ClientAt(proxy.Endpoint), bucket, "k"); err != nil {
			t.Errorf("create %d: %v, want no refusal", n, err)
		}
	}
	if err := putAbsent(t.Context(), srv.Client(), bucket, "k"); status(err) != http.StatusPreconditionFailed {
		t.Errorf("a create past the proxy gives %v, want 412", err)
	}
}

// A stale If-Match changes nothing on the server itself and is no obstacle behind the
// proxy, while "create if absent" is kept in both places.
func TestCreateOnly(t *testing.T) {
	for name, want := range map[string]int{"gofakes3": http.StatusPreconditionFailed, servers.CreateOnly: 0} {
		t.Run(name, func(t *testing.T) {
			srv := servers.Start(t, name)
			client, bucket := srv.Client(), srv.Bucket(t)
			if err := putAbsent(t.Context(), client, bucket, "k"); err != nil {
				t.Fatal(err)
			}
			if err := putAbsent(t.Context(), client, bucket, "k"); status(err) != http.StatusPreconditionFailed {
				t.Errorf("the second create gives %v, want 412", err)
			}
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket, Key: aws.String("k"), Body: strings.NewReader("y"), IfMatch: aws.String(`"stale"`),
			}, once)
			if status(err) != want || want == 0 && err != nil {
				t.Errorf("a write over another version gives %v, want status %d", err, want)
			}
		})
	}
}

func TestProxyFaults(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	for _, c := range []struct {
		name  string
		fault servers.Fault
		check func(error) bool
		lands bool
	}{
		{"Pass", servers.Pass, func(err error) bool { return err == nil }, true},
		{"DropAnswer", servers.DropAnswer, brokenOff, true},
		{"DropRequest", servers.DropRequest, brokenOff, false},
		{"Status", servers.Status(503), func(err error) bool { return status(err) == 503 }, false},
		{"StatusAfter", servers.StatusAfter(500), func(err error) bool { return status(err) == 500 }, true},
		{"Delay", servers.Delay(time.Millisecond), func(err error) bool { return err == nil }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucket := srv.Bucket(t)
			proxy := servers.StartProxy(t, srv.Endpoint, &servers.ProxyOptions{
				Fault: func(r *http.Request, n int) servers.Fault {
					if r.Method == http.MethodPut && n == 1 {
						return c.fault
					}
					return servers.Pass
				},
			})
			client := srv.ClientAt(proxy.Endpoint)
			if err := putAbsent(t.Context(), client, bucket, "k"); !c.check(err) {
				t.Errorf("the PUT with the fault gives %v", err)
			}
			_, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("k")}, once)
			if landed := err == nil; landed != c.lands {
				t.Errorf("landed: %v (%v), want %v", landed, err, c.lands)
			}
			if got := proxy.Counts()["PUT"]; got != 1 {
				t.Errorf("the proxy counted %d PUTs, want 1", got)
			}
		})
	}
}

// A request that hung reaches the server after Restore, though its client has gone.
func TestProxyHangDeliversLate(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	bucket := srv.Bucket(t)
	proxy := servers.StartProxy(t, srv.Endpoint, nil)
	proxy.Hang()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- putAbsent(ctx, srv.ClientAt(proxy.Endpoint), bucket, "k") }()
	await(t, func() bool { return proxy.Counts()["PUT"] == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the PUT that hung gives %v, want context.Canceled", err)
	}
	client := srv.Client()
	head := func() error {
		_, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("k")}, once)
		return err
	}
	if err := head(); status(err) != http.StatusNotFound {
		t.Errorf("the PUT landed while the proxy hung: %v", err)
	}
	proxy.Restore(t)
	await(t, func() bool { return head() == nil })
}

func TestProxyRefuse(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	bucket := srv.Bucket(t)
	proxy := servers.StartProxy(t, srv.Endpoint, nil)
	client := srv.ClientAt(proxy.Endpoint)
	proxy.Refuse()
	err := putAbsent(t.Context(), client, bucket, "k")
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("while refusing: %v, want a refused connection", err)
	}
	proxy.Restore(t)
	if err := putAbsent(t.Context(), client, bucket, "k"); err != nil {
		t.Errorf("after Restore: %v", err)
	}
}

func putAbsent(ctx context.Context, client *s3.Client, bucket, key string) error {
	_, err := client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: strings.NewReader("x"), IfNoneMatch: aws.String("*"),
	}, once)
	return err
}

// status gives the HTTP status of an answer that was an error, or 0.
func status(err error) int {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

// brokenOff reports whether the connection ended without an answer.
func brokenOff(err error) bool {
	_, sent := errors.AsType[*smithyhttp.RequestSendError](err)
	_, coded := errors.AsType[smithy.APIError](err)
	return sent && !coded && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset"))
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended before the condition held")
		case <-time.After(time.Millisecond):
		}
	}
}
