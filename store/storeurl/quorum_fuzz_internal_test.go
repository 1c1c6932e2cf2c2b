package storeurl

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// FuzzQuorumFile: whatever a file of quorums has, it is refused as a bad URL, in a line without what may be a secret, or
// its members are words of one line.
func FuzzQuorumFile(f *testing.F) {
	f.Add("main s3://a s3://b?region=eu-central-1 gs://c\n# more\nother file:///a file:///b file:///c\n")
	f.Add("main\n")
	f.Add("main s3://a\nmain s3://b\n")
	f.Add("s3://user:hunter2@a\n")
	f.Fuzz(func(t *testing.T, text string) {
		members, err := membersIn(text, "FILE", &url.URL{Scheme: "quorum", Host: "main", Path: "/"})
		if err != nil {
			if !errors.Is(err, ErrURL) || len(members) > 0 {
				t.Errorf("%q, %v", members, err)
			}
			return
		}
		if len(members) == 0 || !strings.Contains(text, "main") {
			t.Errorf("the members are %q", members)
		}
		for _, m := range members {
			if m == "" || strings.ContainsAny(m, " \t\r\n") {
				t.Errorf("a member is %q", m)
			}
		}
	})
}
