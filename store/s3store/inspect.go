package s3store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var _ store.Inspector = (*Store)(nil)

// Inspect implements [store.Inspector]. Its requests need permissions locks do not need:
// s3:GetBucketVersioning, s3:GetBucketObjectLockConfiguration, s3:GetEncryptionConfiguration,
// s3:GetLifecycleConfiguration, s3:ListBucketVersions and, for Purge, s3:DeleteObjectVersion.
func (s *Store) Inspect() store.Inspection { return inspection{s} }

type inspection struct{ *Store }

func (i inspection) Unquoted() store.Store {
	if i.opts.UnquotedETags {
		return nil
	}
	other := *i.Store
	other.opts.UnquotedETags = true
	return &other
}

func (i inspection) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckKey("delete", key); err != nil {
		return err
	}
	c := &call{Call: exchange.Call{Op: "delete", Key: key}}
	in := &s3.DeleteObjectInput{Bucket: &i.bucket, Key: aws.String(i.prefix + key), IfMatch: aws.String(i.quoted(v))}
	if _, err := i.client.DeleteObject(ctx, in, c.options); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

func (i inspection) Overwrite(ctx context.Context, key string, body []byte) error {
	if err := store.CheckKey("put", key); err != nil {
		return err
	}
	c := &call{Call: exchange.Call{Op: "put", Key: key}}
	if _, err := i.client.PutObject(ctx, i.put(aws.String(i.prefix+key), body), c.options); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

// Settings reads the bucket's settings.
func (i inspection) Settings(ctx context.Context) []store.Setting {
	return []store.Setting{
		i.setting(ctx, "versioning", "", func(option func(*s3.Options)) (string, error) {
			out, err := i.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &i.bucket}, option)
			if err != nil {
				return "", err
			}
			return strings.ToLower(string(out.Status)), nil
		}),
		i.setting(ctx, "object lock", "ObjectLockConfigurationNotFoundError", func(option func(*s3.Options)) (string, error) {
			out, err := i.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &i.bucket}, option)
			if err != nil || out.ObjectLockConfiguration == nil {
				return "", err
			}
			return objectLock(out.ObjectLockConfiguration), nil
		}),
		i.setting(ctx, "encryption", "ServerSideEncryptionConfigurationNotFoundError", func(option func(*s3.Options)) (string, error) {
			out, err := i.client.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &i.bucket}, option)
			if err != nil || out.ServerSideEncryptionConfiguration == nil {
				return "", err
			}
			return encryption(out.ServerSideEncryptionConfiguration.Rules), nil
		}),
		i.setting(ctx, "lifecycle", "NoSuchLifecycleConfiguration", func(option func(*s3.Options)) (string, error) {
			out, err := i.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &i.bucket}, option)
			if err != nil {
				return "", err
			}
			return lifecycle(out.Rules), nil
		}),
		i.setting(ctx, "noncurrent versions", "", func(option func(*s3.Options)) (string, error) {
			out, err := i.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &i.bucket, Prefix: &i.prefix}, option)
			if err != nil {
				return "", err
			}
			return noncurrent(out), nil
		}),
	}
}

// setting reads one setting. The error code none means that it is not set.
func (i inspection) setting(ctx context.Context, name, none string, ask func(func(*s3.Options)) (string, error)) store.Setting {
	c := &call{Call: exchange.Call{Op: "inspect", Key: name}}
	value, err := ask(c.options)
	switch {
	case err == nil:
		return store.Setting{Name: name, Value: value}
	case none != "" && c.code() == none:
		return store.Setting{Name: name}
	}
	return store.Setting{Name: name, Err: c.fail(ctx, err)}
}

func objectLock(c *types.ObjectLockConfiguration) string {
	if c.Rule == nil || c.Rule.DefaultRetention == nil {
		return strings.ToLower(string(c.ObjectLockEnabled))
	}
	r := c.Rule.DefaultRetention
	for unit, n := range map[string]*int32{"days": r.Days, "years": r.Years} {
		if n != nil {
			return fmt.Sprintf("every version is kept for %d %s (%s)", *n, unit, strings.ToLower(string(r.Mode)))
		}
	}
	return strings.ToLower(string(r.Mode))
}

func encryption(rules []types.ServerSideEncryptionRule) string {
	for _, r := range rules {
		if d := r.ApplyServerSideEncryptionByDefault; d != nil {
			return string(d.SSEAlgorithm)
		}
	}
	return ""
}

// lifecycle describes the enabled rules of a bucket that matter here.
func lifecycle(rules []types.LifecycleRule) string {
	var does []string
	for _, r := range rules {
		if r.Status != types.ExpirationStatusEnabled {
			continue
		}
		prefix := ""
		if r.Filter != nil {
			prefix = aws.ToString(r.Filter.Prefix)
		}
		if n := r.NoncurrentVersionExpiration; n != nil {
			does = append(does, fmt.Sprintf("noncurrent versions under %q expire after %d days", prefix, aws.ToInt32(n.NoncurrentDays)))
		}
		if e := r.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
			does = append(does, fmt.Sprintf("objects under %q expire", prefix))
		}
		if u := r.AbortIncompleteMultipartUpload; u != nil {
			does = append(does, fmt.Sprintf("uploads under %q end after %d days", prefix, aws.ToInt32(u.DaysAfterInitiation)))
		}
	}
	return strings.Join(does, "; ")
}

// noncurrent describes how many noncurrent versions are on one page.
func noncurrent(page *s3.ListObjectVersionsOutput) string {
	n := 0
	for _, v := range page.Versions {
		if !aws.ToBool(v.IsLatest) {
			n++
		}
	}
	more := ""
	if aws.ToBool(page.IsTruncated) {
		more = " at least"
	}
	return fmt.Sprintf("%d%s, and %d marks of deletions", n, more, len(page.DeleteMarkers))
}

// Purge deletes all versions, up to 1000 per request. It lists from the beginning each time,
// because the key where a page ended may have been deleted, and some servers restore an older
// version when a newer one is deleted.
func (i inspection) Purge(ctx context.Context, directory string) (requests int, err error) {
	in := &s3.ListObjectVersionsInput{Bucket: &i.bucket, Prefix: aws.String(i.prefix + directory + "/")}
	const again = 4 // how often a page may be no smaller than the last
	for last, stuck := 0, 0; stuck < again; {
		c := &call{Call: exchange.Call{Op: "list", Key: directory}}
		requests++
		page, err := i.client.ListObjectVersions(ctx, in, c.options)
		if err != nil {
			return requests, c.fail(ctx, err)
		}
		var all []types.ObjectIdentifier
		for _, v := range page.Versions {
			all = append(all, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			all = append(all, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(all) == 0 {
			return requests, nil
		}
		for some := range slices.Chunk(all, 1000) {
			requests++
			if err := i.deleteAll(ctx, directory, some); err != nil {
				return requests, err
			}
		}
		if len(all) >= last && !aws.ToBool(page.IsTruncated) {
			stuck++
		}
		last = len(all)
	}
	return requests, &store.Error{Op: "delete", Key: directory, Kind: store.ErrUnavailable, Cause: errors.New("versions come back when they are deleted")}
}

func (i inspection) deleteAll(ctx context.Context, directory string, all []types.ObjectIdentifier) error {
	c := &call{Call: exchange.Call{Op: "delete", Key: directory}}
	out, err := i.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &i.bucket, Delete: &types.Delete{Objects: all, Quiet: aws.Bool(true)},
	}, c.options)
	if err != nil {
		return c.fail(ctx, err)
	}
	for _, e := range out.Errors {
		return &store.Error{
			Op: "delete", Key: directory, Kind: store.ErrUnavailable,
			Cause: fmt.Errorf("version %s of %q: %s", aws.ToString(e.VersionId), aws.ToString(e.Key), aws.ToString(e.Message)),
		}
	}
	return nil
}
