// Package longtest leaves tests that take long out of the everyday loop, go test ./...
//
// They are run where LEASEHOLD_TEST_LONG=1 is in the environment, as internal/testall and
// proof have it, and where -run says which tests are wanted. Where internal/testall
// wants them, it takes such a skip for a failure in CI.
package longtest

import (
	"flag"
	"os"
	"testing"
)

// variable asks for the long tests.
const variable = "LEASEHOLD_TEST_LONG"

const (
	// Without is what leaves them out in the environment of a process.
	Without = variable + "="

	// LeftOut begins the reason of each that is.
	LeftOut = "left out of the everyday loop"
)

// Only is what a long test calls first: it is skipped unless long tests are wanted.
func Only(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip(LeftOut + ": " + variable + "=1 runs it, and so does -run with its name")
	}
}

// Wanted reports whether long tests are to be run. It is for when flags have been parsed.
func Wanted() bool {
	run := flag.Lookup("test.run")
	return os.Getenv(variable) == "1" || run != nil && run.Value.String() != ""
}

// Short reports that a test is to do less than it can: with -short, and in the everyday loop.
func Short() bool { return testing.Short() || !Wanted() }

// Want asks for the long tests in all processes that this one starts.
func Want() error { return os.Setenv(variable, "1") }
