// Package testenv prepares the process of a test: import it for its effect.
package testenv

import (
	"os"
	"runtime/debug"
)

// Tests make much garbage and keep little of it. With a heap of a few megabytes, the default would
// have them spend a fifth of their time in the collector.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
