package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/s3store"
)

var update = flag.Bool("update", false, "probe the stores of docs/stores one after the other, at full length, and write the reports")

// probed are the reports in docs/stores that tests can make, and the stores they are about.
var probed = []struct {
	name  string
	place func(t *testing.T) place
}{
	{"minio", func(t *testing.T) place { return bucketOf(t, servers.Start(t, "minio"), (*servers.Server).Bucket) }},
	{"minio-versioned", func(t *testing.T) place {
		return bucketOf(t, servers.StartVersioned(t, "minio"), (*servers.Server).VersionedBucket)
	}},
	{"versitygw", func(t *testing.T) place { return bucketOf(t, servers.Start(t, "versitygw"), (*servers.Server).Bucket) }},
	{"versitygw-versioned", func(t *testing.T) place {
		return bucketOf(t, servers.StartVersioned(t, "versitygw"), (*servers.Server).VersionedBucket)
	}},
	{"gofakes3", func(t *testing.T) place { return bucketOf(t, servers.Start(t, "gofakes3"), (*servers.Server).Bucket) }},
	{"gofakes3-versioned", func(t *testing.T) place {
		return bucketOf(t, servers.StartVersioned(t, "gofakes3"), (*servers.Server).VersionedBucket)
	}},
	{"directory", directory},
	{servers.GCS, func(t *testing.T) place {
		server := servers.StartGCS(t)
		return place{open: opens(server.GCSURL(server.GCSBucket(t)))}
	}},
	{"azurite", func(t *testing.T) place {
		server := servers.StartAzurite(t)
		at := server.Endpoint + "/" + server.Container(t)
		return place{open: func(t *testing.T) store.Store { return azuriteStore(t, server, at) }}
	}},
	{"create-only", func(t *testing.T) place {
		return bucketOf(t, servers.Start(t, servers.CreateOnly), (*servers.Server).Bucket)
	}},
	{"s3rver", func(t *testing.T) place { return bucketOf(t, servers.StartS3rver(t), (*servers.Server).Bucket) }},
}

func directory(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	return place{open: func(t *testing.T) store.Store {
		t.Helper()
		st, err := filestore.New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

// bucketOf gives a bucket behind a proxy that counts; directly, where time is measured.
func bucketOf(t *testing.T, server *servers.Server, newBucket func(*servers.Server, testing.TB) string) place {
	t.Helper()
	bucket, endpoint := newBucket(server, t), server.Endpoint
	var requests func() map[string]int
	if !*update {
		proxy := servers.StartProxy(t, endpoint, nil)
		endpoint, requests = proxy.Endpoint, proxy.Counts
	}
	return place{requests: requests, open: func(t *testing.T) store.Store {
		t.Helper()
		st, err := s3store.New(server.ClientAt(endpoint), bucket, nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

// TestStores: every store that tests can start is what docs/stores says it is. A probe
// makes the requests that it tells of, not more than it said before, and leaves nothing.
func TestStores(t *testing.T) {
	if underTest != leasetest.Object {
		t.Skip("the same in every layout: it is about stores")
	}
	// With -update one after the other, or each would measure what the others leave it.
	if !*update {
		t.Parallel()
	}
	for _, of := range probed {
		t.Run(of.name, func(t *testing.T) {
			if !*update {
				t.Parallel()
			}
			p := of.place(t)
			r := probeAt(t, p)
			path := filepath.Join("..", "..", "docs", "stores", of.name+".json")
			if *update {
				keep(t, path, r)
				return
			}
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			kept, err := probe.ReadReport(file)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if said := differences(kept, r, of.name); said != nil {
				t.Errorf("%s says otherwise:\n%s\nIf it is the store that has changed: "+
					"go -C proof test ./e2e -run TestStores -update -timeout 30m && go run ./internal/stores", path, strings.Join(said, "\n"))
			}
		})
	}
}

// quick is how many races there are in the usual run, which looks for what has
// changed; the reports that are kept are of the full number.
const quick = 100

// probeAt probes the place, and checks what the probe did against what it says.
func probeAt(t *testing.T, p place) *probe.Report {
	t.Helper()
	st := p.open(t)
	opts := &probe.Options{Open: func(context.Context) (store.Store, error) { return p.open(t), nil }}
	if !*update {
		opts.Races = quick
	}
	r, err := probe.Run(t.Context(), st, opts)
	if err != nil {
		t.Fatal(err)
	}
	said := r.Requests.Total()
	t.Logf("figures: %d requests in %v", said, r.Took.Duration())
	if said > opts.Requests() {
		t.Errorf("%d requests, more than the %d that were announced", said, opts.Requests())
	}
	if p.requests != nil {
		came := 0
		for _, n := range p.requests() {
			came += n
		}
		if came != said {
			t.Errorf("%d requests came, %v; the report tells of %d, %+v", came, p.requests(), said, r.Requests)
		}
	}
	if r.Left > 0 {
		t.Errorf("%d objects are said to be left", r.Left)
	}
	for e, err := range st.List(t.Context(), "", "") {
		t.Errorf("left behind: %q, %v", e.Key, err)
	}
	return r
}

// chance are the findings that come out now so, now so, of one store or of any ("").
var chance = map[string][]string{
	"": {
		"answers that were none",             // a server that has too much to do says so
		"this machine's clock",               // a short probe may not find out how fast it runs
		"delete on a condition",              // races decide, and no lock rests on it
		"listings of more than 1000 objects", // a short probe does not make as many
	},
	"s3rver": {
		"bodies come back as they were written", // it empties an object before it writes it anew
		"raced objects, seconds later",          // its races may leave none
	},
}

// differences tells in what two reports of a store differ, but for figures, and for what
// could not be found out from a server that had too much to do to answer.
func differences(kept, now *probe.Report, of string) (said []string) {
	busy := now.Finding("answers that were none").Result != probe.OK
	open := busy && slices.ContainsFunc(now.Findings, func(f probe.Finding) bool {
		return f.Result == probe.Unknown && kept.Finding(f.Name).Result != probe.Unknown
	})
	passed := slices.Concat(chance[""], chance[of])
	var names []string
	for _, f := range kept.Findings { // an older report does not have those of newer experiments
		if !slices.Contains(names, f.Name) && !slices.Contains(passed, f.Name) {
			names = append(names, f.Name)
		}
	}
	for _, name := range names {
		if was, is := kept.Finding(name), now.Finding(name); was.Result != is.Result && (!busy || is.Result != probe.Unknown) {
			said = append(said, fmt.Sprintf("%q was %s (%s) and is %s (%s)", name, was.Result, was.Detail, is.Result, is.Detail))
		}
	}
	for _, use := range probe.Uses() {
		was, is := kept.Proves(kept.Store, use), now.Proves(now.Store, use)
		if (was == nil) != (is == nil) && (!open || is == nil) {
			said = append(said, fmt.Sprintf("for %s it was: %v; and is: %v", use, was, is))
		}
	}
	return said
}

// keep writes the report as leasehold doctor prints it, but for the names that are new in
// each run.
func keep(t *testing.T, path string, r *probe.Report) {
	t.Helper()
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.Store)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer(u.Path, "/srv/locks")
	if u.Scheme != "file" {
		endpoint, err := url.Parse(u.Query().Get("endpoint"))
		if err != nil {
			t.Fatal(err)
		}
		names = strings.NewReplacer(u.Host, "bucket", endpoint.Host, "127.0.0.1:9000", url.QueryEscape(endpoint.Host), url.QueryEscape("127.0.0.1:9000"))
	}
	if err := os.WriteFile(path, []byte(names.Replace(string(body))+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
