package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// foundOut is the part of the help of the commands that read a lock whatever its layout is.
const foundOut = `Layout: without --layout, the layout is detected with one read and one listing,
and one more read for epochs. If locks of two layouts have the same name, the
exit code is 65: select one with --layout. A marker exists only while the lock
is held, so a free one is shown as absent unless you give --layout. Other tools'
markers are not recognized.`

// see reads a lock, or a semaphore. If no layout was chosen, it is found out, and the options and the target
// name it from then on.
func (a *app) see(ctx context.Context, name string, opts *leasehold.LockOptions, chosen bool) (target, admin.Entry, error) {
	if chosen {
		p, lock, err := a.open(ctx, name, opts)
		if err != nil {
			return target{}, admin.Entry{}, err
		}
		info, err := inspect(ctx, p, lock)
		return p, admin.Entry{Info: info}, err
	}
	p, err := a.locate(ctx, name, "")
	if err != nil {
		return target{}, admin.Entry{}, err
	}
	p.store = a.withTimeout(p.store)
	e, err := a.look(ctx, &p, opts)
	if err != nil {
		return p, e, failed(err)
	}
	return p, e, nil
}

// look finds out the layout of a lock that is only read. A user that may not list is shown what
// the object says, and told that this may not be all.
func (a *app) look(ctx context.Context, p *target, opts *leasehold.LockOptions) (admin.Entry, error) {
	e, err := a.findOut(ctx, p, opts)
	if err != nil && e.Exists && unlisted(err) {
		why := "if there is none, give --layout " + plain.Word(string(e.Layout))
		if e.Size > 0 {
			why = "the semaphore is shown"
		}
		a.console.warn("a lock with epochs under the same name would not be seen: %s: %s", a.message(err), why)
		err = nil
	}
	return e, err
}

// unlisted reports that the store lists nothing for this user.
func unlisted(err error) bool {
	return errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrRefused)
}

// findOut reads a lock, or a semaphore, and notes its layout. If there is none, nothing is noted. If an error comes
// with a lock that exists, it may be the wrong one of two.
func (a *app) findOut(ctx context.Context, p *target, opts *leasehold.LockOptions) (admin.Entry, error) {
	e, err := admin.Inspect(ctx, p.store, p.key)
	if e.Exists {
		p.layout, opts.Layout, opts.NoIfMatch = e.Layout, e.Layout, e.NoIfMatch
		a.console.note("%s has the layout %s", p.name, plain.Word(string(e.Layout)))
	}
	if errors.Is(err, leasehold.ErrForeignObject) && !errors.Is(err, leasehold.ErrMoved) && !errors.Is(err, record.ErrS3Lect) {
		err = fmt.Errorf("%w; if another tool locks with it, give --layout marker", err)
	}
	return e, err
}
