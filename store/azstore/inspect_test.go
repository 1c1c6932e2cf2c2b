package azstore_test

import (
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
