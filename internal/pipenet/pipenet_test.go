package pipenet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/pipenet"
)

// A server on a listener is asked in virtual time.
func TestServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.Loopback(4040)
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "hello")
		})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		client := &http.Client{Transport: &http.Transport{DialContext: l.DialContext, DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		if body, err := io.ReadAll(w.Body); err != nil || string(body) != "hello" || time.Since(began) != time.Hour {
			t.Errorf("%q after %v, %v", body, time.Since(began), err)
		}
		if err := errors.Join(s.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// A dial ends with its context and with the listener.
func TestDial(t *testing.T) {
	t.Parallel()
	l := pipenet.Loopback(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.DialContext(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("while nobody accepts: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.DialContext(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("when it is closed: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("when it is closed: %v", err)
	}
}
