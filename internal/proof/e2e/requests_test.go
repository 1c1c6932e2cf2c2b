//go:build unix

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
)

// sent are requests by their letters in docs/cost.md.
type sent map[byte]int

// costs adds up cells of docs/cost.md, of the layout object: "HEADING: ROW".
func costs(t *testing.T, names ...string) sent {
	t.Helper()
	text, err := os.ReadFile("../../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	all := sent{}
	for _, name := range names {
		heading, row, _ := strings.Cut(name, ": ")
		_, rest, _ := strings.Cut(string(text), "\n## "+heading+"\n")
		_, rest, found := strings.Cut(rest, "\n| "+row+" | ")
		cell, _, _ := strings.Cut(rest, " |")
		if !found || cell == "" {
			t.Fatalf("docs/cost.md has no row %q", name)
		}
		for _, field := range strings.Fields(cell) {
			n := 1
			if len(field) > 1 {
				if n, err = strconv.Atoi(field[:len(field)-1]); err != nil {
					t.Fatalf("%s: %q", name, cell)
				}
			}
			all[field[len(field)-1]] += n
		}
	}
	return all
}

// TestCommandsSend: each command sends the requests that docs/cost.md says of what it does, and none besides: none to
// find out where the bucket lies, and none before it ends.
func TestCommandsSend(t *testing.T) {
	t.Parallel()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	const (
		layouts = "The other layouts: "
		daily   = "Everyday use: "
		lease   = "A lease that no process holds: "
		unknown = layouts + "acquire, nothing known"
		release = layouts + "release"
	)
	var mu sync.Mutex
	got := sent{}
	server := servers.Start(t, "gofakes3")
	proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
		kind := r.Method[0]
		if r.URL.Query().Has("list-type") {
			kind = 'L'
		}
		mu.Lock()
		defer mu.Unlock()
		got[kind]++
		return servers.Pass
	}})
	bucket := server.URLAt(proxy.Endpoint, server.Bucket(t))
	head, query, _ := strings.Cut(bucket, "?")
	lock := func(name string) string { return head + "/jobs/" + name + "?" + query }
	file := filepath.Join(t.TempDir(), "lease.json")
	for _, c := range []struct {
		args []string
		code int
		want sent
	}{
		{[]string{"run", lock("a"), "--", "true"}, 0, costs(t, layouts+"acquire, nothing known and there is none", release)},
		{[]string{"run", lock("a"), "--", "true"}, 0, costs(t, unknown, release)},
		{[]string{"status", lock("a")}, 0, costs(t, layouts+"find out the layout")},
		{[]string{"status", lock("none")}, 0, costs(t, layouts+"find out that there is no lock")},
		{[]string{"status", "--layout", "object", lock("a")}, 0, costs(t, layouts+"look, nothing known")},
		{[]string{"history", "--layout", "object", lock("a")}, 0, costs(t, layouts+"history of 3 leases, with `--layout`")},
		{[]string{"history", lock("a")}, 0, costs(t, layouts+"find out the layout", layouts+"history of 3 leases, with `--layout`")},
		{[]string{"run", "--hold-at-least", "1h", lock("rests"), "--", "true"}, 0, costs(t, unknown, daily+"release to a rest")},
		{[]string{"run", "--wait", "0", lock("rests"), "--", "true"}, 75, costs(t, daily+"find it at rest")},
		{[]string{"acquire", "--ttl", "1h", "--file", file, lock("lease")}, 0, costs(t, lease+"acquire and detach")},
		{[]string{"run", "--wait", "0", lock("lease"), "--", "true"}, 75, costs(t, layouts+"look, nothing known")},
		{[]string{"renew", file}, 0, costs(t, lease+"renew")},
		{[]string{"release", file}, 0, costs(t, lease+"release")},
	} {
		mu.Lock()
		clear(got)
		mu.Unlock()
		cmd := exec.CommandContext(t.Context(), path, c.args...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_") }), server.Env()...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%q: exit code %d, %v: %s", c.args, code, err, out)
		}
		mu.Lock()
		for _, kind := range []byte("GPLDHO") {
			if got[kind] != c.want[kind] {
				t.Errorf("%q: %d %c, and docs/cost.md says %d", c.args, got[kind], kind, c.want[kind])
			}
		}
		mu.Unlock()
	}
}
