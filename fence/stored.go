package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"

	"github.com/leasehold/leasehold/store"
)

// Stored is a [Checker] that remembers in a store, so that all processes of a service
// remember together, and across restarts: each resource is an empty [Object] below a
// prefix, and to check a token is to claim it. That takes 1 GET, and 1 PUT for a token
// that is new.
type Stored struct {
	st     store.Store
	prefix string
}

// NewStored remembers in objects of st under PREFIX/. It sends nothing.
func NewStored(st store.Store, prefix string) (*Stored, error) {
	s := &Stored{st, prefix}
	_, err := NewObject(st, s.key("resource"), nil)
	return s, err
}

// longest is the longest name of a resource that is kept as it is. [NewObject] adds a
// suffix, and a segment of a key may have 200 bytes.
const longest = 200 - len(dataSuffix)

// key is that of a resource, whose name may be anything.
func (s *Stored) key(resource string) string {
	name := url.PathEscape(resource)
	if len(name) > longest || name == "" || name[0] == '.' {
		sum := sha256.Sum256([]byte(resource))
		name = "." + hex.EncodeToString(sum[:]) // no other name begins with a dot
	}
	return s.prefix + "/" + name
}

// Check admits the token or refuses it: see [Checker]. Failures of the store are retried
// for half a minute.
func (s *Stored) Check(ctx context.Context, resource string, h Holder) error {
	o, err := NewObject(s.st, s.key(resource), nil)
	if err != nil {
		return err
	}
	_, err = o.Claim(ctx, h)
	if fenced, ok := errors.AsType[*FencedError](err); ok && !errors.Is(err, store.ErrUnknownOutcome) {
		return &FencedError{resource, fenced.Token, fenced.Newest}
	}
	return err
}
