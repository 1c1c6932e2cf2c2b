package azstore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

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

// TestInspection: what no lock does.
func TestInspection(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		client := newContainer(t, srv)
		st := open(t, srv, client)
		look, ctx := st.Inspect(), t.Context()
		if _, errs := settingsOf(ctx, look); len(errs) != 1 || errs["versioning"] == nil {
			t.Errorf("before a write: %v", errs)
		}
		o, err := st.Put(ctx, "kept", []byte("x"), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		values, errs := settingsOf(ctx, look)
		if len(errs) > 0 || len(values) != 5 {
			t.Errorf("%q, %v", values, errs)
		}
		for name, value := range values {
			if value != "" {
				t.Errorf("%s: %q", name, value)
			}
		}
		for _, key := range []string{"scratch/a", "scratch/b", "scratchy"} {
			for range 2 {
				if err = look.Overwrite(ctx, key, []byte(key)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err = look.DeleteIf(ctx, "scratchy", o.Version); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a delete of another version: %v", err)
		}
		requests, err := look.Purge(ctx, "scratch")
		if err != nil || requests < 4 {
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

		// A SAS of the container tells nothing of the account.
		poor, err := azstore.New(signed(t, srv, client, host(srv), full, time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, errs := settingsOf(ctx, poor.Inspect()); !errors.Is(errs["soft delete"], store.ErrDenied) || strings.Contains(errs["soft delete"].Error(), "sig=") {
			t.Errorf("with a SAS: %v", errs)
		}
	})
}

// What Azure says and the emulator does not: versions, and policies of the container and the account.
func TestSettingsOfAzure(t *testing.T) {
	var mu sync.Mutex
	var deleted []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		query := r.URL.Query()
		switch what := r.Method + " " + query.Get("restype") + " " + query.Get("comp"); {
		case r.Method == http.MethodPut:
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("X-Ms-Version-Id", "v1")
			w.WriteHeader(http.StatusCreated)
		case r.Method == http.MethodDelete:
			deleted = append(deleted, r.URL.Path+"?"+query.Get("versionid"))
			w.WriteHeader(http.StatusAccepted)
		case what == "GET container list":
			items := `<Blob><Name>d/a</Name><VersionId>v1</VersionId></Blob><Blob><Name>d/a</Name><VersionId>v2</VersionId><IsCurrentVersion>true</IsCurrentVersion></Blob>`
			if len(deleted) > 0 {
				items = ""
			}
			if query.Get("include") != "versions" || query.Get("prefix") != "d/" {
				t.Errorf("it asks for %s", r.URL)
			}
			fmt.Fprintf(w, `<?xml version="1.0"?><EnumerationResults><Blobs>%s</Blobs><NextMarker/></EnumerationResults>`, items)
		case what == "GET container ":
			w.Header().Set("X-Ms-Has-Immutability-Policy", "true")
			w.Header().Set("X-Ms-Has-Legal-Hold", "true")
		case what == "GET service properties" && r.URL.Path == "/acct/":
			fmt.Fprint(w, `<?xml version="1.0"?><StorageServiceProperties><DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days></DeleteRetentionPolicy></StorageServiceProperties>`)
		case query.Get("comp") == "properties" && query.Get("restype") == "account":
			w.Header().Set("X-Ms-Is-Hns-Enabled", "true")
		default:
			t.Errorf("it sends %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(srv.Close)
	st, err := azstore.New(srv.URL+"/acct/container?sig=hunter2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = st.Put(t.Context(), "k", []byte("x"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	values, errs := settingsOf(t.Context(), st.Inspect())
	for name, want := range map[string]string{
		"versioning": "enabled", "retention": "a policy of immutability keeps every blob as it is", "holds": "a legal hold keeps every blob as it is",
		"soft delete": "what is overwritten or deleted is kept for 7 days", "hierarchical namespace": "enabled",
	} {
		if values[name] != want || errs[name] != nil {
			t.Errorf("%s: %q, %v, want %q", name, values[name], errs[name], want)
		}
	}
	requests, err := st.Inspect().Purge(t.Context(), "d")
	slices.Sort(deleted)
	if want := []string{"/acct/container/d/a?", "/acct/container/d/a?v1"}; err != nil || requests != 4 || !slices.Equal(deleted, want) {
		t.Errorf("%d requests, %v; deleted were %q", requests, err, deleted)
	}
}

// inside is a store of a server in this process.
func inside(t *testing.T, answer http.HandlerFunc) *azstore.Store {
	t.Helper()
	return newStore(t, "http://account.example", func(o *azstore.Options) {
		o.Prefix, o.Transport = "p", &http.Client{Transport: wiretest.Direct{Server: answer}}
	})
}

// TestSettingsThatAreNotTold: a setting that is not there has no value, and one that may not be asked for says why.
func TestSettingsThatAreNotTold(t *testing.T) {
	const unwritten = `inspect "versioning": store unavailable: nothing was written yet, whose answer would tell`
	for _, c := range []struct {
		status int
		body   string
		want   [5]string
	}{
		{200, `<StorageServiceProperties/>`, [5]string{unwritten}},
		{200, `<StorageServiceProperties><DeleteRetentionPolicy><Enabled>false</Enabled><Days>7</Days></DeleteRetentionPolicy></StorageServiceProperties>`, [5]string{unwritten}},
		{403, "", [5]string{
			unwritten,
			`inspect "container": access denied: 403 Forbidden, without a body`, `inspect "container": access denied: 403 Forbidden, without a body`,
			`inspect "soft delete": access denied: 403 Forbidden, without a body`, `inspect "hierarchical namespace": access denied: 403 Forbidden, without a body`,
		}},
	} {
		st := inside(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		})
		for i, set := range st.Inspect().Settings(t.Context()) {
			got := set.Value
			if set.Err != nil {
				got += set.Err.Error()
			}
			if name := []string{"versioning", "retention", "holds", "soft delete", "hierarchical namespace"}[i]; set.Name != name || got != c.want[i] {
				t.Errorf("%d %s: %s is %q, want that %s is %q", c.status, c.body, set.Name, got, name, c.want[i])
			}
		}
	}
}

// TestPurge: it deletes version after version until there are none, and gives up where they come back or may not go.
func TestPurge(t *testing.T) {
	blobs := func(n int) string {
		return "<Blobs>" + strings.Repeat("<Blob><Name>p/d/a</Name><VersionId>v1</VersionId></Blob>", n) + "</Blobs>"
	}
	for name, c := range map[string]struct {
		pages    []string // the last again and again
		deletes  int      // the status
		requests int
		deleted  int
		err      string
	}{
		"nothing":                {[]string{blobs(0)}, 202, 1, 0, ""},
		"no blobs at all":        {[]string{""}, 202, 1, 0, ""},
		"pages":                  {[]string{blobs(2) + "<NextMarker>m</NextMarker>", "<NextMarker>m</NextMarker>", blobs(1), blobs(0)}, 202, 7, 3, ""},
		"others delete them too": {[]string{blobs(20), blobs(0)}, 404, 22, 20, ""},
		"they come back":         {[]string{blobs(1)}, 202, 16, 8, `delete "d": store unavailable: versions come back when they are deleted`},
		"they may not go":        {[]string{blobs(1)}, 403, 2, 1, `delete "d/a": access denied: 403 BlobNotFound: words`},
	} {
		var mu sync.Mutex
		lists, deleted := 0, 0
		st := inside(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodDelete {
				deleted++
				w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
				w.WriteHeader(c.deletes)
				fmt.Fprint(w, "<Error><Message>words</Message></Error>")
				return
			}
			text := c.pages[min(lists, len(c.pages)-1)]
			lists++
			fmt.Fprintf(w, "<EnumerationResults>%s</EnumerationResults>", text)
		})
		requests, err := st.Inspect().Purge(t.Context(), "d")
		if requests != c.requests || deleted != c.deleted || fmt.Sprint(err) != cmp.Or(c.err, "<nil>") {
			t.Errorf("%s: %d requests, %d deleted, %v; want %d, %d, %s", name, requests, deleted, err, c.requests, c.deleted, c.err)
		}
	}
	st := inside(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if n, err := st.Inspect().Purge(t.Context(), "d"); n != 1 || err == nil || err.Error() != `list "d": access denied: 403 Forbidden, without a body` {
		t.Errorf("where nothing may be listed: %d requests, %v", n, err)
	}
}

// TestInspectionErrors: what no lock does fails as what a lock does.
func TestInspectionErrors(t *testing.T) {
	var requests []string
	st := inside(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match"))
		w.WriteHeader(http.StatusForbidden)
	})
	look := st.Inspect()
	checkError(t, "delete", look.DeleteIf(t.Context(), "k", `"v1"`), store.ErrDenied)
	checkError(t, "put", look.Overwrite(t.Context(), "k", nil), store.ErrDenied)
	wantKind(t, "delete", look.DeleteIf(t.Context(), "k.", `"v1"`), store.ErrInvalid)
	wantKind(t, "put", look.Overwrite(t.Context(), "k.", nil), store.ErrInvalid)
	if want := []string{`DELETE /account/container/p/k "v1"`, "PUT /account/container/p/k "}; !slices.Equal(requests, want) {
		t.Errorf("it sends %q, want %q", requests, want)
	}
}

func TestPolicy(t *testing.T) {
	st, err := azstore.New("https://acct.blob.core.windows.net/container?sig=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	const blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"
	for operations, want := range map[string][]string{
		"get put list": {blobs + "read", blobs + "write"},
		"delete":       {blobs + "delete"},
		"large":        {blobs + "read", blobs + "write"},
	} {
		text, err := st.Policy(strings.Fields(operations)...)
		var role struct{ DataActions []string }
		if err != nil || json.Unmarshal([]byte(text), &role) != nil || !slices.Equal(role.DataActions, want) {
			t.Errorf("%s: %s, %v, want %q", operations, text, err, want)
		}
	}
	for _, wrong := range [][]string{nil, {"write"}} {
		if text, err := st.Policy(wrong...); !errors.Is(err, store.ErrInvalid) || text != "" {
			t.Errorf("%q: %s, %v", wrong, text, err)
		}
	}
}
