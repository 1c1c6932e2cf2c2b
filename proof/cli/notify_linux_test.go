package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clitest"
)

// A candidate tells its manager of its campaign, of the leader that it follows, of its own
// leadership, and of its end; and its command does not get to speak for it.
func TestElectNotifies(t *testing.T) {
	t.Parallel()
	store := "file://" + t.TempDir()
	leader := clitest.Command(t, store, "elect", "--ttl", "2s", "--holder", "a", "l", "--", "sleep", "1000")
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leader.Process.Kill() })
	clitest.AwaitHolder(t, store, "a")

	m := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	out := filepath.Join(t.TempDir(), "env")
	candidate := m.Start(store, []string{"WATCHDOG_USEC=200000"}, "elect", "--ttl", "2s", "--holder", "b", "l", "--", "sh", "-c", `env > "$0"; exec sleep 1000`, out)
	// It may have seen the leader before it says that it is ready.
	m.Seen = append(m.Hear("READY=1"), m.Seen...)
	m.Hear(`STATUS=following in l, led by a(, token \d+)?`)
	m.Hear("WATCHDOG=1")
	_ = leader.Process.Kill()
	_ = leader.Wait()
	m.Hear(`STATUS=leading l as b(, token \d+)?`)
	m.Hear("WATCHDOG=1")
	var env []byte
	for end := time.Now().Add(time.Minute); len(env) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		env, _ = os.ReadFile(out)
	}
	if text := string(env); !strings.Contains(text, "LEASEHOLD_LOCK=") || strings.Contains(text, "NOTIFY_SOCKET") || strings.Contains(text, "WATCHDOG") {
		t.Errorf("the command has this environment:\n%s", text)
	}
	if err := candidate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.Hear("STOPPING=1")
}

// A candidate whose store fails for longer than a TTL is unfit, and says so where it is asked; it
// is fit again as soon as the store works.
func TestElectUnfit(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	works.Store(true)
	st := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && works.Load():
			w.Header().Set("ETag", `"1"`)
		case works.Load():
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		}
	}))
	defer st.Close()
	m := clitest.Manage(t, filepath.Join(t.TempDir(), "n"))
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	m.Start("", []string{"WATCHDOG_USEC=100000", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_EC2_METADATA_DISABLED=true"},
		"elect", "--ttl", "1s", "--http", address, "s3://bucket/l?endpoint="+st.URL, "--", "sleep", "1000")
	m.Hear("STATUS=leading .*")
	m.Hear("WATCHDOG=1")
	works.Store(false)
	clitest.AwaitAnswer(t, address, "/healthz", 503, `the store has failed for \d+s, which is longer than the TTL of 1s`)
	clitest.AwaitAnswer(t, address, "/readyz", 503, `the store has failed .*`)
	clitest.AwaitAnswer(t, address, "/leader", 200, `{"name":"","leading":false,.*}`)
	clitest.AwaitAnswer(t, address, "/metrics", 200, `(?s).*leasehold_losses_total{[^}]*} 1\n.*leasehold_healthy{[^}]*} 0\n.*leasehold_store_trouble{[^}]*} 1\n.*`)
	m.Hear("STATUS=candidate for .*, no leader is known; the store has failed since .*")
	works.Store(true)
	clitest.AwaitAnswer(t, address, "/healthz", 200, "ok")
	m.Hear("WATCHDOG=1")
}
