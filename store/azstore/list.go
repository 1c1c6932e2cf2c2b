package azstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// List yields objects in byte order of their keys, with one request per page of up to 5000: see
// [store.Store]. Azure documents its order as alphabetical with capital letters first. If a
// listing is not in byte order, List ends with an error at the first key out of order. If the
// server ignores the start key, as Azurite does, List reads from the beginning of the prefix.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if !utf8.ValidString(prefix) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errors.New("the prefix is not valid UTF-8")})
			return
		}
		if !beginsKeys(prefix) {
			return
		}
		last := ""
		for item, err := range s.pages(ctx, prefix, after) {
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			// The highest key is found by the order of the listing, so a server without order
			// must not pass.
			name := deref(item.Name)
			if name <= last {
				yield(store.Entry{}, (&call{Call: exchange.Call{Op: "list", Key: prefix}}).fail(ctx, fmt.Errorf("the server lists %q after %q: %w", name, last, store.ErrUnordered)))
				return
			}
			last = name
			entry, ok := s.entry(item)
			if !ok || entry.Key <= after || store.CheckKey("list", entry.Key) != nil {
				continue // includes entries by other programs: "logs/" for a folder, for example
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// pages yields entries in the server's order. An error is the last.
func (s *Store) pages(ctx context.Context, prefix, after string) iter.Seq2[*container.BlobItem, error] {
	return func(yield func(*container.BlobItem, error) bool) {
		full := s.prefix + prefix
		from := ""
		if after != "" {
			from = s.prefix + after // inclusive
		}
		for pager := s.once.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &full}); pager.More(); {
			c := &call{Call: exchange.Call{Op: "list", Key: prefix}, from: from}
			page, err := pager.NextPage(c.watch(ctx))
			if err != nil {
				yield(nil, c.fail(ctx, err))
				return
			}
			if page.Segment == nil {
				continue
			}
			for _, item := range page.Segment.BlobItems {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// beginsKeys reports whether prefix can begin a valid key.
func beginsKeys(prefix string) bool {
	return store.CheckKey("list", prefix) == nil || store.CheckKey("list", prefix+"x") == nil
}

// entry returns the Entry for a listed item. It reports false for a directory of a hierarchical
// namespace, which is listed like a blob without bytes.
func (s *Store) entry(item *container.BlobItem) (store.Entry, bool) {
	key, ok := strings.CutPrefix(deref(item.Name), s.prefix)
	p := item.Properties
	if !ok || p == nil || deref(p.ResourceType) == "directory" {
		return store.Entry{}, false
	}
	return store.Entry{Key: key, Version: versionOf(p.ETag), Size: deref(p.ContentLength), LastModified: deref(p.LastModified)}, true
}
