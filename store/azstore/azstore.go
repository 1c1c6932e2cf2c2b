// Package azstore keeps objects on Azure Blob Storage, as block blobs of one container.
//
// A store sends one request per call. It creates its SDK client itself, with retries turned
// off, because a retried conditional write can land the first time and then fail its condition.
// One request is repeated: if it gets 401 because its token was revoked, it is sent again with
// a new token. The HTTP client must not retry by itself either; net/http replays at most a GET.
// PutLarge is the exception: it sends as many requests as it needs, and retries each according
// to [Options.Retry].
//
// An identity needs the role Storage Blob Data Contributor on the container. A SAS needs the
// permissions read, create, write, delete and list on the container (sp=rcwdl): with less, some
// calls get 403. The container must have no immutability policy, because a lock is a blob that
// is overwritten. Azure's own leases and snapshots must not be used on the blobs, because they
// keep others from writing or deleting them. Soft delete and versioning do no harm, but every
// renewal of a lease leaves a version that costs money.
//
// Use an account with a flat namespace, which is the default. With a hierarchical namespace
// (Data Lake Storage), a key cannot be below another object's key. It also lists directory by
// directory. That is not byte order if one key has "/" where another has a character before it,
// from the space to the dot; List then ends with an error.
package azstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// The limits of names:
// https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
const (
	maxName     = 1024
	maxSegments = 254

	// maxPrefix leaves room for a key of store.MaxKey bytes and a slash.
	maxPrefix = maxName - store.MaxKey - 1
)

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix is put before every key, followed by a slash. Default: none.
	Prefix string

	// Token authenticates requests as a Microsoft Entra identity; package azidentity has such
	// credentials. Tokens are sent only over https. If an error of Token matches
	// [store.ErrDenied] or [store.ErrUnavailable], calls fail with the same kind. For other
	// errors, the store judges whether they are temporary.
	Token azcore.TokenCredential

	// SharedKey signs requests with a key of the account. Without Token and SharedKey, the URL
	// has a SAS in its query. With both, New fails.
	SharedKey *container.SharedKeyCredential

	// Transport sends the requests; an http.Client is one. It must not send any request twice.
	// Default: the store's own http.Client, which Close closes.
	Transport policy.Transporter

	// Retry says how often PutLarge retries a failed request. Other calls ignore it. Default:
	// that of the SDK, up to three retries.
	Retry policy.RetryOptions
}

// A Store is one container, or the objects under a prefix of it. It is safe for concurrent use.
type Store struct {
	once   *container.Client // without retries
	again  *container.Client // with retries, for PutLarge
	prefix string            // "" or ends with a slash
	name   string
	own    *http.Client // nil: the caller's

	account          func() (*service.Client, error) // of the account, for Inspect
	wrote, versioned atomic.Bool                     // a write landed; it left a version
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)
)

// New returns the store for a container, which must exist, by its URL: on Azure,
// https://ACCOUNT.blob.core.windows.net/CONTAINER. It sends nothing. The error matches
// [store.ErrInvalid] if the URL, the prefix or the credentials are invalid; it does not contain
// the query of the URL, which may be a SAS.
func New(containerURL string, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Token != nil && o.SharedKey != nil:
		return nil, invalid("there are both a token and a shared key")
	case o.Token != nil:
		if !strings.HasPrefix(strings.ToLower(containerURL), "https://") {
			return nil, invalid("a token is sent over https only")
		}
		return open(&o, clients{
			func(c *container.ClientOptions) (*container.Client, error) {
				return container.NewClient(containerURL, credential{o.Token}, c)
			},
			func(url string, c *service.ClientOptions) (*service.Client, error) {
				return service.NewClient(url, credential{o.Token}, c)
			},
		})
	case o.SharedKey != nil:
		return open(&o, clients{
			func(c *container.ClientOptions) (*container.Client, error) {
				return container.NewClientWithSharedKeyCredential(containerURL, o.SharedKey, c)
			},
			func(url string, c *service.ClientOptions) (*service.Client, error) {
				return service.NewClientWithSharedKeyCredential(url, o.SharedKey, c)
			},
		})
	}
	return open(&o, clients{
		func(c *container.ClientOptions) (*container.Client, error) {
			return container.NewClientWithNoCredential(containerURL, c)
		},
		service.NewClientWithNoCredential,
	})
}

// NewFromConnectionString is [New] for a container in the account of a connection string, which
// has a key or a SAS. Token and SharedKey must not be set.
func NewFromConnectionString(connectionString, containerName string, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Token != nil || o.SharedKey != nil {
		return nil, invalid("there are credentials beside the connection string")
	}
	return open(&o, clients{
		func(c *container.ClientOptions) (*container.Client, error) {
			return container.NewClientFromConnectionString(connectionString, containerName, c)
		},
		func(_ string, c *service.ClientOptions) (*service.Client, error) {
			return service.NewClientFromConnectionString(connectionString, c)
		},
	})
}

func invalid(format string, a ...any) error {
	return fmt.Errorf("azstore: %w: %w", store.ErrInvalid, fmt.Errorf(format, a...))
}

// clients create SDK clients with the same credentials.
type clients struct {
	container func(*container.ClientOptions) (*container.Client, error)
	account   func(url string, o *service.ClientOptions) (*service.Client, error)
}

// open creates both clients of a store, which differ only in their retries.
func open(o *Options, by clients) (*Store, error) {
	s := new(Store)
	if o.Prefix != "" {
		if err := store.CheckKey("prefix", o.Prefix); err != nil {
			return nil, fmt.Errorf("azstore: %w", err)
		}
		if len(o.Prefix) > maxPrefix {
			return nil, invalid("the prefix has %d bytes, more than %d", len(o.Prefix), maxPrefix)
		}
		s.prefix = o.Prefix + "/"
	}
	transport := o.Transport
	if transport == nil {
		s.own = ownClient()
		transport = s.own
	}
	for to, retry := range map[**container.Client]policy.RetryOptions{
		&s.once:  {MaxRetries: -1},
		&s.again: o.Retry,
	} {
		var c container.ClientOptions
		c.Retry = retry
		c.Transport = watched{transport}
		c.PerCallPolicies = []policy.Policy{starting{}} // before the request is signed
		var err error
		if *to, err = by.container(&c); err != nil {
			return nil, invalid("%w", err)
		}
	}
	s.account = func() (*service.Client, error) {
		var c service.ClientOptions
		c.Retry.MaxRetries, c.Transport = -1, watched{transport}
		return by.account(accountURL(s.once.URL()), &c)
	}
	var err error
	if s.name, err = describe(s.once.URL(), s.prefix, o.SharedKey); err != nil {
		return nil, err
	}
	return s, nil
}

// ownClient keeps more connections open than the default client of the SDK, and follows no
// redirects, because Azure has none.
func ownClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // an object must be returned as it was written
			MaxIdleConnsPerHost: 100,
			MaxConnsPerHost:     2048,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// check returns an ErrInvalid if a key is invalid.
func (s *Store) check(op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	var why string
	switch name := s.prefix + key; {
	case strings.Count(name, "/") >= maxSegments:
		why = fmt.Sprintf("with its prefix the key has more than %d segments", maxSegments)
	case strings.HasSuffix(key, ".") || strings.Contains(key, "./"):
		// The documentation says only "should", and not what happens to the dot.
		why = "the key has a segment that ends with a dot, as names on Azure should not"
	default:
		return nil
	}
	return &store.Error{Op: op, Key: key, Kind: store.ErrInvalid, Cause: errors.New(why)}
}

// Get reads the object: see [store.Store].
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := s.check("get", key); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}}
	var in blob.DownloadStreamOptions
	if unless != "" {
		in.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: etag(unless)}}
	}
	out, err := s.blob(s.once, key).DownloadStream(c.watch(ctx), &in)
	if err == nil && c.Status() == http.StatusNotModified {
		err = errNotModified // the SDK reports it as a success without a body
	}
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	defer func() { _ = out.Body.Close() }()

	version := versionOf(out.ETag)
	switch version {
	case "":
		return nil, c.fail(ctx, errNoETag)
	case unless:
		// A server that ignores If-None-Match sends the object again.
		return nil, c.fail(ctx, store.ErrSentAgain)
	}
	body, err := c.Read(out.Body)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &store.Object{Key: key, Body: body, Version: version, LastModified: timeOf(out.LastModified), Date: c.Date()}, nil
}

// Put writes the object if the condition holds: see [store.Store]. Two writes never result in
// the same version, even if their bodies are equal.
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	if err := s.check("put", key); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}, create: only.Absent()}
	when := &blob.ModifiedAccessConditions{}
	if only.Absent() {
		when.IfNoneMatch = etag("*")
	} else {
		when.IfMatch = etag(only.Match())
	}
	out, err := s.blob(s.once, key).Upload(c.watch(ctx), streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: when},
	})
	if err == nil && versionOf(out.ETag) == "" {
		err = errNoETag
	}
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	s.wrote.Store(true)
	if out.VersionID != nil && !s.versioned.Load() {
		s.versioned.Store(true)
	}
	return &store.Object{Key: key, Version: versionOf(out.ETag), LastModified: timeOf(out.LastModified), Date: c.Date()}, nil
}

// Delete removes the object: see [store.Store]. It fails if the blob has snapshots, because it
// would have to delete them too.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.check("delete", key); err != nil {
		return err
	}
	return s.remove(ctx, key, nil)
}

// DeleteIf removes the object if it has that ETag: see [store.Conditional].
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	if err := s.check("delete", key); err != nil {
		return err
	}
	return s.remove(ctx, key, &blob.DeleteOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: etag(v)},
	}})
}

func (s *Store) remove(ctx context.Context, key string, opts *blob.DeleteOptions) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: key}}
	if _, err := s.blob(s.once, key).Delete(c.watch(ctx), opts); err != nil {
		if err = c.fail(ctx, err); !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Store) blob(client *container.Client, key string) *blockblob.Client {
	return client.NewBlockBlobClient(s.prefix + key)
}

func etag(v store.Version) *azcore.ETag {
	e := azcore.ETag(v)
	return &e
}

// versionOf returns an ETag as in the headers: listings omit the quotes.
func versionOf(e *azcore.ETag) store.Version {
	if e == nil || *e == "" || strings.HasSuffix(string(*e), `"`) {
		return store.Version(deref(e))
	}
	return store.Version(`"` + string(*e) + `"`)
}

func timeOf(t *time.Time) time.Time { return deref(t) }

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Close closes the connections of a store with its own HTTP client (see [Options.Transport]).
// Idle connections and their goroutines end at once, others when their requests have ended.
// Close does nothing to a client of the caller.
//
// Close does not wait for requests or cut them off. Calls after Close still work and open new
// connections, so call Close last: after all leases were released, all sessions were closed,
// and Lock.Settle has returned. You can call it more than once and from any goroutine. It
// returns nil.
func (s *Store) Close() error {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

// String returns the URL azblob://CONTAINER/PREFIX with the account, or with the endpoint if it
// is not one of Azure's public cloud.
func (s *Store) String() string { return s.name }

// describe also checks the container's URL. Its errors must not contain a SAS.
func describe(containerURL, prefix string, key *container.SharedKeyCredential) (string, error) {
	u, err := url.Parse(containerURL)
	if err != nil {
		return "", invalid("the URL of the container cannot be parsed")
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	name := path[len(path)-1]
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || name == "" || len(path) > 2 {
		return "", invalid("%s is not the URL of a container: https://ACCOUNT.blob.core.windows.net/CONTAINER", exchange.Readable(containerURL))
	}
	where := url.URL{Scheme: "azblob", Host: name, Path: strings.TrimSuffix(prefix, "/")}
	account, cloud := strings.CutSuffix(u.Host, ".blob.core.windows.net")
	if cloud && u.Scheme == "https" && len(path) == 1 {
		where.RawQuery = "account=" + account
		return where.String(), nil
	}
	endpoint := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.Join(path[:len(path)-1], "/")}
	// Colons and slashes need no escaping in a query, and are easier to read without.
	plain := strings.NewReplacer("%3A", ":", "%2F", "/")
	where.RawQuery = "endpoint=" + plain.Replace(url.QueryEscape(endpoint.String()))
	if key != nil && len(path) == 1 {
		name := key.AccountName()
		if told := strings.HasPrefix(u.Host, name+".") && strings.Contains(u.Host, ".blob."); !told {
			where.RawQuery = "account=" + url.QueryEscape(name) + "&" + where.RawQuery // a custom domain
		}
	}
	return where.String(), nil
}
