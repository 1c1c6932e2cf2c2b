// Package testenv prepares the process of a test. Importing it makes tests faster.
package testenv

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// Tests make much garbage and keep little of it. With a heap of a few megabytes, the default would
// have them spend a fifth of their time in the collector.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// Each client of S3 would parse all the certificates in it, of which no test's server has one.
	if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
		panic(err)
	}
}

// Signals keeps what this process starts from ignoring SIGHUP, SIGINT and SIGQUIT, as it would under nohup and in the
// background of a script. Call it before the first test, and not in a process whose handling of signals is tested.
func Signals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // a handler does not outlive an exec
		}
	}
}
