package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/memstore"
)

// Signals that come within a second are one: timeout(1) always sends two, and used to abort the clean stop. One that comes
// later ends it at once.
func TestSignalsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		after []time.Duration // the first signal
		code  int
		took  time.Duration
	}{
		"one":             {nil, 0, 0},
		"two at once":     {[]time.Duration{0}, 0, 0},
		"three at once":   {[]time.Duration{0, 500 * time.Millisecond}, 0, 0},
		"two":             {[]time.Duration{2 * time.Second}, 128 + int(syscall.SIGINT), 2 * time.Second},
		"two and one":     {[]time.Duration{0, 3 * time.Second}, 128 + int(syscall.SIGINT), 3 * time.Second},
		"one at a second": {[]time.Duration{time.Second}, 128 + int(syscall.SIGINT), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				said := &bytes.Buffer{}
				c := &serveCmd{app: &app{console: console{w: said, least: slog.LevelInfo}}, signals: make(chan os.Signal, 8)}
				st := memstore.New()
				c.opts.TTL = 15 * time.Second
				server, err := serve.New(st, &c.opts)
				if err != nil {
					t.Fatal(err)
				}
				if err = server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.server = server
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/locks/k/acquire", strings.NewReader(`{"ttl":"10s"}`))
				r.Header.Set("Content-Type", "application/json")
				server.ServeHTTP(httptest.NewRecorder(), r)
				began := time.Now()
				go func() {
					for _, d := range tt.after {
						time.Sleep(time.Until(began.Add(d)))
						c.signals <- os.Interrupt
					}
				}()
				err = c.stop(t.Context(), os.Interrupt)
				took := time.Since(began)
				code := 0
				if e, is := errors.AsType[*exit](err); is {
					code = e.code
				}
				if code != tt.code || code == 0 && (leasetest.RecordIn(t, st, "k").Held || took < 10*time.Second) || code != 0 && took != tt.took {
					t.Errorf("it ended with %d after %v: %v\n%s", code, took, err, said)
				}
				time.Sleep(time.Minute) // the session ends
			})
		})
	}
}
