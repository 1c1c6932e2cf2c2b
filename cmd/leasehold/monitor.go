package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/internal/promtext"
)

// A monitor tells other processes how a candidate stands: over HTTP those that ask, and the
// service manager by itself.
type monitor struct {
	listen string
	files  localhttp.Files

	address  localhttp.Address
	secrets  *localhttp.Secrets
	server   *localhttp.Server // nil: there is to be none
	job      *job
	election *leasehold.Election
	lease    atomic.Pointer[held] // nil while there is none
	terms    terms
}

func (m *monitor) flags(f *pflag.FlagSet) {
	f.StringVar(&m.listen, "http", "", "serve /leader, /healthz, /readyz and /metrics on this\n`address`, such as 127.0.0.1:4040 or unix:/run/x.sock")
	f.StringVar(&m.files.Token, "http-token-file", "", "`file` with a bearer token for --http; without a token and\nTLS, --http accepts only local addresses")
	f.StringVar(&m.files.Cert, "tls-cert", "", "certificate `file` (PEM) for --http")
	f.StringVar(&m.files.Key, "tls-key", "", "key `file` (PEM) for --http")
}

// check makes sure of the flags before the store is asked.
func (m *monitor) check() (err error) {
	if m.listen == "" {
		if m.files != (localhttp.Files{}) {
			return usage("--http-token-file, --tls-cert or --tls-key without --http: give the address to listen on, such as 127.0.0.1:4040")
		}
		return nil
	}
	if m.address, err = localhttp.ParseAddress(m.listen); err != nil {
		return usage("--http: %w", err)
	}
	if m.secrets, err = m.files.Open(); err != nil {
		return usage("%w", err)
	}
	return openToOthers(m.address, m.options(), "give --http-token-file")
}

func (m *monitor) options() localhttp.Options {
	return localhttp.Options{Token: m.secrets.Token, TLS: m.secrets.TLS}
}

// openToOthers refuses an address that others than this machine can reach if they need no secret, or send it in the clear.
func openToOthers(a localhttp.Address, o localhttp.Options, advice string) error {
	if err := localhttp.CheckWith(a, o); err != nil {
		return usage("--http %v: %w: %s, or listen on 127.0.0.1", a, err, advice)
	}
	if !a.Local() && o.TLS == nil {
		return usage("--http %v: it is not a loopback address, and without TLS others could read what is sent there, the token too: give --tls-cert and --tls-key", a)
	}
	return nil
}

// open begins to listen, so that an address that cannot be had is known before the campaign.
func (m *monitor) open(ctx context.Context, j *job) (err error) {
	m.job = j
	if m.listen == "" {
		return nil
	}
	if m.server, err = localhttp.ListenWith(ctx, m.address, m.options()); err != nil {
		return usage("--http %v: %w", m.address, err)
	}
	return nil
}

// begin answers for the election, and tells the service manager, until the returned function is called.
func (m *monitor) begin(ctx context.Context, e *leasehold.Election) (stop func()) {
	m.election = e
	m.job.notifier = notify(ctx, &m.job.console,
		func() string { return standing(e.Status(), m.job.target.name, m.job.opts.TTL, time.Now()) },
		func() bool { return unfit(e.Status(), m.job.opts.TTL, time.Now()) == "" })
	if m.server != nil {
		m.serve(ctx)
	}
	if m.server == nil && m.job.notifier == nil {
		return func() {}
	}
	watching := m.watch(ctx, m.job.notifier.changed)
	return func() {
		watching()
		m.job.notifier.end()
		if m.server != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = m.server.Stop(last)
		}
	}
}

// serve answers those that ask.
func (m *monitor) serve(ctx context.Context) {
	if strings.HasSuffix(m.listen, ":0") {
		scheme := "http"
		if m.secrets.TLS != nil {
			scheme = "https"
		}
		m.job.console.tell("answering on %s://%s", scheme, m.server.Address())
	}
	if m.files != (localhttp.Files{}) {
		follow(ctx, &m.job.console, secretsOfHTTP, m.secrets.Set)
	}
	go func() {
		if err := m.server.Serve(http.HandlerFunc(m.answer), m.job.console.logger()); err != nil {
			m.job.console.warn("--http %v is not answered any more: %s", m.address, oneLine(err))
		}
	}()
}

// watch keeps the candidate looking while it does not campaign, after a term of its own, and calls
// changed at every change. It returns what ends it.
func (m *monitor) watch(ctx context.Context, changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range m.election.Observe(ctx) {
			changed()
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// leads takes in that this candidate leads; the returned function, that it does no more.
func (m *monitor) leads(lease held) (ended func(lost bool)) {
	m.terms.acquired.Add(1)
	m.lease.Store(&lease)
	m.job.notifier.changed()
	return func(lost bool) {
		if lost {
			m.terms.lost.Add(1)
		}
		m.lease.Store(nil)
		m.job.notifier.changed()
	}
}

// remaining is how long the lease is valid if it is not renewed.
func (m *monitor) remaining(now time.Time) time.Duration {
	if lease := m.lease.Load(); lease != nil && (*lease).Valid() {
		return max((*lease).Deadline().Sub(now), 0)
	}
	return 0
}

// answer answers a request.
func (m *monitor) answer(w http.ResponseWriter, r *http.Request) {
	answer, ok := map[string]func(leasehold.Status, time.Time) (int, string, []byte){
		"/": m.leader, "/leader": m.leader, "/healthz": m.healthz, "/readyz": m.readyz, "/metrics": m.metrics,
	}[r.URL.Path]
	switch {
	case !ok:
		http.Error(w, "there is nothing here: ask for /leader, /healthz, /readyz or /metrics", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are answered", http.StatusMethodNotAllowed)
	default:
		code, kind, body := answer(m.election.Status(), time.Now())
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		_, _ = w.Write(body) // a client that is gone needs none
	}
}

const plainText = "text/plain; charset=utf-8"

func (m *monitor) leader(s leasehold.Status, now time.Time) (int, string, []byte) {
	answer := lockjson.Leader{Lock: m.job.target.name, Leading: s.Leading}
	if leader, ok := leaderOf(s, m.job.opts.TTL, now); ok {
		answer.Name, answer.Address, answer.Token = leader.Holder, leader.Address, leader.Token
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		panic(err) // strings and numbers always can be
	}
	return http.StatusOK, "application/json", plain.JSON(body.Bytes())
}

func (m *monitor) healthz(s leasehold.Status, now time.Time) (int, string, []byte) {
	if why := unfit(s, m.job.opts.TTL, now); why != "" {
		return http.StatusServiceUnavailable, plainText, []byte(why + "\n")
	}
	return http.StatusOK, plainText, []byte("ok\n")
}

func (m *monitor) readyz(s leasehold.Status, now time.Time) (int, string, []byte) {
	if _, ok := leaderOf(s, m.job.opts.TTL, now); ok {
		return http.StatusOK, plainText, []byte("ok\n")
	}
	why := unfit(s, m.job.opts.TTL, now)
	if why == "" {
		why = "no leader is known"
	}
	return http.StatusServiceUnavailable, plainText, []byte(why + "\n")
}

func (m *monitor) metrics(s leasehold.Status, now time.Time) (int, string, []byte) {
	return http.StatusOK, promtext.ContentType, metrics(s, m.job.target.name, m.job.opts.TTL, m.remaining(now), &m.terms, thisBuild(), now)
}
