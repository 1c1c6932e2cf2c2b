// Package servetest serves leases to clients that are no part of a test's process.
package servetest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
)

// A Server is one on a loopback address.
type Server struct {
	*serve.Server
	Address string
	stop    func()
}

// Start starts a server with so many connections (0: the default) and a session of that TTL, which is stopped when the
// test ends.
func Start(t *testing.T, st store.Store, conns int, ttl time.Duration) *Server {
	t.Helper()
	s, err := serve.New(st, &serve.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	at, err := localhttp.ParseAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := localhttp.ListenWith(t.Context(), at, localhttp.Options{Conns: conns, Refuse: s.Refuse})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Serve(s, slog.New(slog.DiscardHandler)) }()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = l.Stop(ctx) // what is open yet is cut off
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &Server{s, l.Address(), stop}
}

// Halt stops it before the end of the test.
func (s *Server) Halt() { s.stop() }

// An Answer is what came of a request. The members are of all that the tests read.
type Answer struct {
	Code int
	Body string

	Lease   string       `json:"lease"`
	Token   int64        `json:"token"`
	Left    int64        `json:"left_ms"`
	State   string       `json:"state"`
	History []serve.Term `json:"history"`
}

// Ask makes a request by a connection of its own, with a body or without one where that is empty.
func (s *Server) Ask(t *testing.T, method, path, body string) (Answer, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: 5 * time.Minute, Transport: transport}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address+path, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Code: w.StatusCode, Body: string(text)}
	if len(text) > 0 {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// Answered is Ask, which must be answered.
func (s *Server) Answered(t *testing.T, method, path, body string) Answer {
	t.Helper()
	a, err := s.Ask(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}
