//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A ballot is an election among processes of the command. Each job notes when it
// began and ends with its process.
type ballot struct {
	site
	log        string
	candidates []*run
}

// electionTTL leaves a leader that does not renew its lease the time for what the tests
// do with it.
var electionTTL = func() time.Duration {
	if !renewals() {
		return 10 * time.Second
	}
	return 3 * time.Second
}()

func (b *ballot) join(t *testing.T) {
	t.Helper()
	job := fmt.Sprintf(`echo "${LEASEHOLD_TOKEN-none} $(date +%%s.%%N) $PPID" >>%q; while :; do sleep 0.05; done`, b.log)
	r := start(t, b.env, "elect", "-q", "--ttl", electionTTL.String(), "--grace", "200ms", b.url, "--", "sh", "-c", job)
	b.candidates = append(b.candidates, r)
}

// A beginning is one line of the log: a leader's job began.
type beginning struct {
	token    leasehold.Token
	at       time.Time
	guardian int
}

// begun waits for the n-th beginning.
func (b *ballot) begun(t *testing.T, n int) beginning {
	t.Helper()
	var line string
	until(t, fmt.Sprintf("leader %d begins", n), func() bool {
		text, _ := os.ReadFile(b.log)
		lines := strings.SplitAfter(string(text), "\n")
		if len(lines) <= n { // the last element is what follows the last line
			return false
		}
		line = lines[n-1]
		return true
	})
	words := strings.Fields(line)
	seconds, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	guardian, _ := strconv.Atoi(words[2])
	return beginning{parseToken(t, words[0]), time.UnixMicro(int64(seconds * 1e6)), guardian}
}

// leader finds the process that leads: the parent of the watcher of the guardian of the
// job.
func (b *ballot) leader(t *testing.T, begin beginning) *run {
	t.Helper()
	i := slices.IndexFunc(b.candidates, func(r *run) bool { return r.Process.Pid == parent(t, parent(t, begin.guardian)) })
	if i < 0 {
		t.Fatalf("the leader with token %v is none of the candidates", begin.token)
	}
	return b.candidates[i]
}

// renewed is when the record was last written, by the clock of this machine, which
// is that of all candidates too.
func (b *ballot) renewed(t *testing.T) time.Time {
	t.Helper()
	r := start(t, b.env, "status", "--output", "json", b.url)
	if code := r.code(t); code != 0 {
		t.Fatalf("status: %s", &r.stderr)
	}
	var record struct {
		RenewedAt time.Time `json:"renewed_at"`
	}
	if err := json.Unmarshal(r.stdout.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	return record.RenewedAt
}

// drop removes a candidate that has ended.
func (b *ballot) drop(r *run) {
	b.candidates = slices.DeleteFunc(b.candidates, func(c *run) bool { return c == r })
}

// TestFailover: the leader's process is killed, again and again, and the time from
// its last renewal to the beginning of the next leader's job is measured. That is a
// promise that rests on a clock, so it is checked here although it takes time.
func TestFailover(t *testing.T) {
	t.Parallel()
	rounds := 3
	switch {
	case *long:
		rounds = 30
	case testing.Short():
		rounds = 1
	}
	sites(t, func(t *testing.T, at site) {
		b := &ballot{site: at, log: filepath.Join(t.TempDir(), "log")}
		for range 3 {
			b.join(t)
		}
		var took []time.Duration
		last := b.begun(t, 1)
		for n := range rounds {
			b.settle(t, n)
			leader := b.leader(t, last)
			_ = leader.Process.Signal(syscall.SIGKILL)
			<-leader.done
			b.drop(leader)
			renewed := b.renewed(t)
			next := b.begun(t, n+2)
			if !later(next.token, last.token) {
				t.Errorf("token %v after %v", next.token, last.token)
			}
			took = append(took, next.at.Sub(renewed))
			last = next
			if n < rounds-1 { // the last one would have no time to begin
				b.join(t)
			}
		}
		slices.Sort(took)
		t.Logf("%d failovers with TTL %v: median %v, worst %v", rounds, electionTTL, took[rounds/2], took[rounds-1])
		limit := protocol.Patience(electionTTL)
		if !renewals() { // then the store's clock decides
			limit = protocol.Stale(electionTTL)
		}
		if limit += time.Second; *long && took[rounds-1] > limit {
			t.Errorf("the worst is over TTL + margin + 1 s = %v", limit)
		}
		b.stop(t)
	})
}

// settle waits for a few renewals, so that followers know when they come; how many
// differs, so that the kill comes at another moment each time.
func (b *ballot) settle(t *testing.T, n int) {
	t.Helper()
	if !renewals() {
		return
	}
	for range 2 {
		before := b.renewed(t)
		until(t, "the leader renews", func() bool { return b.renewed(t).After(before) })
	}
	time.Sleep(time.Duration(n*137%1000) * time.Millisecond)
}

func (b *ballot) stop(t *testing.T) {
	t.Helper()
	for _, r := range b.candidates {
		_ = r.Process.Signal(syscall.SIGTERM)
	}
	for _, r := range b.candidates {
		if code := r.code(t); code != 128+int(syscall.SIGTERM) {
			t.Errorf("a candidate ended with code %d: %s", code, &r.stderr)
		}
	}
}

// TestResignation: a leader that is told to end releases its lease, and the next one
// begins within a look.
func TestResignation(t *testing.T) {
	t.Parallel()
	sites(t, func(t *testing.T, at site) {
		b := &ballot{site: at, log: filepath.Join(t.TempDir(), "log")}
		for range 3 {
			b.join(t)
		}
		last := b.begun(t, 1)
		var took []time.Duration
		rounds := 2
		if testing.Short() {
			rounds = 1
		}
		for n := range rounds {
			b.settle(t, n)
			leader := b.leader(t, last)
			asked := time.Now()
			_ = leader.Process.Signal(syscall.SIGTERM)
			last = b.begun(t, n+2)
			took = append(took, last.at.Sub(asked))
			<-leader.done
			b.drop(leader)
		}
		t.Logf("next leader %v after SIGTERM, TTL %v", took, electionTTL)
		b.stop(t)
	})
}
