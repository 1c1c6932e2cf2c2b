package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/peer"
)

// peering is how the candidates of an election ask each other.
type peering struct {
	listen    string
	cert, key string
	ca        string
	tokenFile string

	server   peer.ServerOptions
	client   *peer.Client
	listener net.Listener
}

func (p *peering) flags(f *pflag.FlagSet) {
	f.StringVar(&p.listen, "peer-listen", "", "answer followers on this `host:port`, and ask the leader instead of the store")
	f.StringVar(&p.cert, "peer-cert", "", "certificate `file` (PEM) that this candidate shows to the others")
	f.StringVar(&p.key, "peer-key", "", "`file` (PEM) with its key")
	f.StringVar(&p.ca, "peer-ca", "", "`file` (PEM) with the authorities that all candidates' certificates must be\nsigned by (default: the system's, and followers need no certificate)")
	f.StringVar(&p.tokenFile, "peer-token-file", "", "`file` with a token that all candidates share")
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
	var client peer.ClientOptions
	if p.server.Certificate, err = keyPair(p.cert, p.key); err != nil {
		return usage("--peer-cert %s, --peer-key %s: %w", p.cert, p.key, err)
	}
	if p.ca != "" {
		pem, unread := os.ReadFile(p.ca)
		if unread != nil {
			return usage("--peer-ca: %w", unread)
		}
		if client.RootCAs, err = peer.ParseCAs(pem); err != nil {
			return usage("--peer-ca %s: %w", p.ca, err)
		}
		p.server.ClientCAs, client.Certificate = client.RootCAs, p.server.Certificate
	}
	if p.tokenFile != "" {
		token, unread := localhttp.ReadSecret(p.tokenFile)
		if unread != nil {
			return usage("--peer-token-file: %w", unread)
		}
		client.Token = strings.TrimSpace(string(token))
		if p.server.Token = client.Token; client.Token == "" {
			return usage("--peer-token-file %s is empty", p.tokenFile)
		}
	}
	if p.client, err = peer.NewClient(&client); err != nil {
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

// keyPair reads a certificate and its key, which must be a secret.
func keyPair(cert, key string) (tls.Certificate, error) {
	public, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	secret, err := localhttp.ReadSecret(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(public, secret)
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
	if p.client == nil {
		return nil
	}
	return p.client
}

// serve answers for the election until the returned function is called.
func (p *peering) serve(ctx context.Context, j *job, e *leasehold.Election) (stop func(), err error) {
	if p.client == nil {
		return func() {}, nil
	}
	p.server.Logger = j.console.logger()
	server, err := peer.NewServer(&p.server, e) //nolint:contextcheck // Stop ends it
	if err != nil {
		return nil, errors.Join(usage("%w", err), p.listener.Close())
	}
	go func() {
		if err := server.Serve(p.listener); err != nil {
			j.console.warn("followers are not answered any more, and ask the store: %s", oneLine(err))
		}
	}()
	return func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Stop(last) // who waits for an answer gets it
		_ = p.client.Close()
	}, nil
}
