//go:build unix

// Package clients_test runs the clients of examples/clients, in three languages, against a server.
package clients_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/internal/servetest"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// ttl is that of the servers' sessions: no client here is to lose its lease because the machine is busy.
const ttl = time.Minute

// TestClientsTogether: thirty clients in three languages want one lock, while answers of the store are lost. Each has
// it once, no two at a time, and the tokens grow.
func TestClientsTogether(t *testing.T) {
	t.Parallel()
	const each = 10
	st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Op: "put", Probability: 0.05},
		{Kind: faultstore.Unavailable, Probability: 0.05},
		{Kind: faultstore.DelayAfter, Probability: 0.1, Jitter: 100 * time.Millisecond},
	}})
	s := servetest.Start(t, st, 0, ttl)
	log := filepath.Join(t.TempDir(), "log")
	job := fmt.Sprintf(`echo "begin $LEASEHOLD_TOKEN $$" >>%q; sleep 0.02; echo "end $LEASEHOLD_TOKEN $$" >>%[1]q`, log)
	var all sync.WaitGroup
	for _, kind := range servetest.Clients {
		for range each {
			var said bytes.Buffer
			cmd := servetest.Client(t, kind, s.Address, []string{"LEASEHOLD_WAIT=30m", "LEASEHOLD_TTL=10m"}, "one", "sh", "-c", job)
			cmd.Stderr = &said
			all.Go(func() {
				if err := cmd.Run(); err != nil {
					t.Errorf("%s: %v: %s", kind, err, said.String())
				}
			})
		}
	}
	all.Wait()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2*3*each {
		t.Fatalf("%d lines, want two of each client:\n%s", len(lines), text)
	}
	last := int64(0)
	for i := 0; i < len(lines); i += 2 {
		var token, again int64
		var pid, same int
		_, errBegin := fmt.Sscanf(lines[i], "begin %d %d", &token, &pid)
		_, errEnd := fmt.Sscanf(lines[i+1], "end %d %d", &again, &same)
		if errBegin != nil || errEnd != nil || token != again || pid != same {
			t.Fatalf("two at a time, at %q and %q:\n%s", lines[i], lines[i+1], text)
		}
		if token <= last {
			t.Errorf("the token %d after %d", token, last)
		}
		last = token
	}
	if t.Failed() {
		t.Logf("the faults:\n%v", st)
	}
	if m := s.Answered(t, "GET", "/v1/locks/one", ""); m.State != "free" {
		t.Errorf("in the end %s", m.Body)
	}
}

// TestClientsKeep: a client keeps its lease for longer than its TTL, also where every other answer to a keepalive is
// lost; its command has the token, and its code is the command's.
func TestClientsKeep(t *testing.T) {
	t.Parallel()
	s := servetest.Start(t, memstore.New(), 0, ttl)
	proxy := servers.StartProxy(t, "http://"+s.Address, &servers.ProxyOptions{Fault: func() func(r *http.Request, n int) servers.Fault {
		var mu sync.Mutex
		kept := map[string]int{}
		return func(r *http.Request, _ int) servers.Fault {
			if !strings.HasSuffix(r.URL.Path, "/keepalive") {
				return servers.Pass
			}
			mu.Lock()
			defer mu.Unlock()
			if kept[r.URL.Path]++; kept[r.URL.Path]%2 == 0 {
				return servers.DropAnswer
			}
			return servers.Pass
		}
	}()})
	through := strings.TrimPrefix(proxy.Endpoint, "http://")
	servetest.EachClient(t, func(t *testing.T, kind string) {
		var said bytes.Buffer
		cmd := servetest.Client(t, kind, through, []string{"LEASEHOLD_TTL=15s"}, "k/"+kind, "sh", "-c", `sleep 25; echo "token $LEASEHOLD_TOKEN"; exit 7`)
		cmd.Stderr = &said
		out, err := cmd.Output()
		failed, is := err.(*exec.ExitError) //nolint:errorlint // it is what Output returns
		if !is || failed.ExitCode() != 7 {
			t.Fatalf("%v: %s%s", err, out, said.String())
		}
		o := s.Answered(t, "GET", "/v1/locks/k/"+kind, "")
		if o.State != "free" || len(o.History) != 1 || !strings.HasPrefix(o.History[0].Holder, map[string]string{"shell": "sh"}[kind]) || fmt.Sprintf("token %d\n", o.History[0].Token) != string(out) {
			t.Errorf("%s, and the lock is %s", out, o.Body)
		}
		held := s.Answered(t, "POST", "/v1/locks/"+kind+"/acquire", `{"ttl":"1h"}`)
		if held.Code != 200 {
			t.Fatal(held.Body)
		}
		if err := servetest.Client(t, kind, s.Address, []string{"LEASEHOLD_WAIT=100ms"}, kind, "touch", "ran").Run(); err == nil || !strings.Contains(err.Error(), "exit status 75") {
			t.Errorf("of a lock that is held: %v", err)
		}
		if d := s.Answered(t, "DELETE", "/v1/leases/"+held.Lease, ""); d.Code != 204 {
			t.Error(d.Body)
		}
	})
}

// TestClientKilled: when a client is killed, the next one has the lock when its TTL and margin are over.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	s := servetest.Start(t, memstore.New(), 0, ttl)
	servetest.EachClient(t, func(t *testing.T, kind string) {
		holds := filepath.Join(t.TempDir(), "holds")
		cmd := servetest.Client(t, kind, s.Address, []string{"LEASEHOLD_TTL=15s"}, kind, "sh", "-c", "echo >"+holds+"; sleep 1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		servetest.Await(t, holds)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if next := s.Answered(t, "POST", "/v1/locks/"+kind+"/acquire", `{"wait":"4m"}`); next.Code != 200 {
			t.Errorf("%d %s", next.Code, next.Body)
		}
	})
}
