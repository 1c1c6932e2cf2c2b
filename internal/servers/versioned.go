package servers

import (
	"os"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// StartVersioned is like Start, for a server whose buckets can keep earlier versions of
// objects. Buckets from [Server.VersionedBucket] do so.
func StartVersioned(t testing.TB, name string) *Server {
	t.Helper()
	if name != "versitygw" {
		return Start(t, name)
	}
	path := binary(t, name)
	return start(t, name, listsBuckets, func(port *port, dir string) command {
		past := dir + "-versions"
		if err := os.MkdirAll(past, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := pinned[name].command(path, port.addr, dir)
		cmd.args = slices.Insert(cmd.args, len(cmd.args)-1, "--versioning-dir", past)
		return cmd
	})
}

// VersionedBucket is like Bucket, with versioning switched on.
func (s *Server) VersionedBucket(t testing.TB) string {
	t.Helper()
	bucket := s.Bucket(t)
	_, err := s.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket:                  &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatalf("%s: switch on the versioning of %s: %v\n%s", s.Name, bucket, err, s.out.String())
	}
	return bucket
}
