package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/reread"
	"github.com/leasehold/leasehold/peer"
)

// peering is how the candidates of an election ask each other. It goes by what was read last of its files.
type peering struct {
	listen    string
	cert, key string
	ca        string
	tokenFile string

	files    *reread.Set
	listener net.Listener
	election *leasehold.Election // nil: nothing is answered yet
	log      *slog.Logger
	token    string
	client   atomic.Pointer[peer.Client]
	tls      atomic.Pointer[tls.Config] // for those that ask
	handler  atomic.Pointer[peer.Handler]
}

func (p *peering) flags(f *pflag.FlagSet) {
	f.StringVar(&p.listen, "peer-listen", "", "answer followers on this `host:port`, and poll the leader\ninstead of the store")
	f.StringVar(&p.cert, "peer-cert", "", "certificate `file` (PEM) of this candidate")
	f.StringVar(&p.key, "peer-key", "", "key `file` (PEM) of this candidate")
	f.StringVar(&p.ca, "peer-ca", "", "CA `file` (PEM) for all candidates' certificates (default\nthe system's; followers then need no certificate)")
	f.StringVar(&p.tokenFile, "peer-token-file", "", "`file` with a token shared by all candidates")
}

// open reads the files and begins to listen, so that the address is known. It does
// nothing if there are to be no peers.
func (p *peering) open(ctx context.Context, opts *leasehold.LockOptions) (err error) {
	if p.listen == "" {
		if p.cert+p.key+p.ca+p.tokenFile != "" {
			return usage("a --peer-… flag without --peer-listen: give the address to listen on, such as :8443")
		}
		return nil
	}
	if p.cert == "" || p.key == "" {
		return usage("--peer-listen needs --peer-cert and --peer-key: followers trust no leader without a certificate")
	}
	p.files, err = reread.Open(p.use,
		reread.File{Flag: "--peer-cert", Name: p.cert},
		reread.File{Flag: "--peer-key", Name: p.key, Secret: true},
		reread.File{Flag: "--peer-ca", Name: p.ca},
		reread.File{Flag: "--peer-token-file", Name: p.tokenFile, Secret: true})
	if err != nil {
		return usage("%w", err)
	}
	if p.listener, err = peer.Listen(ctx, p.listen); err != nil {
		return usage("--peer-listen %s: %w", p.listen, err)
	}
	if opts.Address == "" {
		opts.Address = reachable(p.listener.Addr())
	}
	return nil
}

// use takes in what the files have now. A client is made anew, since crypto/tls has no hook by which one could trust other
// authorities: the questions of the former are asked again.
func (p *peering) use(texts [][]byte) error {
	cert, err := reread.KeyPair(texts[0], texts[1])
	if err != nil {
		return fmt.Errorf("--peer-cert %s, --peer-key %s: %w", p.cert, p.key, err)
	}
	var asks peer.ClientOptions
	// A follower comes back to this leader rarely, and one that came back by a ticket would show no certificate.
	answers := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	if p.ca != "" {
		if asks.RootCAs, err = reread.CAs(texts[2]); err != nil {
			return fmt.Errorf("--peer-ca %s: %w", p.ca, err)
		}
		asks.Certificate = cert
		answers.ClientCAs, answers.ClientAuth = asks.RootCAs, tls.RequireAndVerifyClientCert
	}
	if p.tokenFile != "" {
		if asks.Token = strings.TrimSpace(string(texts[3])); asks.Token == "" {
			return fmt.Errorf("--peer-token-file %s is empty: write the token that all candidates share to it", p.tokenFile)
		}
	}
	client, err := peer.NewClient(&asks)
	if err != nil { // it can only be the token
		return fmt.Errorf("--peer-token-file %s: %w", p.tokenFile, err)
	}
	p.tls.Store(answers)
	if p.election != nil {
		p.answer(asks.Token)
	}
	p.token = asks.Token
	if former := p.client.Swap(client); former != nil {
		_ = former.Close()
	}
	return nil
}

// answer has questions answered that carry the token. Those that wait already are answered as they were going to be.
func (p *peering) answer(token string) {
	p.handler.Store(peer.NewHandler(&peer.HandlerOptions{Token: token, Logger: p.log}, p.election))
}

// Ask asks again if the files have changed meanwhile.
func (p *peering) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	for end := time.Now().Add(q.Wait); ; q.Wait = time.Until(end) {
		client := p.client.Load()
		said, err := client.Ask(ctx, address, q)
		if !errors.Is(err, peer.ErrClosed) || p.client.Load() == client {
			return said, err
		}
	}
}

// reachable is an address at which others can be expected to reach a listener.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return a.String()
		}
	}
	return net.JoinHostPort(host, port)
}

// peers is what the election asks; nil if there are to be none.
func (p *peering) peers() leasehold.Peers {
	if p.files == nil {
		return nil
	}
	return p
}

// serve answers for the election until the returned function is called.
func (p *peering) serve(ctx context.Context, j *job, e *leasehold.Election) (stop func(), err error) {
	if p.files == nil {
		return func() {}, nil
	}
	p.election, p.log = e, j.console.logger()
	p.answer(p.token)
	server, err := peer.NewServer(&peer.ServerOptions{ //nolint:contextcheck // Stop ends it
		HandlerOptions: peer.HandlerOptions{Logger: p.log},
		Handler:        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.handler.Load().ServeHTTP(w, r) }),
		TLS:            &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.tls.Load(), nil }},
	})
	if err != nil {
		return nil, errors.Join(usage("%w", err), p.listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	follow(ctx, &j.console, "the files of --peer-cert, --peer-key, --peer-ca and --peer-token-file", p.files)
	go func() {
		if err := server.Serve(p.listener); err != nil {
			j.console.warn("followers are not answered any more, and ask the store: %s", oneLine(err))
		}
	}()
	return func() {
		cancel()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Stop(last) // who waits for an answer gets it
		_ = p.client.Load().Close()
	}, nil
}
