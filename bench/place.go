package main

import (
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// A place is a bucket on a server, with a network before it or without.
type place struct {
	name   string
	server *servers.Server
	bucket string

	endpoint string   // where subjects reach it
	delayed  bool     // behind the latency of S3
	counted  *network // another way to it, which counts requests and does not delay them
}

// S3's guide to performance says that small objects have latencies of roughly 100 to 200 ms.
// Each request is delayed by as much, evenly: steps of the golden ratio leave no gaps, so a few
// requests have nearly the mean that many have, and no subject is lucky.
const (
	leastLatency = 100 * time.Millisecond
	mostLatency  = 200 * time.Millisecond
)

// openPlaces starts the servers. Each is two places.
func openPlaces(h *host, names []string) (places []*place) {
	for _, name := range names {
		server := servers.Start(h, name)
		p := &place{name: name, server: server, bucket: server.Bucket(h), endpoint: server.Endpoint, counted: startNetwork(h, server.Endpoint, 0, 0)}
		far := *p
		far.name, far.bucket, far.delayed = name+" + 100–200 ms", server.Bucket(h), true
		far.endpoint = startNetwork(h, server.Endpoint, leastLatency, mostLatency).endpoint
		places = append(places, p, &far)
	}
	return places
}

// stands reports whether this place stands for all like it in the document, which has no table of
// the others where only their times differ; benchmarks.json has their figures.
func (b *bench) stands(p *place) bool {
	if p == nil {
		return true
	}
	like := b.where(p.delayed)
	return p == like[len(like)-1]
}

// near are the places without a delay, and far those with one.
func (b *bench) near() []*place { return b.where(false) }
func (b *bench) far() []*place  { return b.where(true) }

func (b *bench) where(delayed bool) (places []*place) {
	for _, p := range b.places {
		if p.delayed == delayed {
			places = append(places, p)
		}
	}
	return places
}

// client is the bare SDK, which sends each request once.
func (p *place) client() *s3.Client { return p.clientAt(p.endpoint) }

func (p *place) clientAt(endpoint string) *s3.Client {
	c := p.server.ClientAt(endpoint)
	return s3.New(c.Options(), func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
}

// store is leasehold's way to the bucket.
func (p *place) store() (store.Store, error) { return s3store.New(p.client(), p.bucket, nil) }

// A network is a proxy with a latency, which counts requests.
type network struct {
	endpoint string
	server   *http.Server
	mu       sync.Mutex
	sent     int
	point    float64 // between the least latency and the most, from 0 to 1

	sentKinds cost.Requests
}

// startNetwork starts a proxy before target. Signatures are made for the name of the proxy,
// so requests keep it.
func startNetwork(h *host, target string, least, most time.Duration) *network {
	u, err := url.Parse(target)
	if err != nil {
		h.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	n := &network{endpoint: "http://" + listener.Addr().String()}
	transport := &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000, DisableCompression: true}
	proxy := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Host = r.In.Host
	}}
	n.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.sent++
		n.sentKinds = n.sentKinds.Plus(kindOf(r))
		_, n.point = math.Modf(n.point + (math.Sqrt(5)-1)/2)
		point := n.point
		n.mu.Unlock()
		time.Sleep(least + time.Duration(point*float64(most-least)))
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = n.server.Serve(listener) }() // it ends with Close
	h.Cleanup(n.cut)
	return n
}

// cut ends the network: nobody reaches the server by it any more.
func (n *network) cut() { _ = n.server.Close() }

// count is how many requests have been sent so far, in all.
func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// kinds are the requests that have been sent so far, by kind, since their prices differ.
func (n *network) kinds() cost.Requests {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sentKinds
}

// kindOf counts one request as its kind.
func kindOf(r *http.Request) (k cost.Requests) {
	switch {
	case r.Method == http.MethodDelete:
		k.Delete = 1
	case r.Method == http.MethodPut, r.Method == http.MethodPost:
		k.Put = 1
	case r.URL.Query().Has("list-type"):
		k.List = 1
	default:
		k.Get = 1
	}
	return k
}
