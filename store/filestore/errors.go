package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/leasehold/leasehold/store"
)

// A problem is an error with a known kind.
type problem struct{ kind, cause error }

func (p *problem) Error() string   { return p.cause.Error() }
func (p *problem) Unwrap() []error { return []error{p.kind, p.cause} }

func problemf(kind error, format string, args ...any) error {
	return &problem{kind, fmt.Errorf(format, args...)}
}

func failed(op, key string, err error) error {
	return &store.Error{Op: op, Key: key, Kind: kind(err), Cause: err}
}

// kind returns the kind of a file system error that came before anything landed.
func kind(err error) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.kind
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return store.ErrDenied
	case isAny(err, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP):
		return store.ErrInvalid
	case errors.Is(err, syscall.EROFS):
		return store.ErrRefused
	}
	return store.ErrUnavailable
}

// renamed sets the kind of an error of a rename or an unlink. If the local system refused it,
// it did not happen. After any other error it may have: if an answer is lost on NFS, the
// request is sent again, and the second one fails.
func renamed(err error) error {
	if err == nil || isAny(err, fs.ErrPermission, syscall.ENOSPC, syscall.EROFS) || refused(err) {
		return err
	}
	return &problem{store.ErrUnknownOutcome, err}
}

func isAny(err error, kinds ...error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// held is the error if the context ends while waiting for a lock.
func held(ctx context.Context, lock string) error {
	return fmt.Errorf("waiting for another writer, who holds %s: %w", lock, ctx.Err())
}

// lockless returns a permanent error if the file system does not support locks.
func lockless(path string, err error) error {
	if isAny(err, syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP, errors.ErrUnsupported) {
		return problemf(store.ErrRefused, "%s cannot be locked, so the directory is of no use for this: %w", path, err)
	}
	return err
}
