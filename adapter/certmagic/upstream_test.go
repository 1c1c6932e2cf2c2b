package leasecertmagic_test

import (
	"testing"

	"github.com/leasehold/leasehold/internal/adaptertest"
)

// TestRow runs certmagic's own tests of, and on, a storage with this one, in a directory.
func TestRow(t *testing.T) {
	up := adaptertest.Upstream{
		Package: "github.com/caddyserver/certmagic",
		Files:   map[string]string{"filestorage.go": "testdata/filestorage.go", "open_test.go": "testdata/open_test.go"},
		Run: "^Test(FileStorage.*|SaveAccount|GetAccount.*|GetEmail.*|SaveCertResource|RenewLockLease.*|RenewCertObtains.*|" +
			"LoadCertResource.*|LoadFirstUsable.*|GetCertificateSkips.*|GetCertificateHonors.*|LocalCache.*|WarmLocalCache|" +
			"QueueRenewal.*|StapleOCSP.*|HTTPChallengeHandlerNoOp)$",
		LeftOut: map[string]string{
			"TestGetEmailFromRecent":             "it changes the times of certmagic's own directories, which the adapter does not use",
			"TestRenewLockLeaseWithoutInterface": "it tests a storage whose locks have no leases",
		},
	}
	results := up.Test(t)
	adaptertest.Row{
		Module: "github.com/caddyserver/certmagic", Ran: results.Ran, Passed: results.Passed, LeftOut: up.LeftOut,
		Long: "storage 86; certificate authority for its tests 46; the rest is for values over 1 MiB, directories in a store without them, and locks known only by name",
	}.Check(t)
}
