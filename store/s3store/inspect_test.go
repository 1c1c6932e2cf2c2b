package s3store_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// TestInspection: what no lock does, on buckets that keep past versions.
func TestInspection(t *testing.T) {
	t.Parallel()
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartVersioned(t, name)
			bucket := server.VersionedBucket(t)
			st, err := s3store.New(server.Client(), bucket, &s3store.Options{Prefix: "locks"})
			if err != nil {
				t.Fatal(err)
			}
			look := st.Inspect()
			ctx := t.Context()
			for _, key := range []string{"scratch/a", "scratch/b", "scratchy", "kept"} {
				for range 2 {
					if err = look.Overwrite(ctx, key, []byte(key+"x")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err = st.Delete(ctx, "scratch/b"); err != nil {
				t.Fatal(err)
			}
			for _, set := range look.Settings(ctx) {
				switch {
				case set.Err != nil:
					t.Logf("%s: %v", set.Name, set.Err)
				case set.Name == "versioning" && set.Value != "enabled":
					t.Errorf("versioning is %q", set.Value)
				case set.Name == "noncurrent versions" && (strings.HasPrefix(set.Value, "0") || strings.Contains(set.Value, "and 0 ")):
					t.Errorf("there are %s", set.Value)
				}
			}
			requests, err := look.Purge(ctx, "scratch")
			if err != nil || requests < 2 {
				t.Errorf("%d requests, %v", requests, err)
			}
			out, err := server.Client().ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &bucket})
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Versions) != 4 || len(out.DeleteMarkers) != 0 {
				t.Errorf("%d versions and %d marks are left", len(out.Versions), len(out.DeleteMarkers))
			}
			for _, v := range out.Versions {
				if strings.HasPrefix(*v.Key, "locks/scratch/") {
					t.Errorf("%s is left", *v.Key)
				}
			}
			o, err := st.Get(ctx, "kept", "")
			if err != nil {
				t.Fatal(err)
			}
			if err = look.DeleteIf(ctx, "kept", o.Version); err != nil {
				t.Error(err)
			}
			if _, err = st.Get(ctx, "kept", ""); !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// TestUnquotedETags: versions go out without their quotes, and are else what they were.
func TestUnquotedETags(t *testing.T) {
	t.Parallel()
	server := servers.Start(t, "gofakes3")
	var sent []string
	proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Alter: func(r *http.Request) {
		if v := r.Header.Get("If-Match"); v != "" {
			sent = append(sent, v)
		}
	}})
	st, err := s3store.New(server.ClientAt(proxy.Endpoint), server.Bucket(t), &s3store.Options{UnquotedETags: true})
	if err != nil {
		t.Fatal(err)
	}
	o, err := st.Put(t.Context(), "k", []byte("1"), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	if o.Version[0] != '"' || o.Version != st.VersionOf([]byte("1")) {
		t.Errorf("the version is %s", o.Version)
	}
	if _, err = st.Put(t.Context(), "k", []byte("2"), store.IfMatch(o.Version)); err != nil {
		t.Error(err)
	}
	if want := strings.Trim(string(o.Version), `"`); len(sent) != 1 || sent[0] != want {
		t.Errorf("%q was sent, not %q", sent, want)
	}
	if !strings.Contains(st.String(), "unquoted_etags=true") || st.Inspect().Unquoted() != nil {
		t.Error(st.String())
	}
}
