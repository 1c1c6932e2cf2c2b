// Package s3store keeps objects on Amazon S3 and on servers that support its conditional writes
// (If-Match and If-None-Match on PUT).
//
// A store sends one request per call, whatever the client's settings are. It turns off the
// SDK's retries, because a retried conditional PUT can land the first time and then get 412. It
// sends no checksums except those that S3 requires, and Content-MD5 if configured: some servers
// store the trailer with the SDK's checksum as part of the object. The HTTP client must not
// retry by itself either; those of the SDK and net/http replay at most a GET, never a PUT or a
// DELETE. PutLarge is the exception: it sends as many requests as it needs, and retries each as
// the client is configured. Redirects are not followed.
//
// The credentials need s3:GetObject and s3:PutObject on the keys, and should have s3:ListBucket
// on the bucket: without it, S3 responds with 403 for an object that does not exist. PutLarge
// also needs s3:AbortMultipartUpload on the keys. Give the bucket a lifecycle rule that aborts
// incomplete multipart uploads after some days: if a process is killed during one, its parts
// cost money but do not appear in listings.
//
// If the server refuses credentials before they expire, the store calls the method Invalidate
// of the client's provider, if it has one, as an [aws.CredentialsCache] has: at most once in
// five seconds. Until there are new credentials, calls fail with [store.ErrUnavailable]. If
// static credentials are refused, they fail with [store.ErrDenied].
package s3store

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// maxPrefix leaves room for a key of store.MaxKey bytes and a slash in the 1024 bytes of an S3
// key.
const maxPrefix = 1024 - store.MaxKey - 1

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix is put before every key, followed by a slash. Default: none.
	Prefix string

	// UnquotedETags sends versions without their quotes in If-Match, for servers that compare
	// them like that. Some versions of Ceph do, and otherwise refuse every other update.
	// Default: quoted, as in RFC 9110. The command leasehold doctor finds out which one a
	// server needs.
	UnquotedETags bool

	// ContentMD5 sends Content-MD5 with writes, which buckets with Object Lock and a default
	// retention require. Default: false, because the connection has its own checksums.
	ContentMD5 bool

	// Encryption is the x-amz-server-side-encryption of writes: AES256, aws:kms or
	// aws:kms:dsse, for buckets whose policy requires it. KMSKey is the ID or the ARN of a KMS
	// key; it needs one of the latter two. Default: the bucket's settings.
	Encryption, KMSKey string

	// RequesterPays makes the sender pay for requests (x-amz-request-payer), as some buckets
	// require. Default: the owner of the bucket pays.
	RequesterPays bool

	// OwnClient gives the S3 client's HTTP client to the store, so [Store.Close] closes its
	// connections. Nothing else may use it. New fails if it has no method CloseIdleConnections;
	// an http.Client has it, but the SDK's default client does not. Default: Close does nothing
	// to the client.
	OwnClient bool
}

// A Store is one bucket, or the objects under a prefix of it. It is safe for concurrent use.
type Store struct {
	client *s3.Client
	bucket string
	prefix string // "" or ends with a slash

	opts Options
	idle idler // to be closed with the store; nil: the caller's

	partSize func(n int) int64 // of the n-th part of a large body, from 0
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)

	_ store.Conditional = (*Store)(nil)
)

// New returns the store for a bucket, which must exist. It sends nothing. The error matches
// [store.ErrInvalid] if the bucket or an option is invalid.
func New(client *s3.Client, bucket string, opts *Options) (*Store, error) {
	switch {
	case client == nil:
		return nil, fmt.Errorf("s3store: %w: the client is nil", store.ErrInvalid)
	case bucket == "":
		return nil, fmt.Errorf("s3store: %w: the bucket has no name", store.ErrInvalid)
	}
	s := &Store{bucket: bucket, partSize: partSize}
	if opts != nil {
		s.opts = *opts
	}
	if err := s.opts.check(); err != nil {
		return nil, err
	}
	var err error
	if s.idle, err = idlerOf(client, s.opts.OwnClient); err != nil {
		return nil, err
	}
	s.client = renewing(unredirected(client))
	if s.opts.RequesterPays {
		s.client = s3.New(s.client.Options(), s3.WithAPIOptions(smithyhttp.SetHeaderValue("X-Amz-Request-Payer", "requester")))
	}
	if s.opts.Prefix == "" {
		return s, nil
	}
	if err := store.CheckKey("prefix", opts.Prefix); err != nil {
		return nil, fmt.Errorf("s3store: %w", err)
	}
	if len(opts.Prefix) > maxPrefix {
		return nil, fmt.Errorf("s3store: %w: the prefix has %d bytes, more than %d", store.ErrInvalid, len(opts.Prefix), maxPrefix)
	}
	s.prefix = opts.Prefix + "/"
	return s, nil
}

// check returns an error for settings that no server accepts.
func (o *Options) check() error {
	known := []string{"", string(types.ServerSideEncryptionAes256), string(types.ServerSideEncryptionAwsKms), string(types.ServerSideEncryptionAwsKmsDsse)}
	switch {
	case !slices.Contains(known, o.Encryption):
		return fmt.Errorf("s3store: %w: the encryption %q is none of %s", store.ErrInvalid, o.Encryption, strings.Join(known[1:], ", "))
	case o.KMSKey != "" && !strings.HasPrefix(o.Encryption, "aws:kms"):
		return fmt.Errorf("s3store: %w: a key of KMS needs the encryption aws:kms or aws:kms:dsse", store.ErrInvalid)
	}
	return nil
}

// put returns the request that writes an object, without a condition.
func (s *Store) put(path *string, body []byte) *s3.PutObjectInput {
	return &s3.PutObjectInput{
		Bucket: &s.bucket, Key: path, Body: bytes.NewReader(body), ContentMD5: s.contentMD5(body),
		ServerSideEncryption: types.ServerSideEncryption(s.opts.Encryption), SSEKMSKeyId: s.kmsKey(),
	}
}

// contentMD5 returns the header for a body, or nil.
func (s *Store) contentMD5(body []byte) *string {
	if !s.opts.ContentMD5 {
		return nil
	}
	sum := md5.Sum(body)
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

func (s *Store) kmsKey() *string {
	if s.opts.KMSKey == "" {
		return nil
	}
	return &s.opts.KMSKey
}

// unredirected returns the client without the SDK's redirects, which follow 307 and 308 without
// a limit: a server that redirects to itself would get ten thousand requests a second. The new
// HTTP client has the SDK's settings and its own connections. Clients of net/http follow no
// redirects here, whatever their settings.
func unredirected(client *s3.Client) *s3.Client {
	sdk, ok := client.Options().HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return client
	}
	frozen, ok := sdk.Freeze().(*http.Client)
	if !ok {
		return client
	}
	own := *frozen
	own.CheckRedirect = exchange.NoRedirects
	return s3.New(client.Options(), func(o *s3.Options) { o.HTTPClient = &own })
}

// Get reads the object: see [store.Store].
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "get", Key: key}}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(s.prefix + key)}
	if unless != "" {
		in.IfNoneMatch = aws.String(string(unless))
	}
	out, err := s.client.GetObject(ctx, in, c.options)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	defer func() { _ = out.Body.Close() }()

	version := store.Version(aws.ToString(out.ETag))
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
	return &store.Object{
		Key:          key,
		Body:         body,
		Version:      version,
		LastModified: aws.ToTime(out.LastModified),
		Date:         c.Date(),
	}, nil
}

// Put writes the object if the condition holds: see [store.Store]. S3 does not say when the
// object was written, so LastModified is zero.
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}, create: only.Absent()}
	in := s.put(aws.String(s.prefix+key), body)
	if only.Absent() {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(s.quoted(only.Match()))
	}
	out, err := s.client.PutObject(ctx, in, c.options)
	if err != nil {
		failed := c.fail(ctx, err)
		if c.code() == directoryAtKey && s.nothingBelow(ctx, key) {
			failed.Kind = store.ErrConflict
		}
		return nil, failed
	}
	version := store.Version(aws.ToString(out.ETag))
	if version == "" {
		return nil, c.fail(ctx, errNoETag)
	}
	return &store.Object{Key: key, Version: version, Date: c.Date()}, nil
}

// directoryAtKey is versitygw's code for a key that is a prefix of other keys, which it stores
// as directories. It uses the same code while it is removing the object's directory with the
// last object in it; then a retry succeeds.
const directoryAtKey = "ExistingObjectIsDirectory"

// nothingBelow distinguishes the two by a listing. If that is not allowed, it assumes the
// first.
func (s *Store) nothingBelow(ctx context.Context, key string) bool {
	for _, err := range s.List(ctx, key+"/", "") {
		_ = err // an entry, or an error that leaves it open
		return false
	}
	return true
}

// quoted returns a version in the form the server wants in If-Match.
func (s *Store) quoted(v store.Version) string {
	if s.opts.UnquotedETags {
		return strings.Trim(string(v), `"`)
	}
	return string(v)
}

// Delete removes the object: see [store.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey("delete", key); err != nil {
		return err
	}
	return s.remove(ctx, &s3.DeleteObjectInput{}, key)
}

// DeleteIf removes the object if it has that ETag: see [store.Conditional]. General purpose
// buckets of AWS support this (If-Match on DELETE). Many other servers ignore the condition and
// delete the object in any case.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	return s.remove(ctx, &s3.DeleteObjectInput{IfMatch: aws.String(s.quoted(v))}, key)
}

func (s *Store) remove(ctx context.Context, in *s3.DeleteObjectInput, key string) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: key}}
	in.Bucket, in.Key = &s.bucket, aws.String(s.prefix+key)
	if _, err := s.client.DeleteObject(ctx, in, c.options); err != nil {
		if err = c.fail(ctx, err); !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}

// VersionOf implements [store.Hashed]: the ETag of an object written by a single PUT is the MD5
// of its bytes, except with encryption by KMS keys or customer-provided keys.
func (s *Store) VersionOf(body []byte) store.Version {
	sum := md5.Sum(body)
	return store.Version(`"` + hex.EncodeToString(sum[:]) + `"`)
}

// String returns the URL s3://BUCKET/PREFIX, with the endpoint if it is not one of AWS, and
// with the settings that are not the default.
func (s *Store) String() string {
	where := url.URL{Scheme: "s3", Host: s.bucket, Path: strings.TrimSuffix(s.prefix, "/")}
	// Colons and slashes need no escaping in a query, and are easier to read without.
	readable := strings.NewReplacer("%3A", ":", "%2F", "/")
	var query []string
	if base := s.client.Options().BaseEndpoint; base != nil {
		if endpoint, err := url.Parse(*base); err == nil {
			endpoint.User = nil
			query = append(query, "endpoint="+readable.Replace(url.QueryEscape(endpoint.String())))
		}
	}
	for _, setting := range []struct {
		is   bool
		text string
	}{
		{s.opts.UnquotedETags, "unquoted_etags=true"},
		{s.opts.ContentMD5, "content_md5=true"},
		{s.opts.Encryption != "", "encryption=" + readable.Replace(url.QueryEscape(s.opts.Encryption))},
		{s.opts.KMSKey != "", "kms_key=" + readable.Replace(url.QueryEscape(s.opts.KMSKey))},
		{s.opts.RequesterPays, "requester_pays=true"},
	} {
		if setting.is {
			query = append(query, setting.text)
		}
	}
	where.RawQuery = strings.Join(query, "&")
	return where.String()
}
