//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/servers"
)

// sent are requests by their letters in docs/requests.md.
type sent map[byte]int

// pages are the pages with the requests of locks and of commands.
func pages() (string, error) {
	locks, err := os.ReadFile("../../docs/requests.md")
	if err != nil {
		return "", err
	}
	commands, err := os.ReadFile("../../docs/requests-commands.md")
	return string(locks) + string(commands), err
}

// used are the rows that costs has looked up.
var used sync.Map

// costs adds up cells of docs/requests.md and docs/requests-commands.md, of the layout object: "HEADING: ROW".
func costs(t *testing.T, names ...string) sent {
	t.Helper()
	text, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	all := sent{}
	for _, name := range names {
		heading, row, _ := strings.Cut(name, ": ")
		_, rest, _ := strings.Cut(text, "\n## "+heading+"\n")
		_, rest, found := strings.Cut(rest, "\n| "+row+" | ")
		cell, _, _ := strings.Cut(rest, " |")
		if !found || cell == "" {
			t.Fatalf("the pages have no row %q", name)
		}
		used.Store(name, true)
		if cell == "none" {
			continue
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

// A counter runs commands against a bucket, and counts what each of them sends.
type counter struct {
	t          *testing.T
	path       string
	env        []string
	head, tail string // of the bucket's URL

	mu  sync.Mutex
	got sent
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	server := servers.Start(t, "gofakes3")
	c := &counter{t: t, path: path, got: sent{}}
	c.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_") }), server.Env()...)
	proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
		kind := r.Method[0]
		if r.URL.Query().Has("list-type") {
			kind = 'L'
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got[kind]++
		return servers.Pass
	}})
	c.head, c.tail, _ = strings.Cut(server.URLAt(proxy.Endpoint, server.Bucket(t)), "?")
	return c
}

// at is the URL of what lies in the bucket.
func (c *counter) at(key string) string { return c.head + "/" + key + "?" + c.tail }

// sends checks what a command sends until it ends, with that code. It returns its stdout.
func (c *counter) sends(want sent, code int, args ...string) string {
	c.t.Helper()
	return c.until("", want, code, args...)
}

// until checks what a command sends until it writes that, and ends it by SIGINT then.
func (c *counter) until(shown string, want sent, code int, args ...string) string {
	c.t.Helper()
	c.mu.Lock()
	clear(c.got)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Env = c.env
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.StdoutPipe()
	if shown != "" {
		cmd.Stderr = cmd.Stdout
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	var got sent
	take := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = maps.Clone(c.got)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&text, lines.Text())
		if got == nil && shown != "" && strings.Contains(lines.Text(), shown) {
			take()
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	_ = cmd.Wait() // its exit code says it
	if shown == "" {
		take()
	}
	if was := cmd.ProcessState.ExitCode(); was != code || got == nil {
		c.t.Errorf("%q: exit code %d, want %d: %s%s", args, was, code, &text, &talk)
	}
	for _, kind := range []byte("GPLDHO") {
		if got[kind] != want[kind] {
			c.t.Errorf("%q: %d %c, and the pages say %d", args, got[kind], kind, want[kind])
		}
	}
	return text.String()
}

// The headings of the pages that say what commands send.
const (
	layouts        = "Layouts: "
	daily          = "Everyday use: "
	detachedLeases = "Detached leases: "
	commands       = "Commands: "
)

// TestCommandsSend: each command sends the requests that the pages say of what it does, and none besides: none to
// find out where the bucket lies, and none before it ends.
func TestCommandsSend(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() {
		if !t.Failed() && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			allUsed(t)
		}
	})
	t.Run("run", commandsOfJobs)
	t.Run("look", commandsThatLook)
	t.Run("lease", commandsOfLeases)
}

// allUsed checks that each row about commands was compared.
func allUsed(t *testing.T) {
	t.Helper()
	text, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(text, "\n## "+strings.TrimSuffix(commands, ": ")+"\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for line := range strings.Lines(rows) {
		row, _, found := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if _, ok := used.Load(commands + row); found && row != "what" && !ok {
			t.Errorf("nothing is counted for the row %q", row)
		}
	}
}

// commandsOfJobs are run and elect.
func commandsOfJobs(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	a, free := c.at("jobs/a"), costs(t, layouts+"acquire, nothing known", layouts+"release")
	c.sends(costs(t, layouts+"acquire, nothing known, no lock yet", layouts+"release"), 0, "run", a, "--", "true")
	c.sends(free, 0, "run", a, "--", "true")
	c.sends(costs(t, commands+"`run`, `elect --once`"), 0, "run", a, "--", "true")
	c.sends(costs(t, commands+"`run`, `elect --once`"), 0, "elect", "--once", a, "--", "true")
	c.sends(costs(t, commands+"`run --max-hold D`, D up to TTL/3"), 76, "run", "--max-hold", "1s", "--grace", "200ms", a, "--", "sleep", "60")
	c.sends(costs(t, layouts+"acquire, nothing known", daily+"release with a cooldown"), 0, "run", "--hold-at-least", "1h", c.at("jobs/rests"), "--", "true")
	c.sends(costs(t, daily+"find it in cooldown"), 75, "run", "--wait", "0", c.at("jobs/rests"), "--", "true")

	// Those that ask how it stands, and the service manager, cost nothing.
	more := costs(t, commands+"additional: `elect --http`, `sd_notify` of `run` and `elect`")
	if len(more) > 0 {
		t.Errorf("docs/requests-commands.md says %v of what is told to others", more)
	}
	c.sends(free, 0, "elect", "--once", "--http", "127.0.0.1:0", a, "--", "true")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	c.env = append(c.env, "NOTIFY_SOCKET="+manager.LocalAddr().String())
	for _, args := range [][]string{{"run", a, "--", "true"}, {"elect", "--once", a, "--", "true"}} {
		c.sends(free, 0, args...)
		said := make([]byte, 4096)
		if n, err := manager.Read(said); err != nil || !bytes.Contains(said[:n], []byte("=")) {
			t.Errorf("%q told the service manager %q, %v", args, said[:n], err)
		}
	}
}

// commandsThatLook are those about the locks of others.
func commandsThatLook(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	for _, key := range []string{"jobs/a", "jobs/b", "jobs/c"} {
		c.sends(costs(t, layouts+"acquire, nothing known, no lock yet", layouts+"release"), 0, "run", c.at(key), "--", "true")
	}
	a := c.at("jobs/a")
	c.sends(costs(t, layouts+"detect the layout"), 0, "status", a)
	c.sends(costs(t, commands+"`status`"), 0, "status", a)
	c.sends(costs(t, layouts+"detect that no lock exists"), 0, "status", c.at("jobs/none"))
	c.sends(costs(t, layouts+"read, nothing known"), 0, "status", "--layout", "object", a)
	c.sends(costs(t, layouts+"history of 3 leases, with `--layout`"), 0, "history", "--layout", "object", a)
	c.sends(costs(t, layouts+"detect the layout", layouts+"history of 3 leases, with `--layout`"), 0, "history", a)
	c.sends(costs(t, commands+"`list URL` of 3 locks"), 0, "list", c.at("jobs/"))
	c.until("a refresh each", costs(t, commands+"`watch URL/` of 3 locks, to the first line"), 130, "watch", c.at("jobs/"))
	c.env = append(c.env, "LEASEHOLD_STORE="+c.at(""))
	c.sends(costs(t, commands+"`list` of 3 locks"), 0, "list", "jobs/")
	c.until("a refresh each", costs(t, commands+"`watch PREFIX/` of 3 locks, to the first line"), 130, "watch", "jobs/")

	c.sends(costs(t, commands+"`break`, lock free"), 0, "break", "--token", "1", a)
	token := held(c, a)
	c.until(token, costs(t, commands+"`watch LOCK`, held, to the first line"), 130, "watch", a)
	c.until(token, costs(t, commands+"`watch --layout LOCK`, held, to the first line"), 130, "watch", "--layout", "object", a)
	c.sends(costs(t, commands+"`break`, lock held"), 0, "break", "--token", token, a)
	c.sends(costs(t, commands+"`break --layout`, lock held"), 0, "break", "--layout", "object", "--token", held(c, a), a)
	held(c, a)
	c.sends(costs(t, commands+"`break`, refused"), 75, "break", "--token", "1", a)
}

// held has a lock be held, and returns the token.
func held(c *counter, lock string) string {
	c.t.Helper()
	d, err := detached.Parse([]byte(c.sends(costs(c.t, detachedLeases+"acquire and detach"), 0, "acquire", "--ttl", "1h", lock)))
	if err != nil {
		c.t.Fatal(err)
	}
	return d.Token.String()
}

// commandsOfLeases are those about leases that no process holds.
func commandsOfLeases(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	lock, file := c.at("jobs/lease"), filepath.Join(t.TempDir(), "lease.json")
	c.sends(costs(t, detachedLeases+"acquire and detach"), 0, "acquire", "--ttl", "1h", "--file", file, lock)
	c.sends(costs(t, layouts+"read, nothing known"), 75, "run", "--wait", "0", lock, "--", "true")
	c.sends(costs(t, detachedLeases+"renew"), 0, "renew", file)
	c.sends(costs(t, detachedLeases+"release"), 0, "release", file)
	each := costs(t, commands+"`acquire`, `renew`, `renew --exec`, `release`, each")
	c.env = append(c.env, "LEASEHOLD_LEASE="+c.sends(each, 0, "acquire", "--ttl", "1h", lock))
	next := c.sends(each, 0, "renew", "--exec")
	if !strings.HasPrefix(next, "export LEASEHOLD_LEASE='{") {
		t.Errorf("renew --exec says %q", next)
	}
	c.sends(costs(t, detachedLeases+"renew after another copy has renewed"), 76, "renew", "--exec")
	lease, _, _ := strings.Cut(strings.TrimPrefix(next, "export LEASEHOLD_LEASE='"), "'\n")
	c.env = append(c.env, "LEASEHOLD_LEASE="+lease)
	c.sends(each, 0, "release")
}
