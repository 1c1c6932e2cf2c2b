package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/internal/testenv"
)

func TestMain(m *testing.M) {
	guardian.Main()
	_ = os.Unsetenv("LEASEHOLD_TEST_NO_IF_MATCH") // which clitest has read, and the command does not know
	testscript.Main(patient{m}, map[string]func(){"leasehold": main, "ends-early": endsEarly})
}

// patient are tests of which more are run at a time than there are cores: they wait for
// processes, and these for each other.
type patient struct{ *testing.M }

func (p patient) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testenv.Signals()
	return p.M.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	clitest.Scripts{Dir: filepath.Join("testdata", "script")}.Run(t)
}

// TestScriptsWithServer runs those that need a server. Others are run by module integration, on
// real servers too.
func TestScriptsWithServer(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest.NoIfMatch {
		t.Skip("module integration runs these over this layout")
	}
	srv := servers.Start(t, "gofakes3")
	t.Run("gofakes3", func(t *testing.T) { // the server is stopped when all have ended
		clitest.Scripts{Dir: filepath.Join("testdata", "server"), Setup: clitest.Bucket(t, srv)}.Run(t)
	})
}
