package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"

	"github.com/leasehold/leasehold/store"
)

// Stored is a [Checker] that remembers tokens in a store, so they survive restarts and are
// shared by all processes of a service. Each resource is an empty [Object] below a prefix, and
// checking a token claims it. That takes 1 GET, and 1 PUT for a new token.
type Stored struct {
	st     store.Store
	prefix string
}

// NewStored returns a Checker that uses objects of st under PREFIX/. It sends nothing.
func NewStored(st store.Store, prefix string) (*Stored, error) {
	s := &Stored{st, prefix}
	_, err := NewObject(st, s.key("resource"), nil)
	return s, err
}

// longest is the maximum length of a resource's name in a key. Longer names are hashed. A
// segment of a key may have 200 bytes, and [NewObject] adds a suffix.
const longest = 200 - len(dataSuffix)

// key returns a resource's key, which may have any name.
func (s *Stored) key(resource string) string {
	name := url.PathEscape(resource)
	if len(name) > longest || name == "" || name[0] == '.' {
		sum := sha256.Sum256([]byte(resource))
		name = "." + hex.EncodeToString(sum[:]) // other names never begin with a dot
	}
	return s.prefix + "/" + name
}

// Check admits or rejects the token: see [Checker]. It retries store errors for half a minute.
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
