//go:build unix

package serve_test

import (
	"bytes"
	"context"
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

	"github.com/leasehold/leasehold/internal/longtest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// interpreters run the clients of examples/clients.
var interpreters = map[string]struct{ program, file string }{
	"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"curl", "lock.sh"},
}

// client prepares a command under a lock, by a client.
func client(t *testing.T, kind, address string, env []string, key string, command ...string) *exec.Cmd {
	t.Helper()
	i := interpreters[kind]
	if _, err := exec.LookPath(i.program); err != nil {
		t.Skipf("there is no %s here", i.program)
	}
	file, err := filepath.Abs("../examples/clients/" + i.file)
	if err != nil {
		t.Fatal(err)
	}
	program := i.program
	if kind == "shell" {
		program = "sh"
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{file, key}, command...)...)
	cmd.Env = append(append(os.Environ(), "LEASEHOLD_SERVE=http://"+address), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	return cmd
}

// eachClient runs a test with each.
func eachClient(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	for kind := range interpreters {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// TestClientsTogether: thirty clients in three languages want one lock, while answers of the store are lost. Each has
// it once, no two at a time, and the tokens grow.
func TestClientsTogether(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	const each = 10
	st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{
		{Kind: faultstore.LostAnswer, Op: "put", Probability: 0.05},
		{Kind: faultstore.Unavailable, Probability: 0.05},
		{Kind: faultstore.DelayAfter, Probability: 0.1, Jitter: 100 * time.Millisecond},
	}})
	s, address, _ := served(t, st, 0)
	log := filepath.Join(t.TempDir(), "log")
	job := fmt.Sprintf(`echo "begin $LEASEHOLD_TOKEN $$" >>%q; sleep 0.02; echo "end $LEASEHOLD_TOKEN $$" >>%[1]q`, log)
	var all sync.WaitGroup
	for kind := range interpreters {
		for range each {
			var said bytes.Buffer
			cmd := client(t, kind, address, []string{"LEASEHOLD_WAIT=5m"}, "one", "sh", "-c", job)
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
	if leases, _, _, _ := s.Sizes(); leases != 0 {
		t.Errorf("%d leases are left", leases)
	}
}

// TestClientsKeep: a client keeps its lease for longer than its TTL, also where every other answer to a keepalive is
// lost; its command has the token, and its code is the command's.
func TestClientsKeep(t *testing.T) {
	t.Parallel()
	longtest.Only(t)
	s, address, _ := served(t, memstore.New(), 0)
	proxy := servers.StartProxy(t, "http://"+address, &servers.ProxyOptions{Fault: func() func(r *http.Request, n int) servers.Fault {
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
	eachClient(t, func(t *testing.T, kind string) {
		var said bytes.Buffer
		cmd := client(t, kind, through, []string{"LEASEHOLD_TTL=3s"}, "k/"+kind, "sh", "-c", `sleep 5; echo "token $LEASEHOLD_TOKEN"; exit 7`)
		cmd.Stderr = &said
		out, err := cmd.Output()
		failed, is := err.(*exec.ExitError) //nolint:errorlint // it is what Output returns
		if !is || failed.ExitCode() != 7 {
			t.Fatalf("%v: %s%s", err, out, said.String())
		}
		o := answered(t, address, "GET", "/v1/locks/k/"+kind, "", nil)
		if o.State != "free" || len(o.History) != 1 || !strings.HasPrefix(o.History[0].Holder, map[string]string{"shell": "sh"}[kind]) || fmt.Sprintf("token %d\n", o.History[0].Token) != string(out) {
			t.Errorf("%s, and the lock is %s", out, o.body)
		}
		held := ask(t, s, "POST", "/v1/locks/"+kind+"/acquire", `{"ttl":"1m"}`)
		if held.code != 200 {
			t.Fatal(held.body)
		}
		if err := client(t, kind, address, []string{"LEASEHOLD_WAIT=100ms"}, kind, "touch", "ran").Run(); err == nil || !strings.Contains(err.Error(), "exit status 75") {
			t.Errorf("of a lock that is held: %v", err)
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+held.Lease, ""); d.code != 204 {
			t.Error(d.body)
		}
	})
}

// TestClientKilled: when a client is killed, the next one has the lock when its TTL and margin are over.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	longtest.Only(t)
	_, address, _ := served(t, memstore.New(), 0)
	eachClient(t, func(t *testing.T, kind string) {
		holds := filepath.Join(t.TempDir(), "holds")
		cmd := client(t, kind, address, []string{"LEASEHOLD_TTL=2s"}, kind, "sh", "-c", "echo >"+holds+"; sleep 100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(holds); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it has not begun")
			}
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		began := time.Now()
		next := answered(t, address, "POST", "/v1/locks/"+kind+"/acquire", `{"wait":"20s"}`, nil)
		if took := time.Since(began); next.code != 200 || took > 2*time.Second+serve.Margin(2*time.Second)+3*time.Second {
			t.Errorf("after %v: %d %s", took, next.code, next.body)
		}
	})
}

// TestClientsLose: when the server is gone, or the lease is lost, a client kills its command before the end that it was
// told, and says so by its code.
func TestClientsLose(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	eachClient(t, func(t *testing.T, kind string) {
		_, address, stop := served(t, memstore.New(), 0)
		proxy := servers.StartProxy(t, "http://"+address, nil)
		through := strings.TrimPrefix(proxy.Endpoint, "http://")
		holds, lasts := filepath.Join(t.TempDir(), "holds"), filepath.Join(t.TempDir(), "lasts")
		var said bytes.Buffer
		cmd := client(t, kind, through, []string{"LEASEHOLD_TTL=4s"}, "k", "sh", "-c", "echo >"+holds+"; while :; do date +%s%N >"+lasts+".new; mv "+lasts+".new "+lasts+"; sleep 0.02; done")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(holds); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it has not begun")
			}
		}
		time.Sleep(1500 * time.Millisecond) // a keepalive or two
		proxy.Hang()
		cut := time.Now()
		err := cmd.Wait()
		if took := time.Since(cut); cmd.ProcessState.ExitCode() != 76 || took > 5*time.Second || !strings.Contains(said.String(), "the lease is lost") {
			t.Errorf("after %v it ended with %v: %s", took, err, said.String())
		}
		text, err := os.ReadFile(lasts)
		if err != nil {
			t.Fatal(err)
		}
		var last int64
		if _, err := fmt.Sscan(string(text), &last); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		// It was told of 4 s when it was heard of last, which was before the cut.
		if late := time.Unix(0, last).Sub(cut.Add(4 * time.Second)); late > 0 {
			t.Errorf("its command worked %v after the end that it was told", late)
		}
		proxy.Restore(t)
		stop()
	})
}
