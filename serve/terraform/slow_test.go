package terraform_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store/memstore"
)

// A pipes is a listener whose connections are pipes, so that they keep virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error {
	close(p) // a server closes it once
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// TestSlowClient: a server that gives a request five seconds gives a state the minutes that it takes, and the next request
// on that connection is answered too.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		connections := make(pipes)
		web := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
		served := make(chan error, 1)
		go func() { served <- web.Serve(connections) }()
		client, server := net.Pipe()
		connections <- server
		answers := bufio.NewReader(client)
		ask := func(method string, body string, slowly time.Duration) (status int, answer string) {
			head := fmt.Sprintf("%s /s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", method, len(body))
			if _, err := io.WriteString(client, head); err != nil {
				t.Fatal(err)
			}
			for i := range len(body) {
				time.Sleep(slowly / time.Duration(len(body)))
				if _, err := io.WriteString(client, body[i:i+1]); err != nil {
					t.Fatalf("byte %d of the body: %v", i, err)
				}
			}
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			all, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(all)
		}
		if status, _ := ask("POST", stateOf(1, "x"), 2*time.Minute); status != http.StatusOK {
			t.Errorf("POST: %d", status)
		}
		if status, body := ask("GET", "", 0); status != http.StatusOK || body != stateOf(1, "x") {
			t.Errorf("GET: %d, %s", status, body)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
