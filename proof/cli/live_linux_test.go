package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
)

// A lock on a terminal: what happens to it is shown, in whatever size the terminal has, and a
// key ends it.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := "file://" + dir
	v := clitest.OnTerminal(t, store, 60, nil, "watch", "l")
	at := v.Shows(t, 0, `file:///.*state    .*absent`)
	holder := clitest.Command(t, store, "run", "--holder", "first\x1b[2J", "--ttl", "3s", "l", "--", "sh", "-c", "read line")
	release, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, at, `elected .*"first\\x1b\[2J"`)
	v.Shows(t, at, `state    .*held`)
	at = v.Shows(t, at, `lease    .*3s, ~?[123]s left`)
	v.Resize(t, 10, 30)
	at = v.Shows(t, at, `\x1b\[H\x1b\[2J\x1b\[1;1H\x1b\[2K[^\n]*file:///.{20,}…`)
	_ = release.Close()
	_ = holder.Wait() // read fails at the end of its input
	at = v.Shows(t, at, `state    .*free`)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	at = v.Shows(t, at, `store    .*no such`)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	v.Shows(t, at, `store    .*answered 0s ago`)
	v.Press(t, "q")
	v.Ends(t, 0)
}
