package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/servers"
)

// TestManyLeases: a process that holds many leases under one session sends its
// heartbeat and nothing else. The test measures its memory and its use of a processor.
func TestManyLeases(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *servers.Server) {
		n, ttl, lasts := 200, 6*time.Second, 20*time.Second
		if *long && server.Name == "minio" {
			n, ttl, lasts = 10_000, protocol.DefaultTTL, 10*time.Minute
		}
		holder := lodge(t, server, server.Bucket(t), tenancy{Holder: "holder", Locks: n, TTL: ttl})
		before := holder.do(t, "look")
		rss := holder.rss(t)
		acquired := holder.do(t, "hold")
		if len(acquired.Leases) != n {
			t.Fatalf("%d leases", len(acquired.Leases))
		}
		from, cpu := clock.Now(), holder.cpu(t)
		time.Sleep(lasts)
		to, cpu := clock.Now(), holder.cpu(t)-cpu
		var beats []time.Duration
		for _, r := range holder.since(from) {
			if r.method != http.MethodPut || r.key != acquired.Session {
				t.Errorf("%v was sent", r)
			}
			if r.at < to {
				beats = append(beats, r.at)
			}
		}
		least, most := time.Hour, time.Duration(0)
		for i := 1; i < len(beats); i++ {
			least, most = min(least, beats[i]-beats[i-1]), max(most, beats[i]-beats[i-1])
		}
		if want := int((to - from) / protocol.Renewal(ttl)); len(beats) < want-1 || len(beats) > want+1 {
			t.Errorf("%d heartbeats in %v, not %d", len(beats), to-from, want)
		}
		after := holder.do(t, "look")
		if after.Valid != n {
			t.Errorf("%d of %d leases are valid", after.Valid, n)
		}
		lease, total := (after.Heap-before.Heap)/n, holder.rss(t)
		if *long && n == 10_000 && lease >= 1<<10 {
			t.Errorf("a lease takes %d bytes", lease)
		}
		end := holder.do(t, "end")
		ends := holder.since(end.At)
		if len(ends) > 2 { // a heartbeat may have been on its way
			t.Errorf("the end of the session cost %d requests", len(ends))
		}
		t.Logf("figures: %s: %d leases acquired in %v; for %v: %d requests, %v to %v apart; %d bytes of heap a lease, %d goroutines before and %d after; "+
			"RSS %d KiB before and %d KiB after, %d bytes a lease; CPU %v a minute; closed in %v, by %d requests", server.Name,
			n, acquired.Took.Round(time.Millisecond), (to - from).Round(time.Millisecond), len(beats), least.Round(time.Millisecond), most.Round(time.Millisecond),
			lease, before.Goroutines, after.Goroutines, rss>>10, total>>10, (total-rss)/n,
			time.Duration(float64(cpu)*float64(time.Minute)/float64(to-from)).Round(time.Millisecond), end.Took.Round(time.Millisecond), len(ends))
	})
}

var rssLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// rss is the memory of the process in bytes.
func (l *lodger) rss(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := rssLine.FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmRSS in %s", text)
	}
	kib, _ := strconv.Atoi(string(m[1]))
	return kib << 10
}

// cpu is the time that the process has been on a processor.
func (l *lodger) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the name
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
