// Package fencecheck has what the tests of fences share, in this module and in those of
// their own.
package fencecheck

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// Lease acquires a lock of its own, whose tokens begin at the time.
func Lease(t *testing.T) *leasehold.Lease {
	t.Helper()
	lock, err := leasehold.NewLock(memstore.New(), "lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(t.Context()) }) // some are lost by then
	return lease
}

// Refused checks that err says exactly which token was refused because of which.
func Refused(t *testing.T, err error, resource string, token, newest leasehold.Token) {
	t.Helper()
	want := fence.FencedError{Resource: resource, Token: token, Newest: newest}
	got, ok := errors.AsType[*fence.FencedError](err)
	if !ok || *got != want || !errors.Is(err, fence.ErrFenced) {
		t.Errorf("got  %v\nwant %v", err, &want)
	}
}

// Fenced checks an error that says that a token was refused, and because of which, whatever the resource.
func Fenced(t *testing.T, err error, token, newest leasehold.Token) {
	t.Helper()
	f, ok := errors.AsType[*fence.FencedError](err)
	if !ok || !errors.Is(err, fence.ErrFenced) || f.Token != token || f.Newest != newest {
		t.Errorf("%v, want that token %d is refused because of %d", err, token, newest)
	}
}

// Lost checks that the lease has ended, with a fence's refusal as the cause.
func Lost(t *testing.T, lease *leasehold.Lease, resource string, newest leasehold.Token) {
	t.Helper()
	if err := lease.Err(); !errors.Is(err, leasehold.ErrLost) {
		t.Errorf("the lease says %v, want ErrLost", err)
	} else {
		Refused(t, err, resource, lease.Token(), newest)
	}
}

// Restore reads a log of texts up to an entry: the checkpoint, and what comes after it,
// each record before a space. It returns the position of the last one.
func Restore(ctx context.Context, l *fencelog.Log, to fencelog.Position) (string, fencelog.Position, error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return "", 0, err
	}
	r, err := c.Open(ctx)
	if err != nil {
		return "", 0, err
	}
	state, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return "", 0, err
	}
	at := c.Position
	for e, err := range l.Read(ctx, c.Position) {
		if err != nil {
			return "", 0, err
		}
		if e.Position > to {
			break
		}
		at = e.Position
		state = append(append(state, bytes.Join(e.Records, []byte(" "))...), ' ')
	}
	return string(state), at, nil
}

// Keys are those in a store that begin with a prefix.
func Keys(t *testing.T, st store.Store, prefix string) (keys []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}
