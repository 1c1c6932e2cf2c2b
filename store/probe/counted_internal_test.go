package probe

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/internal/pipenet"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A node keeps conditions among its own clients, and knows nothing of those of other nodes until
// their writes are there.
type node struct {
	*brokenstore.Store
	turn chan struct{} // in a bubble, unlike a mutex, it can be waited for
}

func newNode(shared *memstore.Store) *node {
	n := &node{&brokenstore.Store{Store: shared}, make(chan struct{}, 1)}
	n.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		n.turn <- struct{}{}
		defer func() { <-n.turn }()
		if v, there := n.Now(ctx, key); there == only.Absent() || v != only.Match() {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
		}
		time.Sleep(time.Millisecond)
		return n.Force(ctx, key, body)
	}
	return n
}

// TestRacesAreOverTwoConnections: a store that keeps conditions in each of its nodes, and not
// between two, is found out by each kind of race.
func TestRacesAreOverTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New()
		r := probed(t, brokenstore.Bare{Store: newNode(shared)}, &Options{Races: 20, Open: func(context.Context) (store.Store, error) {
			return brokenstore.Bare{Store: newNode(shared)}, nil
		}})
		for _, name := range []string{raceCreate, raceUpdate, allCreates, allUpdates} {
			if f := r.Finding(name); f.Result != Bad {
				t.Errorf("%+v", f)
			}
		}
		for _, use := range locks {
			if r.Proves(r.Store, use) == nil {
				t.Errorf("it is said to be safe for %s", use)
			}
		}
		empty(t, shared)

		// Over one node it keeps them.
		alone := newNode(memstore.New())
		if r = probed(t, brokenstore.Bare{Store: alone}, few); r.Proves(r.Store, useObject) != nil {
			t.Error(r.Proves(r.Store, useObject))
		}
	})
}

// A counter counts the calls that reach a store.
type counter struct {
	store.Store
	calls atomic.Int64
}

func (c *counter) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key, unless)
}

func (c *counter) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	c.calls.Add(1)
	return c.Store.Put(ctx, key, body, only)
}

func (c *counter) Delete(ctx context.Context, key string) error {
	c.calls.Add(1)
	return c.Store.Delete(ctx, key)
}

func (c *counter) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		c.calls.Add(1)
		c.Store.List(ctx, prefix, after)(yield)
	}
}

// TestProbeKeepsItsBudget: whatever a store answers, for ever or from some request on, a probe sends
// no more requests than it announced, and tells how many it sent.
func TestProbeKeepsItsBudget(t *testing.T) {
	for _, kind := range []error{
		nil, store.ErrUnavailable, store.ErrThrottled, store.ErrUnknownOutcome, store.ErrConflict, store.ErrDenied, store.ErrRefused,
		store.ErrPrecondition, store.ErrNotExist, store.ErrNotModified, store.ErrNoBucket,
	} {
		for _, from := range []int64{0, 100} {
			for _, landed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v from %d, landed %t", kind, from, landed), func(t *testing.T) {
					t.Parallel()
					keepsItsBudget(t, kind, from, landed)
				})
			}
		}
	}
}

// keepsItsBudget has a store answer with an error from some request on, before or after it did what was asked.
func keepsItsBudget(t *testing.T, kind error, from int64, landed bool) {
	t.Helper()
	b := &brokenstore.Store{Store: memstore.New()}
	var n atomic.Int64
	fails := func(op, key string, do func()) error {
		if n.Add(1) <= from || kind == nil {
			return nil
		}
		if landed {
			do()
		}
		return &store.Error{Op: op, Key: key, Kind: kind}
	}
	b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
		if err := fails("get", key, func() {}); err != nil {
			return nil, err
		}
		return b.Store.Get(ctx, key, unless)
	}
	b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		if err := fails("put", key, func() { _, _ = b.Store.Put(ctx, key, body, only) }); err != nil {
			return nil, err
		}
		return b.Store.Put(ctx, key, body, only)
	}
	b.OnDelete = func(ctx context.Context, key string) error {
		if err := fails("delete", key, func() { _ = b.Store.Delete(ctx, key) }); err != nil {
			return err
		}
		return b.Store.Delete(ctx, key)
	}
	b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
		if err := fails("list", prefix, func() {}); err != nil {
			return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, err) }
		}
		return b.Store.List(ctx, prefix, after)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &counter{Store: brokenstore.Bare{Store: b}}
		r, err := Run(t.Context(), c, few)
		c.within(t, r, few)
		if (r == nil) != (err != nil) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// within checks that a probe made as many requests as it says, and no more than it announced.
func (c *counter) within(t *testing.T, r *Report, opts *Options) {
	t.Helper()
	if n := int(c.calls.Load()); n > opts.Requests() || r != nil && (n != r.Requests.Total() || r.Limit != opts.Requests()) {
		t.Errorf("%d requests, announced %d; report %+v", n, opts.Requests(), r)
	}
}

// A web is a store over HTTP that follows redirects as far as its client does, and reads all pages.
type web struct {
	store.Store // what it really is
	url         string
	client      *http.Client
}

func (w *web) ask(ctx context.Context, op, key, query string) (page struct{ Next string }, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/"+op+"?"+query, nil)
	if err != nil {
		return page, err
	}
	answer, err := w.client.Do(req)
	if err != nil {
		return page, &store.Error{Op: op, Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	defer answer.Body.Close()
	_ = xml.NewDecoder(answer.Body).Decode(&page)
	return page, nil
}

func (w *web) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if _, err := w.ask(ctx, "get", key, ""); err != nil {
		return nil, err
	}
	return w.Store.Get(ctx, key, unless)
}

func (w *web) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if _, err := w.ask(ctx, "put", key, ""); err != nil {
		return nil, err
	}
	return w.Store.Put(ctx, key, body, only)
}

func (w *web) Delete(ctx context.Context, key string) error {
	if _, err := w.ask(ctx, "delete", key, ""); err != nil {
		return err
	}
	return w.Store.Delete(ctx, key)
}

func (w *web) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for next := "first"; next != ""; {
			page, err := w.ask(ctx, "list", prefix, next)
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			next = page.Next
		}
		w.Store.List(ctx, prefix, after)(yield)
	}
}

// TestProbeCountsWhatIsSent: redirects that lead nowhere and pages without an end count as the requests
// that they are, and no call goes on with them. A probe that announced at most 6,740 requests sent 1.2 million.
func TestProbeCountsWhatIsSent(t *testing.T) {
	for _, c := range []struct {
		name string
		loop func(w http.ResponseWriter, r *http.Request)
		said error // what the probe ends with
	}{
		{"redirects to itself", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, errManyRequests},
		{"redirects reads once", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/get" {
				http.Redirect(w, r, "/got", http.StatusTemporaryRedirect)
			}
		}, nil},
		{"redirects writes to themselves", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/put" {
				http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			}
		}, errManyRequests},
		{"lists pages without an end", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/list" {
				fmt.Fprint(w, "<page><Next>more</Next></page>")
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // since the probe waits for ten seconds for what comes late
				var received atomic.Int64
				l := pipenet.Loopback(80)
				server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					received.Add(1)
					c.loop(w, r)
				})}}
				server.Start()
				defer server.Close()
				transport := &http.Transport{DialContext: l.DialContext}
				defer transport.CloseIdleConnections()
				client := &http.Client{
					Transport:     transport,
					CheckRedirect: func(*http.Request, []*http.Request) error { return nil }, // for ever
				}
				opts := &Options{Races: 10, LargestBody: 1 << 10}
				r, err := Run(t.Context(), brokenstore.Bare{Store: &web{Store: memstore.New(), url: server.URL, client: client}}, opts)
				n := int(received.Load())
				if n > opts.Requests() || r != nil && n > r.Requests.Total() {
					t.Errorf("%d requests, announced %d: %+v", n, opts.Requests(), r)
				}
				if !errors.Is(err, c.said) || c.said != nil && (!strings.Contains(err.Error(), "redirected to itself") || n > 50) {
					t.Errorf("after %d requests: %v", n, err)
				}
				t.Logf("figures: %d requests of %d announced", n, opts.Requests())
			})
		})
	}
}

// inspected is a store in memory with the other face that a probe needs.
type inspected struct {
	*brokenstore.Store
	settings []store.Setting
	purges   int // requests that deleting past versions takes
}

func (i *inspected) Inspect() store.Inspection { return i }

func (i *inspected) Overwrite(ctx context.Context, key string, body []byte) error {
	_, err := i.Force(ctx, key, body)
	return err
}

func (i *inspected) Settings(context.Context) []store.Setting { return i.settings }

func (i *inspected) Purge(context.Context, string) (int, error) { return i.purges, nil }

func (i *inspected) Unquoted() store.Store { return nil }

func (i *inspected) Policy(...string) (string, error) { return "{}", nil }

// TestDeleteRacesAreJudged: what writes are told in races with deletes counts, although the deletes
// do not. The probe saw two winners there and said that the store was safe.
func TestDeleteRacesAreJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenstore.Store{Store: memstore.New()}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if strings.Contains(key, "/doomed-") && updates(only) {
				return b.Force(ctx, key, body)
			}
			return b.Store.Put(ctx, key, body, only)
		}
		r := probed(t, &inspected{Store: b}, few)
		if f := r.Finding(allUpdates); f.Result != Bad || r.Proves(r.Store, useObject) == nil {
			t.Errorf("%+v, %v", f, r.Proves(r.Store, useObject))
		}
		if err := r.Proves(r.Store, useEpochsNoIfMatch); err != nil {
			t.Error(err)
		}
	})
}

// A delete that looks at the version first and deletes whatever is there later rules out nothing.
func TestLateDeletesAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenstore.Store{Store: memstore.New()}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			time.Sleep(time.Microsecond) // so that the deletes have looked
			return b.Store.Put(ctx, key, body, only)
		}
		b.OnDeleteIf = func(ctx context.Context, key string, v store.Version) error {
			if now, there := b.Now(ctx, key); there && now != v {
				return &store.Error{Op: "delete", Key: key, Kind: store.ErrPrecondition}
			}
			time.Sleep(time.Millisecond)
			return b.Store.Delete(ctx, key)
		}
		r := probed(t, &inspected{Store: b}, few)
		if f := r.Finding(deleteIf); f.Result != Note || !strings.Contains(f.Detail, "races both a delete and an update succeeded") {
			t.Errorf("%+v", f)
		}
		for _, v := range r.Verdicts {
			if !v.Safe {
				t.Errorf("%+v", v)
			}
		}
	})
}

// Where past versions are kept, the requests that delete them are announced too.
func TestProbeCountsPurges(t *testing.T) {
	for _, c := range []struct {
		settings []store.Setting
		more     int
	}{
		{nil, 0},
		{[]store.Setting{{Name: "versioning", Value: "enabled"}}, few.Purges()},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &inspected{Store: &brokenstore.Store{Store: memstore.New()}, settings: c.settings, purges: 1000}
			r := probed(t, st, few)
			if r.Limit != few.Requests()+c.more || c.more > 0 && r.Requests.Inspect < 1000 {
				t.Errorf("%+v: a limit of %d, and %+v", c.settings, r.Limit, r.Requests)
			}
		})
	}
}

// TestNothingIsSentBeyond: a request that must not be sent reaches no store.
func TestNothingIsSentBeyond(t *testing.T) {
	t.Parallel()
	c := &counter{Store: memstore.New()}
	s, err := newSurvey(t.Context(), c, few)
	if err != nil {
		t.Fatal(err)
	}
	s.report.Limit = s.reserve
	_, get := s.read(s.a, "a", "")
	_, put := s.write(s.a, "a", s.body(), store.IfAbsent())
	_, list := s.list(s.a, "a", "")
	for _, err := range []error{get, put, list, s.remove(s.a, "a"), s.deleteIf("a", "1")} {
		if !errors.Is(err, errNoBudget) {
			t.Error(err)
		}
	}
	if n := c.calls.Load(); n > 0 || s.report.Requests.Total() > 0 || s.report.Sent > 0 {
		t.Errorf("%d requests were sent: %+v, %d bytes", n, s.report.Requests, s.report.Sent)
	}
}
