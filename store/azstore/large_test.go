package azstore_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

const (
	mib   = 1 << 20
	block = 8 * mib
)

func random(size int64) io.Reader { return wiretest.Random(size) }

// A source yields size random bytes, calls then once, and then has err to say.
type source struct {
	size int64
	then func()
	err  error
}

func (s source) reader() io.Reader { return io.MultiReader(random(s.size), &s) }

func (s *source) Read([]byte) (int, error) {
	if s.then != nil {
		s.then()
		s.then = nil
	}
	return 0, s.err
}

// blocks says how many blocks of k there are that are part of no object.
func (p *planted) blocks(t *testing.T) int {
	t.Helper()
	out, err := p.client.NewBlockBlobClient(prefix+"/k").GetBlockList(t.Context(), blockblob.BlockListTypeUncommitted, nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(out.UncommittedBlocks)
}

// wantNothing checks that k is not there for a reader.
func (p *planted) wantNothing(t *testing.T) {
	t.Helper()
	if _, _, err := p.GetLarge(t.Context(), "k"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("opening what was not written: %v", err)
	}
	if keys, err := drain(t.Context(), p.Store, "", ""); err != nil || len(keys) != 0 {
		t.Errorf("there are %q, %v", keys, err)
	}
}

// wantLarge checks that k is of that size, and what was written.
func (p *planted) wantLarge(t *testing.T, size int64) {
	t.Helper()
	r, n, err := p.GetLarge(t.Context(), "k")
	if err != nil || n != size {
		t.Fatalf("opening an object of %d bytes gives %d, %v", size, n, err)
	}
	defer r.Close()
	got, want := make([]byte, mib), make([]byte, mib)
	body := random(size)
	for {
		a, err := io.ReadFull(r, got)
		b, _ := io.ReadFull(body, want)
		if !bytes.Equal(got[:a], want[:b]) {
			t.Fatal("what was read is not what was written")
		}
		if err != nil {
			if b < mib && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return
			}
			t.Fatal(err)
		}
	}
}

// purpose says in a word what a request is for.
func purpose(r *http.Request) string {
	query := r.URL.Query()
	switch query.Get("comp") {
	case "block":
		id, _ := base64.StdEncoding.DecodeString(query.Get("blockid"))
		return "block " + string(id)
	case "blocklist":
		return "commit"
	}
	return r.Method
}

// through gives a store of p's container behind a proxy.
func (p *planted) through(t *testing.T, srv *servers.Azurite, proxy *servers.Proxy) *azstore.Store {
	t.Helper()
	st, err := azstore.New(signed(t, srv, p.client, proxy.Endpoint, full, time.Hour), &azstore.Options{
		Prefix: prefix, Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Nanosecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func TestLarge(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		t.Run("requests", func(t *testing.T) {
			for size, want := range map[int64]int{0: 1, 1: 1, block - 1: 1, block: 2, block + 1: 3, 3 * block: 4} {
				proxy := servers.StartProxy(t, host(srv), nil)
				st := open(t, srv, newContainer(t, srv))
				if n, err := st.through(t, srv, proxy).PutLarge(t.Context(), "k", random(size)); err != nil || n != size {
					t.Fatalf("PutLarge of %d bytes gives %d, %v", size, n, err)
				}
				if n := proxy.Counts(); n[http.MethodPut] != want || len(n) != 1 {
					t.Errorf("%d bytes took %v, want %d PUT", size, n, want)
				}
				st.wantLarge(t, size)
			}
		})
		// That there were blocks to see makes it worth something that no object is.
		t.Run("the reader fails", func(t *testing.T) {
			errOwn := errors.New("the reader's own error")
			st := open(t, srv, newContainer(t, srv))
			_, err := st.PutLarge(t.Context(), "k", source{size: 2*block + 1, err: errOwn}.reader())
			checkError(t, "put", err, store.ErrInvalid)
			if n := st.blocks(t); n != 2 || !errors.Is(err, errOwn) || !strings.Contains(err.Error(), "a week from now") {
				t.Errorf("%d blocks are left; the error is %v", n, err)
			}
			st.wantNothing(t)
			// They are in nobody's way.
			if _, err = st.PutLarge(t.Context(), "k", random(block)); err != nil {
				t.Fatal(err)
			}
			st.wantLarge(t, block)
		})
		t.Run("the context ends", func(t *testing.T) {
			for _, size := range []int64{1, block, 2 * block} {
				st := open(t, srv, newContainer(t, srv))
				ctx, cancel := context.WithCancel(t.Context())
				_, err := st.PutLarge(ctx, "k", source{size: size, err: io.EOF, then: cancel}.reader())
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v does not match context.Canceled", err)
				}
				checkError(t, "put", err, store.ErrUnavailable)
				st.wantNothing(t)
			}
		})
	})
}

// All that the process allocates to write and read a body is less than half of it.
func TestLargeTakesLittleMemory(t *testing.T) {
	const size = 100 * mib
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"1"`)
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			_, _ = io.Copy(w, random(size))
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	st := &planted{Store: newStore(t, server.URL)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := st.PutLarge(t.Context(), "k", random(size)); err != nil {
		t.Fatal(err)
	}
	st.wantLarge(t, size)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/2 {
		t.Errorf("%d bytes were allocated for a body of %d", allocated, size)
	}
}

func TestLargeFaults(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		lost, unsent, denied, busy := servers.DropAnswer, servers.DropRequest, servers.Status(403), servers.Status(503)
		for _, c := range []struct {
			name   string
			faults map[string][]servers.Fault // of a purpose, one request after the other
			want   []error                    // nil: success
			there  bool
		}{
			// One fault is made up for by a repetition.
			{"small, lost answer", map[string][]servers.Fault{"PUT": {lost}}, nil, true},
			{"small, lost request", map[string][]servers.Fault{"PUT": {unsent}}, nil, true},
			{"small, busy", map[string][]servers.Fault{"PUT": {busy}}, nil, true},
			{"block, lost answer", map[string][]servers.Fault{"block 00001": {lost}}, nil, true},
			{"block, lost request", map[string][]servers.Fault{"block 00001": {unsent}}, nil, true},
			{"block, busy", map[string][]servers.Fault{"block 00000": {busy}, "block 00002": {busy, busy}}, nil, true},
			{"commit, lost request", map[string][]servers.Fault{"commit": {unsent}}, nil, true},
			{"commit, lost answer", map[string][]servers.Fault{"commit": {lost}}, nil, true},

			// More are not, and then it matters which request it was.
			{"small, lost answers", map[string][]servers.Fault{"PUT": {lost, lost, lost}}, []error{store.ErrUnknownOutcome}, true},
			{"small, lost requests", map[string][]servers.Fault{"PUT": {unsent, unsent, unsent}}, []error{store.ErrUnknownOutcome}, false},
			{"small, denied", map[string][]servers.Fault{"PUT": {denied}}, []error{store.ErrDenied}, false},
			{"small, lost answer, then denied", map[string][]servers.Fault{"PUT": {lost, denied}}, []error{store.ErrUnknownOutcome}, true},
			{"small, broken down, then denied", map[string][]servers.Fault{"PUT": {servers.StatusAfter(500), denied}}, []error{store.ErrUnknownOutcome}, true},
			{"block, lost answers", map[string][]servers.Fault{"block 00001": {lost, lost, lost}}, []error{store.ErrUnavailable}, false},
			{"block, lost answer, then denied", map[string][]servers.Fault{"block 00002": {lost, denied}}, []error{store.ErrDenied}, false},
			{"commit, lost answers", map[string][]servers.Fault{"commit": {lost, unsent, unsent}}, []error{store.ErrUnknownOutcome}, true},
			{"commit, lost requests", map[string][]servers.Fault{"commit": {unsent, unsent, unsent}}, []error{store.ErrUnknownOutcome}, false},
			{"commit, denied", map[string][]servers.Fault{"commit": {denied}}, []error{store.ErrDenied}, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				var mu sync.Mutex
				left := c.faults
				proxy := servers.StartProxy(t, host(srv), &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
					mu.Lock()
					defer mu.Unlock()
					what := purpose(r)
					if len(left[what]) == 0 {
						return servers.Pass
					}
					fault := left[what][0]
					left[what] = left[what][1:]
					return fault
				}})
				direct := open(t, srv, newContainer(t, srv))
				size := int64(2*block + 1)
				if strings.HasPrefix(c.name, "small") {
					size = 1
				}
				_, err := direct.through(t, srv, proxy).PutLarge(t.Context(), "k", random(size))
				if c.want == nil && err != nil {
					t.Errorf("PutLarge gives %v", err)
				}
				if c.want != nil {
					checkError(t, "put", err, c.want...)
				}
				mu.Lock()
				defer mu.Unlock()
				for what, faults := range left {
					if len(faults) > 0 {
						t.Errorf("%d faults of %q never happened", len(faults), what)
					}
				}
				if c.there {
					direct.wantLarge(t, size)
				} else {
					direct.wantNothing(t)
				}
			})
		}
	})
}

// The outcome of the last request says nothing about those before it.
func TestLargeRepeats(t *testing.T) {
	const (
		unconnected = 0
		lost        = 1
	)
	for _, c := range []struct {
		name    string
		answers []int // one request after the other
		want    error
	}{
		{"throttled, then refused", []int{429, 403}, store.ErrDenied},
		{"throttled, then lost", []int{429, lost, lost}, store.ErrUnknownOutcome},
		{"throttled, then lost, then refused", []int{429, lost, 403}, store.ErrUnknownOutcome},
		{"no connection", []int{unconnected, unconnected, unconnected}, store.ErrUnavailable},
		{"no connection, then refused", []int{unconnected, 403}, store.ErrDenied},
		{"throttled, then no connection", []int{429, unconnected, unconnected}, store.ErrUnavailable},
		{"lost, then no connection", []int{lost, unconnected, unconnected}, store.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			answers := c.answers
			// next takes the next answer away, if it is for the caller.
			next := func(dialling bool) (answer int, mine bool) {
				mu.Lock()
				defer mu.Unlock()
				if len(answers) == 0 || dialling && answers[0] != unconnected {
					return 403, false
				}
				answer, answers = answers[0], answers[1:]
				return answer, true
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer, _ := next(false)
				if answer == lost {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(answer)
			}))
			t.Cleanup(server.Close)
			dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
				if _, mine := next(true); mine {
					return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			_, err := newStore(t, server.URL, func(o *azstore.Options) {
				o.Transport = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
			}).PutLarge(t.Context(), "k", random(1))
			checkError(t, "put", err, c.want)
			mu.Lock()
			defer mu.Unlock()
			if len(answers) != 0 {
				t.Errorf("%d requests were not sent", len(answers))
			}
		})
	}
}

// A body whose connection breaks ends in an error, never as if it were whole.
func TestLargeBreaksOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		end    wiretest.Ending
		opens  bool
		says   string
	}{
		{"cut", wiretest.Cut(wiretest.Raw(200, "ETag: \"v\"\r\n", "the body"), 3), wiretest.FIN, true, "unexpected EOF"},
		{"reset", wiretest.Cut(wiretest.Raw(200, "ETag: \"v\"\r\n", "the body"), 3), wiretest.RST, true, ""},
		{"without a length", "HTTP/1.1 200 OK\r\nETag: \"v\"\r\n\r\nthe body", wiretest.FIN, false, "how long"},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", wiretest.FIN, false, "how long"},
		{"304", wiretest.Raw(304, "", ""), wiretest.Hang, false, "304"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, size, err := newFaulty(t, c.answer, c.end).store(t).GetLarge(t.Context(), "k")
			want := store.ErrUnavailable
			if c.name == "304" {
				want = store.ErrNotModified
			}
			if c.opens {
				if err != nil || size != int64(len("the body")) {
					t.Fatalf("GetLarge gives the size %d, %v", size, err)
				}
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			checkError(t, "get", err, want)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want %q in it", err, c.says)
			}
		})
	}
	t.Run("the context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, _, err := newFaulty(t, wiretest.Cut(wiretest.Raw(200, "ETag: \"v\"\r\n", "the body"), 3), wiretest.Hang).store(t).GetLarge(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err = io.CopyN(io.Discard, r, 5); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = io.Copy(io.Discard, r)
		checkError(t, "get", err, store.ErrUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match context.Canceled", err)
		}
	})
}

// TestLargeWithoutAnETag: a server that is not Azure's says 201, and nobody knows what it did.
func TestLargeWithoutAnETag(t *testing.T) {
	for _, size := range []int64{1, block + 1} {
		st := newStore(t, "http://account.example", func(o *azstore.Options) {
			o.Transport = &http.Client{Transport: wiretest.Direct{Server: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusCreated)
			})}}
		})
		_, err := st.PutLarge(t.Context(), "k", random(size))
		checkError(t, "put", err, store.ErrUnknownOutcome)
		if !strings.Contains(err.Error(), "the answer has no ETag") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
