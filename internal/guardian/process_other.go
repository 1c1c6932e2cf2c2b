//go:build !linux && !darwin && !windows

package guardian

import (
	"errors"
	"os"
	"runtime"
	"time"
)

// Main does nothing here: there is no guardian.
func Main() {}

// A Process is a command under a guardian. There is none on this platform.
type Process struct{}

// Start fails on this platform.
func Start(Options) (*Process, error) {
	return nil, errors.New("running a command under a lease is not supported on " + runtime.GOOS)
}

func (*Process) Means() string          { return "" }
func (*Process) Extend(time.Duration)   {}
func (*Process) Stop()                  {}
func (*Process) Signal(os.Signal) error { return os.ErrProcessDone }
func (*Process) Wait() Status           { return Status{} }
func (*Process) Done() <-chan struct{}  { return nil }
