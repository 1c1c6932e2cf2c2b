// Package s3lect has the API and the file format of the package s3lect of
// Nadrama, now of Podplane, and elects by the protocol of package leasehold. A
// program that was written for that package compiles with this one when its import
// path is changed, and instances of both can run side by side while it is rolled
// out; docs/s3lect.md has the steps.
//
//	elector, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Config: &s3lect.ElectorConfig{
//		LockfilePath: "s3://bucket/leader/my-group.json",
//		ServerID:     "server-001",
//		ServerAddr:   "10.0.1.42:8443",
//	}})
//	err = elector.Start(ctx)
//	err = elector.WaitForLeadership(ctx)
//
// # The guarantee, and its limit
//
// They are those of package leasehold: at most one [S3Elector] of a lockfile is the
// leader at any instant, as long as no clock involved runs more than a twelfth
// faster or slower than real time; the clocks need not agree on the time. A request
// that is already on its way when leadership ends is stopped by nothing. As long as
// an instance of the original package runs too, there is no such guarantee: it
// believes in wall clocks, and goes on leading when it cannot renew.
//
// # The lockfile
//
// The object has the three fields of the original, and in a fourth the record that
// leasehold itself goes by:
//
//	{"leaderID": "server-001", "leaderAddr": "10.0.1.42:8443",
//	 "lastUpdated": "2026-11-20T10:30:45Z", "leasehold": {…}}
//
// The original ignores the fourth, and drops it when it takes over. An object that
// neither package has written is never written over.
//
// # The health endpoint
//
// Followers in peer mode ask the leader itself over HTTPS. It answers in a server of
// its own ([NewHealthServer]) or in one that there is ([NewLeadershipHandler]).
package s3lect
