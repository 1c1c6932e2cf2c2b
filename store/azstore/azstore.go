// Package azstore keeps objects on Azure Blob Storage, as block blobs of one container.
//
// A store sends one request for one call: it builds its client of the SDK itself, with the
// retries of the SDK off, because a retried conditional write can land the first time and
// then be told that its condition does not hold. One request is sent again: the one that is
// answered with 401 because its token has been revoked, once there is a new token. The HTTP
// client must not retry by itself either; net/http replays a GET at most. PutLarge is the
// exception: it sends as many requests as it needs, each of them as often as [Options.Retry]
// says.
//
// An identity needs the role Storage Blob Data Contributor on the container. A SAS needs the
// permissions read, create, write, delete and list on the container (sp=rcwdl): with less,
// some call is answered with 403. The container must be without a policy of immutability,
// since a lock is one blob that is overwritten, and the blobs without leases and snapshots of
// Azure's own, since those keep others from writing or deleting them. Soft delete and versions
// do no harm, but every renewal of a lease leaves a version behind that costs money.
//
// Use an account with a flat namespace, as they are by default. In one with a hierarchical
// namespace (Data Lake Storage) a key cannot lie below another object's key, and listings go
// directory by directory, which is not in byte order if one key has "/" where another has one
// of the characters before it, from the space to the dot; List ends in an error then.
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

// The limits of names: https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
const (
	maxName     = 1024
	maxSegments = 254

	// maxPrefix leaves room for a key of store.MaxKey bytes and the slash before it.
	maxPrefix = maxName - store.MaxKey - 1
)

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix goes before every key, with a slash between them. Default: none.
	Prefix string

	// Token signs requests in as an identity of Microsoft Entra; package azidentity has such
	// credentials. It is sent over https only. An error of it that matches [store.ErrDenied] or
	// [store.ErrUnavailable] is of that kind; of any other the store judges as far as it tells
	// whether it may pass.
	Token azcore.TokenCredential

	// SharedKey signs requests with a key of the account. With neither Token nor SharedKey
	// the URL has a SAS in its query. With both, New fails.
	SharedKey *container.SharedKeyCredential

	// Transport sends the requests; an http.Client is one. It must not send any twice.
	// Default: an http.Client of the store's own, which Close closes.
	Transport policy.Transporter

	// Retry says how often PutLarge sends a request that failed. No other call heeds it.
	// Default: that of the SDK, up to three more times.
	Retry policy.RetryOptions
}

// A Store is one container, or what lies under one prefix of it. It is safe for
// concurrent use.
type Store struct {
	once   *container.Client // sends a request once
	again  *container.Client // for PutLarge
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

// New gives the store of a container, which must exist, by its URL: for one on Azure
// https://ACCOUNT.blob.core.windows.net/CONTAINER. It sends nothing. The error matches
// [store.ErrInvalid] if the URL, the prefix or the credentials cannot be used; it shows
// nothing of the query of the URL, in which a SAS may be.
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

// NewFromConnectionString gives the store of a container, which must exist, in the account that
// the connection string names with a key or a SAS: otherwise as [New]. Token and SharedKey
// must not be set.
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

// clients make clients of the SDK with the same credentials.
type clients struct {
	container func(*container.ClientOptions) (*container.Client, error)
	account   func(url string, o *service.ClientOptions) (*service.Client, error)
}

// open makes both clients of a store, which differ in their retries alone.
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

// ownClient keeps more connections open than the one that the SDK's packages share, and goes
// nowhere else: Azure redirects no requests.
func ownClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // an object is what was written
			MaxIdleConnsPerHost: 100,
			MaxConnsPerHost:     2048,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// check reports why a key cannot be used, as an ErrInvalid.
func (s *Store) check(op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	var why string
	switch name := s.prefix + key; {
	case strings.Count(name, "/") >= maxSegments:
		why = fmt.Sprintf("with its prefix the key has more than %d segments", maxSegments)
	case strings.HasSuffix(key, ".") || strings.Contains(key, "./"):
		// The documentation says "should": what becomes of the dot it does not say.
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
		err = errNotModified // of which the SDK makes a success without a body
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
		// A server that overlooks If-None-Match sends the object once more.
		return nil, c.fail(ctx, store.ErrSentAgain)
	}
	body, err := c.Read(out.Body)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &store.Object{Key: key, Body: body, Version: version, LastModified: timeOf(out.LastModified), Date: c.Date()}, nil
}

// Put writes the object if the condition holds: see [store.Store]. Two writes never give the
// same version, be their bodies the same.
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

// Delete removes the object: see [store.Store]. One that has snapshots stays, and the error
// says so: somebody wants them, and they can only be deleted with it.
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

// versionOf is an ETag as the headers have it: listings leave the quotes out.
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

// Close closes the connections of a store whose HTTP client is its own (see [Options.Transport]):
// those that are idle at once, with the goroutines that serve them, and those in use when their
// requests have ended. It leaves the caller's as it is.
//
// It does not wait for requests and cuts none off. Calls of a closed store still work and open
// connections anew, so call Close last: after every lease has been released, every session
// closed, and Lock.Settle has returned. It may be called more than once, by any goroutine. It
// returns nil.
func (s *Store) Close() error {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

// String gives the URL azblob://CONTAINER/PREFIX with the account, or with the endpoint if that
// is not one of Azure's public cloud.
func (s *Store) String() string { return s.name }

// describe also checks the container's URL, the errors of whose parts must not show a SAS.
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
	// As people write it: a colon and a slash stand for themselves in a query.
	plain := strings.NewReplacer("%3A", ":", "%2F", "/")
	where.RawQuery = "endpoint=" + plain.Replace(url.QueryEscape(endpoint.String()))
	if key != nil && len(path) == 1 {
		name := key.AccountName()
		if told := strings.HasPrefix(u.Host, name+".") && strings.Contains(u.Host, ".blob."); !told {
			where.RawQuery = "account=" + url.QueryEscape(name) + "&" + where.RawQuery // a name of one's own
		}
	}
	return where.String(), nil
}
