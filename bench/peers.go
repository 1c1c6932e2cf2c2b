package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
)

// A hearing is where one candidate hears its peers, and how it speaks to them.
type hearing struct {
	server *httptest.Server // its handler is set when there is one
	client *peer.Client
}

// hear begins one, over TLS as its users have it.
func hear() (*hearing, error) {
	cert, err := certificate()
	if err != nil {
		return nil, err
	}
	h := &hearing{server: httptest.NewUnstartedServer(nil)}
	h.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} //nolint:gosec // for a benchmark, and TLS 1.2 at least by default
	h.server.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(h.server.Certificate())
	if h.client, err = peer.NewClient(&peer.ClientOptions{RootCAs: roots, Token: "bench"}); err != nil {
		h.server.Close()
		return nil, err
	}
	return h, nil
}

func (h *hearing) address() string { return h.server.Listener.Addr().String() }

// begin has it hear for what is there.
func (h *hearing) begin(queues []peer.Queue, elections ...*leasehold.Election) {
	h.server.Config.Handler = peer.NewHandler(&peer.HandlerOptions{Token: "bench", Queues: queues}, elections...)
}

func (h *hearing) close() {
	_ = h.client.Close()
	h.server.Close()
}

// certificate is that of all candidates, which run on this machine.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// openElection gives a candidate of an election, which asks the leader itself or the store.
func openElection(peers bool) func(context.Context, *bench, *place, time.Duration) (candidate, error) {
	return func(_ context.Context, _ *bench, p *place, ttl time.Duration) (candidate, error) {
		return &elector{p: p, ttl: ttl, peers: peers, of: map[string]*leasehold.Election{}}, nil
	}
}

var candidates atomic.Int64 // of elections, so far

// An elector holds a lock by leading its election.
type elector struct {
	p      *place
	ttl    time.Duration
	peers  bool
	of     map[string]*leasehold.Election
	closes []func()
}

func (e *elector) election(name string) (*leasehold.Election, error) {
	if el := e.of[name]; el != nil {
		return el, nil
	}
	st, err := e.p.store()
	if err != nil {
		return nil, err
	}
	// Else all in this process would have one name, and each be the successor that is named.
	opts := &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: e.ttl, Holder: fmt.Sprintf("candidate-%d", candidates.Add(1))}}
	var h *hearing
	if e.peers { // the address must be known before there is an election, and the other way round
		if h, err = hear(); err != nil {
			return nil, err
		}
		e.closes = append(e.closes, h.close)
		opts.Address, opts.Peers = h.address(), h.client
	}
	el, err := leasehold.NewElection(st, "elections/"+name, opts)
	if err != nil {
		return nil, err
	}
	if h != nil {
		h.begin(nil, el)
	}
	e.of[name] = el
	return el, nil
}

func (e *elector) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	el, err := e.election(name)
	if err != nil {
		return nil, err
	}
	if _, err = el.Campaign(ctx); err != nil {
		return nil, err
	}
	return el.Resign, nil
}

func (e *elector) try(context.Context, string) (func(context.Context) error, error) {
	return nil, errors.New("an election has no try")
}

func (e *elector) close() {
	for i := len(e.closes) - 1; i >= 0; i-- {
		e.closes[i]()
	}
}
