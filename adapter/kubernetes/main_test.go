package leasekubernetes_test

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/leasehold/leasehold/internal/adaptertest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"))
}

// TestRow: client-go's own tests, of the interface and of the elector, pass on the adapter's lock.
func TestRow(t *testing.T) {
	const client = "k8s.io/client-go/tools/leaderelection"
	row := adaptertest.Row{Module: "k8s.io/client-go", Long: "lock 148, elector that ends with the lease 78", LeftOut: map[string]string{
		"TestTryAcquireOrRenewLeases":               "it scripts the API server's answers about a holder, such as a lease of 0 s; leasehold decides itself whether a holder has died",
		"TestTryCoordinatedRenew":                   "a coordinated election needs the API server",
		"TestUpdateError":                           "Update works without a Get before it: it acquires the lock or returns the holder",
		"TestDescribe":                              "this lock's description is a URL",
		"TestLabelUpdate, TestUpdateWithNilLabels…": "the lock has no labels",
	}}
	for _, u := range []adaptertest.Upstream{{
		Package: client + "/resourcelock",
		Files:   map[string]string{"leaselock.go": "testdata/leaselock.go", "leasehold_test.go": "testdata/resourcelock.go"},
		Run:     "^Test(GetError|Get|RecordEventSuccess|RecordEventNilRecorder|CreateError)$",
	}, {
		Package: client,
		Files:   map[string]string{"resourcelock/leaselock.go": "testdata/leaselock.go", "leasehold_test.go": "testdata/leaderelection.go"},
		Run:     "^Test(Release.*|FastPathLeaderElection|CheckMethodRace)$",
	}} {
		u.Dir = "testdata/upstream"
		results := u.Test(t)
		row.Ran, row.Passed = append(row.Ran, results.Ran...), row.Passed+results.Passed
	}
	row.Check(t)
}
