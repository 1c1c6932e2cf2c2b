package chaos_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
)

// meeting is where all workers reach the members of a quorum. A member's name is its URL, so it must be one for all,
// and each worker's link leads there.
const meeting = "10.78.0.1"

// TestChaosOnQuorum does the same as TestChaos on a quorum of three servers of three kinds. One of them is attacked,
// and the links of all workers, which lead to all three.
func TestChaosOnQuorum(t *testing.T) {
	t.Parallel()
	if *long == 0 {
		t.Skip("-long D: a quorum is attacked by the long runs alone")
	}
	for _, name := range []string{"minio", "versitygw", servers.GCS} {
		ahead(t, name)
	}
	inArena(t, func(t *testing.T) { onQuorum(t, forLock) })
}

func onQuorum(t *testing.T, c contest) {
	t.Helper()
	attacked, second, third := servers.Start(t, "minio"), servers.Start(t, "versitygw"), servers.StartGCS(t)
	s := &site{t: t, server: attacked, keeps: true}
	s.proxy = servers.StartProxy(t, attacked.Endpoint, &servers.ProxyOptions{Fault: s.fault})
	if err := ip("address", "add", meeting+"/32", "dev", "lo"); err != nil {
		t.Fatal(err)
	}
	for n := range c.fleet {
		l := newLink(t, n)
		if err := l.inside(func() error { return ip("route", "add", meeting+"/32", "via", l.near) }); err != nil {
			t.Fatal(err)
		}
		s.links = append(s.links, l)
	}
	at := func(endpoint string) string {
		target, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return "http://" + net.JoinHostPort(meeting, relay(t, target.Host))
	}
	members := url.Values{"member": {
		attacked.URLAt(at(s.proxy.Endpoint), attacked.Bucket(t)),
		second.URLAt(at(second.Endpoint), second.Bucket(t)),
		servers.GCSURLAt(at(third.Endpoint), third.GCSBucket(t)),
	}}
	env := attacked.Env()
	made := exec.CommandContext(t.Context(), os.Getenv(arenaVariable), "quorum", "init", "quorum:///?"+members.Encode())
	made.Env = append(os.Environ(), env...)
	if said, err := made.CombinedOutput(); err != nil {
		t.Fatal(errors.Join(err, errors.New(strings.TrimSpace(string(said)))))
	}
	s.fleet = launch(t, c.slots, s.links, env, func(n int) []string { return c.argv(n, "quorum:///lock?"+members.Encode()) })
	attack(t, c, s.fleet, s.network())
}
