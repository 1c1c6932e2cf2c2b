package localhttp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// listenUnix makes a socket for this user only. The returned function removes it.
func listenUnix(ctx context.Context, path string) (l net.Listener, remove func() error, err error) {
	// If two processes find the same stale socket, the second must not remove the first one's
	// new socket.
	unlock, err := lockDirectory(path)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err = removeStale(ctx, path); err != nil {
		return nil, nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return c.Control(restrict) }}
	if l, err = config.Listen(ctx, "unix", path); err != nil {
		return nil, nil, reason(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // by its path it could remove another process's
	}
	if err = os.Chmod(path, 0o600); err != nil {
		return nil, nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	ours, err := os.Lstat(path)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, func() error {
		now, err := os.Lstat(path)
		if err != nil || !os.SameFile(ours, now) {
			return nil //nolint:nilerr // it no longer exists, or is another process's
		}
		return os.Remove(path)
	}, nil
}

// removeStale removes the socket, if there is one and no process listens on it.
func removeStale(ctx context.Context, path string) error {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file of that name already, which is no socket")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process listens there")
	case refused(err):
		return os.Remove(path)
	}
	return fmt.Errorf("there is a socket already, and whether another process listens on it cannot be told: %w", reason(err))
}
