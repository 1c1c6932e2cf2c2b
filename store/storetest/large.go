package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/leasehold/leasehold/store"
)

// severalParts is a size that stores with parts of 5 or of 8 MiB divide.
const severalParts = 9 << 20

// noise repeats itself after a prime number of bytes, so that no two parts of a body are
// alike, whatever size a store gives them. To draw each byte of each body costs more than
// most stores do.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 262147)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
})

// random gives a body that nobody else has, without keeping it.
func random(size int64) io.Reader {
	return &noisy{at: int(size % int64(len(noise()))), left: size}
}

// noisy reads so many bytes of the noise from a place on.
type noisy struct {
	at   int
	left int64
}

func (n *noisy) Read(b []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	k := copy(b[:min(int64(len(b)), n.left)], noise()[n.at:])
	n.at = (n.at + k) % len(noise())
	n.left -= int64(k)
	return k, nil
}

// large gives the store as a store.Large, or ends the case.
func (p *trial) large() store.Large {
	l, ok := p.st.(store.Large)
	if !ok {
		p.skip("the store under test is no store.Large")
	}
	return l
}

func (p *trial) putLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	size, err := p.large().PutLarge(ctx, key, r)
	p.typed("put", key, err)
	return size, err
}

// open calls GetLarge and checks what is true of each of its answers.
func (p *trial) open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	r, size, err := p.large().GetLarge(ctx, key)
	p.typed("get", key, err)
	if err == nil && r == nil {
		err = errNothing
		p.report(getLargeOpens, "opening %q returned %v", key, err)
	}
	return r, size, err
}

// holds checks that the object is the body.
func (p *trial) holds(key string, body io.Reader, size int64) {
	r, told, err := p.open(p.ctx, key)
	if err != nil {
		p.report(getLargeOpens, "opening %q, of %d bytes, said: %v", key, size, err)
		return
	}
	defer r.Close()
	if told != size {
		p.report(getLargeOpens, "opening %q, of %d bytes, gave the size %d", key, size, told)
	}
	n, same, err := compare(r, body)
	switch {
	case err != nil:
		p.typed("get", key, err)
		p.report(getLargeOpens, "reading %q, of %d bytes, failed after %d: %v", key, size, n, err)
	case n < size:
		p.report(getLargeBreaks, "of %q, of %d bytes, came %d and then io.EOF", key, size, n)
	case !same:
		p.report(getLargeOpens, "what was read from %q, %d bytes, is not what was written", key, n)
	}
}

// compare reads r to its end and reports how much came and whether it is what body
// yields, as far as it came.
func compare(r, body io.Reader) (n int64, same bool, err error) {
	same = true
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		k, err := r.Read(got)
		m, _ := io.ReadFull(body, want[:k])
		same = same && bytes.Equal(got[:k], want[:m])
		n += int64(k)
		if err == io.EOF { // what wraps it is no end
			return n, same, nil
		}
		if err != nil {
			return n, same, err
		}
	}
}

// missing checks that there is no object for GetLarge either.
func (p *trial) missing(key, sentence, after string) {
	r, size, err := p.open(p.ctx, key)
	switch {
	case err == nil:
		_ = r.Close()
		p.report(sentence, "after %s, %q is there, of %d bytes", after, key, size)
	case !errors.Is(err, store.ErrNotExist):
		p.report(getLargeNotExist, "after %s, opening %q said: %v", after, key, err)
	}
}

func largeBodies(p *trial) {
	p.missing("large/none", getLargeNotExist, "opening")
	p.create("large/put", []byte("by Put"))
	p.holds("large/put", bytes.NewReader([]byte("by Put")), int64(len("by Put")))
	if err := p.delete(p.ctx, "large/put"); err != nil {
		p.stop(deleteRemoves, "delete said: %v", err)
	}
	for _, size := range []int64{0, 1, store.MaxBody, store.MaxBody + 1, severalParts} {
		key := fmt.Sprint("large/", size)
		if n, err := p.putLarge(p.ctx, key, random(size)); err != nil || n != size {
			p.stop(putLargeWrites, "a put of %d bytes returned %d, %v", size, n, err)
		}
		p.holds(key, random(size), size)
		p.readsSmall(key, size)
		if found := p.entries("large/", ""); len(found) != 1 || found[0].Key != key || found[0].Size != size {
			p.report(listYields, "the listing of %q, of %d bytes, has %+v", key, size, found)
		}
		if err := p.delete(p.ctx, key); err != nil {
			p.report(deleteRemoves, "delete %q said: %v", key, err)
		}
		p.missing(key, deleteRemoves, "a delete")
	}
}

// readsSmall checks what Get says of an object that PutLarge wrote.
func (p *trial) readsSmall(key string, size int64) {
	o, err := p.read(p.ctx, key, "")
	if size > store.MaxBody {
		p.refused(err, getTooLarge, "get of a body over MaxBody", store.ErrTooLarge)
		return
	}
	if err != nil || int64(len(o.Body)) != size {
		p.report(getReads, "get of a body of %d bytes that PutLarge wrote returned %+v, %v", size, o, err)
	}
}

// reader calls f before each MiB of a body that it reads, with how much came before,
// and goes on unless f returns an error.
type reader struct {
	body io.Reader
	f    func(read int64) error
	read int64
	next int64
}

func (r *reader) Read(b []byte) (int, error) {
	if r.read >= r.next {
		r.next += 1 << 20
		if err := r.f(r.read); err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(b[:min(len(b), 64<<10)])
	r.read += int64(n)
	return n, err
}

func largeInTheMaking(p *trial) {
	p.large()
	body := &reader{body: random(severalParts), f: func(read int64) error {
		p.missing(key, putLargeWhole, fmt.Sprintf("%d bytes of %d", read, severalParts))
		return nil
	}}
	if n, err := p.putLarge(p.ctx, key, body); err != nil || n != severalParts {
		p.report(putLargeWrites, "a put of %d bytes returned %d, %v", severalParts, n, err)
	}
	p.holds(key, random(severalParts), severalParts)
}

func largeFails(p *trial) {
	p.large()
	failure := errors.New("the reader's own error")
	for _, err := range []error{failure, io.ErrUnexpectedEOF, fmt.Errorf("not the end: %w", io.EOF)} {
		for _, size := range []int64{0, severalParts - 1} {
			key := fmt.Sprint("large/", size)
			body := io.MultiReader(random(size), &reader{f: func(int64) error { return err }})
			_, got := p.putLarge(p.ctx, key, body)
			what := fmt.Sprintf("a put whose reader said %q after %d bytes", err, size)
			p.refused(got, putLargeReader, what, store.ErrInvalid)
			p.refused(got, putLargeReader, what, err)
			p.missing(key, putLargeReader, what)
		}
	}
	for _, e := range p.entries("", "") {
		p.report(putLargeReader, "after puts whose readers failed there is %q", e.Key)
	}
}

func largeContext(p *trial) {
	p.large()
	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	asked := false
	_, err := p.putLarge(ended, key, &reader{body: random(1), f: func(int64) error { asked = true; return nil }})
	p.refused(err, putLargeEnded, "a put in a context that had ended", context.Canceled)
	if asked || errors.Is(err, store.ErrUnknownOutcome) {
		p.report(putLargeEnded, "a put in a context that had ended read its reader: %v; it said: %v", asked, err)
	}
	p.missing(key, putLargeEnded, "a put in a context that had ended")

	for _, size := range []int64{1, severalParts} {
		key := fmt.Sprint("large/", size)
		ctx, cancel := context.WithCancel(p.ctx)
		_, err := p.putLarge(ctx, key, &reader{body: random(size), f: func(read int64) error {
			if read >= size/2 {
				cancel()
			}
			return nil
		}})
		cancel()
		switch {
		case err == nil:
			p.holds(key, random(size), size)
			continue
		case !errors.Is(err, context.Canceled):
			p.report(errorsTyped, "a put of %d bytes whose context ended said: %v", size, err)
		}
		if !errors.Is(err, store.ErrUnknownOutcome) {
			p.missing(key, putLargeUnknown, fmt.Sprintf("a put that said %q", err))
		}
	}
}

func largeKeys(p *trial) {
	p.large()
	for _, key := range notKeys {
		_, err := p.putLarge(p.ctx, key, random(1))
		p.refused(err, keysChecked, "a large put of a key that CheckKey refuses", store.ErrInvalid)
		_, _, err = p.open(p.ctx, key)
		p.refused(err, keysChecked, "opening a key that CheckKey refuses", store.ErrInvalid)
	}
	for _, e := range p.entries("", "") {
		p.report(keysChecked, "after large puts of invalid keys there is %q", e.Key)
	}
	if _, err := p.putLarge(p.ctx, longestKey(), random(severalParts)); err != nil {
		p.stop(putLargeWrites, "a put of the longest key said: %v", err)
	}
	p.holds(longestKey(), random(severalParts), severalParts)
}
