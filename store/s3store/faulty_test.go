package s3store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store/s3store"
)

// A faulty server reads whole requests and answers them with whatever bytes it
// was given, which no HTTP library would let a server send.
type faulty struct {
	addr    string
	arrived chan struct{} // has one element for each request

	mu       sync.Mutex
	requests []*http.Request
}

// An ending is what becomes of the connection after the answer.
type ending int

const (
	fin  ending = iota // closed
	rst                // reset
	hang               // left open until the client closes it or the test ends
)

func newFaulty(t *testing.T, answer string, end ending) *faulty {
	t.Helper()
	ln := listen(t)
	f := &faulty{addr: ln.Addr().String(), arrived: make(chan struct{}, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			running.Go(func() {
				// The client keeps a connection that hangs for its next
				// request, so it is for the server to close it.
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				f.serve(conn, answer, end)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cancel()
		running.Wait()
	})
	return f
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func (f *faulty) serve(conn *net.TCPConn, answer string, end ending) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return
	}
	f.mu.Lock()
	f.requests = append(f.requests, req)
	f.mu.Unlock()
	f.arrived <- struct{}{}
	_, _ = io.WriteString(conn, answer)
	switch end {
	case rst:
		_ = conn.SetLinger(0)
	case hang:
		_, _ = io.Copy(io.Discard, r)
	}
}

// seen gives the requests that have arrived.
func (f *faulty) seen() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// client gives a client as an unsuspecting caller would make it: with the SDK's
// own retries, and with checksums.
func client(endpoint string, set ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:     aws.String(endpoint),
		Region:           "us-east-1",
		UsePathStyle:     true,
		Credentials:      credentials.NewStaticCredentialsProvider("key", "secret", ""),
		RetryMaxAttempts: 5,
		// As config.LoadDefaultConfig sets them.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}, set...)
}

func (f *faulty) store(t *testing.T, set ...func(*s3.Options)) *s3store.Store {
	t.Helper()
	return newStore(t, client("http://"+f.addr, set...))
}

func newStore(t *testing.T, client *s3.Client) *s3store.Store {
	t.Helper()
	st, err := s3store.New(client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// raw writes an answer out as a server would send it.
func raw(status int, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\nDate: Fri, 20 Nov 2026 10:30:45 GMT\r\n%s\r\n%s",
		status, http.StatusText(status), len(body), header, body)
}

// coded is an answer with an error code, in the form of S3.
func coded(status int, code string) string {
	return raw(status, "Content-Type: application/xml\r\n", xmlError(code, "words"))
}

func xmlError(code, message string) string {
	return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>" + message + "</Message></Error>"
}

// cut takes the last n bytes off.
func cut(answer string, n int) string { return answer[:len(answer)-n] }

// cutHeaders ends in the middle of the headers.
func cutHeaders(answer string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	return head[:len(head)-5]
}

// drain reads a listing to its end.
func drain(ctx context.Context, st *s3store.Store, prefix, after string) (keys []string, err error) {
	for entry, e := range st.List(ctx, prefix, after) {
		if e != nil {
			return keys, e
		}
		keys = append(keys, entry.Key)
	}
	return keys, nil
}
