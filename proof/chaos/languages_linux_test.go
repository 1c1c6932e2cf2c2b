package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
)

// languages is how many processes want the lock in TestLanguages, half of them in Python.
const languages = 16

// TestLanguages attacks processes of two implementations that want one lock: leasehold run, and Python that keeps to
// docs/format.md. Nobody may work beside the holder, whichever language it speaks, and tokens grow. It takes 20 s, and with
// -long, on MinIO, so long as that says, in which each kind of fault must be reached.
func TestLanguages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: 20 s of attacks")
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("there is no python3 here")
	}
	interpreter := strings.TrimSpace(string(out))
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples", "python"))
	if err != nil {
		t.Fatal(err)
	}
	worker, err := filepath.Abs(filepath.Join("testdata", "worker.py"))
	if err != nil {
		t.Fatal(err)
	}
	c := contest{slots: 1, fleet: languages, tenants: "Python", argv: func(n int, url string) []string {
		if n%2 == 1 {
			return []string{interpreter, "-B", worker, examples, url}
		}
		return []string{
			os.Getenv(arenaVariable), "run", "--ttl", ttl.String(), "--grace", grace.String(), "--holder", fmt.Sprint("run", n), url, "--",
		}
	}}
	name := "gofakes3"
	c.lasts = 20 * time.Second
	if *long > 0 {
		name, c.lasts, c.hopeless = "minio", *long, 10*time.Minute
	}
	ahead(t, name)
	inArena(t, func(t *testing.T) {
		server := servers.Start(t, name)
		s, bucket := &site{t: t, server: server, keeps: name == "minio"}, server.Bucket(t)
		s.attack(c, server.Endpoint, server.Env(), func(endpoint string) string { return server.URLAt(endpoint, bucket+"/lock") })
	})
}
