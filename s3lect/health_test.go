package s3lect_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

// A homemade elector is one of the user's own.
type homemade struct {
	s3lect.Elector
	status *s3lect.LeadershipStatus
}

func (h homemade) GetLeadershipStatus() *s3lect.LeadershipStatus { return h.status }

func (h homemade) GetConfig() *s3lect.ElectorConfig {
	return &s3lect.ElectorConfig{PeerHealthPath: "/own"}
}

func TestTheHandlerOfAnotherElector(t *testing.T) {
	seen := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, tc := range []struct {
		status *s3lect.LeadershipStatus
		method string
		code   int
		want   s3lect.LeaderRecord
	}{
		{&s3lect.LeadershipStatus{IsLeader: true, LeaderID: "a", LeaderAddr: "a:1", LeaderLastSeen: seen}, http.MethodGet, http.StatusOK, s3lect.LeaderRecord{LeaderID: "a", LeaderAddr: "a:1", LastUpdated: seen}},
		{&s3lect.LeadershipStatus{LeaderID: "b", LeaderAddr: "b:1", LeaderLastSeen: seen}, http.MethodGet, http.StatusNotFound, s3lect.LeaderRecord{}},
		{nil, http.MethodGet, http.StatusNotFound, s3lect.LeaderRecord{}},
		{nil, http.MethodPost, http.StatusMethodNotAllowed, s3lect.LeaderRecord{}},
	} {
		w := httptest.NewRecorder()
		s3lect.NewLeadershipHandler(homemade{status: tc.status}, nil)(w, httptest.NewRequestWithContext(t.Context(), tc.method, "/own", nil))
		if w.Code != tc.code || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s of %+v: %d, %v", tc.method, tc.status, w.Code, w.Header())
		}
		if tc.code == http.StatusMethodNotAllowed {
			if w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%v", w.Header())
			}
			continue
		}
		if got := contentsOf(t, w.Body.String()); got.LeaderID != tc.want.LeaderID || got.LeaderAddr != tc.want.LeaderAddr || !got.LastUpdated.Equal(tc.want.LastUpdated) {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}
}

// The answer of ours is that of package peer as well.
func TestTheHandlerUnderstandsBothKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := begin(t, memstore.New(), "a", nil)
		h := s3lect.NewLeadershipHandler(a.S3Elector, nil)
		a.lead(t)
		w := httptest.NewRecorder()
		h(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/leadership", nil))
		var both struct {
			peer.Answer
			s3lect.LeaderRecord
		}
		if err := json.Unmarshal(w.Body.Bytes(), &both); err != nil {
			t.Fatal(err)
		}
		if both.State != peer.StateHeld || both.Holder != "a" || both.Lock != lockfile || both.Valid == 0 || both.LeaderID != "a" || both.LastUpdated.IsZero() {
			t.Errorf("%s", w.Body)
		}
		a.quit(t)
		if r := ask(t, h, http.StatusNotFound); r != (s3lect.LeaderRecord{}) {
			t.Errorf("after Stop it answers %+v", r)
		}
	})
}

// serve starts the health server of an elector.
func serve(t *testing.T, e s3lect.Elector, cert tls.Certificate, addr string) (*s3lect.HealthServer, error) {
	t.Helper()
	hs, err := s3lect.NewHealthServer(s3lect.HealthServerConfig{BindAddress: addr, Certificate: cert, Elector: e, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hs.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return hs, hs.Start(t.Context())
}

func TestHealthServer(t *testing.T) {
	authority := servers.NewAuthority(t)
	leader := homemade{status: &s3lect.LeadershipStatus{IsLeader: true, LeaderID: "a"}}
	hs, err := serve(t, leader, authority.Issue(t, "127.0.0.1"), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := hs.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+hs.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	for range 2 {
		if code, body := get("/own"); code != http.StatusOK || !strings.Contains(body, `"leaderID":"a"`) {
			t.Errorf("%d, %s", code, body)
		}
		if code, _ := get("/other"); code != http.StatusNotFound {
			t.Errorf("%d", code)
		}
		for range 2 {
			if err := hs.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := hs.Start(t.Context()); err != nil { // anew
			t.Fatal(err)
		}
	}
}

func TestNewHealthServerRefuses(t *testing.T) {
	cert := servers.NewAuthority(t).Issue(t, "127.0.0.1")
	for _, tc := range []struct {
		config s3lect.HealthServerConfig
		wrong  string
	}{
		{s3lect.HealthServerConfig{Certificate: cert, Elector: homemade{}}, "BindAddress"},
		{s3lect.HealthServerConfig{BindAddress: ":0", Certificate: cert}, "Elector"},
		{s3lect.HealthServerConfig{BindAddress: ":0", Elector: homemade{}}, "certificate"},
	} {
		if _, err := s3lect.NewHealthServer(tc.config); err == nil || !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("got %v", err)
		}
	}
	hs, err := s3lect.NewHealthServer(s3lect.HealthServerConfig{BindAddress: "127.0.0.1:99999", Certificate: cert, Elector: homemade{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := hs.Stop(t.Context()); err != nil { // before Start
		t.Error(err)
	}
	if err := hs.Start(t.Context()); err == nil {
		t.Error("it listens at a port that there is not")
	}
}

// Peer mode as a program uses it, over TCP and TLS: a follower asks the leader, and learns of its end.
func TestPeerMode(t *testing.T) {
	t.Parallel()
	authority := servers.NewAuthority(t)
	st := memstore.New()
	a := beginPeer(t, st, "a", authority)
	a.lead(t)
	b := beginPeer(t, st, "b", authority)
	// Each answer ends an election cycle. First it looks, and asks who is there; what it asks then is answered when
	// there is something new.
	for range 2 {
		if s, err := b.WaitForNextElection(t.Context(), time.Now()); err != nil || s.LeaderID != "a" {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	a.quit(t)
	b.lead(t) // by itself it would look in an hour
}

// beginPeer begins an instance in peer mode with its health server, at a port of this
// machine that nobody has taken in between.
func beginPeer(t *testing.T, st *memstore.Store, id string, authority *servers.Authority) *instance {
	t.Helper()
	var err error
	for range 5 {
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		l.Close()
		i := newInstance(t, st, id, func(c *s3lect.ElectorConfig) {
			c.ServerAddr, c.LeaderTimeout, c.InfrequentInterval = l.Addr().String(), time.Minute, time.Hour
			c.PeerMode, c.PeerCACert = true, authority.PEM()
		})
		if _, err = serve(t, i.S3Elector, authority.Issue(t, "127.0.0.1"), l.Addr().String()); err != nil {
			continue
		}
		if err = i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { i.quit(t) })
		return i
	}
	t.Fatal(err)
	return nil
}
