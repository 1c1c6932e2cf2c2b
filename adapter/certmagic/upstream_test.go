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
			"TestGetEmailFromRecent":             "it sets the times of certmagic's directories by hand, which here are not where it looks",
			"TestRenewLockLeaseWithoutInterface": "it is about a storage whose locks have no leases",
		},
	}
	results := up.Test(t)
	adaptertest.Row{
		Module: "github.com/caddyserver/certmagic", Ran: results.Ran, Passed: results.Passed, LeftOut: up.LeftOut,
		Long: "86 of the storage, 46 of a certificate authority for its tests; the others are values over 1 MiB, directories in a store that has none, and locks by their names alone",
	}.Check(t)
}
