package metrics

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// Store returns a store that measures each call of st: its operation, its outcome (see
// [Outcome]), its duration and the size of bodies. Each call is still one request, with st's
// results and errors. The store has the same name as st, so proofs and sessions are valid for
// both. It is a store.Large, a store.Inspector or a store.Purger exactly if st is. It is always
// a store.Hashed and a store.Proof: if st is not, it knows no versions and has no
// objections.
func Store(st store.Store, sink Sink) store.Store {
	m := &measured{st, sink}
	l, large := st.(store.Large)
	i, inspector := st.(store.Inspector)
	p, purger := st.(store.Purger)
	ml := measuredLarge{m, l}
	switch {
	case large && inspector && purger:
		return struct {
			*measured
			measuredLarge
			store.Inspector
			store.Purger
		}{m, ml, i, p}
	case large && inspector:
		return struct {
			*measured
			measuredLarge
			store.Inspector
		}{m, ml, i}
	case large && purger:
		return struct {
			*measured
			measuredLarge
			store.Purger
		}{m, ml, p}
	case inspector && purger:
		return struct {
			*measured
			store.Inspector
			store.Purger
		}{m, i, p}
	case large:
		return struct {
			*measured
			measuredLarge
		}{m, ml}
	case inspector:
		return struct {
			*measured
			store.Inspector
		}{m, i}
	case purger:
		return struct {
			*measured
			store.Purger
		}{m, p}
	}
	return m
}

// measured has what all measured stores have in common.
type measured struct {
	store.Store
	sink Sink
}

var (
	_ store.Hashed = (*measured)(nil)
	_ store.Proof  = (*measured)(nil)
)

// called records a call that has ended.
func (m *measured) called(ctx context.Context, op string, began time.Time, bytes int64, err error) {
	// Cancelled calls are measured too, and need the span in the context.
	ctx = context.WithoutCancel(ctx)
	m.sink.Record(ctx, storeDuration, time.Since(began).Seconds(), Attr{AttrOperation, op}, Attr{AttrOutcome, Outcome(err)})
	if bytes > 0 {
		m.sink.Record(ctx, storeIO, float64(bytes), Attr{AttrOperation, op})
	}
}

func (m *measured) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	began := time.Now()
	obj, err := m.Store.Get(ctx, key, unless)
	var n int64
	if obj != nil {
		n = int64(len(obj.Body))
	}
	m.called(ctx, "get", began, n, err)
	return obj, err
}

func (m *measured) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	began := time.Now()
	obj, err := m.Store.Put(ctx, key, body, only)
	n := int64(len(body))
	if errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrInvalid) {
		n = 0 // nothing was sent
	}
	m.called(ctx, "put", began, n, err)
	return obj, err
}

func (m *measured) Delete(ctx context.Context, key string) error {
	began := time.Now()
	err := m.Store.Delete(ctx, key)
	m.called(ctx, "delete", began, 0, err)
	return err
}

// List is measured when the iteration ends, so its duration includes the work of the caller.
func (m *measured) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		began := time.Now()
		var failed error
		defer func() { m.called(ctx, "list", began, 0, failed) }()
		for e, err := range m.Store.List(ctx, prefix, after) {
			if failed = err; !yield(e, err) {
				return
			}
		}
	}
}

// VersionOf returns the version by the measured store, or an empty one.
func (m *measured) VersionOf(body []byte) store.Version {
	if h, ok := m.Store.(store.Hashed); ok {
		return h.VersionOf(body)
	}
	return ""
}

// Proves returns the result of the measured store, if it is a Proof.
func (m *measured) Proves(storeName, use string) error {
	return store.Proves(m.Store, storeName, use)
}

// measuredLarge has the additional methods of a store.Large.
type measuredLarge struct {
	m     *measured
	inner store.Large
}

func (l measuredLarge) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	began := time.Now()
	counted := &counted{Reader: r}
	n, err := l.inner.PutLarge(ctx, key, counted)
	l.m.called(ctx, "put_large", began, counted.n, err)
	return n, err
}

type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

func (l measuredLarge) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	began := time.Now()
	body, size, err := l.inner.GetLarge(ctx, key)
	if err != nil {
		l.m.called(ctx, "get_large", began, 0, err)
		return body, size, err
	}
	b := &measuredBody{ReadCloser: body}
	b.ended = func(err error) {
		b.once.Do(func() { l.m.called(ctx, "get_large", began, b.n, err) })
	}
	return b, size, nil
}

// measuredBody is measured when it has been read to its end, fails or is closed.
type measuredBody struct {
	io.ReadCloser
	n     int64
	once  sync.Once
	ended func(err error)
}

func (b *measuredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.ended(nil)
	case err != nil:
		b.ended(err)
	}
	return n, err
}

func (b *measuredBody) Close() error {
	b.ended(nil)
	return b.ReadCloser.Close()
}
