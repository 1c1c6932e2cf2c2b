package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// A mishap is something that goes wrong, whatever is asked for.
type mishap struct {
	name   string
	status int    // of all answers; 0: nobody listens
	code   string // of S3
	exit   int
	begins string // how the message does
}

var mishaps = []mishap{
	{"unreachable", 0, "", exitUnavailable, `store unavailable: connect: connection refused; `},
	{"no bucket", 404, "NoSuchBucket", exitUnavailable, store.ErrNoBucket.Error() + `: 404 NoSuchBucket`},
	{"denied", 403, "AccessDenied", exitDenied, `access denied: 403 AccessDenied`},
	{"refused", 501, "NotImplemented", exitUnavailable, `refused by the store: 501 NotImplemented`},
}

// commands are all that ask a store, with what they say of it in the end.
var storeCommands = [][]string{
	{"run", "LOCK", "--", "true"},
	{"run", "--wait", "0", "LOCK", "--", "true"},
	{"run", "--wait", "10m", "LOCK", "--", "true"},
	{"elect", "LOCK", "--", "true"},
	{"elect", "--once", "LOCK", "--", "true"},
	{"status", "LOCK"},
	{"watch", "LOCK"},
	{"watch", "PREFIX"},
	{"init", "LOCK"},
	{"break", "--token", "5", "LOCK"},
	{"move", "LOCK", "file:///tmp/none"},
	{"history", "--layout", "epochs", "LOCK"},
	{"run", "--layout", "epochs", "LOCK", "--", "true"},
	{"status", "--layout", "marker", "LOCK"},
	{"list", "STORE"},
	{"list", "LOCK"},
	{"gc", "STORE"},
	{"shards", "LOCK"},
	{"fence", "put", "--token", "5", "LOCK"},
	{"fence", "claim", "--token", "5", "LOCK"},
	{"fence", "delete", "--token", "5", "LOCK"},
	{"fence", "get", "LOCK"},
	{"cost", "--measure", "--for", "1s", "--ttl", "1s", "STORE"},
}

// All commands say in one form what goes wrong with a store: the cause comes first, then
// where it was; each fact once, readably; and the ID of the request with -v only.
// It used to be the lock's URL three times, percent-encoded, and what the SDK calls its
// layers, before the cause.
func TestMessages(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("LEASEHOLD_LAYOUT", "")
	var all sync.WaitGroup // some at once: they wait for their next try
	turns := make(chan struct{}, 4)
	machines := regexp.MustCompile(`%[0-9A-F]{2}|RequestID|HostID|operation error|REQUEST-1`)
	for _, m := range mishaps {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Request-Id", "REQUEST-1")
			w.WriteHeader(m.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>These are the words of the server.</Message><RequestId>REQUEST-1</RequestId></Error>", m.code)
		}))
		t.Cleanup(server.Close)
		address := strings.TrimPrefix(server.URL, "http://")
		if m.status == 0 {
			address = testenv.Refused
		}
		for _, args := range storeCommands {
			if m.status == 0 && (args[0] == "fence" && args[1] != "get" || args[0] == "move" || (args[0] == "run" || args[0] == "elect") && args[2] != "0") {
				continue // it is tried for half a minute, or for ever
			}
			all.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				what := m.name + "/" + strings.Join(args, " ")
				full := at(args, "s3://bucket/jobs/odd näme?endpoint=http://"+address, "s3://bucket/jobs?endpoint=http://"+address)
				code, said := execute(t, full)
				if code != m.exit {
					t.Errorf("%s: exit code %d, want %d: %s", what, code, m.exit, said)
				}
				if !strings.HasPrefix(said, m.begins) {
					t.Errorf("%s: it is said %q, want the cause first: %q", what, said, m.begins)
				}
				saysOnce(t, said, address, "s3://", "odd näme", m.code, "words of the server")
				if machines.MatchString(said) {
					t.Errorf("%s: what only machines need is in %q", what, said)
				}
				if m.status == 0 || full[0] == "cost" {
					return
				}
				if _, said = execute(t, append([]string{"-v"}, full...)); !strings.Contains(said, "request ID REQUEST-1") {
					t.Errorf("%s: with -v it is said %q, without the ID of the request", what, said)
				}
			})
		}
	}
	all.Wait()
}

// at fills in where a command is to look.
func at(args []string, lock, where string) []string {
	args = append([]string(nil), args...)
	for i, arg := range args {
		args[i] = strings.NewReplacer("LOCK", lock, "STORE", where, "PREFIX", strings.Replace(where, "?", "/?", 1)).Replace(arg)
	}
	return args
}

// execute runs the program in this process, and gives its last line without what all begin with.
func execute(t *testing.T, args []string) (code int, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = exec(t.Context(), args, &stdout, &stderr)
	lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
	if page, found := strings.CutPrefix(lines[len(lines)-1], "leasehold: see https://"); found {
		if !strings.HasSuffix(page, fmt.Sprintf("/docs/trouble.md#code-%d", code)) {
			t.Errorf("leasehold %q ends with %d, and names the page %q", args, code, page)
		}
		lines = lines[:len(lines)-1]
	}
	said, ours := strings.CutPrefix(lines[len(lines)-1], "leasehold: ")
	if !ours {
		t.Errorf("leasehold %q says %q", args, stderr.String())
	}
	return code, said
}

// saysOnce checks that a message has none of the facts twice, and no part of it.
func saysOnce(t *testing.T, said string, facts ...string) {
	t.Helper()
	for _, part := range regexp.MustCompile(`: |; | \(|, `).Split(said, -1) {
		if len(part) >= shortest {
			facts = append(facts, part)
		}
	}
	for _, fact := range facts {
		if fact != "" && strings.Count(said, fact) > 1 {
			t.Errorf("%q is said more than once in %q", fact, said)
		}
	}
}

// The same of what is wrong with an object or with what was written on the command line.
func TestMessagesOfMistakes(t *testing.T) {
	t.Setenv("LEASEHOLD_LAYOUT", "")
	t.Setenv("LEASEHOLD_SWEEP", "")
	dir := filepath.ToSlash(t.TempDir())
	s3lect := `{"leaderID":"web-1","leaderAddr":"","lastUpdated":"2026-11-20T10:30:45Z"}`
	if err := os.WriteFile(filepath.Join(dir, "s3lect"), []byte(s3lect), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "garbage"), []byte("not a lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEASEHOLD_STORE", "file://"+dir)
	p, err := (&app{}).locate(t.Context(), "held", leasehold.LayoutObject)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := leasehold.NewLock(p.store, p.key, &leasehold.LockOptions{Holder: "other", Layout: leasehold.LayoutObject})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	for _, tt := range []struct {
		args string
		code int
		want string // a pattern for all of it
	}{
		{"run --wait 0 held -- true", exitHeld, `held is held by other \(token [0-9]+\)`},
		{"run garbage -- true", exitForeign, `the object file:\S+/garbage is not a lock record that this version understands: .*`},
		{"status garbage", exitForeign, `the object file:\S+/garbage is not a lock record that this version understands: .*`},
		{"status s3lect", exitForeign, `the object file:\S+/s3lect is not .*: it is a lock file of s3lect, .*; it was left as it is: look at it, and move it away or give the lock another name`},
		{"init garbage", exitForeign, `the object file:\S+/garbage is not a lock record .*`},
		{"elect garbage -- true", exitForeign, `the object file:\S+/garbage is not a lock record .*`},
		{"break --token 5 none", exitAbsent, `object does not exist \(file:\S+/none\)|the lock file:\S+/none: object does not exist`},
		{"run --existing none -- true", exitAbsent, `the lock file:\S+/none is to exist already, and does not; make it once with .leasehold init.`},
		{"break --token 5 held", exitHeld, `the lock file:\S+/held: the token is another: it is [0-9]+, not 5`},
		{"history --layout epochs none", exitAbsent, `there is no lock none`},
		{"run a/../b -- true", exitUsage, `invalid argument: the key has a segment "\." or "\.\." \(lock "a/\.\./b"\)`},
		{"status l/", exitUsage, `invalid argument: the key begins or ends with a slash, or has two in a row \(lock "l/"\)`},
		{"list s3:/b", exitUsage, `s3:/b is not a URL: did you mean s3://b\?`},
		{"status ftp://x/y", exitUsage, `bad store URL: unknown scheme ftp://; this version knows .*`},
		{"run --ttl 1ms l -- true", exitUsage, `--ttl 1ms is not between 1s and 24h0m0s`},
		{"run --ttl soon l -- true", exitUsage, `--ttl "soon" is not a duration such as 500ms, 30s or 5m`},
		{"run --layout epoch l -- true", exitUsage, `--layout "epoch": there is no such layout: did you mean epochs\? there are object, .*`},
		{"run --tll 5s l -- true", exitUsage, `unknown flag --tll: did you mean --ttl\? see leasehold run --help`},
		{"run --nonsense l -- true", exitUsage, `unknown flag --nonsense: see leasehold run --help`},
		{"run -x l -- true", exitUsage, `unknown flag -x: did you mean --exclusive\? see leasehold run --help`},
		{"run --ttl", exitUsage, `--ttl needs a value: see leasehold run --help`},
		{"stauts l", exitUsage, `there is no command "stauts": did you mean status\? see leasehold --help`},
		{"nonsense l", exitUsage, `there is no command "nonsense": see leasehold --help`},
		{"fence gte l", exitUsage, `there is no command "gte": did you mean get\? see leasehold fence --help`},
		{"fence", exitUsage, `no command given: see leasehold fence --help`},
		{"status", exitUsage, `1 argument is needed, and there are 0: see leasehold status --help`},
		{"status a b", exitUsage, `1 argument is needed, and there are 2: see leasehold status --help`},
		{"list a b", exitUsage, `1 argument is allowed, and there are 2: see leasehold list --help`},
		{"version x", exitUsage, `no argument is allowed, and there is 1: see leasehold version --help`},
		{"fence claim --token 5", exitUsage, `an argument is needed, and there is none: see leasehold fence claim --help`},
		{"run --output xml l -- true", exitUsage, `--output "xml" is neither text nor json`},
		{"run -o xml l -- true", exitUsage, `--output "xml" is neither text nor json`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, said := execute(t, strings.Fields(tt.args))
			if code != tt.code || !regexp.MustCompile("^("+tt.want+")$").MatchString(said) {
				t.Errorf("exit code %d and %q, want %d and %s", code, said, tt.code, tt.want)
			}
			saysOnce(t, said, "file://", "object does not exist")
		})
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a": "a", "": "", "store unavailable: 503 SlowDown": "store unavailable: 503 SlowDown",
		"bucket does not exist: 404 NoSuchBucket: The specified bucket does not exist; make it": "bucket does not exist: 404 NoSuchBucket; make it",
		"access denied: 403 AccessDenied: Access Denied":                                        "access denied: 403 AccessDenied",
		"held: held": "held: held", // too short to be sure
		"it did not answer: context deadline exceeded: context deadline exceeded": "it did not answer: context deadline exceeded",
		"store unavailable: store unavailable: why":                               "store unavailable: why",
		"no such name: no such name":                                              "no such name", // twelve letters are long enough
		"no such key: no such key":                                                "no such key: no such key",
		"the disk is full; the disk is full; try again":                           "the disk is full; try again",
	} {
		if got := once(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestMessageOfUnknownHost: a host that the address names already is not named again.
func TestMessageOfUnknownHost(t *testing.T) {
	t.Parallel()
	lookup := &url.Error{Op: "Get", URL: "http://no.example/b/l", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no.example", Server: "10.0.0.1:53"}}}
	failure := &store.Error{Op: "get", Key: "l", Kind: store.ErrUnavailable, Cause: lookup}
	for where, want := range map[string]string{
		"get s3://b/l?endpoint=http://no.example": ": dial tcp: no such host",
		"get s3://b/l": ": dial tcp: lookup no.example on 10.0.0.1:53: no such host",
	} {
		if got := cause(failure, where); got != want {
			t.Errorf("%s: %q, want %q", where, got, want)
		}
	}
}

// A rewording is an error that says something else than the one in it.
type rewording struct {
	error
	text string
}

func (r rewording) Error() string { return r.text }
func (r rewording) Unwrap() error { return r.error }

// TestMessageOf: what is said of an error of a store: the object is named where nothing else names what failed, the request
// with -v, and a text that is another is left as it is.
func TestMessageOf(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	failure := &store.Error{Op: "get", Key: "jobs/a b", Kind: store.ErrUnavailable, Cause: errors.New("no route\nto it"), RequestID: "R1"}
	plainly := &store.Error{Op: "list", Kind: store.ErrDenied}
	locked := &store.Error{Op: "lock", Key: "jobs/l", Kind: store.ErrInvalid, Cause: errors.New("it has a segment \".\"")}
	open := &app{at: st, lock: "jobs/l"}
	verbose := &app{at: st, lock: "jobs/l", flags: flags{verbose: true}}
	for _, tt := range []struct {
		app  *app
		err  error
		want string
	}{
		{&app{}, errors.New("it is\nso"), "it is; so"},
		{&app{}, fmt.Errorf("the lock is to exist; make it: %w", store.ErrNotExist), "the lock is to exist; make it"},
		{&app{}, fmt.Errorf("the lock l: %w", store.ErrNotExist), "the lock l: object does not exist"},
		{&app{}, failure, `store unavailable: no route; to it (get "jobs/a b")`},
		{open, failure, "store unavailable: no route; to it (get mem:///jobs/a b)"},
		{verbose, failure, "store unavailable: no route; to it (get mem:///jobs/a b, request ID R1)"},
		{open, plainly, "access denied (list mem://)"},
		{verbose, plainly, "access denied (list mem://)"},
		{open, locked, `invalid argument: it has a segment "." (lock "jobs/l")`},
		{open, fmt.Errorf("the lock mem:///jobs/l: %w", failure), "store unavailable: no route; to it (get mem:///jobs/a b)"},
		{open, fmt.Errorf("the lock mem:///jobs/m: %w; try again", failure), "the lock mem:///jobs/m: store unavailable: no route; to it; try again"},
		{verbose, fmt.Errorf("a member: %w", failure), "a member: store unavailable: no route; to it (request ID R1)"},
		{open, rewording{failure, "nobody\nanswers"}, "nobody; answers"},
		{open, fmt.Errorf("x: %w", quorumstore.ErrNoQuorum), "mem://: these stores are no quorum yet: leasehold quorum init makes one"},
		{&app{}, syscall.EMFILE, "too many open files; this process may open no more files: raise its limit (ulimit -n)"},
	} {
		if got := tt.app.message(tt.err); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.err, got, tt.want)
		}
	}
	for raw, want := range map[string]string{"s3://b/a%20b?x=%20": "s3://b/a b?x=%20", "s3://b/%zz": "s3://b/%zz", "s3://b/%1b": `"s3://b/\x1b"`} {
		if got := readable(raw); got != want {
			t.Errorf("%s is shown as %s, want %s", raw, got, want)
		}
	}
}

// TestCause: why a request failed is told without the address that it went to, where that is told already.
func TestCause(t *testing.T) {
	t.Parallel()
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: errors.New("connection refused")}
	for _, tt := range []struct {
		cause error
		where string
		want  string
	}{
		{nil, "get l", ""},
		{errors.New("why\nit is"), "get l", ": why; it is"},
		{fmt.Errorf("x: %w", &url.Error{Op: "Get", URL: "http://127.0.0.1:9/l", Err: dial}), "get http://127.0.0.1:9/l", ": connection refused"},
		{&url.Error{Op: "Get", URL: "http://127.0.0.1:9/l", Err: dial}, "get l", ": dial tcp 127.0.0.1:9: connection refused"},
		{dial, "get http://127.0.0.1:9/l", ": connection refused"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no address")}, "get l", ": dial tcp: no address"},
	} {
		if got := cause(&store.Error{Kind: store.ErrUnavailable, Cause: tt.cause}, tt.where); got != tt.want {
			t.Errorf("%v at %s: %q, want %q", tt.cause, tt.where, got, tt.want)
		}
	}
}
