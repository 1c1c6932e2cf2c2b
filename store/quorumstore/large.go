package quorumstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// A body that does not fit into an acceptor is stored beside it, as an object of each member
// with a unique name that is written once. A majority has it before any member can accept the
// value that names it.

// A body is a large body to be written. Several readers can read it at a time.
type body struct {
	io.ReaderAt
	size  int64
	close func()
}

// aside writes a value's body beside it. If the value is not written, call discard to delete
// the body.
func (s *Store) aside(ctx context.Context, op, key string, value *register.Value, b body) (discard func(), err error) {
	v, err := s.view(ctx)
	if err != nil {
		b.close()
		return nil, failed(ctx, op, key, register.Failed, err)
	}
	value.Body, value.Beside = nil, b.size
	began := time.Now()
	all, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answers := make(chan error, len(v.members))
	var writing sync.WaitGroup
	for i, m := range v.cfg.Members {
		writing.Go(func() {
			wrong := writeAside(all, s.timed(v.members[i]), asideKey+value.Version, b)
			s.health.note(m.Place, wrong)
			if wrong != nil {
				wrong = fmt.Errorf("%s: %w", m.Place, wrong)
			}
			answers <- wrong
		})
	}
	err = majority(ctx, v, answers)
	// Slower members get the same time again. Repair copies what they miss.
	late := time.AfterFunc(max(time.Since(began), s.opts.Timeout), cancel)
	if err != nil {
		cancel()
	}
	go func() {
		writing.Wait()
		late.Stop()
		cancel()
		b.close()
	}()
	discard = func() {
		go func() {
			writing.Wait() // a body that arrives after its deletion would stay
			for i := range v.members {
				go v.ask(i, func(ctx context.Context, m store.Store) error { return m.Delete(ctx, asideKey+value.Version) })
			}
		}()
	}
	if err != nil {
		discard()
		return nil, failed(ctx, op, key, register.Failed, err)
	}
	return discard, nil
}

// majority waits until a majority has succeeded or no longer can.
func majority(ctx context.Context, v *view, answers <-chan error) error {
	errs, written := []error{register.ErrNoMajority}, 0
	for written < v.cfg.Majority() && len(errs)-1 <= len(v.members)-v.cfg.Majority() {
		select {
		case err := <-answers:
			if err == nil {
				written++
			} else {
				errs = append(errs, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if written < v.cfg.Majority() {
		return errors.Join(errs...)
	}
	return nil
}

// writeAside writes a body under a unique name. The time for a body of more than store.MaxBody
// bytes is unlimited.
func writeAside(ctx context.Context, m timed, name string, b body) error {
	r := io.NewSectionReader(b, 0, b.size)
	if b.size <= store.MaxBody {
		text, err := io.ReadAll(r)
		if err == nil {
			_, err = m.Put(ctx, name, text, store.IfAbsent())
		}
		if errors.Is(err, store.ErrPrecondition) {
			return nil // a copy already exists
		}
		return err
	}
	large, ok := m.Store.(store.Large)
	if !ok {
		return &store.Error{Op: "put", Key: name, Kind: store.ErrTooLarge, Cause: fmt.Errorf("%s keeps no bodies of %d bytes", m, b.size)}
	}
	_, err := large.PutLarge(ctx, name, r)
	return err
}

// beside opens a value's body at the first member that has it. If a member does not answer for
// a second, the next one is asked too.
func (v *view) beside(ctx context.Context, value register.Value) (io.ReadCloser, error) {
	type answer struct {
		place string
		body  io.ReadCloser
		err   error
	}
	answers := make(chan answer, len(v.members))
	left, waiting := v.wellFirst(), 0
	ask := func() {
		if len(left) == 0 {
			return
		}
		i := left[0]
		left = left[1:]
		waiting++
		go func() {
			r, err := v.openAside(ctx, i, value)
			answers <- answer{v.cfg.Members[i].Place, r, err}
		}()
	}
	errs := []error{fmt.Errorf("the body of %d bytes", value.Beside)}
	for ask(); waiting > 0; ask() {
		select {
		case a := <-answers:
			waiting--
			if a.err == nil {
				go func() {
					for range waiting {
						if late := <-answers; late.err == nil {
							_ = late.body.Close()
						}
					}
				}()
				return a.body, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", a.place, a.err))
		case <-time.After(enough):
		}
	}
	return nil, errors.Join(errs...)
}

// wellFirst lists the members, healthy ones first.
func (v *view) wellFirst() []int {
	var well, failing []int
	for i, m := range v.cfg.Members {
		if _, err := v.s.health.of(m.Place); err != nil {
			failing = append(failing, i)
		} else {
			well = append(well, i)
		}
	}
	return append(well, failing...)
}

// openAside opens a value's body at one member, within the time for one request.
func (v *view) openAside(ctx context.Context, member int, value register.Value) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(nil) }
	late := time.AfterFunc(v.s.opts.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	r, size, err := openAside(ctx, v.members[member], asideKey+value.Version)
	if err == nil && size != value.Beside {
		_ = r.Close()
		err = fmt.Errorf("%d bytes", size)
	}
	if err != nil {
		defer end()
		return nil, orCause(ctx, err)
	}
	return opened{r, end}, nil
}

// opened is a body whose request ends when it is closed.
type opened struct {
	io.ReadCloser
	end context.CancelFunc
}

func (o opened) Close() error {
	defer o.end()
	return o.ReadCloser.Close()
}

func openAside(ctx context.Context, m store.Store, name string) (io.ReadCloser, int64, error) {
	if large, ok := m.(store.Large); ok {
		return large.GetLarge(ctx, name)
	}
	o, err := m.Get(ctx, name, "")
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(bytes.NewReader(o.Body)), int64(len(o.Body)), nil
}

// PutLarge writes a body of any size. It keeps the body in a temporary file until the members
// have it.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := s.check("put", key); err != nil {
		return 0, err
	}
	b, err := spool(ctx, key, r)
	if err != nil {
		return 0, err
	}
	value := register.Value{Version: rand.Text()}
	discard, err := s.aside(ctx, "put", key, &value, b)
	if err != nil {
		return 0, err
	}
	a, _, err := s.call(ctx, "put", key, register.Call{Kind: register.Set, Value: value})
	if a.Outcome == register.Mismatch || err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		discard()
	}
	switch {
	case err != nil:
		return 0, err
	case a.Outcome == register.Mismatch:
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: errors.New("there is an object already: a large body needs a key that nobody has used")}
	}
	return b.size, nil
}

// spool reads all of r into a temporary file.
func spool(ctx context.Context, key string, r io.Reader) (body, error) {
	invalid := func(err error) error { return &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: err} }
	f, err := os.CreateTemp("", "leasehold-")
	if err != nil {
		return body{}, invalid(err)
	}
	remove := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	size, err := io.Copy(f, untilEnded{ctx, r})
	if err != nil {
		remove()
		if ctx.Err() != nil {
			return body{}, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
		}
		return body{}, invalid(err)
	}
	return body{f, size, remove}, nil
}

// untilEnded is a reader that fails once its context has ended.
type untilEnded struct {
	ctx context.Context
	io.Reader
}

func (u untilEnded) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

// GetLarge opens the object, whether Put or PutLarge has written it.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := s.check("get", key); err != nil {
		return nil, 0, err
	}
	a, v, err := s.call(ctx, "get", key, register.Call{Kind: register.Look})
	switch {
	case err != nil:
		return nil, 0, err
	case !a.Value.Exists():
		return nil, 0, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	case a.Value.Beside == 0:
		return io.NopCloser(bytes.NewReader(a.Value.Body)), int64(len(a.Value.Body)), nil
	}
	r, err := v.beside(ctx, a.Value)
	if err != nil {
		return nil, 0, failed(ctx, "get", key, register.Failed, err)
	}
	return r, a.Value.Beside, nil
}

// copies copies a value's body to every member without it, and returns a bit for each member
// that still lacks it.
func (v *view) copies(ctx context.Context, value register.Value) (missed int) {
	for i := range v.members {
		if v.deaf(i) {
			missed |= 1 << i
			continue
		}
		r, err := v.openAside(ctx, i, value)
		if err == nil {
			_ = r.Close()
			continue
		}
		v.hears(i, err)
		if !errors.Is(err, store.ErrNotExist) || v.copyTo(ctx, i, value) != nil {
			missed |= 1 << i
		}
	}
	return missed
}

// copyTo has the usual time for one request, plus one second per MiB.
func (v *view) copyTo(ctx context.Context, member int, value register.Value) error {
	ctx, cancel := context.WithTimeout(ctx, v.s.opts.Timeout+time.Duration(value.Beside>>20)*time.Second)
	defer cancel()
	r, err := v.beside(ctx, value)
	if err != nil {
		return err
	}
	b, err := spool(ctx, value.Version, r)
	_ = r.Close()
	if err != nil {
		return err
	}
	defer b.close()
	return writeAside(ctx, v.s.timed(v.members[member]), asideKey+value.Version, b)
}
