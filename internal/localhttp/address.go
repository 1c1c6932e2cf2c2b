package localhttp

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// An Address is where a [Server] listens.
type Address struct {
	network string // tcp or unix
	host    string
	port    string
	path    string // of the socket
}

// forms ends the message about an invalid address.
const forms = "write HOST:PORT, such as 127.0.0.1:4040, or unix:/path/of/socket"

// longestPath is the longest path of a socket, with room for a NUL at the end.
var longestPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// ParseAddress parses HOST:PORT, where port 0 means any free port, or unix:PATH. It does not
// resolve names; [Listen] does.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = filepath.Clean(path)
		switch {
		case path == "." || strings.HasPrefix(path, "@") || strings.ContainsRune(path, 0):
			return Address{}, fmt.Errorf("%q names no file for a socket: %s", text, forms)
		case len(path) > longestPath:
			return Address{}, fmt.Errorf("the path %s has %d bytes, and that of a socket may have %d: choose a shorter one", path, len(path), longestPath)
		}
		return Address{network: "unix", path: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		why := err
		if detail, ok := errors.AsType[*net.AddrError](err); ok {
			why = errors.New(detail.Err)
		}
		return Address{}, fmt.Errorf("%q is not an address: %w: %s", text, why, forms)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Address{}, fmt.Errorf("%q is not an address: the port %q is not a number from 0 to 65535: %s", text, port, forms)
	}
	return Address{network: "tcp", host: host, port: port}, nil
}

// Local reports whether only this machine can reach the address: a socket in the file system, a
// loopback address, or localhost.
func (a Address) Local() bool {
	if a.network == "unix" || a.host == "localhost" {
		return true
	}
	ip := net.ParseIP(a.host)
	return ip != nil && ip.IsLoopback()
}

// String returns the address in the format of ParseAddress.
func (a Address) String() string {
	if a.network == "unix" {
		return "unix:" + a.path
	}
	return net.JoinHostPort(a.host, a.port)
}
