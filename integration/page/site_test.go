package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A site is a server as leasehold serve has it, over a store in memory that can be cut off.
type site struct {
	t      *testing.T
	inner  *memstore.Store   // which others reach, whatever becomes of the server
	store  *faultstore.Store // the server's way to it
	server *serve.Server
	http   *localhttp.Server
	served chan error
	url    string
}

// named is a store with a name that may stand in a picture.
type named struct{ store.Store }

func (named) String() string { return "s3://my-bucket/locks" }

// begin starts a server.
func begin(t *testing.T, opts serve.Options) *site {
	t.Helper()
	s := &site{t: t, inner: memstore.New()}
	s.store = faultstore.Wrap(s.inner, nil)
	if opts.Every == 0 {
		opts.Every = time.Second
	}
	opts.TTL = time.Minute // no lease is to be lost because the machine is busy
	opts.Holder, opts.Price = "web-1/serve", "s3"
	opts.URL = func(key string) string { return "s3://my-bucket/locks/" + key }
	var err error
	if s.server, err = serve.New(named{s.store}, &opts); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.listen("127.0.0.1:0")
	s.url = "http://" + s.http.Address()
	t.Cleanup(func() {
		s.store.Partition(false)
		s.store.Clear()
		s.end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = s.server.Stop(ctx) // callers are not asked to end
		s.store.Close()
	})
	return s
}

// listen begins to answer.
func (s *site) listen(address string) {
	s.t.Helper()
	a, err := localhttp.ParseAddress(address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.http, err = localhttp.ListenWith(s.t.Context(), a, localhttp.Options{Conns: 256, Refuse: s.server.Refuse})
	if err != nil {
		s.t.Fatal(err)
	}
	h, served := s.http, make(chan error, 1)
	s.served = served
	go func() { served <- h.Serve(s.server, slog.New(slog.DiscardHandler)) }()
}

// end stops answering, at once.
func (s *site) end() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	cancel()
	_ = s.http.Stop(ctx) // streams are cut off
	if err := <-s.served; err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
}

// A lease is what a caller of the server has.
type lease struct {
	Lease string `json:"lease"`
	Token int64  `json:"token"`
	code  int
}

// ask sends a request to the server.
func (s *site) ask(ctx context.Context, method, path, body string) (l lease, err error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewBufferString(body))
	if err != nil {
		return l, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return l, err
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	l.code = w.StatusCode
	if len(text) > 0 {
		err = errors.Join(err, json.Unmarshal(text, &l))
	}
	return l, err
}

// acquires is a lease that is given at once, and lasts.
func (s *site) acquires(kind, key, body string) lease {
	s.t.Helper()
	what := map[string]string{"locks": "acquire", "elections": "campaign"}[kind]
	l, err := s.ask(s.t.Context(), "POST", "/v1/"+kind+"/"+url.PathEscape(key)+"/"+what, body)
	if err != nil || l.code != 200 {
		s.t.Fatalf("%s %s: %d, %v", kind, key, l.code, err)
	}
	return l
}

// waits is a caller that waits for a lock, until it has it or the test is over.
func (s *site) waits(kind, key, body string) <-chan lease {
	what := map[string]string{"locks": "acquire", "elections": "campaign"}[kind]
	done := make(chan lease, 1)
	go func() {
		l, err := s.ask(s.t.Context(), "POST", "/v1/"+kind+"/"+url.PathEscape(key)+"/"+what, body)
		if err == nil && l.code == 200 {
			done <- l
		}
	}()
	return done
}

func (s *site) releases(l lease) {
	s.t.Helper()
	if a, err := s.ask(s.t.Context(), "DELETE", "/v1/leases/"+l.Lease, ""); err != nil || a.code != 204 && a.code != 202 {
		s.t.Fatalf("released: %d, %v", a.code, err)
	}
}

// holder is another process that takes a lock of its own.
func holder(t *testing.T, st store.Store, key, name string, ttl time.Duration) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Holder: name, Address: name + ".example:8443", TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}
