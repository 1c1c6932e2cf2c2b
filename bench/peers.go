package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
)

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
	server := httptest.NewUnstartedServer(nil)
	if e.peers {
		// The address must be known before there is an election, and the other way round.
		opts.Address = server.Listener.Addr().String()
		server.StartTLS()
		e.closes = append(e.closes, server.Close)
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		client, err := peer.NewClient(&peer.ClientOptions{RootCAs: roots, Token: "bench"})
		if err != nil {
			return nil, err
		}
		opts.Peers = client
		e.closes = append(e.closes, func() { _ = client.Close() })
	}
	el, err := leasehold.NewElection(st, "elections/"+name, opts)
	if err != nil {
		return nil, err
	}
	server.Config.Handler = peer.NewHandler(&peer.HandlerOptions{Token: "bench"}, el)
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
