// Package conformance_test puts implementations of the format through all cases, with real clocks.
package conformance_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/conformance"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store/storeurl"
)

// TestMain has more tests run at a time than there are cores: they wait for leases to end.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// options are those of a run over a bucket of a server.
func options(t *testing.T, srv *servers.Server, command ...string) conformance.Options {
	t.Helper()
	bucket := srv.Bucket(t)
	for _, v := range srv.Env() { // for the runner's own requests: the tests of this package have one server
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil { //nolint:usetesting // the tests are parallel
			t.Fatal(err)
		}
	}
	st, err := storeurl.Open(t.Context(), srv.URL(bucket+"/some/prefix"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(srv.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Options{
		Store: st, Endpoint: endpoint, Bucket: bucket, Prefix: "some/prefix/", Command: command,
		Env: append(conformance.Environ(), append(srv.Env(), "PYTHONDONTWRITEBYTECODE=1")...), Parallel: 12, TTL: ttl,
	}
}

// python is the interpreter, without which the test is skipped.
func python(t *testing.T) string {
	t.Helper()
	path, err := interpreterPath()
	if err != nil {
		t.Skip("there is no python3 here")
	}
	return path
}

// interpreterPath is that of the interpreter itself: what is in PATH may be a script that looks for it each time.
var interpreterPath = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// examples is the directory of the implementation in Python.
func examples(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples/python")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ttl is long enough for a busy machine: two seconds, the default, are over there before a process
// has had its turn.
const ttl = 10 * time.Second

// passes puts a command through so many cases at least.
func passes(t *testing.T, opts conformance.Options, least int) {
	t.Helper()
	results, err := conformance.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) < least {
		t.Errorf("%d results, want %d", len(results), least)
	}
	for _, r := range results {
		t.Logf("%5.1f s  %s", r.Seconds, r.Case)
		if !r.Passed {
			t.Errorf("%s", show(r))
		}
	}
}

func show(r conformance.Result) string {
	var b strings.Builder
	b.WriteString(r.Case + ": " + r.Skipped)
	for _, f := range r.Failures {
		b.WriteString("\n  " + f.Rule + ": " + f.What)
	}
	b.WriteString("\n" + strings.Join(r.Requests, "\n") + "\n" + strings.Join(r.Said, "\n"))
	return b.String()
}

// TestPython: the implementation in examples/python passes all cases.
func TestPython(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	passes(t, options(t, servers.Start(t, "gofakes3"), interpreter, filepath.Join(examples(t), "subject.py")), len(conformance.Cases()))
}

// TestOurs: so does this library.
func TestOurs(t *testing.T) {
	t.Parallel()
	passes(t, options(t, servers.Start(t, "gofakes3"), subject(t)), len(conformance.Cases()))
}

// TestSigned is TestPython on servers that check signatures.
func TestSigned(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"versitygw", "minio"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter := python(t)
			opts := options(t, servers.Start(t, name), interpreter, filepath.Join(examples(t), "subject.py"))
			passes(t, opts, len(conformance.Cases()))
		})
	}
}

// subject builds the program that speaks for this library.
func subject(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subject")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "../../examples/subject").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// asked are the changes that make of leasehold.py and subject.py an implementation that renews when it is asked to.
var asked = [][2]string{
	{`while not self.end.wait(max(0, min(due, self.deadline) - clock())):`, "self.due = due = 1e18\n        while not self.end.wait(0.01):\n            due = self.due"},
	{`self.known, failures, due = True, 0, t0 + lock.ttl / 3`, `self.known, failures, self.due = True, 0, 1e18`},
	{`failures, due = failures + 1, clock()`, `failures, self.due = failures + 1, clock()`},
	{`ready 1 renews-itself`, `ready 1 renews-when-asked`},
	{"    if word == \"release\":", `    if word == "renew" and key in leases:
        lease, before = leases[key], leases[key].deadline
        lease.due = 0
        while lease.valid() and lease.deadline == before and lease.due < 1e18: threading.Event().wait(0.01)
        return "renewed" if lease.valid() else "error the lease is lost"
    if word == "release":`},
}

// TestAsked: the runner also has an implementation renew that does so only when it is asked.
func TestAsked(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	dir := changed(t, asked...)
	opts := options(t, servers.Start(t, "gofakes3"), interpreter, filepath.Join(dir, "subject.py"))
	opts.Run = regexp.MustCompile("^(free-record|renews|renew-|unknown-fields|killed|stopped|taken|cut-off|answers-lost)")
	passes(t, opts, 10)
}

// changed is a directory with the implementation in Python, with some words in place of others, which must be there.
func changed(t *testing.T, changes ...[2]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	texts := map[string]string{}
	for _, name := range []string{"leasehold.py", "subject.py"} {
		text, err := os.ReadFile(filepath.Join(examples(t), name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	for _, c := range changes {
		found := 0
		for name, text := range texts {
			found += strings.Count(text, c[0])
			texts[name] = strings.ReplaceAll(text, c[0], c[1])
		}
		if found == 0 {
			t.Fatalf("nothing has %q", c[0])
		}
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mutants are implementations that are wrong in one place of leasehold.py, and the cases that must show it.
var mutants = []struct {
	name     string
	old, new string
	fails    string // cases, as a regular expression
	rule     string
}{
	{"takes over at once", `self.claimable, self.spread = now + (self.patience() if others else 0)`, `self.claimable, self.spread = now + (0 if others else 0)`, "takes-over", "F5"},
	{"waits its own TTL", `ttl = self.record["ttl_ms"] / 1000`, `ttl = self.ttl`, "takes-over-their-ttl", "F5"},
	{"waits without a margin", `else ttl + margin(ttl)  # F12`, `else ttl  # F12`, "takes-over", "F5"},
	{"counts from the first version", `now, landed = clock(), None  # F5: from the receipt`, `self.first = now = getattr(self, "first", clock()); landed = None`, "takes-over-renewed", "F5"},
	{"takes a lost answer for a lease", `t0 = self.claim()`, "\n                    try: t0 = self.claim()\n                    except Error: t0 = clock(); self.record = {**(self.record or {}), \"token\": self.top + 1}", "acquire-request-lost", "F6"},
	{"takes its own write for another's", `if held and self.record["write_id"] in self.open:`, `if False:`, "renew-answer-lost", "F18"},
	{"gives up after a failed renewal", `except Error:  # it is valid`, "except Error as err: return self.lose(str(err))\n            except OSError:  # it is valid", "renew-503", "F18"},
	{"drops what it does not know", `kept = {n: v for n, v in (self.record or {}).items() if n not in OF_A_LEASE}`, `kept = {}`, "unknown-fields", "F13"},
	{"keeps what was of the lease before", `if n not in OF_A_LEASE}`, `if n not in ("token", "holder", "ttl_ms", "session", "state", "expires_at", "acquired_at", "format")}`, "unknown-fields", "F14"},
	{"writes without a condition", `{"if-match": self.version} if self.version else {"if-none-match": "*"})`, `())`, "free-record", "F1"},
	{"counts from the answer", `self.top = record, headers["ETag"], {}, 0.0, max(self.top, record["token"])`, `self.top = record, headers["ETag"], {}, 0.0, max(self.top, record["token"]); t0 = clock()`, "slow-answer", "F4"},
	{"holds for the whole TTL", `t0 + lock.ttl - margin(lock.ttl)`, `t0 + lock.ttl`, "cut-off", "F4"},
	{"gives its token back", `token = max(self.top + 1, self.base if not self.version else 0)`, `token = max(self.top, self.base if not self.version else 0)`, "free-record", "F"},
	{"writes over what it does not understand", `self.record, self.version = decode(body), headers["ETag"]`, "self.version = headers[\"ETag\"]\n            try: self.record = decode(body)\n            except Foreign: self.record = {\"token\": 1, \"state\": \"free\", \"ttl_ms\": 1000, \"write_id\": \"\"}", "foreign-newer-format", "F11"},
	{"ignores sessions", `and self.record.get("session") else`, `and False else`, "session", "F12"},
	{"creates again at once", `if self.version: self.claimable = now + self.patience()`, `if self.version: self.claimable = now`, "deleted-while-waiting", "F16"},
	{"asks without a pause", `def pause(failures): return`, "def pause(failures): return 0.001 or", "refuses-503", "F17"},
	{"uses one write ID", `f"{self.incarnation}.{self.writes}"`, `f"{self.incarnation}.1"`, "tokens-grow", "F2"},
	{"is valid again", `self.over = self.over or clock() >= self.deadline  # F4; and for good (F10)`, `self.over = self.over and not self.thread.is_alive()`, "stopped$", "F10"},
	{"deletes to release", `self.known = lock.write({**lock.record, "state": "free", "expires_at": stamp()}, min(10, lock.ttl / 3)) > 0`, `lock.s3.send("DELETE", lock.key, 5); return`, "free-record", "F1"},
}

// TestMutants: an implementation that is wrong in one place fails the case that is about that.
func TestMutants(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	srv := servers.Start(t, "gofakes3")
	t.Run("all", func(t *testing.T) {
		for _, m := range mutants {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				dir := changed(t, [2]string{m.old, m.new})
				opts := options(t, srv, interpreter, filepath.Join(dir, "subject.py"))
				opts.Run = regexp.MustCompile("^" + m.fails)
				// A process that is late by itself does not do too early what it would do too early: so once more.
				for _, opts.TTL = range []time.Duration{2 * time.Second, ttl} {
					results, err := conformance.Run(t.Context(), opts)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range results {
						for _, f := range r.Failures {
							if strings.HasPrefix(f.Rule, m.rule) && f.Sentence != "" {
								return // it was noticed
							}
						}
						t.Logf("it does not say that %s was broken: %s", m.rule, show(r))
					}
				}
				t.Errorf("no case says that %s was broken", m.rule)
			})
		}
	})
}

// vectorScript reads the vectors with leasehold.py, and writes what it makes of those that are records of a lock.
const vectorScript = `
import base64, json, leasehold, math, sys
found = {}
for v in json.load(open(sys.argv[1]))["vectors"]:
    if v["read_as"] != "object": continue
    body = base64.b64decode(v["body_base64"]) if "body_base64" in v else v.get("body", "").encode()
    body += b" " * (v.get("pad_to", 0) - len(body))
    lock = leasehold.Lock(None, "key")
    try: r = lock.record = leasehold.decode(body)
    except leasehold.Foreign as err:
        found[v["name"]] = {"verdict": "foreign", "kind": str(err)}
        continue
    wait = lock.patience() if r["state"] == "held" else 0
    texts = {n: r.get(n) or "" for n in ("state", "holder", "write_id", "session", "successor", "ended")}
    known = leasehold.OF_A_LEASE + ("term", "term_token", "history")
    found[v["name"]] = {"verdict": "record", **texts, "token": r["token"], "ttl_ms": r["ttl_ms"], "meta": r.get("meta") or {},
        "unknown": sorted(n for n in r if n not in known), "patience_ms": -1 if wait == math.inf else math.floor(wait * 1000 + 1e-6)}
print(json.dumps(found))
`

// TestVectorsInPython: leasehold.py makes of docs/format/vectors.json what this library makes of it.
func TestVectorsInPython(t *testing.T) {
	t.Parallel()
	const path = "../../docs/format/vectors.json"
	cmd := exec.CommandContext(t.Context(), python(t), "-c", vectorScript, path)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+examples(t), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil {
		failed, _ := errors.AsType[*exec.ExitError](err)
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	type means struct {
		Verdict, State, Holder, Session, Successor, Ended, Kind string

		WriteID string            `json:"write_id"`
		Token   int64             `json:"token"`
		TTL     int64             `json:"ttl_ms"`
		Wait    int64             `json:"patience_ms"`
		Meta    map[string]string `json:"meta"`
		Unknown []string          `json:"unknown"`
	}
	var got map[string]means
	var file struct {
		Vectors []struct {
			Name    string
			ReadAs  string `json:"read_as"`
			Verdict string
			Means   means
		}
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(json.Unmarshal(text, &file), json.Unmarshal(out, &got))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Vectors {
		if v.ReadAs != "object" {
			continue
		}
		is, there := got[v.Name]
		delete(got, v.Name)
		v.Means.Verdict = v.Verdict
		if v.Verdict == "moved" {
			v.Means.Verdict = "foreign" // it does not know moves, and leaves them alone
		}
		if v.Means.Verdict == "foreign" && is.Kind != "" {
			is.Kind = ""
		}
		if len(is.Meta) == 0 {
			is.Meta = nil
		}
		if len(is.Unknown) == 0 {
			is.Unknown = nil
		}
		if !there || !reflect.DeepEqual(is, v.Means) {
			t.Errorf("%s: leasehold.py finds %+v, and this library %+v", v.Name, is, v.Means)
		}
	}
	if len(got) > 0 || len(file.Vectors) < 60 {
		t.Errorf("%d vectors, and of none of these: %v", len(file.Vectors), got)
	}
}
