package main

import (
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
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
// requests have nearly the mean that many have, and no subject is lucky. But 8 or 13 of these steps
// end nearly where they began. A measurement that is made once a round, with other requests in
// between, could have the same delays each time, so it begins with one that is drawn: see from.
const (
	leastLatency = 100 * time.Millisecond
	mostLatency  = 200 * time.Millisecond
	latencies    = mostLatency - leastLatency
)

// openPlaces starts the servers. Each is a place, and the last one is another behind the latency of S3,
// where servers hardly differ.
func openPlaces(h *host, names []string) (places []*place) {
	for i, name := range names {
		server := servers.StartProcess(h, name)
		p := &place{name: name, server: server, bucket: server.Bucket(h), endpoint: server.Endpoint}
		p.counted = p.way(h)
		places = append(places, p)
		if i < len(names)-1 {
			continue
		}
		far := *p
		far.name, far.bucket, far.delayed = name+" + 100–200 ms", server.Bucket(h), true
		far.endpoint = far.way(h).endpoint
		places = append(places, &far)
	}
	return places
}

// way is one more network before the server, as near or far as the place is.
func (p *place) way(h *host) *network {
	if p.delayed {
		return startNetwork(h, p.server.Endpoint, leastLatency, latencies)
	}
	return startNetwork(h, p.server.Endpoint, 0, 0)
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
	onward   *http.Transport
	mu       sync.Mutex
	sent     traffic
	point    float64 // of the latencies between the least and the most, from 0 to 1
}

// startNetwork starts a proxy before target, whose latency is from least to least and more.
// Signatures are made for the name of the proxy, so requests keep it.
func startNetwork(h *host, target string, least, more time.Duration) *network {
	u, err := url.Parse(target)
	if err != nil {
		h.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	n := &network{endpoint: "http://" + listener.Addr().String()}
	n.onward = &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000, DisableCompression: true}
	proxy := &httputil.ReverseProxy{Transport: n.onward, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Host = r.In.Host
	}}
	n.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.sent = n.sent.plus(trafficOf(r))
		_, n.point = math.Modf(n.point + (math.Sqrt(5)-1)/2)
		point := n.point
		n.mu.Unlock()
		time.Sleep(least + time.Duration(point*float64(more)))
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = n.server.Serve(listener) }() // it ends with Close
	h.Cleanup(n.cut)
	return n
}

// cut ends the network: nobody reaches the server by it any more.
func (n *network) cut() {
	_ = n.server.Close()
	n.onward.CloseIdleConnections()
}

// from has the delays go on from the one that is so much above the least.
func (n *network) from(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.point = d.Seconds() / latencies.Seconds()
}

// traffic is what has been sent so far.
func (n *network) traffic() traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// count is how many requests that is.
func (n *network) count() int {
	return int(sum(n.traffic().all()))
}

func sum(r cost.Requests) float64 { return r.Get + r.Put + r.List + r.Delete }

// A traffic is what was sent: for locks, and for the sessions that they are under.
type traffic struct{ locks, sessions cost.Requests }

func (t traffic) plus(o traffic) traffic {
	return traffic{t.locks.Plus(o.locks), t.sessions.Plus(o.sessions)}
}

// per is what was sent since before, for each of n.
func (t traffic) per(n float64, before traffic) traffic {
	t = t.plus(traffic{before.locks.Times(-1), before.sessions.Times(-1)})
	return traffic{t.locks.Times(1 / n), t.sessions.Times(1 / n)}
}

func (t traffic) all() cost.Requests { return t.locks.Plus(t.sessions) }

// sentColumns head what sent gives.
var sentColumns = []string{"requests for the lock", "to watch sessions", "heartbeats", "all requests"}

// addSent adds what was sent for one turn.
func (b *bench) addSent(experiment, where, subject string, round int, t traffic) {
	for i, n := range []float64{sum(t.locks), t.sessions.Get, sum(t.sessions) - t.sessions.Get, sum(t.all())} {
		b.add(experiment, where, subject, sentColumns[i], round, n)
	}
}

// sent is what was sent for one turn, if that was counted.
func (b *bench) sent(experiment, where, subject string) (cells []string) {
	for _, column := range sentColumns {
		cells = append(cells, b.of(experiment, where, subject, column).String())
	}
	return cells
}

// trafficOf counts one request. The objects of sessions lie under a prefix of theirs.
func trafficOf(r *http.Request) traffic {
	if _, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); strings.HasPrefix(key, "sessions/") {
		return traffic{sessions: kindOf(r)}
	}
	return traffic{locks: kindOf(r)}
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
