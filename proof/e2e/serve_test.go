//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/filestore"
)

// A caller is one of `leasehold serve`, who counts what it is told from when it asked.
type caller struct {
	client *http.Client
	id     string
	until  time.Time
}

// ask makes a request, and reports whether it was answered with 200 by what is known of a lease.
func (c *caller) ask(ctx context.Context, path, body string) bool {
	sent := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://leasehold"+path, strings.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := c.client.Do(r)
	if err != nil {
		return false
	}
	defer w.Body.Close()
	var answer struct {
		Lease string `json:"lease"`
		Left  int64  `json:"left_ms"`
	}
	if w.StatusCode != http.StatusOK || json.NewDecoder(w.Body).Decode(&answer) != nil {
		return false
	}
	c.id = answer.Lease
	if until := sent.Add(time.Duration(answer.Left) * time.Millisecond); until.After(c.until) {
		c.until = until
	}
	return true
}

// TestServeKilled: when `serve` is killed, nobody has the lock of one of its callers before the end that the caller was
// told; and after that in time.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	if underTest != leasetest.Object {
		t.Skip("the same in every layout")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	st, err := filestore.New(filepath.Join(dir, "locks"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 3 * time.Second
	server := start(t, nil, "serve", "--mkdir", "--ttl", ttl.String(), "--http", "unix:"+socket, "file://"+filepath.Join(dir, "locks"))
	c := &caller{client: overSocket(socket)}
	for end := time.Now().Add(time.Minute); !c.ask(t.Context(), "/v1/locks/k/acquire", `{"ttl":"1h"}`); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no lease within a minute: %s", server.stderr.String())
		}
	}
	other, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan time.Time, 1)
	go func() {
		lease, err := other.Acquire(t.Context())
		at := time.Now()
		if err != nil {
			t.Error(err)
		} else {
			_ = lease.Release(context.WithoutCancel(t.Context()))
		}
		got <- at
	}()
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !c.ask(t.Context(), "/v1/leases/"+c.id+"/keepalive", "") {
			t.Fatal("the lease was lost while all was well")
		}
	}
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	<-server.done
	if c.ask(t.Context(), "/v1/leases/"+c.id+"/keepalive", "") {
		t.Error("a server that was killed has answered")
	}
	at := <-got
	if early := c.until.Sub(at); early > 0 {
		t.Errorf("another had the lock %v before the end that the caller was told", early)
	}
	if c.until.Sub(killed) < ttl/3 {
		t.Errorf("the caller was told of %v more, so nothing was tried", c.until.Sub(killed))
	}
	if late := at.Sub(killed); late > ttl+ttl/5+5*time.Second {
		t.Errorf("another had the lock %v after the server was killed", late)
	}
}

// overSocket is a client with a connection for each request.
func overSocket(path string) *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}
