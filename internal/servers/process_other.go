//go:build !linux

package servers

import "os/exec"

// startTied starts the process. Only Linux can tie its life to ours; elsewhere
// a server outlives a test process that is killed.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }
