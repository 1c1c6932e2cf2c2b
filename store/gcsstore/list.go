package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// A listing is one page of a listing.
type listing struct {
	Kind          string
	Items         []resource
	NextPageToken string
}

// page reads one listing page.
func (s *Store) page(ctx context.Context, c *call, query url.Values) (*listing, error) {
	query.Set("fields", "kind,nextPageToken,items(name,generation,size,timeCreated)")
	answer, err := s.do(ctx, c, s.request(http.MethodGet, "/storage/v1/b/", "", query, nil))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	page := &listing{}
	if err = read(answer.Body, page); err == nil && page.Kind != "storage#objects" {
		err = fmt.Errorf("the answer is no listing of Google Cloud Storage but of the kind %q: does the endpoint lead there?", page.Kind)
	}
	return page, err
}

// List yields objects in byte order of their keys, with one request per page of up to 1000: see
// [store.Store].
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if !utf8.ValidString(prefix) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errors.New("the prefix is not valid UTF-8")})
			return
		}
		if store.CheckKey("list", prefix) != nil && store.CheckKey("list", prefix+"x") != nil {
			return // the prefix cannot begin a key
		}
		query := url.Values{"prefix": {s.prefix + prefix}, "maxResults": {"1000"}}
		last := ""
		if after != "" {
			last = s.prefix + after
			query.Set("startOffset", last) // inclusive
		}
		for first := true; ; first = false {
			c := &call{Call: exchange.Call{Op: "list", Key: prefix}, bucket: s.bucket}
			page, err := s.page(ctx, c, query)
			if err != nil {
				yield(store.Entry{}, c.fail(ctx, err))
				return
			}
			for i := range page.Items {
				item := &page.Items[i]
				if first && i == 0 && item.Name == last {
					continue // the entry at after itself
				}
				// The highest key is found by the order of the listing, so a server without
				// order must not pass.
				if item.Name <= last {
					yield(store.Entry{}, c.fail(ctx, fmt.Errorf("the server lists %q after %q: %w", item.Name, last, store.ErrUnordered)))
					return
				}
				last = item.Name
				key, ours := strings.CutPrefix(item.Name, s.prefix)
				if !ours || store.CheckKey("list", key) != nil {
					continue // written by another program: "logs/" for a folder, for example
				}
				if !yield(store.Entry{Key: key, Version: item.Generation, Size: item.Size, LastModified: item.created()}, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			query.Set("pageToken", page.NextPageToken)
		}
	}
}
