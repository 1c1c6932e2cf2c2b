//go:build unix

package serve_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/internal/servetest"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestClientsLose: when the server is gone, or the lease is lost, a client kills its command before the end that it was
// told, and says so by its code.
func TestClientsLose(t *testing.T) {
	t.Parallel()
	servetest.EachClient(t, func(t *testing.T, kind string) {
		s := servetest.Start(t, memstore.New(), 0, 15*time.Second)
		proxy := servers.StartProxy(t, "http://"+s.Address, nil)
		through := strings.TrimPrefix(proxy.Endpoint, "http://")
		holds, lasts := filepath.Join(t.TempDir(), "holds"), filepath.Join(t.TempDir(), "lasts")
		var said bytes.Buffer
		cmd := servetest.Client(t, kind, through, []string{"LEASEHOLD_TTL=4s"}, "k", "sh", "-c", "echo >"+holds+"; while :; do date +%s%N >"+lasts+".new; mv "+lasts+".new "+lasts+"; sleep 0.02; done")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		servetest.Await(t, holds)
		time.Sleep(1500 * time.Millisecond) // a keepalive or two
		proxy.Hang()
		cut := time.Now()
		err := cmd.Wait()
		if took := time.Since(cut); cmd.ProcessState.ExitCode() != 76 || took > 5*time.Second || !strings.Contains(said.String(), "the lease is lost") {
			t.Errorf("after %v it ended with %v: %s", took, err, said.String())
		}
		text, err := os.ReadFile(lasts)
		if err != nil {
			t.Fatal(err)
		}
		var last int64
		if _, err := fmt.Sscan(string(text), &last); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		// It was told of 4 s when it was heard of last, which was before the cut.
		if late := time.Unix(0, last).Sub(cut.Add(4 * time.Second)); late > 0 {
			t.Errorf("its command worked %v after the end that it was told", late)
		}
		proxy.Restore(t)
		s.Halt()
	})
}
