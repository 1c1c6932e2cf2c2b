package storeurl

import (
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/s3store"
)

// A noIfMatch makes a store a store.Proof for what does not need If-Match.
type noIfMatch struct{ name string }

// Proves returns nil for the uses of package probe that do not need If-Match.
func (n noIfMatch) Proves(_, use string) error {
	if strings.HasSuffix(use, " without If-Match") || use == "fencelog.Log" || use == "fast start" {
		return nil
	}
	return fmt.Errorf("%s: %w: %q needs If-Match, and the store's URL has if_match=false: use the layout epochs", n.name, store.ErrRefused, use)
}

// withoutIfMatch returns the store of a URL with if_match=false. It keeps the methods that only some
// stores have.
func withoutIfMatch(st store.Store) store.Store {
	no := noIfMatch{st.String()}
	switch st := st.(type) {
	case *s3store.Store:
		return struct {
			*s3store.Store
			noIfMatch
		}{st, no}
	case *gcsstore.Store:
		return struct {
			*gcsstore.Store
			noIfMatch
		}{st, no}
	case *azstore.Store:
		return struct {
			*azstore.Store
			noIfMatch
		}{st, no}
	case *filestore.Store:
		return struct {
			*filestore.Store
			noIfMatch
		}{st, no}
	}
	return st // no other scheme has the parameter
}
