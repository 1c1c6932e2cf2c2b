//go:build !linux

package servers

import (
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// stopped waits until the child has stopped.
func stopped(pid int) error {
	for {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // it takes a moment
		if err != nil || strings.HasPrefix(string(state), "T") {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// startTied starts the process. Only Linux can tie its life to ours. On other systems, a server
// outlives a killed test process.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }
