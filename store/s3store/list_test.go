package s3store_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// A directory is a server with a directory bucket: it lists in the order in which it
// was given its keys, two on a page, and knows no start-after, and no prefix that does
// not end in a slash.
type directory struct {
	keys    []string
	body    string // of each
	denies  string // the page that begins there
	queries []url.Values
}

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("list-type") == "" {
		w.Header().Set("ETag", `"v"`)
		_, _ = fmt.Fprint(w, d.body)
		return
	}
	d.queries = append(d.queries, query)
	prefix := query.Get("prefix")
	if query.Has("start-after") || prefix != "" && !strings.HasSuffix(prefix, "/") {
		http.Error(w, "not for directory buckets", http.StatusBadRequest)
		return
	}
	if token := query.Get("continuation-token"); token != "" && token == d.denies {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	from := 0
	_, _ = fmt.Sscan(query.Get("continuation-token"), &from)
	to := min(from+2, len(d.keys))
	p := page{IsTruncated: to < len(d.keys), NextContinuationToken: fmt.Sprint(to)}
	for _, key := range d.keys[from:to] {
		if strings.HasPrefix(key, prefix) {
			p.Contents = append(p.Contents, object{Key: key, ETag: `"v"`, Size: 1})
		}
	}
	_ = xml.NewEncoder(w).Encode(p)
}

func (d *directory) store(t *testing.T) *s3store.Store {
	t.Helper()
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	st, err := s3store.New(client(server.URL, func(o *s3.Options) {
		o.HTTPClient, o.DisableS3ExpressSessionAuth = server.Client(), aws.Bool(true)
	}), "bucket--use1-az4--x-s3", &s3store.Options{Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// It used to be refused, because it has no order.
func TestListOfDirectoryBucket(t *testing.T) {
	d := &directory{keys: []string{"p/b/2", "p/a", "p/b/10", "p/b/", "q/z", "p/b/1", "p/b.x", "p/b0"}}
	st := d.store(t)
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", []string{"a", "b.x", "b/1", "b/10", "b/2", "b0"}},
		{"b/", "", []string{"b/1", "b/10", "b/2"}},
		{"b", "b/1", []string{"b/10", "b/2", "b0"}},
		{"b/1", "", []string{"b/1", "b/10"}},
		{"nothing/", "", nil},
	} {
		if got, err := drain(t.Context(), st, c.prefix, c.after); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("List %q after %q gives %q, %v; want %q", c.prefix, c.after, got, err, c.want)
		}
	}
	for entry, err := range st.List(t.Context(), "", "") {
		if entry.Key != "a" || err != nil {
			t.Errorf("List begins with %q, %v", entry.Key, err)
		}
		break
	}
	d.denies = "4"
	if got, err := drain(t.Context(), st, "", ""); !errors.Is(err, store.ErrDenied) || len(got) > 0 {
		t.Errorf("List of which a page is denied gives %q, %v", got, err)
	}
	d.denies, d.queries = "", nil
	if _, err := drain(t.Context(), st, "", ""); err != nil || len(d.queries) != 4 {
		t.Errorf("4 pages took %d requests, %v", len(d.queries), err)
	}
}

// The layout with epochs finds the highest one, wherever it is listed.
func TestEpochsInDirectoryBucket(t *testing.T) {
	d := &directory{body: `{"format":1,"token":5,"state":"free","ttl_ms":15000,"write_id":"x.1","layout":"epochs"}`}
	for _, n := range []int{7, 3, 12, 5, 11, 2, 9} {
		d.keys = append(d.keys, "p/"+layout.EpochKey("jobs/backup", int64(n)))
	}
	e := layout.Epochs{Store: d.store(t), Key: "jobs/backup"}
	for range len(d.keys) {
		d.keys = append(d.keys[1:], d.keys[0])
		if s, err := e.Look(t.Context(), ""); err != nil || s.Record.Epoch != 12 {
			t.Errorf("of %q the highest is said to be %d, %v", d.keys, s.Record.Epoch, err)
		}
	}
}
