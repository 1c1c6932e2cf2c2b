package gocloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"google.golang.org/api/option"

	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/adapter/gocloud/onazure"
	"github.com/leasehold/leasehold/adapter/gocloud/ongcs"
	"github.com/leasehold/leasehold/adapter/gocloud/ons3"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storetest"
)

// A service is a running server, and the buckets of gocloud.dev/blob in it. Their clients are
// as they are by default, and so they repeat what has no answer.
type service struct {
	endpoint string
	driver   gocloud.Driver
	made     func(t *testing.T) string                              // makes a bucket
	bucket   func(t *testing.T, endpoint, name string) *blob.Bucket // opens one, through a proxy perhaps
}

func (s *service) open(t *testing.T, endpoint, name string) *planted {
	t.Helper()
	return open(t, s.bucket(t, endpoint, name), "test://"+name, s.driver)
}

func (s *service) new(t *testing.T) *planted {
	t.Helper()
	return s.open(t, s.endpoint, s.made(t))
}

func onS3(t *testing.T, name string) *service {
	t.Helper()
	srv := servers.Start(t, name)
	return &service{
		srv.Endpoint,
		ons3.Driver{},
		func(t *testing.T) string { return srv.Bucket(t) },
		func(t *testing.T, endpoint, name string) *blob.Bucket {
			bucket, err := s3blob.OpenBucket(t.Context(), srv.ClientAt(endpoint), name, nil)
			return opened(t, bucket, err)
		},
	}
}

func onGCS(t *testing.T, opts ...option.ClientOption) *service {
	t.Helper()
	srv := servers.StartGCS(t)
	return &service{
		srv.Endpoint,
		ongcs.Driver{},
		func(t *testing.T) string { return srv.GCSBucket(t) },
		func(t *testing.T, endpoint, name string) *blob.Bucket {
			client, err := storage.NewClient(t.Context(), append(opts, option.WithEndpoint(endpoint+"/storage/v1/"), option.WithoutAuthentication())...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			bucket, err := gcsblob.OpenBucket(t.Context(), nil, name, &gcsblob.Options{Client: client})
			return opened(t, bucket, err)
		},
	}
}

func onAzure(t *testing.T) *service {
	t.Helper()
	srv := servers.StartAzurite(t)
	return &service{
		srv.Host(),
		onazure.Driver{},
		func(t *testing.T) string { return srv.Container(t) },
		func(t *testing.T, endpoint, name string) *blob.Bucket {
			at := strings.ReplaceAll(srv.ConnectionString(), srv.Host(), endpoint)
			client, err := container.NewClientFromConnectionString(at, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			bucket, err := azureblob.OpenBucket(t.Context(), client, nil)
			return opened(t, bucket, err)
		},
	}
}

func opened(t *testing.T, bucket *blob.Bucket, err error) *blob.Bucket {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

func TestS3(t *testing.T) {
	for _, name := range servers.Names {
		t.Run(name, func(t *testing.T) { onS3(t, name).test(t) })
	}
}

func TestGCS(t *testing.T) {
	t.Run("reads by XML", func(t *testing.T) { onGCS(t).test(t) }) // as they are by default
	t.Run("reads by JSON", func(t *testing.T) { onGCS(t, storage.WithJSONReads()).test(t) })
}

func TestAzure(t *testing.T) { onAzure(t).test(t) }

// test makes all tests of a driver.
func (s *service) test(t *testing.T) {
	t.Helper()
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store { return s.new(t) })
	})
	t.Run("locks", func(t *testing.T) {
		st := s.new(t)
		for _, layout := range leasetest.Ways {
			holdInTurns(t, st, layout)
		}
	})
	t.Run("lost answers", s.lostAnswers)
	t.Run("refusals", s.refusals)
	t.Run("missing bucket", s.missingBucket)
	t.Run("missing by a proxy's word", s.missingByProxy)
	t.Run("cancelled write", s.cancelledWrite)
	t.Run("prefix of a bucket", s.prefixed)
}

// A tap lets the first write that comes meet a fault, and counts all.
type tap struct {
	mu    sync.Mutex
	fault servers.Fault
	sent  int
}

func (p *tap) meet(r *http.Request, _ int) servers.Fault {
	if r.Method != http.MethodPut && r.Method != http.MethodPost {
		return servers.Pass
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent++; p.sent > 1 {
		return servers.Pass
	}
	return p.fault
}

// put writes an object with the fault, and checks that one request was sent.
func (p *tap) put(t *testing.T, st store.Store, key, body string, only store.Condition, f servers.Fault) (*store.Object, error) {
	t.Helper()
	p.mu.Lock()
	p.fault, p.sent = f, 0
	p.mu.Unlock()
	o, err := st.Put(t.Context(), key, []byte(body), only)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent != 1 {
		t.Errorf("the write of %q %v was sent %d times", key, only, p.sent)
	}
	return o, err
}

// lostAnswers: a write whose answer is lost is sent once, and its outcome is unknown. The
// clients would send it again, and be told that the object exists.
func (s *service) lostAnswers(t *testing.T) {
	p := new(tap)
	name := s.made(t)
	st, direct := s.open(t, servers.StartProxy(t, s.endpoint, &servers.ProxyOptions{Fault: p.meet}).Endpoint, name), s.open(t, s.endpoint, name)
	holds := func(key, body string) store.Version {
		t.Helper()
		o, err := direct.Get(t.Context(), key, "")
		if err != nil || string(o.Body) != body {
			t.Fatalf("%q: %+v, %v, want %q", key, o, err, body)
		}
		return o.Version
	}
	for key, f := range map[string]servers.Fault{
		"dropped": servers.DropAnswer, "408": servers.StatusAfter(408), "500": servers.StatusAfter(500), "503": servers.StatusAfter(503), "504": servers.StatusAfter(504),
	} {
		_, err := p.put(t, st, key, "first", store.IfAbsent(), f)
		wantKind(t, "a create, "+key, err, store.ErrUnknownOutcome)
		v := holds(key, "first")
		_, err = p.put(t, st, key, "second", store.IfMatch(v), f)
		wantKind(t, "an update, "+key, err, store.ErrUnknownOutcome)
		holds(key, "second")
	}
	o, err := p.put(t, st, "well", "first", store.IfAbsent(), servers.Pass)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.put(t, st, "well", "second", store.IfAbsent(), servers.Pass)
	wantKind(t, "a create over an object", err, store.ErrPrecondition)
	if _, err = p.put(t, st, "well", "second", store.IfMatch(o.Version), servers.Pass); err != nil {
		t.Error(err)
	}
	_, err = p.put(t, st, "well", "third", store.IfMatch(o.Version), servers.Pass)
	wantKind(t, "an update of an older version", err, store.ErrPrecondition)
	holds("well", "second")
}

// refusals: what a server answers to a write that it does not carry out.
func (s *service) refusals(t *testing.T) {
	p := new(tap)
	st := s.open(t, servers.StartProxy(t, s.endpoint, &servers.ProxyOptions{Fault: p.meet}).Endpoint, s.made(t))
	missing := store.ErrUnavailable // it is not how the service says so
	if s.driver == (ongcs.Driver{}) {
		missing = store.ErrNoBucket // its client drops what the service says
	}
	for status, kind := range map[int]error{
		400: store.ErrRefused, 401: store.ErrDenied, 403: store.ErrDenied, 404: missing, 405: store.ErrRefused,
		409: store.ErrConflict, 412: store.ErrPrecondition, 429: store.ErrThrottled, 501: store.ErrRefused,
	} {
		_, err := p.put(t, st, "k", "body", store.IfAbsent(), servers.Status(status))
		wantKind(t, fmt.Sprint(status), err, kind)
	}
}

// missingBucket: no object is absent where there is no bucket.
func (s *service) missingBucket(t *testing.T) {
	st := s.open(t, s.endpoint, "test-no-such-bucket")
	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, "get", err, store.ErrNoBucket)
	_, err = st.Put(t.Context(), "k", []byte("body"), store.IfAbsent())
	wantKind(t, "create", err, store.ErrNoBucket)
	for _, err = range st.List(t.Context(), "", "") {
		wantKind(t, "list", err, store.ErrNoBucket)
	}
}

// missingByProxy: a proxy that has lost its server says 404 too, and a store that
// took that for an absent object would find every lock free.
func (s *service) missingByProxy(t *testing.T) {
	proxy := servers.StartProxy(t, s.endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/k") {
			return servers.Status(404)
		}
		return servers.Pass
	}})
	st := s.open(t, proxy.Endpoint, s.made(t))
	if err := st.Plant(t.Context(), "k", []byte("body")); err != nil {
		t.Fatal(err)
	}
	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, "get", err, store.ErrUnavailable)
}

// cancelledWrite: a write that is given up before its body has arrived does not land.
func (s *service) cancelledWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy := servers.StartProxy(t, s.endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
		if r.Method == http.MethodGet {
			return servers.Pass
		}
		cancel()
		return servers.DropRequest
	}})
	name := s.made(t)
	_, err := s.open(t, proxy.Endpoint, name).Put(ctx, "k", []byte("body"), store.IfAbsent())
	wantKind(t, "a write that was given up", err, store.ErrUnknownOutcome)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it does not say why: %v", err)
	}
	_, err = s.open(t, s.endpoint, name).Get(t.Context(), "k", "")
	wantKind(t, "what is there", err, store.ErrNotExist)
}

// prefixed: listings begin where they are told to, under the prefix of the bucket too, and where
// the service can begin there it is asked to, so that they do not cost more and more.
func (s *service) prefixed(t *testing.T) {
	name := s.made(t)
	for _, prefix := range []string{"some/prefix/", "p"} {
		var asked atomic.Value
		proxy := servers.StartProxy(t, s.endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
			if r.Method == http.MethodGet {
				asked.Store(r.URL.Query().Get("start-after") + r.URL.Query().Get("startOffset"))
			}
			return servers.Pass
		}})
		st := open(t, blob.PrefixedBucket(s.bucket(t, proxy.Endpoint, name), prefix), "test://"+name, s.driver)
		for _, key := range []string{"a/1", "a/2", "a/3", "b"} {
			if _, err := st.Put(t.Context(), key, []byte(key), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		var keys []string
		for e, err := range st.List(t.Context(), "a/", "a/1") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		if got := strings.Join(keys, " "); got != "a/2 a/3" {
			t.Errorf("under %q it lists %q", prefix, got)
		}
		if want := prefix + "a/1"; asked.Load() != want && s.driver != (onazure.Driver{}) {
			t.Errorf("it asks for what comes after %q, not after %q", asked.Load(), want)
		}
	}
}
