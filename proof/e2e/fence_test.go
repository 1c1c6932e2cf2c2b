//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencehttp"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/fencetest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// becomeHolder makes this process a holder of fencetest, if it is to be one.
func becomeHolder() { fencetest.Main(openers) }

// openers are the kinds of resource that the holders of TestFormerHolderWakesUp write.
var openers = map[string]fencetest.Opener{
	"object": func(ctx context.Context, at string, seed uint64) (fencetest.Resource, error) {
		st, key, err := lossy(ctx, at, seed)
		if err != nil {
			return nil, err
		}
		o, err := fence.NewObject(st, key, nil)
		return &object{Object: o}, err
	},
	"log": func(ctx context.Context, at string, seed uint64) (fencetest.Resource, error) {
		st, key, err := lossy(ctx, at, seed)
		if err != nil {
			return nil, err
		}
		l, err := fencelog.New(st, key)
		return &appendix{log: l}, err
	},
	"http": func(_ context.Context, at string, seed uint64) (fencetest.Resource, error) {
		return &page{at: at, seed: seed}, nil
	},
}

// lossy is a store of which some answers are lost, if there is a seed.
func lossy(ctx context.Context, at string, seed uint64) (store.Store, string, error) {
	st, key, err := storeurl.OpenLock(ctx, at)
	if err != nil || seed == 0 {
		return st, key, err
	}
	return faultstore.Wrap(st, &faultstore.Options{Seed: seed, Faults: []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Op: "put", Probability: 0.1},
		{Kind: faultstore.LateDuplicate, Op: "put", Probability: 0.05, Jitter: 2 * time.Second},
	}}), key, nil
}

type object struct {
	*fence.Object
	h fence.Holder
}

func (o *object) Claim(ctx context.Context, h fence.Holder) error {
	o.h = h
	_, err := o.Object.Claim(ctx, h)
	return err
}

func (o *object) Write(ctx context.Context, value string) error {
	return o.Put(ctx, o.h, strings.NewReader(value))
}

func (o *object) Read(ctx context.Context) (string, error) {
	v, err := o.Get(ctx)
	if errors.Is(err, store.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	b, err := v.ReadAll(ctx)
	return string(b), err
}

type appendix struct {
	log *fencelog.Log
	*fencelog.Appender
}

func (a *appendix) Claim(ctx context.Context, h fence.Holder) (err error) {
	a.Appender, err = a.log.Claim(ctx, h)
	return err
}

func (a *appendix) Write(ctx context.Context, value string) error {
	_, err := a.Append(ctx, []byte(value))
	return err
}

func (a *appendix) Read(ctx context.Context) (string, error) {
	var all strings.Builder
	for e, err := range a.log.Read(ctx, 0) {
		if err != nil {
			return "", err
		}
		for _, r := range e.Records {
			fmt.Fprintf(&all, "%s ", r)
		}
	}
	return all.String(), nil
}

// page is a value behind an HTTP service.
type page struct {
	at   string
	seed uint64
	http.Client
}

func (p *page) Claim(ctx context.Context, h fence.Holder) error {
	p.Transport = &fencehttp.Transport{Base: lossyTransport(p.seed), Holder: h}
	var err error
	for range 20 { // answers are lost
		if err = p.send(ctx, http.MethodPost, ""); err == nil || errors.Is(err, fence.ErrFenced) {
			break
		}
	}
	return err
}

func (p *page) Write(ctx context.Context, value string) error {
	return p.send(ctx, http.MethodPut, value)
}

func (p *page) send(ctx context.Context, method, value string) error {
	req, err := http.NewRequestWithContext(ctx, method, p.at, strings.NewReader(value))
	if err != nil {
		return err
	}
	resp, err := p.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err = fencehttp.FromResponse(resp); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (p *page) Read(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.at, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// lossyTransport loses one answer in ten, if there is a seed.
func lossyTransport(seed uint64) http.RoundTripper {
	r := rand.New(rand.NewPCG(seed, 0))
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil && seed != 0 && r.IntN(10) == 0 {
			_ = resp.Body.Close()
			return nil, io.ErrUnexpectedEOF
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// service keeps the value of the page. It dawdles before it writes, so that a request
// can be on its way in it, too.
func service(t *testing.T, fenced bool) string {
	t.Helper()
	var mu sync.Mutex
	value := ""
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPut {
			select {
			case <-time.After(rand.N(3 * time.Millisecond)):
			case <-r.Context().Done():
				return
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case http.MethodGet:
			_, _ = io.WriteString(w, value)
		case http.MethodPut:
			value = string(body)
		}
	}))
	if fenced {
		handler = fencehttp.Middleware(fence.NewGate(new(fence.Memory)), &fencehttp.Options{
			Optional: func(r *http.Request) bool { return r.Method == http.MethodGet },
		})(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/page"
}

// TestFormerHolderWakesUp: a holder is stopped while it writes, loses its lease to
// another that writes, and goes on writing. With -long 100 times in each place.
func TestFormerHolderWakesUp(t *testing.T) {
	t.Parallel()
	if !underTest.Tokens() || underTest != leasetest.Object {
		t.Skip("the same in every layout with tokens: only the token matters")
	}
	rounds := 2
	if *long {
		rounds = 100
	}
	var played atomic.Int64
	t.Cleanup(func() {
		t.Logf("figures: a holder was stopped and woken up %d times, nothing of the next one's lost: %t", played.Load(), !t.Failed())
	})
	sites(t, func(t *testing.T, at site) {
		for kind := range openers {
			t.Run(kind, func(t *testing.T) {
				for round := range rounds {
					t.Run(fmt.Sprint(round), func(t *testing.T) {
						t.Parallel()
						q := at.sequence(kind, round)
						if kind == "http" {
							q.At = service(t, true)
						}
						played.Add(1)
						if q.Play(t) == "" {
							t.Error("what the second holder wrote is gone, and the first was never refused")
						}
					})
				}
			})
		}
	})
}

// sequence is played on a lock and a resource of its own, each in a directory of its own:
// a holder that is stopped while it has a directory's lock keeps all others out of that.
func (s site) sequence(kind string, round int) fencetest.Sequence {
	head, query, _ := strings.Cut(s.url, "?")
	name := func(what string) string { return fmt.Sprintf("%s-%s-%s-%d/x?%s", head, what, kind, round, query) }
	return fencetest.Sequence{LockURL: name("lock"), At: name("resource"), Env: s.env, Kind: kind, Appends: kind == "log", Blocks: s.name == "file"}
}

// The same without a fence: the former holder's write goes through. If it did not, the
// test above would prove nothing.
func TestFormerHolderWithoutAFence(t *testing.T) {
	t.Parallel()
	if underTest != leasetest.Object {
		t.Skip("the same in every layout with tokens: only the token matters")
	}
	q := site{url: "file://" + t.TempDir() + "/x"}.sequence("http", 0)
	q.At = service(t, false)
	if refusal := q.Play(t); refusal != "" {
		t.Errorf("nothing fences the service, and the former holder was refused: %s", refusal)
	}
}
