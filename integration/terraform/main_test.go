package terraform_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
)

// TestMain makes a serving process of the test binary where the environment asks for one: what dies must be a
// process of its own.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LEASEHOLD_TEST_SERVE_DIR"); dir != "" {
		if err := serve(dir, os.Getenv("LEASEHOLD_TEST_SERVE_ADDR"), os.Getenv("LEASEHOLD_TEST_SERVE_TTL")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve serves the states in a directory below /terraform/, and at /counts what it has sent to the store since it was
// asked before.
func serve(dir, addr, ttl string) error {
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	inner, err := filestore.New(dir, nil)
	if err != nil {
		return err
	}
	st := faultstore.Wrap(inner, nil)
	h, err := terraform.New(st, &terraform.Options{Path: "/terraform/", TTL: d, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	mux := http.NewServeMux()
	mux.Handle("/terraform/", h)
	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(st.Counts())
		st.Reset()
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err = server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A process is one that serves.
type process struct {
	*exec.Cmd
	addr string
	url  string // before the name of a state
	log  *leasetest.Log
	done chan struct{} // closed when it has ended
}

// startProcess starts a serving process at an address, and kills it when the test ends.
func startProcess(t *testing.T, dir, addr string, ttl time.Duration) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self), log: new(leasetest.Log), done: make(chan struct{})}
	p.Env = append(os.Environ(), "LEASEHOLD_TEST_SERVE_DIR="+dir, "LEASEHOLD_TEST_SERVE_ADDR="+addr, "LEASEHOLD_TEST_SERVE_TTL="+ttl.String())
	p.Stderr = p.log
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = p.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the log of the serving process:\n%s", p.log)
		}
	})
	if err != nil {
		p.kill()
		t.Fatalf("it did not start: %v: %s", err, p.log)
	}
	p.addr = strings.TrimSpace(line)
	p.url = "http://" + p.addr + "/terraform/"
	return p
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.done
}

// counts are what it has sent to the store since they were asked for before.
func (p *process) counts(t *testing.T) (n faultstore.Counts) {
	t.Helper()
	r, err := http.Get("http://" + p.addr + "/counts") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err = json.NewDecoder(r.Body).Decode(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
