// Package gcsstore keeps objects on Google Cloud Storage, by its JSON API.
//
// A version is the generation of an object. Google Cloud Storage gives every write a new one and
// uses none again, not even after a deletion, so a version that comes back is a write that never
// happened.
//
// A store sends one request for one call and repeats none: a conditional write that is sent twice
// can land the first time and then be told 412. That is why this package speaks HTTP itself instead
// of linking Google's client. There are two exceptions. PutLarge sends as many requests as it needs, and repeats some.
// And where an answer of 404 does not say what is missing, as some emulators do not, Get and
// GetLarge ask for a listing, which does.
//
// The credentials need storage.objects.get, create, delete and list in the bucket: the role Storage
// Object User (roles/storage.objectUser) has them. Overwriting an object needs delete as well as
// create. Without list, Google Cloud Storage answers 403 for an object that does not exist.
//
// The bucket must have no retention policy and set no holds on new objects, since both forbid that
// an object is overwritten. Google Cloud Storage takes about one write a second to one object
// (https://cloud.google.com/storage/quotas#objects); more of them, and it answers 429. All objects
// are written with "Cache-Control: no-store, no-transform": what everybody may read is otherwise
// cached for an hour (https://cloud.google.com/storage/docs/caching).
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

// maxPrefix leaves room for a key of store.MaxKey bytes and the slash before it in the
// 1024 bytes that Google Cloud Storage gives a name
// (https://cloud.google.com/storage/docs/objects#naming).
const maxPrefix = 1024 - store.MaxKey - 1

// defaultEndpoint is where Google Cloud Storage is.
const defaultEndpoint = "https://storage.googleapis.com"

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix goes before every key, with a slash between them. Default: none.
	Prefix string

	// Endpoint is the URL of the server, a scheme and a host: of an emulator or of a private
	// endpoint. Whatever it is gets the tokens. Default: https://storage.googleapis.com.
	Endpoint string

	// Token gives the OAuth access token for a request; the store puts it into the request. It is
	// called for each request, by several goroutines at once, and should keep a token as long as
	// it is valid. Its error means that nothing was sent: one that matches [store.ErrDenied] is
	// the error of a caller without rights, who need not try again, and any other is
	// [store.ErrUnavailable].
	//
	// An HTTP client that adds the tokens itself will do as well, as golang.org/x/oauth2 makes
	// them, but then a write that failed for want of a token has to be reported as one that may
	// have landed. Default: requests go out as they are.
	Token func(ctx context.Context) (string, error)

	// TokenRefused is called after the service has answered 401 to a request with a token: it was revoked, and Token
	// should give another one. Until then requests fail with [store.ErrUnavailable], or with [store.ErrDenied] if the
	// service never accepted a token. Default: nothing is called.
	TokenRefused func()

	// UserProject is the project that pays for the requests to a bucket whose requesters pay.
	// Default: that of the bucket.
	UserProject string

	// OwnClient says that nothing else uses the HTTP client, so that [Store.Close] closes its
	// connections. Default: the client is the caller's, and Close leaves it alone.
	OwnClient bool
}

// A Store is one bucket, or what lies under one prefix of it. It is safe for concurrent use.
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

// New gives the store of a bucket, which must exist. It sends nothing. The client must not
// repeat requests by itself; one of net/http repeats a GET at most. Its CheckRedirect is not
// asked, since no redirection is followed. The error matches [store.ErrInvalid] if an argument
// cannot be used.
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
		// An emulator that overlooks the condition sends the object once more.
		return nil, c.fail(ctx, store.ErrSentAgain)
	}
	body, err := c.Read(answer.Body)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	modified, _ := http.ParseTime(answer.Header.Get("Last-Modified")) // zero: unknown
	return &store.Object{Key: key, Body: body, Version: version, LastModified: modified, Date: c.Date()}, nil
}

// download asks for the object of the call. The errors are those of the call.
func (s *Store) download(ctx context.Context, c *call, unless store.Version) (*http.Response, store.Version, error) {
	query := url.Values{"alt": {"media"}}
	if isGeneration(unless) { // anything else is no version of this object
		query.Set("ifGenerationNotMatch", string(unless))
	}
	req := s.request(http.MethodGet, "/storage/v1/b/", c.name, query, nil)
	// So the object comes as it was written, and net/http, which would ask for gzip by itself,
	// leaves it so (https://cloud.google.com/storage/docs/transcoding).
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

// lookFor settles what is missing, by a listing, where a 404 does not say it.
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
		query.Set("ifGenerationMatch", "0") // which is that of no object
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

// DeleteIf removes the object if it is that generation: see [store.Conditional].
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

// isGeneration reports whether v can be the generation of an object, as it is written. 0 is
// none: as a condition it is that there is no object.
func isGeneration(v store.Version) bool {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == string(v)
}

// A resource is what the API says of one object.
type resource struct {
	Name       string
	Generation store.Version
	Size       int64  `json:",string"`
	Created    string `json:"timeCreated"` // of this generation
}

// created is in whole seconds, as Last-Modified and Date are. Finer, it could be later than
// the Date of the same answer.
func (r *resource) created() time.Time {
	t, _ := time.Parse(time.RFC3339, r.Created) // zero: unknown
	return t.Truncate(time.Second)
}

// Close closes the connections of a store that owns its client (see [Options.OwnClient]): those
// that are idle at once, with the goroutines that serve them, and those in use when their requests
// have ended. The client of any other store it leaves as it is, since others may use that too.
//
// It does not wait for requests and cuts none off. Calls of a closed store still work and open
// connections anew, so call Close last: after every lease has been released, every session closed,
// and Lock.Settle has returned. It may be called more than once, by any goroutine. It returns nil.
func (s *Store) Close() error {
	if s.owned {
		s.client.CloseIdleConnections()
	}
	return nil
}

// String gives the URL gs://BUCKET/PREFIX, with the endpoint if it is not Google's.
func (s *Store) String() string {
	where := url.URL{Scheme: "gs", Host: s.bucket, Path: strings.TrimSuffix(s.prefix, "/")}
	var query []string
	if endpoint := s.endpoint.String(); endpoint != defaultEndpoint {
		// As people write it: a colon and a slash stand for themselves in a query.
		readable := strings.NewReplacer("%3A", ":", "%2F", "/")
		query = append(query, "endpoint="+readable.Replace(url.QueryEscape(endpoint)))
	}
	if s.project != "" {
		query = append(query, "user_project="+url.QueryEscape(s.project))
	}
	where.RawQuery = strings.Join(query, "&")
	return where.String()
}
