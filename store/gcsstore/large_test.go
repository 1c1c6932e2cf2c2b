package gcsstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

const (
	mib   = 1 << 20
	chunk = 8 * mib
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

// wantLarge checks that k is of that size, and what was written.
func wantLarge(t *testing.T, st *gcsstore.Store, size int64) {
	t.Helper()
	r, n, err := st.GetLarge(t.Context(), "k")
	if err != nil || n != size {
		t.Fatalf("opening an object of %d bytes gives %d, %v", size, n, err)
	}
	defer r.Close()
	got, want := make([]byte, mib), make([]byte, mib)
	for body := random(size); ; {
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

func TestLarge(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		for _, c := range []struct {
			size      int64
			post, put int
		}{
			{0, 1, 0},
			{1, 1, 0},
			{mib + 1, 1, 0},
			{chunk - 1, 1, 0},
			{chunk, 1, 2}, // the second one says that there is no more
			{chunk + 1, 1, 2},
			{3*chunk - 1, 1, 3},
		} {
			proxy := servers.StartProxy(t, srv.Endpoint, nil)
			st := open(t, proxy.Endpoint, srv.GCSBucket(t))
			if n, err := st.PutLarge(t.Context(), "k", random(c.size)); err != nil || n != c.size {
				t.Fatalf("PutLarge of %d bytes gives %d, %v", c.size, n, err)
			}
			if n := proxy.Counts(); n[http.MethodPost] != c.post || n[http.MethodPut] != c.put || len(n) > 2 {
				t.Errorf("%d bytes took %v, want %d POST and %d PUT", c.size, n, c.post, c.put)
			}
			wantLarge(t, st.Store, c.size)
		}
	})
}

// All that the process allocates to write and read a body is less than half of it.
func TestLargeTakesLittleMemory(t *testing.T) {
	const size = 100 * mib
	st, _ := startSessions(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := st.PutLarge(t.Context(), "k", random(size)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/2 {
		t.Errorf("%d bytes were allocated for a body of %d", allocated, size)
	}
}

// sessions is a server that keeps to the documentation of resumable uploads where the emulator does
// not: the emulator takes the question how much has arrived for the end of the upload, appends what is
// sent twice, and forgets nothing when an upload is cancelled.
type sessions struct {
	mu     sync.Mutex
	faults []fault // of each request, one after the other
	asked  []string

	open      bool  // there is a session
	has       int64 // of its bytes; what they are is not kept
	cancelled bool
	there     bool // the object has landed
}

// A fault is what becomes of one request.
type fault struct {
	status int  // instead of the answer; 0: it is lost
	lands  bool // but what was asked was done
	pass   bool // no fault
	takes  int  // how much of a chunk is taken, if not all
	reason string
}

var (
	pass       = fault{pass: true}
	lost       = fault{lands: true}
	unheard    = fault{}
	busy       = fault{status: 503}
	denied     = fault{status: 403}
	throttled  = fault{status: 429}
	busyButYes = fault{status: 503, lands: true}
)

// startSessions gives a store on such a server.
func startSessions(t *testing.T, faults ...fault) (*gcsstore.Store, *sessions) {
	t.Helper()
	s := &sessions{faults: faults}
	return direct(t, s, func(context.Context) (string, error) { return "secret", nil }), s
}

// direct gives a store that reaches a server without a socket, so that it waits in virtual time.
func direct(t *testing.T, server http.Handler, token func(context.Context) (string, error)) *gcsstore.Store {
	t.Helper()
	st, err := gcsstore.New(&http.Client{Transport: wiretest.Direct{Server: server}}, "bucket", &gcsstore.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.Header.Get("Content-Range")))
	f := pass
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	if f.takes > 0 {
		n, f.pass = int64(f.takes), true
	}
	rec := httptest.NewRecorder()
	if f.pass || f.lands {
		s.serve(rec, r, n)
	}
	switch {
	case f.pass:
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	case f.status == 0:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, jsonError(f.status, f.reason, "words"))
	}
}

func (s *sessions) serve(w http.ResponseWriter, r *http.Request, n int64) {
	query := r.URL.Query()
	switch {
	case (query.Get("upload_id") == "") != (r.Header.Get("Authorization") == "Bearer secret"):
		w.WriteHeader(400) // a session is asked for with a token, and needs none itself
	case r.Method == http.MethodPost && query.Get("uploadType") == "multipart":
		s.there = true
		_, _ = io.WriteString(w, `{"generation":"1"}`)
	case r.Method == http.MethodPost:
		s.open = true
		w.Header().Set("Location", "https://"+r.Host+r.URL.Path+"?uploadType=resumable&upload_id=hidden")
	case s.there: // a session that has ended says again what it said then
		_, _ = io.WriteString(w, `{"generation":"1"}`)
	case !s.open:
		w.WriteHeader(410)
	case r.Method == http.MethodDelete:
		if r.ContentLength != 0 || r.ProtoMajor == 1 && r.Header.Get("Content-Length") != "0" {
			w.WriteHeader(411)
			return
		}
		s.open, s.cancelled, s.has = false, true, 0
		w.WriteHeader(499)
	default:
		s.put(w, r.Header.Get("Content-Range"), n)
	}
}

func (s *sessions) put(w http.ResponseWriter, which string, n int64) {
	var from, to, total int64 = s.has, 0, -1
	span, end, _ := strings.Cut(strings.TrimPrefix(which, "bytes "), "/")
	if span != "*" {
		_, _ = fmt.Sscanf(span, "%d-%d", &from, &to)
	}
	if end != "*" {
		_, _ = fmt.Sscan(end, &total)
	}
	if from != s.has {
		w.WriteHeader(400)
		return
	}
	if s.has += n; s.has == total {
		s.there = true
		_, _ = io.WriteString(w, `{"generation":"1"}`)
		return
	}
	if s.has > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", s.has-1))
	}
	w.WriteHeader(308)
}

// bubble runs a subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestLargeFaults(t *testing.T) {
	const size = 2*chunk + 1 // the requests: POST, three PUT, and DELETE where it fails
	for _, c := range []struct {
		name   string
		size   int64
		faults []fault
		want   []error // nil: success
		there  bool
		again  int    // how often a request is sent again
		asked  string // the requests after the first chunk's
	}{
		{"nothing", size, nil, nil, true, 0, "PUT bytes 8388608-16777215/*, PUT bytes 16777216-16777216/16777217"},
		{"whole chunks", 2 * chunk, nil, nil, true, 0, "PUT bytes 8388608-16777215/*, PUT bytes */16777216"},
		{"begin, lost", size, []fault{lost}, nil, true, 1, ""},
		{"begin, lost for ever", size, []fault{lost, lost, lost, unheard}, []error{store.ErrUnavailable}, false, 3, ""},
		{"begin, denied", size, []fault{denied}, []error{store.ErrDenied}, false, 0, ""},
		{"chunk, lost", size, []fault{pass, pass, lost}, nil, true, 1, "PUT bytes 8388608-16777215/*, PUT bytes */*, PUT bytes 16777216-16777216/16777217"},
		{"chunk, unheard", size, []fault{pass, pass, unheard}, nil, true, 1, "PUT bytes 8388608-16777215/*, PUT bytes */*, PUT bytes 8388608-16777215/*, PUT bytes 16777216-16777216/16777217"},
		{"chunk, busy", size, []fault{pass, pass, busy, busy, throttled}, nil, true, 3, ""},
		{"chunk, half of it", size, []fault{pass, pass, {takes: chunk / 2}}, nil, true, 0, "PUT bytes 8388608-16777215/*, PUT bytes 12582912-16777215/*, PUT bytes 16777216-16777216/16777217"},
		{"chunk, lost for ever", size, []fault{pass, unheard, unheard, unheard, unheard}, []error{store.ErrUnavailable}, false, 3, ""},
		{"chunk, denied", size, []fault{pass, pass, denied}, []error{store.ErrDenied}, false, 0, "PUT bytes 8388608-16777215/*, DELETE"},
		{"chunk, lost, then denied", size, []fault{pass, pass, lost, denied}, []error{store.ErrDenied}, false, 1, "PUT bytes 8388608-16777215/*, PUT bytes */*, DELETE"},
		{"end, lost", size, []fault{pass, pass, pass, lost}, nil, true, 1, "PUT bytes 8388608-16777215/*, PUT bytes 16777216-16777216/16777217, PUT bytes */16777217"},
		{"end, unheard", size, []fault{pass, pass, pass, unheard}, nil, true, 1, ""},
		{"end, busy after all", size, []fault{pass, pass, pass, busyButYes}, nil, true, 1, ""},
		{"end, lost for ever", size, []fault{pass, pass, pass, lost, unheard, unheard, unheard}, []error{store.ErrUnknownOutcome}, true, 3, ""},
		{"end, unheard for ever", size, []fault{pass, pass, pass, unheard, unheard, unheard, unheard}, []error{store.ErrUnknownOutcome}, false, 3, ""},
		{"end, denied", size, []fault{pass, pass, pass, denied}, []error{store.ErrDenied}, false, 0, ""},
		{"end, lost, then denied", size, []fault{pass, pass, pass, lost, denied}, []error{store.ErrUnknownOutcome}, true, 1, ""},
		{"cancel, lost", size, []fault{pass, denied, lost}, []error{store.ErrDenied}, false, 0, ""},
		{"small, lost", 1, []fault{lost}, nil, true, 1, ""},
		{"small, busy", 1, []fault{busy, throttled}, nil, true, 2, ""},
		{"small, denied", 1, []fault{denied}, []error{store.ErrDenied}, false, 0, ""},
		{"small, lost, then denied", 1, []fault{lost, denied}, []error{store.ErrUnknownOutcome}, true, 1, ""},
		{"small, throttled for ever", 1, []fault{throttled, throttled, throttled, throttled}, []error{store.ErrThrottled}, false, 3, ""},
		{"small, lost for ever", 1, []fault{unheard, unheard, unheard, unheard}, []error{store.ErrUnknownOutcome}, false, 3, ""},
	} {
		bubble(t, c.name, func(t *testing.T) {
			st, s := startSessions(t, c.faults...)
			begun := time.Now()
			n, err := st.PutLarge(t.Context(), "k", random(c.size))
			if took, want := time.Since(begun), 250*time.Millisecond*time.Duration(1<<c.again-1); took != want {
				t.Errorf("the pauses were %v, want %v", took, want)
			}
			if c.want == nil && (err != nil || n != c.size) {
				t.Errorf("PutLarge gives %d, %v", n, err)
			}
			if c.want != nil {
				wiretest.CheckError(t, "put", err, c.want...)
				for _, secret := range []string{"hidden", "secret"} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error shows what nobody may know: %v", err)
					}
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.faults) > 0 {
				t.Errorf("%d faults never happened", len(s.faults))
			}
			if s.there != c.there {
				t.Errorf("the object is there: %v, want %v", s.there, c.there)
			}
			if c.want != nil && s.has > 0 && !s.there {
				t.Error("the session was not cancelled")
			}
			if got := strings.Join(s.asked[min(2, len(s.asked)):], ", "); c.asked != "" && got != c.asked {
				t.Errorf("the requests after the first chunk's were\n%s, want\n%s", got, c.asked)
			}
		})
	}
}

// That there is no token for the second try says nothing of the first, which may have landed.
func TestLargeWithoutAnotherToken(t *testing.T) {
	for _, c := range []struct {
		first fault
		want  error
	}{
		{lost, store.ErrUnknownOutcome},
		{busyButYes, store.ErrUnknownOutcome},
		{throttled, store.ErrThrottled},
	} {
		synctest.Test(t, func(t *testing.T) {
			tokens := 0
			st := direct(t, &sessions{faults: []fault{c.first}}, func(context.Context) (string, error) {
				if tokens++; tokens > 1 {
					return "", errors.New("no token")
				}
				return "secret", nil
			})
			_, err := st.PutLarge(t.Context(), "k", random(1))
			wiretest.CheckError(t, "put", err, c.want)
		})
	}
}

// Over HTTP/2 no request says how long it is, and an answer of 308 is no redirection either.
func TestLargeHTTP2(t *testing.T) {
	for _, faults := range [][]fault{{pass, unheard}, {pass, denied}} {
		s := &sessions{faults: faults}
		server := httptest.NewUnstartedServer(s)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		st, err := gcsstore.New(server.Client(), "bucket", &gcsstore.Options{
			Endpoint: server.URL,
			Token:    func(context.Context) (string, error) { return "secret", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.PutLarge(t.Context(), "k", random(2*chunk))
		if faults[1] == denied {
			wiretest.CheckError(t, "put", err, store.ErrDenied)
		} else if err != nil {
			t.Error(err)
		}
		if s.there != (err == nil) || s.cancelled != (err != nil) {
			t.Errorf("%v; the requests were %q", err, s.asked)
		}
	}
}

// What cannot be cleaned up stays, and the error says so; but not the URI of the session, with
// which anybody could write the object.
func TestLargeThatStays(t *testing.T) {
	for name, last := range map[string]fault{"refused": denied, "unheard": unheard, "busy": busy} {
		bubble(t, name, func(t *testing.T) {
			st, s := startSessions(t, pass, denied, last)
			_, err := st.PutLarge(t.Context(), "k", random(2*chunk))
			wiretest.CheckError(t, "put", err, store.ErrDenied)
			if !strings.Contains(err.Error(), "after a week") || strings.Contains(err.Error(), "hidden") || !s.open {
				t.Error(err)
			}
		})
	}
}

// A reader that fails, and a context that ends, leave nothing.
func TestLargeGivesUp(t *testing.T) {
	errOwn := errors.New("the reader's own error")
	for _, size := range []int64{1, chunk, chunk + 1, 2 * chunk} {
		for _, own := range []error{errOwn, fmt.Errorf("cut off: %w", io.EOF)} {
			st, s := startSessions(t)
			_, err := st.PutLarge(t.Context(), "k", source{size: size, err: own}.reader())
			wiretest.CheckError(t, "put", err, store.ErrInvalid)
			if !errors.Is(err, own) || s.there || s.open || s.cancelled != (size >= chunk) {
				t.Errorf("%d bytes: %v; the requests were %q", size, err, s.asked)
			}
		}
		st, s := startSessions(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := st.PutLarge(ctx, "k", source{size: size, err: io.EOF, then: cancel}.reader())
		wiretest.CheckError(t, "put", err, store.ErrUnavailable)
		if !errors.Is(err, context.Canceled) || s.there || s.open || s.cancelled != (size >= chunk) {
			t.Errorf("%d bytes: %v; the requests were %q", size, err, s.asked)
		}
	}
}

// The server takes the request that cancels an upload.
func TestLargeCancels(t *testing.T) {
	srv := servers.StartGCSFront(t)
	st := open(t, srv.Endpoint, srv.GCSBucket(t))
	own := errors.New("the reader's own error")
	_, err := st.PutLarge(t.Context(), "k", source{size: chunk, err: own}.reader())
	wiretest.CheckError(t, "put", err, store.ErrInvalid)
	if !errors.Is(err, own) || strings.Contains(err.Error(), "stays on the server") {
		t.Error(err)
	}
}

// A server that cannot be right ends an upload, and is not asked for ever.
func TestLargeOfAServerThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		location, has string
		status        int
		want          error
		says          string
	}{
		"no session":              {"", "", 308, store.ErrUnavailable, "the answer names no session for the upload"},
		"no URL":                  {"/upload?upload_id=1", "", 308, store.ErrUnavailable, "the answer names no session for the upload"},
		"no URL at all":           {"http://%zz", "", 308, store.ErrUnavailable, "the answer names no session for the upload"},
		"another scheme":          {"https://HOST/?upload_id=1", "", 308, store.ErrUnavailable, "the answer names no session for the upload"},
		"knows no uploads":        {"http://HOST/?upload_id=1", "", 501, store.ErrRefused, "cannot carry locks"},
		"takes nothing":           {"http://HOST/?upload_id=1", "", 308, store.ErrUnavailable, "was sent the bytes from 0 to 8388608, and says that it has 0"},
		"has more than there was": {"http://HOST/?upload_id=1", "bytes=0-99999999", 308, store.ErrUnavailable, "was sent the bytes from 0 to 8388608, and says that it has 100000000"},
		"has it without its end":  {"http://HOST/?upload_id=1", "", 200, store.ErrUnavailable, "the server ended the upload before its end"},
		"has lost it":             {"http://HOST/?upload_id=1", "", 410, store.ErrUnavailable, "the session of this upload has ended"},
		"has lost the session":    {"http://HOST/?upload_id=1", "", 404, store.ErrUnavailable, "404 Not Found"},
	} {
		var methods []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			if r.Method == http.MethodPost {
				if c.location != "" {
					w.Header().Set("Location", strings.ReplaceAll(c.location, "HOST", r.Host))
				}
				return
			}
			if c.has != "" {
				w.Header().Set("Range", c.has)
			}
			w.WriteHeader(c.status)
		}))
		t.Cleanup(server.Close)
		_, err := newStore(t, server.URL, nil).PutLarge(t.Context(), "k", random(2*chunk))
		wiretest.CheckError(t, "put", err, c.want)
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: it says %v, want %q in it", name, err, c.says)
		}
		if slices.Contains(methods[1:], http.MethodPost) || len(methods) > 3 {
			t.Errorf("%s: the requests were %q", name, methods)
		}
	}
}

// Where a session is to begin, nobody can tell a bucket that is missing from a session that has ended.
func TestLargeWithoutABucket(t *testing.T) {
	st := direct(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, jsonError(404, "notFound", "Not Found"))
	}), nil)
	_, err := st.PutLarge(t.Context(), "k", random(chunk))
	wiretest.CheckError(t, "put", err, store.ErrUnavailable)
	if want := `put "k": store unavailable: 404 notFound: Not Found; either the bucket is missing, or the session of this upload has ended`; err.Error() != want {
		t.Errorf("it says\n%v\nwant\n%s", err, want)
	}
}

// A body whose connection breaks ends in an error, never as if it were whole.
func TestLargeBreaksOff(t *testing.T) {
	for name, answer := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nX-Goog-Generation: 2\r\nContent-Length: 100\r\n\r\nbody",
	} {
		for _, end := range []wiretest.Ending{wiretest.FIN, wiretest.RST} {
			st, _ := faulty(t, answer, end)
			r, size, err := st.GetLarge(t.Context(), "k")
			if err != nil || size != 100 {
				t.Fatalf("%s: GetLarge gives %d, %v", name, size, err)
			}
			_, err = io.Copy(io.Discard, r)
			wiretest.CheckError(t, "get", err, store.ErrUnavailable)
			_ = r.Close()
		}
	}
	st, _ := faulty(t, "HTTP/1.1 200 OK\r\nX-Goog-Generation: 2\r\n\r\nbody", wiretest.FIN)
	_, _, err := st.GetLarge(t.Context(), "k")
	wiretest.CheckError(t, "get", err, store.ErrUnavailable)

	st, _ = faulty(t, "HTTP/1.1 200 OK\r\nX-Goog-Generation: 2\r\nContent-Length: 100\r\n\r\nbody", wiretest.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err := st.GetLarge(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = io.Copy(io.Discard, r)
	wiretest.CheckError(t, "get", err, store.ErrUnavailable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not match context.Canceled", err)
	}
	_ = r.Close()
}

// A server that has less than it had ends an upload; whether the object has landed nobody knows
// once the end of it was sent and not answered.
func TestLargeOfAServerThatForgets(t *testing.T) {
	for _, c := range []struct {
		size int64
		want error
	}{{2 * chunk, store.ErrUnavailable}, {chunk + 1, store.ErrUnknownOutcome}} {
		puts := 0
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			switch r.Method {
			case http.MethodPost:
				w.Header().Set("Location", "https://"+r.Host+"/?upload_id=1")
				return
			case http.MethodPut:
				puts++
			}
			switch {
			case puts == 2 && c.want == store.ErrUnknownOutcome: //nolint:errorlint // it is the sentinel itself
				w.WriteHeader(503)
				return
			case puts == 1:
				w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", chunk-1))
			default:
				w.Header().Set("Range", "bytes=0-99")
			}
			w.WriteHeader(308)
		})
		synctest.Test(t, func(t *testing.T) {
			_, err := direct(t, server, nil).PutLarge(t.Context(), "k", random(c.size))
			wiretest.CheckError(t, "put", err, c.want)
		})
	}
}
