package conformance_test

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/conformance"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store/storeurl"
)

// asSubject has this process be a command that says one line.
const asSubject = "CONFORMANCE_TEST_SAYS"

func TestMain(m *testing.M) {
	if line := os.Getenv(asSubject); line != "" {
		fmt.Println(line)
		return
	}
	os.Exit(m.Run())
}

// TestNoSubject: a command that is no subject breaks the rule of the line protocol in every case,
// and the cases end. Module integration puts whole implementations through all cases.
func TestNoSubject(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	bucket := srv.Bucket(t)
	for _, v := range srv.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	st, err := storeurl.Open(t.Context(), srv.URL(bucket+"/some/prefix"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(srv.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	results, err := conformance.Run(t.Context(), conformance.Options{
		Store: st, Endpoint: endpoint, Bucket: bucket, Prefix: "some/prefix/", Command: []string{self},
		Env: append(conformance.Environ(), append(srv.Env(), asSubject+"=hello")...), Run: regexp.MustCompile("^free-"), Parallel: 2,
	})
	if err != nil || len(results) != 2 {
		t.Fatalf("%v, %v", results, err)
	}
	for _, r := range results {
		if r.Passed || len(r.Failures) != 1 || r.Failures[0].Rule != "L1" {
			t.Errorf("%s: %+v", r.Case, r.Failures)
		}
	}
}
