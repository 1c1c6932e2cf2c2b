package cli_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/servers"
)

// A store that goes away ends the lease and the command, but not the candidate:
// it leads again when the store is back.
func TestElectOutlivesOutage(t *testing.T) {
	t.Parallel()
	srv := servers.Start(t, "versitygw")
	base, query, _ := strings.Cut(srv.URL(srv.Bucket(t)), "?")
	candidate := clitest.Command(t, "", "elect", "--ttl", "1s", base+"/l?"+query, "--", "sh", "-c", "exec sleep 1000")
	candidate.Env = append(candidate.Env, srv.Env()...)
	h := clitest.Listen(t, candidate)
	h.Hear("leading ")
	srv.Stop()
	h.Hear("the lease was lost, and the command was ended")
	srv.Restart(t)
	h.Hear("leading ")
	if code := h.Stop(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
