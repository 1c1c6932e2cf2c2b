package tree

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/store"
)

// apart begins a body that is no value, but says where it lies. A value that begins so lies apart too.
const apart = "leasehold-value-apart "

func liesApart(value []byte) bool {
	return len(value) > store.MaxBody || bytes.HasPrefix(value, []byte(apart))
}

// pointer reads what a body says of a value that lies apart.
func (t *Tree) pointer(body []byte) (key string, size int64, ok bool) {
	var id string
	if !bytes.HasPrefix(body, []byte(apart)) {
		return "", 0, false
	}
	n, err := fmt.Sscanf(string(body[len(apart):]), "%s %d\n", &id, &size)
	return t.large + id, size, n == 2 && err == nil
}

// storeApart writes the value into an object of its own, and returns the body that points to it.
func (t *Tree) storeApart(ctx context.Context, value []byte) ([]byte, error) {
	st, ok := t.st.(store.Large)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes, and this store keeps no values over %d", store.ErrTooLarge, len(value), store.MaxBody)
	}
	var body []byte
	err := again(ctx, func(context.Context) error {
		once, cancel := context.WithTimeout(ctx, transferTimeout)
		defer cancel()
		id := strings.ToLower(rand.Text()) // 130 random bits
		body = fmt.Appendf(nil, "%s%s %d\n", apart, id, len(value))
		_, err := st.PutLarge(once, t.large+id, bytes.NewReader(value))
		if err != nil {
			t.drop(ctx, body)
		}
		return err
	})
	return body, err
}

// content gives the value whose object has that body.
func (t *Tree) content(ctx context.Context, body []byte) ([]byte, error) {
	key, size, ok := t.pointer(body)
	if !ok {
		return body, nil
	}
	st, ok := t.st.(store.Large)
	if !ok {
		return nil, fmt.Errorf("%w: the value has %d bytes, and this store keeps none over %d", store.ErrTooLarge, size, store.MaxBody)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	r, _, err := st.GetLarge(ctx, key)
	if errors.Is(err, store.ErrNotExist) { // it was replaced since, or its object is gone
		return nil, fmt.Errorf("%w: the value lies in %q, which does not exist", store.ErrConflict, key)
	}
	if err != nil {
		return nil, err
	}
	value, err := io.ReadAll(r)
	return value, errors.Join(err, r.Close())
}

// drop deletes what a body points to that is not in use any more, or never was. If that fails it stays, and nothing
// reads it.
func (t *Tree) drop(ctx context.Context, body []byte) {
	if key, _, ok := t.pointer(body); ok {
		last, cancel := lock.Last(ctx)
		defer cancel()
		_ = t.st.Delete(last, key)
	}
}
