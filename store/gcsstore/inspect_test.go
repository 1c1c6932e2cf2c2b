package gcsstore_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// versioned makes a bucket that keeps past versions.
func versioned(t *testing.T, endpoint string) (bucket string) {
	t.Helper()
	bucket = "test-" + strings.ToLower(rand.Text())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/storage/v1/b?project=test", strings.NewReader(`{"name":"`+bucket+`","versioning":{"enabled":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	return bucket
}

// settingsOf are the values and errors of the settings, by their names.
func settingsOf(ctx context.Context, look store.Inspection) (values map[string]string, errs map[string]error) {
	values, errs = map[string]string{}, map[string]error{}
	for _, set := range look.Settings(ctx) {
		if set.Err != nil {
			errs[set.Name] = set.Err
		} else {
			values[set.Name] = set.Value
		}
	}
	return values, errs
}

// TestInspection: what no lock does, in a bucket that keeps past versions.
func TestInspection(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		st := open(t, srv.Endpoint, versioned(t, srv.Endpoint))
		look, ctx := st.Inspect(), t.Context()
		for _, key := range []string{"scratch/a", "scratch/b", "scratchy", "kept"} {
			for range 2 {
				if err := look.Overwrite(ctx, key, []byte(key)); err != nil {
					t.Fatal(err)
				}
			}
		}
		values, errs := settingsOf(ctx, look)
		if len(errs) > 0 || values["versioning"] != "enabled" || values["retention"] != "" || values["noncurrent versions"] == "0" {
			t.Errorf("%q, %v", values, errs)
		}
		if look.Unquoted() != nil {
			t.Error("generations have no quotes")
		}

		o, err := st.Get(ctx, "kept", "")
		if err != nil {
			t.Fatal(err)
		}
		if err = look.DeleteIf(ctx, "kept", `"x"`); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a delete of a version of another store: %v", err)
		}
		if err = st.Delete(ctx, "scratch/b"); err != nil {
			t.Fatal(err)
		}
		requests, err := look.Purge(ctx, "scratch")
		if err != nil || requests < 2 {
			t.Errorf("%d requests, %v", requests, err)
		}
		var left []string
		for e, err := range st.List(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, e.Key)
		}
		if !slices.Equal(left, []string{"kept", "scratchy"}) {
			t.Errorf("%q are left", left)
		}
		if err = look.DeleteIf(ctx, "kept", o.Version); err != nil {
			t.Error(err)
		}
		if _, err = st.Get(ctx, "kept", ""); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("after a delete of its version: %v", err)
		}
	})
}

// The emulator overlooks the condition of a delete.
func TestDeleteIf(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete || r.URL.Path != "/storage/v1/b/bucket/o/some/prefix/key" || r.URL.RawQuery != "ifGenerationMatch=7" {
			t.Errorf("it asks for %s %s", r.Method, r.URL)
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		fmt.Fprint(w, `{"error":{"message":"At least one of the pre-conditions you specified did not hold.","errors":[{"reason":"conditionNotMet"}]}}`)
	}))
	t.Cleanup(srv.Close)
	if err := open(t, srv.URL, "bucket").Inspect().DeleteIf(t.Context(), "key", "7"); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("a delete of another version: %v", err)
	}
}

// TestPurge: it deletes version after version until there are none, and gives up where they come back or may not go.
func TestPurge(t *testing.T) {
	page := func(kind string, generations ...int) string {
		var items []string
		for _, g := range generations {
			items = append(items, fmt.Sprintf(`{"name":"some/prefix/d/a","generation":"%d"}`, g))
		}
		return fmt.Sprintf(`{"kind":"storage#objects",%s"items":[%s]}`, kind, strings.Join(items, ","))
	}
	const more = `"nextPageToken":"x",`
	for name, c := range map[string]struct {
		pages    []string // the last again and again
		deletes  int      // the status
		requests int
		deleted  int
		err      string
	}{
		"nothing":                {[]string{page("")}, 204, 1, 0, ""},
		"pages":                  {[]string{page(more, 1, 2), page(more, 3), page("", 4), page("", 5), page("", 6), page("", 7), page("")}, 204, 14, 7, ""},
		"others delete them too": {[]string{page("", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17), page("")}, 404, 19, 17, ""},
		"they come back":         {[]string{page(more, 1, 2)}, 204, 15, 10, `delete "d": store unavailable: versions come back when they are deleted`},
		"they may not go":        {[]string{page("", 1)}, 403, 2, 1, `delete "d/a": access denied: 403 notFound: Not Found`},
		"not to be listed":       {[]string{jsonError(403, "forbidden", "words")}, 204, 1, 0, `list "d/": access denied: 403 forbidden: words`},
		"no listing":             {[]string{"<html>Welcome!"}, 204, 1, 0, `list "d/": store unavailable: the answer is not what Google Cloud Storage says but "Welcome!": does the endpoint lead there?`},
	} {
		var mu sync.Mutex
		lists, deleted := 0, 0
		st, err := gcsstore.New(&http.Client{Transport: wiretest.Direct{Server: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			query := r.URL.Query()
			if r.Method == http.MethodDelete {
				deleted++
				if g := query.Get("generation"); r.URL.Path != "/storage/v1/b/bucket/o/some/prefix/d/a" || g == "" || strings.Contains(g, "0") != (g == "10") {
					t.Errorf("%s: it deletes %s", name, r.URL)
				}
				w.WriteHeader(c.deletes)
				if c.deletes > 299 {
					fmt.Fprint(w, jsonError(c.deletes, "notFound", "Not Found"))
				}
				return
			}
			if query.Get("prefix") != "some/prefix/d/" || query.Get("versions") != "true" {
				t.Errorf("%s: it lists %s", name, r.URL)
			}
			text := c.pages[min(lists, len(c.pages)-1)]
			if strings.Contains(text, "forbidden") {
				w.WriteHeader(http.StatusForbidden)
			}
			fmt.Fprint(w, text)
			lists++
		})}}, "bucket", &gcsstore.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		requests, err := st.Inspect().Purge(t.Context(), "d")
		if requests != c.requests || deleted != c.deleted || fmt.Sprint(err) != cmp.Or(c.err, "<nil>") {
			t.Errorf("%s: %d requests, %d deleted, %v; want %d, %d, %s", name, requests, deleted, err, c.requests, c.deleted, c.err)
		}
	}
}

// TestInspectionErrors: what no lock does fails as what a lock does.
func TestInspectionErrors(t *testing.T) {
	sent := 0
	look := direct(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, jsonError(403, "forbidden", "words"))
	}), nil).Inspect()
	wiretest.CheckError(t, "delete", look.DeleteIf(t.Context(), "k", "1"), store.ErrDenied)
	wiretest.CheckError(t, "put", look.Overwrite(t.Context(), "k", nil), store.ErrDenied)
	for _, set := range look.Settings(t.Context()) {
		want := `inspect "bucket": access denied: 403 forbidden: words`
		if set.Name == "noncurrent versions" {
			want = `list "": access denied: 403 forbidden: words`
		}
		if set.Value != "" || set.Err == nil || set.Err.Error() != want {
			t.Errorf("%s: %q, %v, want %s", set.Name, set.Value, set.Err, want)
		}
	}
	wiretest.CheckError(t, "delete", look.DeleteIf(t.Context(), "k", `"v1"`), store.ErrPrecondition)
	for op, err := range map[string]error{"delete": look.DeleteIf(t.Context(), "", "1"), "put": look.Overwrite(t.Context(), "", nil)} {
		if e, ok := errors.AsType[*store.Error](err); !ok || e.Op != op || e.Kind != store.ErrInvalid { //nolint:errorlint // the kind itself
			t.Errorf("%s of no key: %v", op, err)
		}
	}
	if sent != 4 {
		t.Errorf("%d requests, want 4", sent)
	}
}

// What Google Cloud Storage says of a bucket, which the emulator does not.
func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   map[string]string
		kind   error
	}{
		{200, `{"kind":"storage#bucket"}`, map[string]string{"versioning": "", "soft delete": "", "retention": "", "holds": "", "encryption": "", "lifecycle": ""}, nil},
		{
			200, `{"kind":"storage#bucket","versioning":{"enabled":true},"softDeletePolicy":{"retentionDurationSeconds":"604800"},
				"retentionPolicy":{"retentionPeriod":"90"},"defaultEventBasedHold":true,"encryption":{"defaultKmsKeyName":"k"},
				"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":3,"matchesPrefix":["a","b"]}},
				{"action":{"type":"Delete"},"condition":{"daysSinceNoncurrentTime":1}},{"action":{"type":"Delete"},"condition":{"isLive":false}},
				{"action":{"type":"Delete"},"condition":{"noncurrentTimeBefore":"2026-01-01","matchesPrefix":["c"]}},{"action":{"type":"Delete"},"condition":{"numNewerVersions":2,"matchesPrefix":["d"]}},
				{"action":{"type":"Delete"},"condition":{"isLive":true,"matchesPrefix":["e"]}},
				{"action":{"type":"AbortIncompleteMultipartUpload"},"condition":{"age":1}},{"action":{"type":"SetStorageClass"},"condition":{"age":1}}]}}`,
			map[string]string{
				"versioning": "enabled", "soft delete": "what is overwritten or deleted is kept for 7 days", "retention": "every object is kept for 1m30s",
				"holds": "every new object has one", "encryption": "k",
				"lifecycle": `objects under "a" expire; objects under "b" expire; noncurrent versions under "" expire; noncurrent versions under "" expire; noncurrent versions under "c" expire; noncurrent versions under "d" expire; objects under "e" expire; uploads under "" end`,
			},
			nil,
		},
		{
			200, `{"kind":"storage#bucket","softDeletePolicy":{"retentionDurationSeconds":"0"},"retentionPolicy":{"retentionPeriod":"1"}}`,
			map[string]string{"soft delete": "", "retention": "every object is kept for 1s"},
			nil,
		},
		{403, `{"error":{"message":"no storage.buckets.get","errors":[{"reason":"forbidden"}]}}`, nil, store.ErrDenied},
		{200, `<html>`, nil, store.ErrUnavailable},
		{200, `{"kind":"storage#object"}`, nil, store.ErrUnavailable},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/storage/v1/b/bucket/o" {
				fmt.Fprint(w, `{"kind":"storage#objects","nextPageToken":"x","items":[{"name":"a","timeDeleted":"2026-01-01T00:00:00Z"},{"name":"a"}]}`)
				return
			}
			if r.URL.Path != "/storage/v1/b/bucket" || r.URL.Query().Get("userProject") != "p" {
				t.Errorf("it asks for %s", r.URL)
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		}))
		st, err := gcsstore.New(&http.Client{Transport: transport(t)}, "bucket", &gcsstore.Options{Endpoint: srv.URL, UserProject: "p"})
		if err != nil {
			t.Fatal(err)
		}
		values, errs := settingsOf(t.Context(), st.Inspect())
		if got := values["noncurrent versions"]; got != "1 at least" {
			t.Errorf("noncurrent versions: %q", got)
		}
		for name, want := range tt.want {
			if values[name] != want || errs[name] != nil {
				t.Errorf("%s: %q, %v, want %q", name, values[name], errs[name], want)
			}
		}
		if tt.kind != nil && (!errors.Is(errs["versioning"], tt.kind) || !errors.Is(errs["lifecycle"], tt.kind)) {
			t.Errorf("after %d %s: %v", tt.status, tt.body, errs)
		}
		srv.Close()
	}
}

func TestPolicy(t *testing.T) {
	st, err := gcsstore.New(http.DefaultClient, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	for operations, want := range map[string][]string{
		"get put list":                   {"storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list"},
		"get":                            {"storage.objects.get", "storage.objects.list"},
		"delete":                         {"storage.objects.delete"},
		"large get delete put list list": {"storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list"},
	} {
		text, err := st.Policy(strings.Fields(operations)...)
		var role struct{ IncludedPermissions []string }
		if err != nil || json.Unmarshal([]byte(text), &role) != nil || !slices.Equal(role.IncludedPermissions, want) {
			t.Errorf("%s: %s, %v, want %q", operations, text, err, want)
		}
	}
	for _, wrong := range [][]string{nil, {"write"}} {
		if text, err := st.Policy(wrong...); !errors.Is(err, store.ErrInvalid) || text != "" {
			t.Errorf("%q: %s, %v", wrong, text, err)
		}
	}
}
