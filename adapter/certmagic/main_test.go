package leasecertmagic_test

import (
	"testing"

	"go.uber.org/goleak"
)

// What starts servers keeps a thread for as long as the process runs.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}
