package main

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestDemoServerSaysNothing: a client that is killed in the middle of an answer, as the demo kills one, is nothing to
// tell whoever looks at it.
func TestDemoServerSaysNothing(t *testing.T) {
	var said bytes.Buffer
	log.SetOutput(&said)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s, err := startDemoServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	object := s.endpoint + "/" + demoBucket + "/large"
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, object, strings.NewReader(strings.Repeat("x", 16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	for range 3 {
		breakOff(t, s.endpoint)
	}
	if err = s.http.Shutdown(t.Context()); err != nil { // when all is answered
		t.Error(err)
	}
	if said.Len() > 0 {
		t.Errorf("stderr got %q", &said)
	}
	if get, put := s.get.Load(), s.puts.Load(); get != 3 || put != 1 {
		t.Errorf("%d GETs and %d PUTs are counted, want 3 and 1", get, put)
	}
}

// breakOff reads the beginning of the large object, and ends as the system ends the connection of a process that is killed.
func breakOff(t *testing.T, endpoint string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = io.WriteString(conn, "GET /"+demoBucket+"/large HTTP/1.1\r\nHost: demo\r\n\r\n"); err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1024))
	}
	if tcp, is := conn.(*net.TCPConn); err == nil && is {
		err = tcp.SetLinger(0)
	}
	if err != nil {
		t.Error(err)
	}
}
