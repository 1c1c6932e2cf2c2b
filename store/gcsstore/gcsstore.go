// Package gcsstore keeps objects on Google Cloud Storage through its JSON API.
//
// A version is an object's generation. Google Cloud Storage gives every write a new one and
// never reuses any, not even after a deletion.
//
// A store sends one request per call and retries none, because a conditional write that is sent
// twice can land the first time and then get 412. This is why the package uses HTTP directly
// instead of Google's client. There are two exceptions: PutLarge sends as many requests as it
// needs, and retries some. And if a 404 response does not say what is missing, as with some
// emulators, Get and GetLarge send a listing to find out.
//
// The credentials need storage.objects.get, create, delete and list in the bucket: the role
// Storage Object User (roles/storage.objectUser) has them. Overwriting an object needs delete
// as well as create. Without list, Google Cloud Storage responds with 403 for an object that
// does not exist.
//
// The bucket must have no retention policy and set no holds on new objects, because both
// prevent overwriting. Google Cloud Storage accepts about one write a second per object
// (https://cloud.google.com/storage/quotas#objects) and responds with 429 to more. All objects
// are written with "Cache-Control: no-store, no-transform", because public objects are
// otherwise cached for an hour (https://cloud.google.com/storage/docs/caching).
package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// maxPrefix leaves room for a key of store.MaxKey bytes and a slash in the 1024 bytes of a name
// (https://cloud.google.com/storage/docs/objects#naming).
const maxPrefix = 1024 - store.MaxKey - 1

// defaultEndpoint is the endpoint of Google Cloud Storage.
const defaultEndpoint = "https://storage.googleapis.com"

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix is put before every key, followed by a slash. Default: none.
	Prefix string

	// Endpoint is the server's URL, a scheme and a host: an emulator or a private endpoint. The
	// tokens are sent to it. Default: https://storage.googleapis.com.
	Endpoint string

	// Token returns the OAuth access token for a request. The store adds it to the request.
	// Token is called for each request, by several goroutines at once, and should cache a token
	// while it is valid. If it fails, nothing was sent: an error that matches [store.ErrDenied]
	// is permanent, as for missing permissions, and any other is [store.ErrUnavailable].
	//
	// You can also use an HTTP client that adds the tokens itself, as golang.org/x/oauth2 does.
	// But then a write that failed without a token must be reported as one that may have
	// landed. Default: requests are sent without a token.
	Token func(ctx context.Context) (string, error)

	// TokenRefused is called after the service has responded with 401 to a request with a
	// token: it was revoked, and Token should return another one. Until then requests fail with
	// [store.ErrUnavailable], or with [store.ErrDenied] if the service never accepted a token.
	// Default: no call.
	TokenRefused func()

	// UserProject is the project that pays for the requests, for buckets with requester pays.
	// Default: that of the bucket.
	UserProject string

	// OwnClient gives the HTTP client to the store, so [Store.Close] closes its connections.
	// Nothing else may use it. Default: Close does nothing to the client.
	OwnClient bool
}

// A Store is one bucket, or the objects under a prefix of it. It is safe for concurrent use.
type Store struct {
	client   *http.Client
	endpoint *url.URL
	bucket   string
	prefix   string // "" or ends with a slash

	token    func(context.Context) (string, error) // nil: none
	refused  func()
	accepted atomic.Bool // a request with a token succeeded

	project string
	owned   bool // the client is to be closed with the store
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)

	_ store.Conditional = (*Store)(nil)
)

// New returns the store for a bucket, which must exist. It sends nothing. The client must not
// retry requests by itself; those of net/http retry at most a GET. Its CheckRedirect is not
// called, because redirects are not followed. The error matches [store.ErrInvalid] if an
// argument is invalid.
func New(client *http.Client, bucket string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	invalid := func(format string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("gcsstore: %w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case client == nil:
		return invalid("the client is nil")
	case bucket == "":
		return invalid("the bucket has no name")
	case strings.Contains(bucket, "/"):
		return invalid("the name of the bucket, %q, has a slash", bucket)
	}
	endpoint := opts.Endpoint
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	u, err := url.Parse(strings.TrimSuffix(endpoint, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) || u.Host == "" {
		return invalid("the endpoint is not like %s: a scheme and a host", defaultEndpoint)
	}
	// A redirected POST would become a GET, whose success would be taken for the POST's.
	unredirected := *client
	unredirected.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &Store{
		client: &unredirected, endpoint: u, bucket: bucket,
		token: opts.Token, refused: opts.TokenRefused, project: opts.UserProject, owned: opts.OwnClient,
	}
	if opts.Prefix == "" {
		return s, nil
	}
	if err := store.CheckKey("prefix", opts.Prefix); err != nil {
		return nil, fmt.Errorf("gcsstore: %w", err)
	}
	if len(opts.Prefix) > maxPrefix {
		return invalid("the prefix has %d bytes, more than %d", len(opts.Prefix), maxPrefix)
	}
	s.prefix = opts.Prefix + "/"
	return s, nil
}

// Get reads the object: see [store.Store].
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}, name: s.prefix + key, bucket: s.bucket}
	answer, version, err := s.download(ctx, c, unless)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if version == unless {
		// An emulator that ignores the condition sends the object again.
		return nil, c.fail(ctx, store.ErrSentAgain)
	}
	body, err := c.Read(answer.Body)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	modified, _ := http.ParseTime(answer.Header.Get("Last-Modified")) // zero: unknown
	return &store.Object{Key: key, Body: body, Version: version, LastModified: modified, Date: c.Date()}, nil
}

// download requests the object of the call. Its errors are those of the call.
func (s *Store) download(ctx context.Context, c *call, unless store.Version) (*http.Response, store.Version, error) {
	query := url.Values{"alt": {"media"}}
	if isGeneration(unless) { // other versions cannot be of this object
		query.Set("ifGenerationNotMatch", string(unless))
	}
	req := s.request(http.MethodGet, "/storage/v1/b/", c.name, query, nil)
	// This returns the object as it was written, and keeps net/http from requesting gzip
	// (https://cloud.google.com/storage/docs/transcoding).
	req.Header.Set("Accept-Encoding", "identity")
	answer, err := s.do(ctx, c, req)
	if err != nil {
		failed := c.fail(ctx, err)
		if c.Status() == http.StatusNotFound && failed.Kind == store.ErrUnavailable { //nolint:errorlint // Kind is a sentinel itself
			s.lookFor(ctx, c, failed)
		}
		return nil, "", failed
	}
	version := store.Version(answer.Header.Get("X-Goog-Generation"))
	if !isGeneration(version) {
		_ = answer.Body.Close()
		return nil, "", c.fail(ctx, errNoGeneration)
	}
	return answer, version, nil
}

// lookFor finds out by a listing what is missing, for a 404 that does not say.
func (s *Store) lookFor(ctx context.Context, c *call, failed *store.Error) {
	list := &call{Call: exchange.Call{Op: "list", Key: c.Key}, name: c.name, bucket: c.bucket}
	page, err := s.page(ctx, list, url.Values{"prefix": {c.name}, "maxResults": {"1"}})
	switch {
	case err != nil && list.fail(ctx, err).Kind == store.ErrNoBucket: //nolint:errorlint // Kind is a sentinel itself
		failed.Kind, failed.Cause = store.ErrNoBucket, &exchange.Failure{Text: c.text(err) + "; " + onNoBucket, Err: err}
	case err == nil && page.NextPageToken == "" && len(page.Items) == 0,
		err == nil && len(page.Items) > 0 && page.Items[0].Name > c.name:
		failed.Kind, failed.Cause = store.ErrNotExist, &exchange.Failure{Text: c.text(errRefused) + "; a listing does not show it", Err: errRefused}
	}
}

// Put writes the object if the condition holds: see [store.Store].
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}, name: s.prefix + key, bucket: s.bucket}
	query := url.Values{}
	switch {
	case only.Absent():
		query.Set("ifGenerationMatch", "0") // which no object has
	case isGeneration(only.Match()):
		query.Set("ifGenerationMatch", string(only.Match()))
	default:
		return nil, &store.Error{
			Op: "put", Key: key, Kind: store.ErrPrecondition,
			Cause: fmt.Errorf("%q is no generation of Google Cloud Storage, so no object has it", only.Match()),
		}
	}
	written, err := s.insert(ctx, c, body, query)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &store.Object{Key: key, Version: written.Generation, LastModified: written.created(), Date: c.Date()}, nil
}

// Delete removes the object: see [store.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey("delete", key); err != nil {
		return err
	}
	return s.remove(ctx, key, url.Values{})
}

// DeleteIf removes the object if it has that generation: see [store.Conditional].
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	if !isGeneration(v) {
		return &store.Error{
			Op: "delete", Key: key, Kind: store.ErrPrecondition,
			Cause: fmt.Errorf("%q is no generation of Google Cloud Storage, so no object has it", v),
		}
	}
	return s.remove(ctx, key, url.Values{"ifGenerationMatch": {string(v)}})
}

func (s *Store) remove(ctx context.Context, key string, query url.Values) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: key}, name: s.prefix + key, bucket: s.bucket}
	answer, err := s.do(ctx, c, s.request(http.MethodDelete, "/storage/v1/b/", c.name, query, nil))
	if err == nil {
		return answer.Body.Close()
	}
	if err = c.fail(ctx, err); !errors.Is(err, store.ErrNotExist) {
		return err
	}
	return nil
}

// isGeneration reports whether v can be an object's generation. 0 is not one: as a condition it
// means that there is no object.
func isGeneration(v store.Version) bool {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == string(v)
}

// A resource is the API's description of an object.
type resource struct {
	Name       string
	Generation store.Version
	Size       int64  `json:",string"`
	Created    string `json:"timeCreated"` // of this generation
}

// created returns whole seconds, like Last-Modified and Date. A finer time could be later than
// the Date of the same response.
func (r *resource) created() time.Time {
	t, _ := time.Parse(time.RFC3339, r.Created) // zero: unknown
	return t.Truncate(time.Second)
}

// Close closes the connections of a store that owns its client (see [Options.OwnClient]). Idle
// connections and their goroutines end at once, others when their requests have ended. Close
// does nothing to any other client, which may be in use elsewhere.
//
// Close does not wait for requests or cut them off. Calls after Close still work and open new
// connections, so call Close last: after all leases were released, all sessions were closed,
// and Lock.Settle has returned. You can call it more than once and from any goroutine. It
// returns nil.
func (s *Store) Close() error {
	if s.owned {
		s.client.CloseIdleConnections()
	}
	return nil
}

// String returns the URL gs://BUCKET/PREFIX, with the endpoint if it is not Google's.
func (s *Store) String() string {
	where := url.URL{Scheme: "gs", Host: s.bucket, Path: strings.TrimSuffix(s.prefix, "/")}
	var query []string
	if endpoint := s.endpoint.String(); endpoint != defaultEndpoint {
		// Colons and slashes need no escaping in a query, and are easier to read without.
		readable := strings.NewReplacer("%3A", ":", "%2F", "/")
		query = append(query, "endpoint="+readable.Replace(url.QueryEscape(endpoint)))
	}
	if s.project != "" {
		query = append(query, "user_project="+url.QueryEscape(s.project))
	}
	where.RawQuery = strings.Join(query, "&")
	return where.String()
}
