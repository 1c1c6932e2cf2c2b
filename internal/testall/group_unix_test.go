//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

// The go command passes no signal on: an interrupt that reached it alone would
// leave the test binary running.
func TestInterruptReachesTheTestBinary(t *testing.T) {
	inModule(t, `package x_test
import ("net"; "os"; "testing")
func TestX(t *testing.T) {
	if _, err := net.Dial("tcp", os.Getenv("TESTALL_ADDR")); err != nil { t.Fatal(err) }
	select {}
}
`)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("TESTALL_ADDR", listener.Addr().String())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dead := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			cancel() // it runs: interrupt it
			_, err = io.Copy(io.Discard, conn)
		}
		dead <- err
	}()
	var out, stderr strings.Builder
	tally := &tally{out: &out}
	goTest(ctx, tally, []string{"test", "-json", "./..."}, outcome{}, &stderr)
	listener.Close()
	if err := <-dead; err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%v\n%s%s", err, out.String(), stderr.String())
	}
	if tally.failed == 0 {
		t.Errorf("nothing failed:\n%s", out.String())
	}
}
