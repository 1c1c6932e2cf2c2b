package s3store_test

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
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

// answering is a store under the prefix "locks" of a server in this process.
func answering(t *testing.T, answer http.HandlerFunc) *s3store.Store {
	t.Helper()
	st, err := s3store.New(client("http://s3.example", func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: wiretest.Direct{Server: answer}}
	}), "bucket", &s3store.Options{Prefix: "locks"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestSettings: what S3 says of a bucket, and the servers here do not.
func TestSettings(t *testing.T) {
	type answers map[string]string // to a question of the query
	for name, c := range map[string]struct {
		status int
		says   answers
		want   [5]string // values, or errors that begin with "inspect"
	}{
		"nothing is set": {200, nil, [5]string{4: "0, and 0 marks of deletions"}},
		"all is set": {
			200,
			answers{
				"versioning":  `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`,
				"object-lock": `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>3</Days></DefaultRetention></Rule></ObjectLockConfiguration>`,
				"encryption": `<ServerSideEncryptionConfiguration><Rule><BucketKeyEnabled>true</BucketKeyEnabled></Rule>` +
					`<Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>`,
				"lifecycle": `<LifecycleConfiguration>` +
					`<Rule><Status>Disabled</Status><Expiration><Days>1</Days></Expiration></Rule>` +
					`<Rule><Status>Enabled</Status><Filter><Prefix>a/</Prefix></Filter><Expiration><Days>1</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays></NoncurrentVersionExpiration></Rule>` +
					`<Rule><Status>Enabled</Status><Expiration><Date>2026-01-01T00:00:00Z</Date></Expiration></Rule>` +
					`<Rule><Status>Enabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>` +
					`<Rule><Status>Enabled</Status><Filter/><AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>` +
					`</LifecycleConfiguration>`,
				"versions": `<ListVersionsResult><IsTruncated>true</IsTruncated><Version><Key>a</Key><IsLatest>true</IsLatest></Version>` +
					`<Version><Key>a</Key><IsLatest>false</IsLatest></Version><Version><Key>b</Key></Version><DeleteMarker><Key>b</Key></DeleteMarker></ListVersionsResult>`,
			},
			[5]string{
				"enabled", "every version is kept for 3 days (governance)", "aws:kms",
				`noncurrent versions under "a/" expire after 2 days; objects under "a/" expire; objects under "" expire; uploads under "" end after 7 days`,
				"2 at least, and 1 marks of deletions",
			},
		},
		"others": {
			200,
			answers{
				"versioning":  `<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>`,
				"object-lock": `<ObjectLockConfiguration><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Years>2</Years></DefaultRetention></Rule></ObjectLockConfiguration>`,
			},
			[5]string{"suspended", "every version is kept for 2 years (compliance)", 4: "0, and 0 marks of deletions"},
		},
		"a lock without a rule": {
			200,
			answers{"object-lock": `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>`},
			[5]string{1: "enabled", 4: "0, and 0 marks of deletions"},
		},
		"a rule without a retention": {
			200,
			answers{"object-lock": `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule/></ObjectLockConfiguration>`},
			[5]string{1: "enabled", 4: "0, and 0 marks of deletions"},
		},
		"a retention without an end": {
			200,
			answers{"object-lock": `<ObjectLockConfiguration><Rule><DefaultRetention><Mode>GOVERNANCE</Mode></DefaultRetention></Rule></ObjectLockConfiguration>`},
			[5]string{1: "governance", 4: "0, and 0 marks of deletions"},
		},
		"no configurations": {
			404,
			answers{
				"object-lock": xmlError("ObjectLockConfigurationNotFoundError", "none"),
				"encryption":  xmlError("ServerSideEncryptionConfigurationNotFoundError", "none"),
				"lifecycle":   xmlError("NoSuchLifecycleConfiguration", "none"),
				"versioning":  xmlError("NoSuchBucket", "none"),
				"versions":    xmlError("NoSuchBucket", "none"),
			},
			[5]string{
				`inspect "versioning": no such bucket or directory: 404 NoSuchBucket: none; make the bucket, or check its name and the endpoint`,
				4: `inspect "noncurrent versions": no such bucket or directory: 404 NoSuchBucket: none; make the bucket, or check its name and the endpoint`,
			},
		},
		"nothing may be asked": {
			403, nil,
			[5]string{
				`inspect "versioning": access denied: 403 Forbidden, without a body`,
				`inspect "object lock": access denied: 403 Forbidden, without a body`,
				`inspect "encryption": access denied: 403 Forbidden, without a body`,
				`inspect "lifecycle": access denied: 403 Forbidden, without a body`,
				`inspect "noncurrent versions": access denied: 403 Forbidden, without a body`,
			},
		},
	} {
		st := answering(t, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			if r.URL.Path != "/bucket" || query.Has("versions") != query.Has("prefix") || query.Has("prefix") && query.Get("prefix") != "locks/" {
				t.Errorf("it asks for %s", r.URL)
			}
			w.WriteHeader(c.status)
			for what, text := range c.says {
				if query.Has(what) {
					_, _ = io.WriteString(w, text)
				}
			}
		})
		for i, set := range st.Inspect().Settings(t.Context()) {
			got := set.Value
			if set.Err != nil {
				got += set.Err.Error()
			}
			if which := []string{"versioning", "object lock", "encryption", "lifecycle", "noncurrent versions"}[i]; set.Name != which || got != c.want[i] {
				t.Errorf("%s: %s is %q, want that %s is %q", name, set.Name, got, which, c.want[i])
			}
		}
	}
}

// TestPurge: it deletes version after version until there are none, and gives up on a server whose versions come back.
func TestPurge(t *testing.T) {
	page := func(from, to int, truncated bool) string {
		var b strings.Builder
		fmt.Fprintf(&b, "<ListVersionsResult><IsTruncated>%v</IsTruncated>", truncated)
		for i := from; i < to; i++ {
			what := "Version"
			if i == 1 {
				what = "DeleteMarker"
			}
			fmt.Fprintf(&b, "<%s><Key>locks/d/k%d</Key><VersionId>v%d</VersionId></%[1]s>", what, i, i)
		}
		return b.String() + "</ListVersionsResult>"
	}
	none, same := page(0, 0, false), page(0, 2, false)
	refused := `<DeleteResult><Error><Key>locks/d/k0</Key><VersionId>v0</VersionId><Message>it is locked</Message></Error></DeleteResult>`
	for name, c := range map[string]struct {
		pages    []string // the last again and again
		deletes  string   // what is answered to them
		requests int
		deleted  int
		err      string
	}{
		"nothing":             {[]string{none}, "", 1, 0, ""},
		"pages":               {[]string{page(0, 3, true), page(3, 5, false), none}, "", 5, 5, ""},
		"many pages":          {[]string{page(0, 2, true), page(0, 2, true), page(0, 2, true), page(0, 2, true), page(0, 2, true), page(0, 2, true), none}, "", 13, 12, ""},
		"less and less":       {[]string{page(0, 6, false), page(0, 5, false), page(0, 4, false), page(0, 3, false), page(0, 2, false), page(0, 1, false), none}, "", 13, 21, ""},
		"a page that is long": {[]string{page(0, 1001, false), none}, "", 4, 1001, ""},
		"they come back":      {[]string{same}, "", 8, 8, `delete "d": store unavailable: versions come back when they are deleted`},
		"one is locked":       {[]string{same}, refused, 2, 2, `delete "d": store unavailable: version v0 of "locks/d/k0": it is locked`},
		"none may be deleted": {[]string{same}, xmlError("AccessDenied", "no"), 2, 2, `delete "d": access denied: 403 AccessDenied: no`},
		"none may be listed":  {[]string{xmlError("AccessDenied", "no")}, "", 1, 0, `list "d": access denied: 403 AccessDenied: no`},
	} {
		lists, deleted := 0, 0
		st := answering(t, func(w http.ResponseWriter, r *http.Request) {
			text := c.deletes
			if r.Method == http.MethodPost {
				var in struct {
					Quiet  bool
					Object []struct {
						Key     string
						Version string `xml:"VersionId"`
					}
				}
				if err := xml.NewDecoder(r.Body).Decode(&in); err != nil || !in.Quiet || len(in.Object) > 1000 {
					t.Errorf("%s: %d objects, quiet: %v; %v", name, len(in.Object), in.Quiet, err)
				}
				for _, o := range in.Object {
					if deleted++; strings.TrimPrefix(o.Key, "locks/d/k") != strings.TrimPrefix(o.Version, "v") {
						t.Errorf("%s: it deletes %v", name, o)
					}
				}
			} else {
				if prefix := r.URL.Query().Get("prefix"); prefix != "locks/d/" {
					t.Errorf("%s: it lists %q", name, prefix)
				}
				text = c.pages[min(lists, len(c.pages)-1)]
				lists++
			}
			switch {
			case strings.Contains(text, "AccessDenied"):
				w.WriteHeader(http.StatusForbidden)
			case text == "":
				text = "<DeleteResult></DeleteResult>"
			}
			_, _ = io.WriteString(w, text)
		})
		requests, err := st.Inspect().Purge(t.Context(), "d")
		if requests != c.requests || deleted != c.deleted || fmt.Sprint(err) != cmp.Or(c.err, "<nil>") {
			t.Errorf("%s: %d requests, %d deleted, %v; want %d, %d, %s", name, requests, deleted, err, c.requests, c.deleted, c.err)
		}
	}
}

// TestInspectionErrors: what no lock does fails as what a lock does.
func TestInspectionErrors(t *testing.T) {
	var requests []string
	st := answering(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match"))
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, xmlError("AccessDenied", "no"))
	})
	look := st.Inspect()
	wiretest.CheckError(t, "delete", look.DeleteIf(t.Context(), "k", `"v1"`), store.ErrDenied)
	wiretest.CheckError(t, "delete", look.Unquoted().(*s3store.Store).DeleteIf(t.Context(), "k", `"v1"`), store.ErrDenied) //nolint:errcheck,forcetypeassert // it is one
	wiretest.CheckError(t, "put", look.Overwrite(t.Context(), "k", nil), store.ErrDenied)
	want := []string{`DELETE /bucket/locks/k "v1"`, `DELETE /bucket/locks/k v1`, `PUT /bucket/locks/k `}
	for op, err := range map[string]error{"delete": look.DeleteIf(t.Context(), "", `"v1"`), "put": look.Overwrite(t.Context(), "", nil)} {
		if e, ok := errors.AsType[*store.Error](err); !ok || e.Op != op || e.Kind != store.ErrInvalid { //nolint:errorlint // the kind itself
			t.Errorf("%s of no key: %v", op, err)
		}
	}
	if !slices.Equal(requests, want) {
		t.Errorf("it sends %q, want %q", requests, want)
	}
}
