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

// List yields objects in byte order of their keys, a page of up to 5000 for each request: see
// [store.Store]. Azure documents its order as that of the alphabet with capital letters
// first. A listing that is in any other order than that of the bytes ends in an error, at
// the first key that is out of place. A server that overlooks where a listing is to begin, as
// Azurite does, is read from the beginning of the prefix.
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
			// The highest key is found by the order of the listing, so a server
			// without order must not pass.
			name := deref(item.Name)
			if name <= last {
				yield(store.Entry{}, (&call{Call: exchange.Call{Op: "list", Key: prefix}}).fail(ctx, fmt.Errorf("the server lists %q after %q: %w", name, last, store.ErrUnordered)))
				return
			}
			last = name
			entry, ok := s.entry(item)
			if !ok || entry.Key <= after || store.CheckKey("list", entry.Key) != nil {
				continue // what no store wrote: "logs/" for a folder, say
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// pages yields what the server lists, as it lists it. An error is the last.
func (s *Store) pages(ctx context.Context, prefix, after string) iter.Seq2[*container.BlobItem, error] {
	return func(yield func(*container.BlobItem, error) bool) {
		full := s.prefix + prefix
		from := ""
		if after != "" {
			from = s.prefix + after // itself included
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

// beginsKeys reports whether any valid key begins with prefix.
func beginsKeys(prefix string) bool {
	return store.CheckKey("list", prefix) == nil || store.CheckKey("list", prefix+"x") == nil
}

// entry gives what is listed as an object, unless it is a directory of a hierarchical
// namespace, which is listed like a blob without bytes.
func (s *Store) entry(item *container.BlobItem) (store.Entry, bool) {
	key, ok := strings.CutPrefix(deref(item.Name), s.prefix)
	p := item.Properties
	if !ok || p == nil || deref(p.ResourceType) == "directory" {
		return store.Entry{}, false
	}
	return store.Entry{Key: key, Version: versionOf(p.ETag), Size: deref(p.ContentLength), LastModified: deref(p.LastModified)}, true
}
