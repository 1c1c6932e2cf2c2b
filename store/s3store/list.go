package s3store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold/leasehold/store"
)

// List yields objects in byte order of their keys, a page of up to 1000 for each
// request: see [store.Store].
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if strings.HasSuffix(s.bucket, "--x-s3") {
			// A directory bucket (S3 Express) lists in no order and knows no
			// StartAfter. Locks need neither.
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errors.New("this version cannot list a directory bucket, which has no order")})
			return
		}
		if !utf8.ValidString(prefix) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errors.New("the prefix is not valid UTF-8")})
			return
		}
		if !beginsKeys(prefix) {
			return // MinIO would refuse to look
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
		if after != "" {
			in.StartAfter = aws.String(s.prefix + after)
		}
		last := aws.ToString(in.StartAfter)
		for {
			c := &call{op: "list", key: prefix}
			page, err := s.client.ListObjectsV2(ctx, in, c.options)
			if err != nil {
				yield(store.Entry{}, c.fail(ctx, err))
				return
			}
			for i := range page.Contents {
				key := aws.ToString(page.Contents[i].Key)
				// Who reads a listing to find the highest key relies on
				// its order, so a server that has none must not pass.
				if key <= last {
					yield(store.Entry{}, c.fail(ctx, fmt.Errorf("the server lists %q after %q: not in byte order", key, last)))
					return
				}
				last = key
				entry := s.entry(&page.Contents[i])
				if store.CheckKey("list", entry.Key) != nil {
					continue // no store wrote it: "logs/" for a folder, say
				}
				if !yield(entry, nil) {
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

// beginsKeys reports whether any valid key begins with prefix.
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
