package peer_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
)

// TestKeepAlive: both ends of a connection are probed within 5 s of silence, so that
// a host that has vanished shows. The system knows when it will.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	e, _, _ := lead(t, nil)
	s := start(t, &peer.ServerOptions{Addr: "127.0.0.2:0", Certificate: a.Issue(t, "127.0.0.2")}, e)
	if _, err := newClient(t, &peer.ClientOptions{RootCAs: rootsOf(t, a)}).Ask(t.Context(), s.Addr().String(), now); err != nil {
		t.Fatal(err)
	}
	addr, _ := s.Addr().(*net.TCPAddr)
	timers := established(t, addr.Port)
	for len(timers) < 2 || slices.ContainsFunc(slices.Collect(maps.Values(timers)), retransmits) {
		time.Sleep(time.Millisecond) // what was sent is not acknowledged yet
		timers = established(t, addr.Port)
	}
	for ends, timer := range timers {
		kind, when, _ := strings.Cut(timer, ":") // 02: keep-alive, in so many 1/100 s
		if due, err := strconv.ParseInt(when, 16, 64); err != nil || kind != "02" || due > 501 {
			t.Errorf("the timer of %s is %s", ends, timer)
		}
	}
}

// TestKeepAliveSettings: three probes, a second apart, end a connection to a host that has vanished: it shows within 8 s.
func TestKeepAliveSettings(t *testing.T) {
	t.Parallel()
	l := must(peer.Listen(t.Context(), "127.0.0.1:0"))
	defer l.Close()
	c := must(new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()))
	defer c.Close()
	accepted, _ := must(l.Accept()).(*net.TCPConn)
	defer accepted.Close()
	if err := must(accepted.SyscallConn()).Control(func(fd uintptr) {
		for option, want := range map[int]int{syscall.TCP_KEEPIDLE: 5, syscall.TCP_KEEPINTVL: 1, syscall.TCP_KEEPCNT: 3} {
			if got, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option); err != nil || got != want {
				t.Errorf("option %d is %d, not %d: %v", option, got, want, err)
			}
		}
	}); err != nil {
		t.Error(err)
	}
}

func retransmits(timer string) bool { return strings.HasPrefix(timer, "01:") }

// established are the timers of established connections from and to a port of an
// address that no other test uses, by their two ends. The system's table may show a
// connection twice, or not at all, while others come and go.
func established(t *testing.T, port int) map[string]string {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("0200007F:%04X", port)
	timers := map[string]string{}
	for line := range strings.Lines(string(table)) {
		// number, local, remote, state (01: established), queues, timer:when
		if f := strings.Fields(line); len(f) > 5 && f[3] == "01" && (f[1] == address || f[2] == address) {
			timers[f[1]+" "+f[2]] = f[5]
		}
	}
	return timers
}
