package metrics

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// Store is st with each call measured: its operation, its outcome (see [Outcome]), its duration and the bytes of bodies.
// A call stays one request, and results and errors are what st returns. It calls itself what st does, so
// proofs and sessions are for both; and it is a store.Large, a store.Inspector or a store.Purger exactly if st is. It
// is a store.Hashed and a leasehold.Proof in any case: where st is not, it knows no version and speaks against
// nothing.
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

// measured is a store that is measured, as far as all stores are alike.
type measured struct {
	store.Store
	sink Sink
}

var (
	_ store.Hashed    = (*measured)(nil)
	_ leasehold.Proof = (*measured)(nil)
)

// called takes in a call that has ended.
func (m *measured) called(ctx context.Context, op string, began time.Time, bytes int64, err error) {
	// What the caller wanted to end is measured all the same, and its span is not asked for that.
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

// List is measured when the iteration ends, so its duration has what the caller did meanwhile.
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

// VersionOf is that of the store that is measured, or empty.
func (m *measured) VersionOf(body []byte) store.Version {
	if h, ok := m.Store.(store.Hashed); ok {
		return h.VersionOf(body)
	}
	return ""
}

// Proves is the word of the store that is measured, if it has one.
func (m *measured) Proves(storeName, use string) error {
	if p, ok := m.Store.(leasehold.Proof); ok {
		return p.Proves(storeName, use)
	}
	return nil
}

// measuredLarge is what a store.Large has besides.
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

// measuredBody is measured when it has been read to its end, breaks off or is closed.
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
