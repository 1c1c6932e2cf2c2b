package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
)

// hostile sets the title of a terminal, clears it in two ways, and turns the direction of writing.
const hostile = "\x1b]0;owned\a\x1b[2J\u009b2J\x7f\u202etxt\u2066\u0085\r\nleasehold: forged\ttab"

// A recorder keeps what is written, and calls a function then.
type recorder struct {
	mu sync.Mutex
	strings.Builder
	then func()
}

func (r *recorder) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.then()
	return r.Builder.Write(text)
}

// Whatever a store has, no command prints anything that a terminal obeys, and no line that is not leasehold's own. The
// layout of a record used to get through, and JSON had all controls but the oldest.
func TestNothingHostileIsPrinted(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	write := func(key, text string) {
		t.Helper()
		text = strings.NewReplacer("HOSTILE", string(quoted), "NOW", now).Replace(text)
		if err = os.WriteFile(filepath.Join(dir, key), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const all = `"holder": HOSTILE, "address": HOSTILE, "layout": HOSTILE, "session": HOSTILE, "write_id": HOSTILE, "future": HOSTILE,
		"last_holder": HOSTILE, "last_address": HOSTILE, "meta": {HOSTILE: HOSTILE}, "acquired_at": "NOW", "renewed_at": "NOW", "expires_at": "NOW",
		"history": [{"term": 1, "token": 3, "holder": HOSTILE, "why": HOSTILE, "acquired_at": "NOW", "ended_at": "NOW"}]`
	write("held", `{"format": 1, "token": 7, "state": "held", "ttl_ms": 86400000, `+all+`}`)
	write("free", `{"format": 1, "token": 7, "state": "free", "ttl_ms": 15000, `+all+`}`)
	write("plain", `{"format": 1, "token": 7, "state": "held", "ttl_ms": 86400000, "holder": HOSTILE, "address": HOSTILE, "meta": {HOSTILE: HOSTILE}, "write_id": "a.1", "acquired_at": "NOW", "renewed_at": "NOW"}`)
	write("state", `{"format": 1, "token": 7, "state": HOSTILE, "ttl_ms": 15000, "holder": "", "write_id": "x"}`)
	write("moved", `{"format": 1, "token": 7, "state": "sealed", "layout": HOSTILE, "moved_to": HOSTILE, "holder": "", "ttl_ms": 15000, "write_id": "x"}`)
	write("table", `{"format": 1, "layout": "table", "size": 2, "token": 4, "write_id": HOSTILE, "holders": [{"id": "a", "holder": HOSTILE, "address": HOSTILE, "session": "sessions/a", "token": 3, "weight": 2}], "waiters": [{"id": "b", "holder": HOSTILE, "session": "sessions/b", "weight": 1}]}`)
	write("foreign", "\x1b[2J not a lock "+hostile)
	write("ключ\u202e\x1b[2J", `{"format": 1}`)
	locks, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	url := func(name string) string {
		u, err := urlOf("file://"+filepath.ToSlash(dir), name)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	commands := []string{"list PREFIX", "watch PREFIX/", "gc PREFIX"}
	for _, l := range locks {
		for _, c := range []string{"status LOCK", "history LOCK", "watch LOCK", "shards LOCK", "acquire --wait 0 LOCK", "move LOCK LOCK.moved", "break LOCK"} {
			commands = append(commands, strings.ReplaceAll(c, "LOCK", url(l.Name())))
		}
	}
	seen := 0
	for _, c := range commands {
		c = strings.ReplaceAll(c, "PREFIX", "file://"+filepath.ToSlash(dir))
		for _, o := range []string{"-o text", "-o json", "-v"} {
			ctx, cancel := context.WithCancel(t.Context())
			name, rest, _ := strings.Cut(c, " ")
			then := func() {}
			if name == "watch" {
				then = cancel // it goes on and on
			}
			late := time.AfterFunc(300*time.Millisecond, cancel) // where it shows nothing
			out, talk := &recorder{then: then}, &recorder{then: then}
			args := strings.Fields(name + " " + o + " " + rest)
			exec(ctx, args, out, talk)
			late.Stop()
			cancel()
			for _, text := range []string{out.String(), talk.String()} {
				if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("leasehold %s prints %q", strings.Join(args, " "), text[max(0, i-60):min(len(text), i+60)])
				}
				if strings.Contains(text, "\nleasehold: forged") {
					t.Errorf("leasehold %s prints a stranger's line: %q", strings.Join(args, " "), text)
				}
				seen += strings.Count(text, "owned")
			}
		}
	}
	if seen < 50 {
		t.Errorf("hostile text was printed %d times: the records are not what they are meant to be", seen)
	}
}
