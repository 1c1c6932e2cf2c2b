// Package cli_test has the command leasehold go through leases that end: processes are killed
// and stopped, and others take over, in real time.
package cli_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait for leases to end
		panic(err)
	}
	os.Exit(clitest.Build(m))
}

func TestScripts(t *testing.T) {
	t.Parallel()
	clitest.Scripts{Dir: filepath.Join("testdata", "script"), Way: leasetest.Object}.Run(t)
}

// TestLayouts runs these scripts, and all tests of the command, over the other ways to store locks. It is not
// parallel, as its leases are short.
func TestLayouts(t *testing.T) {
	for _, way := range leasetest.Ways[1:] {
		t.Run(way.String(), func(t *testing.T) {
			t.Run("scripts", func(t *testing.T) {
				clitest.Scripts{Dir: filepath.Join("testdata", "script"), Way: way}.Run(t)
			})
			test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./cmd/leasehold")
			test.Dir = clitest.Root
			test.Env = append(os.Environ(), "LEASEHOLD_LAYOUT="+string(way.Layout))
			if way.NoIfMatch {
				test.Env = append(test.Env, "LEASEHOLD_TEST_NO_IF_MATCH=true")
			}
			if out, err := test.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
