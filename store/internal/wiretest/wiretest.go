// Package wiretest is for the tests of stores that speak HTTP: servers that send whatever bytes a
// test wants, which no HTTP library would let a server send, and what an error of a store must match.
package wiretest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	_ "github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storetest"
)

// A Server reads whole requests and answers each with the same bytes.
type Server struct {
	Addr    string
	Arrived chan struct{} // has one element for each request

	mu       sync.Mutex
	requests []*http.Request
}

// An Ending is what becomes of the connection after the answer.
type Ending int

// The endings.
const (
	FIN  Ending = iota // closed
	RST                // reset
	Hang               // left open until the client closes it or the test ends
)

// New starts a server that gives this answer, until the test ends.
func New(t testing.TB, answer string, end Ending) *Server {
	t.Helper()
	ln := Listen(t)
	s := &Server{Addr: ln.Addr().String(), Arrived: make(chan struct{}, 100)}
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
				s.serve(conn, answer, end)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cancel()
		running.Wait()
	})
	return s
}

// Listen listens on a free port.
func Listen(t testing.TB) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func (s *Server) serve(conn *net.TCPConn, answer string, end Ending) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	s.Arrived <- struct{}{}
	_, _ = io.WriteString(conn, answer)
	switch end {
	case RST:
		_ = conn.SetLinger(0)
	case Hang:
		_, _ = io.Copy(io.Discard, r)
	}
}

// Seen gives the requests that have arrived. Their bodies have been read.
func (s *Server) Seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Raw writes an answer out as a server would send it. Each line of the header ends with "\r\n".
func Raw(status int, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\nDate: Fri, 20 Nov 2026 10:30:45 GMT\r\n%s\r\n%s",
		status, http.StatusText(status), len(body), header, body)
}

// Cut takes the last n bytes off.
func Cut(answer string, n int) string { return answer[:len(answer)-n] }

// CutHeaders ends in the middle of the headers.
func CutHeaders(answer string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	return head[:len(head)-5]
}

// kinds are all sentinels of package store.
var kinds = []error{
	store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrConflict,
	store.ErrThrottled, store.ErrDenied, store.ErrUnknownOutcome, store.ErrTooLarge,
	store.ErrInvalid, store.ErrNoBucket, store.ErrRefused, store.ErrUnavailable,
}

// CheckError checks that err is a *store.Error of the key "k" which matches the wanted kinds
// and no other, the first of them being its Kind.
func CheckError(t testing.TB, op string, err error, want ...error) {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		t.Fatalf("%s: %v is no *store.Error", op, err)
	}
	if op == "create" || op == "update" {
		op = "put"
	}
	if e.Op != op || e.Key != "k" {
		t.Errorf("the error is of %s %q, want %s %q", e.Op, e.Key, op, "k")
	}
	if e.Kind != want[0] { //nolint:errorlint // Kind is one of the sentinels itself
		t.Errorf("%s: the kind is %q, want %q (%v)", op, e.Kind, want[0], err)
	}
	for _, kind := range kinds {
		if got := errors.Is(err, kind); got != slices.Contains(want, kind) {
			t.Errorf("%s: matches %q: %v, want %v (%v)", op, kind, got, !got, err)
		}
	}
}

// Bodies are those to send with a status: all of them if it has a name, by which a store may know it, and
// otherwise one, another for each status.
func Bodies[B any](status int, all []B) []B {
	if http.StatusText(status) != "" {
		return all
	}
	i := status % len(all)
	return all[i : i+1]
}

// noise repeats itself after a prime number of bytes, so that no two parts of a body are alike.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 262147)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
})

// Random reads a body of that size, always the same. To draw each of its bytes would cost more than to send them.
func Random(size int64) io.Reader { return io.LimitReader(&noisy{}, size) }

type noisy struct{ at int }

func (n *noisy) Read(b []byte) (int, error) {
	k := copy(b, noise()[n.at:])
	n.at = (n.at + k) % len(noise())
	return k, nil
}

// Altered is an HTTP transport that changes a copy of each request on its way.
type Altered struct {
	By    http.RoundTripper
	Alter func(r *http.Request)
}

// RoundTrip sends the changed request.
func (a Altered) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	a.Alter(r)
	return a.By.RoundTrip(r)
}

// Direct is an HTTP transport that calls a server in the same goroutine, without a socket, so that time
// can be virtual. A handler that panics with http.ErrAbortHandler breaks the connection.
type Direct struct{ Server http.Handler }

// RoundTrip has the server answer the request.
func (d Direct) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if err = r.Context().Err(); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	// As net/http writes it.
	if r.ContentLength > 0 || slices.Equal(r.TransferEncoding, []string{"identity"}) {
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	defer func() {
		_ = r.Body.Close()
		if reason := recover(); reason == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			err = io.ErrUnexpectedEOF
		} else if reason != nil {
			panic(reason)
		}
	}()
	w := httptest.NewRecorder()
	d.Server.ServeHTTP(w, r)
	answer = w.Result()
	answer.Request = r
	return answer, nil
}

// NoticesLostConditions is a negative control: what open gives loses the conditions of writes on the way. If the
// races of the conformance suite do not notice, their silence about other stores proves nothing.
func NoticesLostConditions(t *testing.T, open func() (store.Store, error)) {
	t.Helper()
	if err := LostConditions(t.Context(), open); err != nil {
		t.Error(err)
	}
}

// LostConditions gives an error if the races of the conformance suite do not notice that the store loses conditions.
func LostConditions(ctx context.Context, open func() (store.Store, error)) error {
	// A store that cannot be opened tells the names of the cases, in their order.
	leftOut := errors.New("left out")
	names := storetest.Check(ctx, func() (store.Store, error) { return nil, leftOut })
	violations := storetest.Check(ctx, func() (store.Store, error) {
		name := names[0].Case
		names = names[1:]
		if name != "racing creates" && name != "racing updates" {
			return nil, leftOut
		}
		return open()
	})
	for _, v := range violations {
		if strings.Contains(v.Sentence, "(compare-and-swap)") {
			return nil
		}
	}
	return fmt.Errorf("the suite saw no break of compare-and-swap; it saw %v", violations)
}
