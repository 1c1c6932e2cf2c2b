package main

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/localhttp"
)

// TestMonitorTells: a candidate tells where it answers if the system has chosen the port, and that it does not any more: who
// asks it would take it for dead.
func TestMonitorTells(t *testing.T) {
	t.Parallel()
	at, err := localhttp.ParseAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const gone = "leasehold: --http 127.0.0.1:0 is not answered any more: the network is gone\n"
	for listen, tt := range map[string]struct {
		tls  *tls.Config
		want string
	}{
		"127.0.0.1:4041": {nil, gone},
		"127.0.0.1:0":    {nil, "leasehold: answering on http://127.0.0.1:4041\n" + gone},
		"localhost:0":    {&tls.Config{MinVersion: tls.VersionTLS12}, "leasehold: answering on https://127.0.0.1:4041\n" + gone},
	} {
		var said leasetest.Log
		l := newBrokenListener(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4041})
		m := &monitor{listen: listen, address: at, secrets: &localhttp.Secrets{TLS: tt.tls}, server: over(t, l, localhttp.Options{TLS: tt.tls})}
		m.job = &job{app: &app{console: console{w: &said, least: levelNotice}}}
		m.serve(t.Context())
		close(l.breaks)
		for end := time.Now().Add(time.Minute); !strings.HasSuffix(said.String(), gone) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if said.String() != tt.want {
			t.Errorf("--http %s: it says %q, want %q", listen, said.String(), tt.want)
		}
	}
}
