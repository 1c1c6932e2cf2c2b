package gcsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var _ store.Inspector = (*Store)(nil)

// Inspect implements [store.Inspector]. Its settings need a permission locks do not need,
// storage.buckets.get, which the role Storage Legacy Bucket Reader
// (roles/storage.legacyBucketReader) has.
func (s *Store) Inspect() store.Inspection { return inspection{s} }

type inspection struct{ *Store }

// Unquoted returns nil, because generations are numbers.
func (i inspection) Unquoted() store.Store { return nil }

func (i inspection) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckKey("delete", key); err != nil {
		return err
	}
	if !isGeneration(v) {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrPrecondition, Cause: fmt.Errorf("%q is no generation of Google Cloud Storage", v)}
	}
	return i.remove(ctx, key, i.prefix+key, url.Values{"ifGenerationMatch": {string(v)}})
}

func (i inspection) remove(ctx context.Context, key, name string, query url.Values) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: key}, name: name, bucket: i.bucket}
	answer, err := i.do(ctx, c, i.request(http.MethodDelete, "/storage/v1/b/", name, query, nil))
	if err != nil {
		return c.fail(ctx, err)
	}
	return answer.Body.Close()
}

func (i inspection) Overwrite(ctx context.Context, key string, body []byte) error {
	if err := store.CheckKey("put", key); err != nil {
		return err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}, name: i.prefix + key, bucket: i.bucket}
	if _, err := i.insert(ctx, c, body, url.Values{}); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// A bucket is the part of the API's description of a bucket that matters here.
type bucket struct {
	Kind                  string
	Versioning            struct{ Enabled bool }
	SoftDeletePolicy      struct{ RetentionDurationSeconds json.Number }
	RetentionPolicy       struct{ RetentionPeriod json.Number }
	DefaultEventBasedHold bool
	Encryption            struct {
		DefaultKMSKeyName string `json:"defaultKmsKeyName"`
	}
	Lifecycle struct{ Rule []rule }
}

// A rule is a lifecycle rule of a bucket.
type rule struct {
	Action    struct{ Type string }
	Condition struct {
		Age                     *int
		IsLive                  *bool
		DaysSinceNoncurrentTime *int
		NoncurrentTimeBefore    string
		NumNewerVersions        *int
		MatchesPrefix           []string
	}
}

// Settings reads the bucket in one request, and a page of its noncurrent versions.
func (i inspection) Settings(ctx context.Context) []store.Setting {
	b, err := i.about(ctx)
	set := func(name, value string) store.Setting { return store.Setting{Name: name, Value: value, Err: err} }
	versioning, holds := "", ""
	if b.Versioning.Enabled {
		versioning = "enabled"
	}
	if b.DefaultEventBasedHold {
		holds = "every new object has one"
	}
	past, pastErr := i.past(ctx)
	return []store.Setting{
		set("versioning", versioning),
		set("soft delete", kept("what is overwritten or deleted", b.SoftDeletePolicy.RetentionDurationSeconds)),
		set("retention", kept("every object", b.RetentionPolicy.RetentionPeriod)),
		set("holds", holds),
		set("encryption", b.Encryption.DefaultKMSKeyName),
		set("lifecycle", lifecycle(b.Lifecycle.Rule)),
		{Name: "noncurrent versions", Value: past, Err: pastErr},
	}
}

func (i inspection) about(ctx context.Context) (*bucket, error) {
	c := &call{Call: exchange.Call{Op: "inspect", Key: i.bucket}}
	u := *i.endpoint
	u.Path, u.RawPath = "/storage/v1/b/"+i.bucket, "/storage/v1/b/"+url.PathEscape(i.bucket)
	if i.project != "" {
		u.RawQuery = url.Values{"userProject": {i.project}}.Encode()
	}
	b := &bucket{}
	answer, err := i.do(ctx, c, newRequest(http.MethodGet, &u, nil))
	if err != nil {
		return b, c.fail(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err = read(answer.Body, b); err == nil && b.Kind != "storage#bucket" {
		err = fmt.Errorf("the answer is no bucket of Google Cloud Storage but of the kind %q", b.Kind)
	}
	if err != nil {
		return &bucket{}, c.fail(ctx, err)
	}
	return b, nil
}

// kept describes for how long, or returns "" if not at all.
func kept(what string, seconds json.Number) string {
	n, err := seconds.Int64()
	if err != nil || n <= 0 {
		return ""
	}
	const day = 24 * time.Hour
	d := time.Duration(n) * time.Second
	if d%day == 0 {
		return fmt.Sprintf("%s is kept for %d days", what, d/day)
	}
	return fmt.Sprintf("%s is kept for %v", what, d)
}

// lifecycle describes the rules of a bucket that matter here.
func lifecycle(rules []rule) string {
	var does []string
	for _, r := range rules {
		prefixes := r.Condition.MatchesPrefix
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		for _, prefix := range prefixes {
			switch c := r.Condition; {
			case r.Action.Type == "AbortIncompleteMultipartUpload":
				does = append(does, fmt.Sprintf("uploads under %q end", prefix))
			case r.Action.Type != "Delete":
			case c.DaysSinceNoncurrentTime != nil || c.NoncurrentTimeBefore != "" || c.NumNewerVersions != nil || c.IsLive != nil && !*c.IsLive:
				does = append(does, fmt.Sprintf("noncurrent versions under %q expire", prefix))
			default:
				does = append(does, fmt.Sprintf("objects under %q expire", prefix))
			}
		}
	}
	return strings.Join(does, "; ")
}

// A version is an object in a listing of versions.
type version struct {
	Name        string
	Generation  string
	TimeDeleted string // "" for the current version
}

// versions reads a page of all versions of the objects whose names begin with prefix.
func (i inspection) versions(ctx context.Context, prefix string) (items []version, more bool, err error) {
	c := &call{Call: exchange.Call{Op: "list", Key: prefix}}
	query := url.Values{"prefix": {i.prefix + prefix}, "versions": {"true"}, "maxResults": {"1000"}, "fields": {"kind,nextPageToken,items(name,generation,timeDeleted)"}}
	answer, err := i.do(ctx, c, i.request(http.MethodGet, "/storage/v1/b/", "", query, nil))
	if err != nil {
		return nil, false, c.fail(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	var page struct {
		Items         []version
		NextPageToken string
	}
	if err = read(answer.Body, &page); err != nil {
		return nil, false, c.fail(ctx, err)
	}
	return page.Items, page.NextPageToken != "", nil
}

// past describes how many noncurrent versions are on one page.
func (i inspection) past(ctx context.Context) (string, error) {
	items, more, err := i.versions(ctx, "")
	if err != nil {
		return "", err
	}
	n := 0
	for _, v := range items {
		if v.TimeDeleted != "" {
			n++
		}
	}
	if more {
		return fmt.Sprintf("%d at least", n), nil
	}
	return fmt.Sprint(n), nil
}

// Purge deletes all versions. Soft-deleted objects expire by themselves.
func (i inspection) Purge(ctx context.Context, directory string) (requests int, err error) {
	const again = 4 // how often a page may begin like the one before
	var first version
	for stuck := 0; stuck < again; {
		requests++
		items, _, err := i.versions(ctx, directory+"/")
		if err != nil || len(items) == 0 {
			return requests, err
		}
		requests += len(items)
		if err = inParallel(items, func(v version) error {
			failed := i.remove(ctx, strings.TrimPrefix(v.Name, i.prefix), v.Name, url.Values{"generation": {v.Generation}})
			if errors.Is(failed, store.ErrNotExist) {
				return nil
			}
			return failed
		}); err != nil {
			return requests, err
		}
		if items[0] == first {
			stuck++
		}
		first = items[0]
	}
	return requests, &store.Error{Op: "delete", Key: directory, Kind: store.ErrUnavailable, Cause: errors.New("versions come back when they are deleted")}
}

// inParallel calls f for all elements, several at a time, and joins the errors.
func inParallel[T any](all []T, f func(T) error) (err error) {
	const abreast = 16
	for some := range slices.Chunk(all, abreast) {
		errs := make(chan error)
		for _, one := range some {
			go func() { errs <- f(one) }()
		}
		for range some {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// permissions are what the operations need, in the order of error messages.
var permissions = []struct {
	operation string
	needs     []string
}{
	// Without list, Google Cloud Storage responds with 403 for an object that does not exist.
	{"get", []string{"storage.objects.get", "storage.objects.list"}},
	// An overwrite deletes the previous object.
	{"put", []string{"storage.objects.create", "storage.objects.delete"}},
	{"list", []string{"storage.objects.list"}},
	{"delete", []string{"storage.objects.delete"}},
	{"large", []string{"storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list"}},
}

// Policy returns the smallest custom role of Google Cloud, as indented JSON, that allows these
// store operations: "get", "put", "list" and "delete" are the methods of [store.Store], "large"
// is [store.Large]. Create it with "gcloud iam roles create ID --project=PROJECT --file=FILE",
// and bind it to the bucket. The error matches [store.ErrInvalid] if there are no operations or
// an unknown one.
func (s *Store) Policy(operations ...string) (string, error) {
	var needs, known []string
	for _, p := range permissions {
		known = append(known, p.operation)
		if slices.Contains(operations, p.operation) {
			needs = append(needs, p.needs...)
		}
	}
	for _, operation := range operations {
		if !slices.Contains(known, operation) {
			return "", fmt.Errorf("gcsstore: %w: policy: unknown operation %q; there are %s", store.ErrInvalid, operation, strings.Join(known, ", "))
		}
	}
	if len(needs) == 0 {
		return "", fmt.Errorf("gcsstore: %w: policy: it has no operations", store.ErrInvalid)
	}
	slices.Sort(needs)
	text, err := json.MarshalIndent(struct {
		Title               string   `json:"title"`
		Stage               string   `json:"stage"`
		IncludedPermissions []string `json:"includedPermissions"`
	}{"Leasehold", "GA", slices.Compact(needs)}, "", "  ")
	return string(text), err
}
