// Package s3store keeps objects on Amazon S3 and on everything that speaks its
// conditional writes (If-Match and If-None-Match on PUT).
//
// A store sends one request for one call, whatever the client's settings are: it
// turns the SDK's retries off for its calls, because a retried conditional PUT
// can land the first time and then be told 412. It also sends no checksums but
// those that S3 requires, and Content-MD5 if it is told to; some servers keep the
// trailer that carries the SDK's as a part of the object. The HTTP client must not retry by itself either; that of
// the SDK and net/http replays a GET at most, never a PUT or a DELETE. PutLarge is
// the exception: it sends as many requests as it needs, each of them as often as the
// client is set to retry. No redirect is followed.
//
// The credentials need s3:GetObject and s3:PutObject on the keys, and should have
// s3:ListBucket on the bucket: without it S3 answers 403 for an object that does
// not exist. PutLarge also needs s3:AbortMultipartUpload on the keys. Give the
// bucket a lifecycle rule that aborts incomplete multipart uploads after some days:
// a process that is killed in one leaves parts that cost money and that no listing
// of objects shows.
//
// If the server refuses credentials before their end, the store calls the method
// Invalidate of the client's provider, once in five seconds at most. An
// [aws.CredentialsCache] has it. Until there are new ones, calls fail with
// [store.ErrUnavailable]. A refusal of static credentials is [store.ErrDenied].
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

// maxPrefix leaves room for a key of store.MaxKey bytes and the slash before it
// in the 1024 bytes that S3 gives a key.
const maxPrefix = 1024 - store.MaxKey - 1

// Options are the optional settings of a [Store].
type Options struct {
	// Prefix goes before every key, with a slash between them. Default: none.
	Prefix string

	// UnquotedETags sends versions without their quotes in If-Match, for servers that
	// compare them so, as some versions of Ceph do: they refuse every other update.
	// Default: as RFC 9110 has it. The command leasehold doctor finds out.
	UnquotedETags bool

	// ContentMD5 sends the Content-MD5 of what is written, which buckets with Object Lock and a default retention
	// require. Default: not, since the connection has checksums of its own.
	ContentMD5 bool

	// Encryption is the x-amz-server-side-encryption of what is written: AES256, aws:kms or aws:kms:dsse, for buckets
	// whose policy requires it. KMSKey is the ID or the ARN of a key of KMS; it needs one of the latter two.
	// Default: as the bucket is set.
	Encryption, KMSKey string

	// RequesterPays says that whoever sends a request pays for it (x-amz-request-payer), as some buckets require.
	// Default: the owner of the bucket pays.
	RequesterPays bool

	// OwnClient says that nothing else uses the HTTP client of the S3 client, so that
	// [Store.Close] closes its connections. New fails if that client has no method
	// CloseIdleConnections; an http.Client has it, and the default client of the SDK has not.
	// Default: the client is the caller's, and Close leaves it alone.
	OwnClient bool
}

// A Store is one bucket, or what lies under one prefix of it. It is safe for
// concurrent use.
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

// New gives the store of a bucket, which must exist. It sends nothing. The error
// matches [store.ErrInvalid] if the bucket or the prefix cannot be used.
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

// check reports settings that no server takes.
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

// put is the request that writes an object, so far without a condition.
func (s *Store) put(path *string, body []byte) *s3.PutObjectInput {
	return &s3.PutObjectInput{
		Bucket: &s.bucket, Key: path, Body: bytes.NewReader(body), ContentMD5: s.contentMD5(body),
		ServerSideEncryption: types.ServerSideEncryption(s.opts.Encryption), SSEKMSKeyId: s.kmsKey(),
	}
}

// contentMD5 is the header of a body, or nil.
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

// unredirected is the client without the redirects of the SDK, which follows 307 and 308 as often as it is told to: a
// server that leads to itself would be asked ten thousand times a second. The HTTP client has the settings of the SDK's
// and connections of its own. Those of net/http follow none here, whatever they are set to.
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
		// A server that overlooks If-None-Match sends the object once more.
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

// Put writes the object if the condition holds: see [store.Store]. S3 does not
// say when the object was written, so LastModified stays zero.
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

// directoryAtKey is what versitygw says where a key is the beginning of other keys, which it
// keeps as directories. It says the same where it was just removing the directory that the
// object is to lie in, with the last object there: then another try succeeds.
const directoryAtKey = "ExistingObjectIsDirectory"

// nothingBelow tells the two apart, by a listing. Where that is not allowed it is the first.
func (s *Store) nothingBelow(ctx context.Context, key string) bool {
	for _, err := range s.List(ctx, key+"/", "") {
		_ = err // whatever it is, nobody knows what is below
		return false
	}
	return true
}

// quoted is a version as the server wants it in If-Match.
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

// DeleteIf removes the object if it has that ETag: see [store.Conditional]. General purpose buckets of AWS can do
// it (If-Match on DELETE). Many other servers ignore the condition, and delete whatever is there.
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

// VersionOf makes the store a [store.Hashed]: the ETag of an object that was put whole is
// the MD5 of its bytes, except under encryption with keys of KMS or one's own.
func (s *Store) VersionOf(body []byte) store.Version {
	sum := md5.Sum(body)
	return store.Version(`"` + hex.EncodeToString(sum[:]) + `"`)
}

// String gives the URL s3://BUCKET/PREFIX, with the endpoint if it is not one of
// AWS, and with the settings that are not the default.
func (s *Store) String() string {
	where := url.URL{Scheme: "s3", Host: s.bucket, Path: strings.TrimSuffix(s.prefix, "/")}
	// As people write it: a colon and a slash stand for themselves in a query.
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
