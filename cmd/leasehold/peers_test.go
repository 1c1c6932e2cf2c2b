package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

// A peerFiles is a directory with the files of a candidate's --peer-… flags.
type peerFiles string

func newPeerFiles(t *testing.T, by *servers.Authority) peerFiles {
	t.Helper()
	d := peerFiles(t.TempDir())
	by.Write(t, string(d), "127.0.0.1")
	d.write(t, "token", "open-sesame\n")
	return d
}

func (d peerFiles) path(name string) string { return filepath.Join(string(d), name) }

func (d peerFiles) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (d peerFiles) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// renew has an authority sign the certificate, and these be trusted.
func (d peerFiles) renew(t *testing.T, by *servers.Authority, trusted ...*servers.Authority) {
	t.Helper()
	by.Write(t, string(d), "127.0.0.1")
	var text strings.Builder
	for _, a := range trusted {
		text.Write(a.PEM())
	}
	d.write(t, "ca.pem", text.String())
}

// peering opens one that uses the files.
func (d peerFiles) peering(t *testing.T) *peering {
	t.Helper()
	p := &peering{listen: "127.0.0.1:0", cert: d.path("me.pem"), key: d.path("me.key"), ca: d.path("ca.pem"), tokenFile: d.path("token")}
	if err := p.open(t.Context(), &leasehold.LockOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(p.listener.Close(), p.client.Load().Close()) })
	return p
}

// shown is the certificate that a server shows to a candidate with these files.
func (d peerFiles) shown(t *testing.T, address string) []byte {
	t.Helper()
	mine, err := tls.LoadX509KeyPair(d.path("me.pem"), d.path("me.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(d.read(t, "ca.pem")))
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{mine}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	for errors.Is(err, io.EOF) { // the server does not wait for the handshake of a busy machine
		conn, err = dialer.DialContext(t.Context(), "tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c, _ := conn.(*tls.Conn)
	if said := c.ConnectionState().NegotiatedProtocol; said != "http/1.1" {
		t.Errorf("it speaks %q", said)
	}
	return c.ConnectionState().PeerCertificates[0].Raw
}

// asks retries until an answer comes in time, because a busy machine may take longer than a client waits.
func (p *peering) asks(t *testing.T, address string, q peer.Question) (peer.Leadership, error) {
	t.Helper()
	for {
		said, err := p.Ask(t.Context(), address, q)
		late := func(sign string) bool { return strings.Contains(err.Error(), sign) }
		if err == nil || !errors.Is(err, io.EOF) && !slices.ContainsFunc([]string{"no answer in ", "it is silent", "no connection: not in "}, late) {
			return said, err
		}
	}
}

// leads begins to answer for an election that it leads.
func (p *peering) leads(t *testing.T) *leasehold.Election {
	t.Helper()
	e, err := leasehold.NewElection(memstore.New(), "l", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a", TTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the tests reload the files, not a clock
	stop, err := p.serve(ctx, &job{app: &app{console: console{w: io.Discard, least: slog.LevelError}}}, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return e
}

// Certificates, authorities and tokens that are replaced are used from the next reading on, by who answers and by who asks:
// they used to need a restart, so a candidate that ran for long lost its peers when its certificate expired.
func TestPeersReload(t *testing.T) {
	t.Parallel()
	old, next := servers.NewAuthority(t), servers.NewAuthority(t)
	leaderHas, followerHas, strangerHas := newPeerFiles(t, old), newPeerFiles(t, old), newPeerFiles(t, old)
	leader, follower := leaderHas.peering(t), followerHas.peering(t)
	leader.leads(t)
	address := leader.listener.Addr().String()
	reload := func(p *peering) {
		t.Helper()
		if changed, err := p.files.Reload(); !changed || err != nil {
			t.Errorf("reloaded: %t, %v", changed, err)
		}
	}
	asks := func(what string, p *peering, fails string) {
		t.Helper()
		said, err := p.asks(t, address, peer.Question{Lock: "l", Holder: "b"})
		if fails == "" && (err != nil || !said.Leading) || fails != "" && (err == nil || !strings.Contains(err.Error(), fails)) {
			t.Errorf("%s: %+v, %v; want %q", what, said, err, fails)
		}
	}
	asks("at first", follower, "")

	leaderHas.renew(t, old, old)
	before := followerHas.shown(t, address)
	asks("before it is read", follower, "")
	reload(leader)
	asks("a renewed certificate", follower, "")
	if now := followerHas.shown(t, address); bytes.Equal(now, before) {
		t.Error("the leader shows the certificate of before")
	}

	followerHas.renew(t, next, old, next)
	reload(follower)
	asks("a follower of another authority", follower, "refuses this side's TLS")
	leaderHas.renew(t, old, old, next)
	reload(leader)
	asks("a follower of the other of two authorities", follower, "")

	strangerHas.renew(t, old, old, next)
	stranger := strangerHas.peering(t)
	asks("one of the first authority", stranger, "")
	leaderHas.renew(t, next, next)
	reload(leader)
	asks("who trusts both, and is trusted", follower, "")
	// A connection that is open goes on, so this one is another.
	asks("one of the authority that is trusted no more", strangerHas.peering(t), "refuses this side's TLS")
	strangerHas.renew(t, next, old)
	reload(stranger)
	asks("who does not trust the new authority", stranger, "certificate is not accepted")

	leaderHas.write(t, "token", "another\n")
	reload(leader)
	asks("who has the token of before", follower, "refuses the bearer token")
	followerHas.write(t, "token", "another\n")
	reload(follower)
	asks("who has that of now", follower, "")
}

// What cannot be used after a change leaves in use what was there before, and the error says where it is and what is wrong.
func TestPeersKeepWhatCanBeUsed(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	leaderHas, followerHas := newPeerFiles(t, a), newPeerFiles(t, a)
	leader, follower := leaderHas.peering(t), followerHas.peering(t)
	leader.leads(t)
	address, another := leader.listener.Addr().String(), newPeerFiles(t, a)
	shown := followerHas.shown(t, address)
	for what, c := range map[string]struct {
		file  string
		text  func(peerFiles) string // empty: there is no file
		fails []string
	}{
		"no certificate":      {"me.pem", func(peerFiles) string { return "" }, []string{"--peer-cert: ", "me.pem", "no such file"}},
		"no key":              {"me.key", func(peerFiles) string { return "" }, []string{"--peer-key: ", "me.key", "no such file"}},
		"no authorities":      {"ca.pem", func(peerFiles) string { return "" }, []string{"--peer-ca: ", "ca.pem", "no such file"}},
		"no token":            {"token", func(peerFiles) string { return "" }, []string{"--peer-token-file: ", "token", "no such file"}},
		"half a certificate":  {"me.pem", func(d peerFiles) string { return half(d.read(t, "me.pem")) }, []string{"--peer-cert ", "me.pem"}},
		"half a chain":        {"me.pem", func(d peerFiles) string { return d.read(t, "me.pem") + half(string(a.PEM())) }, []string{"--peer-cert ", "me.pem", "1 of 2 PEM blocks in it are complete"}},
		"half a key":          {"me.key", func(d peerFiles) string { return half(d.read(t, "me.key")) }, []string{"--peer-key ", "me.key"}},
		"half an authority":   {"ca.pem", func(d peerFiles) string { return half(d.read(t, "ca.pem")) }, []string{"--peer-ca ", "ca.pem", "0 of 1 PEM blocks"}},
		"half of two":         {"ca.pem", func(d peerFiles) string { return d.read(t, "ca.pem") + half(string(a.PEM())) }, []string{"--peer-ca ", "ca.pem", "write the whole file"}},
		"another certificate": {"me.pem", func(peerFiles) string { return another.read(t, "me.pem") }, []string{"--peer-cert ", "me.pem", "does not match"}},
		"another key":         {"me.key", func(peerFiles) string { return another.read(t, "me.key") }, []string{"--peer-key ", "me.key", "does not match"}},
		"an empty token":      {"token", func(peerFiles) string { return "\n" }, []string{"--peer-token-file ", "token is empty: write"}},
		"a token of two":      {"token", func(peerFiles) string { return "a b" }, []string{"--peer-token-file ", "token: ", "at byte 1"}},
	} {
		for who, p := range map[peerFiles]*peering{leaderHas: leader, followerHas: follower} {
			before := who.read(t, c.file)
			if text := c.text(who); text != "" {
				who.write(t, c.file, text)
			} else if err := os.Remove(who.path(c.file)); err != nil {
				t.Fatal(err)
			}
			changed, err := p.files.Reload()
			if changed || err == nil {
				t.Errorf("%s: reloaded: %t, %v", what, changed, err)
				err = errors.New("")
			}
			for _, want := range c.fails {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not say %q", what, err, want)
				}
			}
			who.write(t, c.file, before)
		}
		for _, p := range []*peering{leader, follower} {
			said, err := p.asks(t, address, peer.Question{Lock: "l", Holder: "b"})
			if err != nil || !said.Leading {
				t.Errorf("%s: %+v, %v", what, said, err)
			}
		}
		if !bytes.Equal(followerHas.shown(t, address), shown) {
			t.Errorf("%s: the leader shows another certificate", what)
		}
	}
}

func half(text string) string { return text[:len(text)/2] }

// A question that waits while the files of who asks or of who answers change is answered when there is something to say.
func TestPeersReloadMeanwhile(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	leaderHas, followerHas := newPeerFiles(t, a), newPeerFiles(t, a)
	leader, follower := leaderHas.peering(t), followerHas.peering(t)
	e := leader.leads(t)
	address := leader.listener.Addr().String()
	q := peer.Question{Lock: "l", Holder: "b"}
	said, err := follower.asks(t, address, q)
	if err != nil {
		t.Fatal(err)
	}
	q.Known, q.Wait = said.Version, time.Minute
	answered := make(chan error, 1)
	go func() {
		later, failure := follower.asks(t, address, q)
		if failure == nil && later.Leading {
			failure = errors.New("it leads")
		}
		answered <- failure
	}()
	waits := func() {
		for leader.handler.Load().Waiting() == 0 && len(answered) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waits()
	former := follower.client.Load()
	leaderHas.renew(t, a, a)
	followerHas.renew(t, a, a)
	for _, p := range []*peering{leader, follower} {
		if changed, failure := p.files.Reload(); !changed || failure != nil {
			t.Errorf("reloaded: %t, %v", changed, failure)
		}
	}
	if _, err = former.Ask(t.Context(), address, peer.Question{Lock: "l"}); !errors.Is(err, peer.ErrClosed) {
		t.Fatalf("the client of before says %v", err)
	}
	waits()
	if err = e.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err = <-answered; err != nil {
		t.Error(err)
	}
	if err = follower.client.Load().Close(); err != nil {
		t.Error(err)
	}
	if _, err = follower.Ask(t.Context(), address, q); !errors.Is(err, peer.ErrClosed) {
		t.Errorf("a client that was closed for good says %v", err)
	}
}

// TestPeersAnswers: a candidate that is not of this election, by its certificate or its token, is refused, which -v tells; who comes back has to show its
// certificate again; and that nobody is answered any more is told.
func TestPeersAnswers(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	has := newPeerFiles(t, a)
	p := has.peering(t)
	e, err := leasehold.NewElection(memstore.New(), "l", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said leasetest.Log
	says := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), want); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it says %q, without %q", said.String(), want)
			}
		}
	}
	j := &job{app: &app{console: console{w: &said, least: slog.LevelDebug}}}
	stop, err := p.serve(ctx, j, e)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	address := p.listener.Addr().String()
	mine, err := tls.LoadX509KeyPair(has.path("me.pem"), has.path("me.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	config := &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{mine}, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	for range 2 {
		conn, failed := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		for errors.Is(failed, io.EOF) { // on a busy machine, the server may give up a handshake
			conn, failed = (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		}
		if failed != nil {
			t.Fatal(failed)
		}
		if c, _ := conn.(*tls.Conn); c.ConnectionState().DidResume {
			t.Error("who comes back shows no certificate")
		}
		_ = conn.Close()
	}
	stranger := config.Clone()
	stranger.Certificates, stranger.ClientSessionCache = nil, nil
	if _, err = (&tls.Dialer{Config: stranger}).DialContext(t.Context(), "tcp", address); err == nil {
		t.Error("who shows no certificate is let in")
	}
	says("TLS handshake error")
	other := newPeerFiles(t, a)
	other.write(t, "token", "another\n")
	if _, err = other.peering(t).asks(t, address, peer.Question{Lock: "l", Holder: "b"}); err == nil || !strings.Contains(err.Error(), "refuses the bearer token") {
		t.Errorf("with another token: %v", err)
	}
	says("leasehold: question refused from=127.0.0.1:")
	stop()
	if err = p.listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still listens when it has stopped: %v", err)
	}
	if _, err = p.client.Load().Ask(t.Context(), address, peer.Question{Lock: "l", Holder: "b"}); !errors.Is(err, peer.ErrClosed) {
		t.Errorf("it still asks when it has stopped: %v", err)
	}

	p = has.peering(t)
	if err = p.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if stop, err = p.serve(ctx, j, e); err != nil {
		t.Fatal(err)
	}
	defer stop()
	says("leasehold: followers are not answered any more, and ask the store: accept tcp ")
}

// An address is what an Addr says.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// TestReachable: others are told an address at which they can reach this machine: its name, if it listens on all that it has.
func TestReachable(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[address]string{
		"10.0.0.1:8443": "10.0.0.1:8443", "[fd00::1]:8443": "[fd00::1]:8443",
		"[::]:8443": host + ":8443", "[fe80::1%eth0]:8443": host + ":8443", "0.0.0.0:8443": host + ":8443", "a-socket": "a-socket",
	} {
		if got := reachable(at); got != want {
			t.Errorf("%s is reached at %s, want %s", at, got, want)
		}
	}
	if (&peering{}).peers() != nil {
		t.Error("without --peer-listen there are peers to be asked")
	}
}
