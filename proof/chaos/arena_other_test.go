//go:build !linux

package chaos_test

import "errors"

const arenaVariable, notPermitted = "CHAOS_ARENA", 77

func furnish() error { return errors.New("there are namespaces on Linux only") }
