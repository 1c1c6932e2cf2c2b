package s3store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// List yields objects in byte order of their keys, with one request per page of up to 1000: see
// [store.Store]. A directory bucket (S3 Express) lists in no order and ignores the start key,
// so List reads all of its pages below the last slash of the prefix before it yields the first
// object.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if !utf8.ValidString(prefix) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errors.New("the prefix is not valid UTF-8")})
			return
		}
		if !beginsKeys(prefix) {
			return // MinIO would refuse the request
		}
		if strings.HasSuffix(s.bucket, directoryBucket) {
			s.listDirectory(ctx, prefix, after)(yield)
			return
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
		if after != "" {
			in.StartAfter = aws.String(s.prefix + after)
		}
		last := aws.ToString(in.StartAfter)
		for entry, err := range s.pages(ctx, in, prefix) {
			// The highest key is found by the order of the listing, so a server without order
			// must not pass.
			key := s.prefix + entry.Key
			if err == nil && key <= last {
				err = (&call{Call: exchange.Call{Op: "list", Key: prefix}}).fail(ctx, fmt.Errorf("the server lists %q after %q: %w", key, last, store.ErrUnordered))
			}
			if last = key; err == nil && store.CheckKey("list", entry.Key) != nil {
				continue // written by another program: "logs/" for a folder, for example
			}
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// directoryBucket is the suffix of the names of directory buckets.
const directoryBucket = "--x-s3"

func (s *Store) listDirectory(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		full := s.prefix + prefix
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket}
		if slash := strings.LastIndexByte(full, '/'); slash >= 0 { // other prefixes are not allowed
			in.Prefix = aws.String(full[:slash+1])
		}
		var entries []store.Entry
		for entry, err := range s.pages(ctx, in, prefix) {
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			if strings.HasPrefix(entry.Key, prefix) && entry.Key > after && store.CheckKey("list", entry.Key) == nil {
				entries = append(entries, entry)
			}
		}
		slices.SortFunc(entries, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
		for _, entry := range entries {
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// pages yields entries in the server's order. An error is the last.
func (s *Store) pages(ctx context.Context, in *s3.ListObjectsV2Input, prefix string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for {
			c := &call{Call: exchange.Call{Op: "list", Key: prefix}}
			page, err := s.client.ListObjectsV2(ctx, in, c.options)
			if err != nil {
				yield(store.Entry{}, c.fail(ctx, err))
				return
			}
			for i := range page.Contents {
				if !yield(s.entry(&page.Contents[i]), nil) {
					return
				}
			}
			if !aws.ToBool(page.IsTruncated) {
				return
			}
			if aws.ToString(page.NextContinuationToken) == "" {
				yield(store.Entry{}, c.fail(ctx, errors.New("the server cuts the listing short and does not say how to go on")))
				return
			}
			in.ContinuationToken = page.NextContinuationToken
		}
	}
}

// beginsKeys reports whether prefix can begin a valid key.
func beginsKeys(prefix string) bool {
	return store.CheckKey("list", prefix) == nil || store.CheckKey("list", prefix+"x") == nil
}

func (s *Store) entry(o *types.Object) store.Entry {
	return store.Entry{
		Key:          strings.TrimPrefix(aws.ToString(o.Key), s.prefix),
		Version:      store.Version(aws.ToString(o.ETag)),
		Size:         aws.ToInt64(o.Size),
		LastModified: aws.ToTime(o.LastModified),
	}
}
