package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/s3store"
)

// QuorumFile is the environment variable with the path of a file of quorums.
const QuorumFile = "LEASEHOLD_QUORUM_FILE"

// Members returns the URLs of a quorum's members, from its URL or the file, and none for the
// URL of another store. It sends nothing, so replaced members are still included.
func Members(rawurl string) ([]string, error) {
	u, query, err := parse(rawurl)
	if err != nil || u.Scheme != "quorum" {
		return nil, err
	}
	return membersOf(u, query)
}

func membersOf(u *url.URL, query url.Values) ([]string, error) {
	if u.Host == "" {
		return query["member"], nil
	}
	return listed(u)
}

// openQuorum opens a quorum's members, from the URL or from the line of a file with the URL's
// name.
func openQuorum(ctx context.Context, u *url.URL, query url.Values, opts *Options) (store.Store, error) {
	urls, err := membersOf(u, query)
	if err != nil {
		return nil, err
	}
	members := make([]store.Store, len(urls))
	for i, raw := range urls {
		if members[i], err = openMember(ctx, u, raw, opts); err != nil {
			return nil, err
		}
	}
	st, err := quorumstore.New(members, &quorumstore.Options{
		Prefix: prefixOf(u),
		Name:   u.Host,
		Logger: opts.Logger,
		Open: func(ctx context.Context, place string) (store.Store, error) {
			return openMember(ctx, u, place, opts)
		},
	})
	if failure, ok := errors.AsType[*store.Error](err); ok && failure.Cause != nil {
		return nil, bad(u, failure.Cause.Error())
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// openMember opens one member, which cannot be a quorum itself.
func openMember(ctx context.Context, u *url.URL, raw string, opts *Options) (store.Store, error) {
	of, _, err := parse(raw)
	switch {
	case err == nil && of.Scheme == "quorum":
		return nil, bad(u, "a member is a quorum itself: write the members of that one, or another store")
	case err == nil && of.Scheme == "mem":
		return nil, bad(u, "a store in memory is no member: others have another one of that name")
	case err == nil && of.Query().Get("if_match") == "false":
		return nil, bad(u, "a member has if_match=false, and a quorum needs If-Match in each of them")
	case err == nil && of.Scheme == "file":
		return openDirectory(ctx, u, of, raw, opts)
	}
	m, err := open(ctx, raw, opts)
	if err != nil {
		return nil, ofMember(u, err)
	}
	if bucket, ok := m.(*s3store.Store); ok {
		return placed{bucket, placeOf(bucket.String(), of.Query())}, nil
	}
	return m, nil
}

// placed is a bucket with the name by which other processes can open it. A configuration
// contains this name, without settings of one process, such as its profile.
type placed struct {
	*s3store.Store

	place string
}

func (p placed) String() string { return p.place }

// placeOf adds the parameters needed to reach a bucket to its name.
func placeOf(name string, query url.Values) string {
	for _, parameter := range []string{"region", "path_style"} {
		if value := query.Get(parameter); value != "" {
			sign := "?"
			if strings.Contains(name, "?") {
				sign = "&"
			}
			name += sign + parameter + "=" + url.QueryEscape(value)
		}
	}
	return name
}

// ofMember adds the quorum to the error of a member that cannot be opened.
func ofMember(u *url.URL, err error) error {
	where := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, OmitHost: u.OmitHost}
	return fmt.Errorf("%s: a member: %w", where.String(), err)
}

// openDirectory opens a member that is a directory. If the directory does not exist or cannot
// be read, the quorum can still be used without it: later calls try to open it again.
func openDirectory(ctx context.Context, u, of *url.URL, raw string, opts *Options) (store.Store, error) {
	dir, err := localPath(of)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, ofMember(u, err)
	}
	m, err := open(ctx, raw, opts)
	if err == nil {
		return m, nil
	}
	name := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}
	return &later{name: name.String(), open: func() (*filestore.Store, error) {
		return filestore.New(dir, &filestore.Options{MustExist: opts.MustExist, Private: opts.Private})
	}}, nil
}

// later is a directory that could not be opened yet.
type later struct {
	name string
	open func() (*filestore.Store, error)

	mu     sync.Mutex
	opened *filestore.Store
}

func (l *later) String() string { return l.name }

// now opens the directory, if possible.
func (l *later) now(op, key string) (*filestore.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened != nil {
		return l.opened, nil
	}
	m, err := l.open()
	if err != nil {
		for _, kind := range []error{store.ErrNoBucket, store.ErrDenied} {
			if errors.Is(err, kind) {
				return nil, &store.Error{Op: op, Key: key, Kind: kind, Cause: err}
			}
		}
		// It may be ErrInvalid, for a path that leads through a file, but the key is not wrong.
		return nil, &store.Error{Op: op, Key: key, Kind: store.ErrUnavailable, Cause: errors.New(err.Error())}
	}
	l.opened = m
	return m, nil
}

func (l *later) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	m, err := l.now("get", key)
	if err != nil {
		return nil, err
	}
	return m.Get(ctx, key, unless)
}

func (l *later) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	m, err := l.now("put", key)
	if err != nil {
		return nil, err
	}
	return m.Put(ctx, key, body, only)
}

func (l *later) Delete(ctx context.Context, key string) error {
	m, err := l.now("delete", key)
	if err != nil {
		return err
	}
	return m.Delete(ctx, key)
}

// DeleteIf is possible because directories compare and delete under a lock.
func (l *later) DeleteIf(ctx context.Context, key string, v store.Version) error {
	m, err := l.now("delete", key)
	if err != nil {
		return err
	}
	return m.DeleteIf(ctx, key, v)
}

func (l *later) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	m, err := l.now("list", prefix)
	if err != nil {
		return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, err) }
	}
	return m.List(ctx, prefix, after)
}

// PutLarge is possible because directories keep bodies of any size.
func (l *later) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	m, err := l.now("put", key)
	if err != nil {
		return 0, err
	}
	return m.PutLarge(ctx, key, r)
}

// GetLarge is possible for the same reason as PutLarge.
func (l *later) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	m, err := l.now("get", key)
	if err != nil {
		return nil, 0, err
	}
	return m.GetLarge(ctx, key)
}

func checkQuorum(u *url.URL) error {
	members := u.Query()["member"]
	switch {
	case strings.Contains(u.Host, ":"):
		return bad(u, "the name of a quorum has no port")
	case u.Host != "" && len(members) > 0:
		return bad(u, "a quorum has a name, which is looked up in a file, or members, and not both: "+
			"write quorum:///KEY?member=…")
	case u.Host == "" && len(members) == 0:
		return bad(u, "there are no members: "+quorumForms)
	}
	return nil
}

const quorumForms = "write quorum:///KEY?member=URL&member=URL&member=URL, or quorum://NAME/KEY"

// listed returns the members of the quorum with that name.
func listed(u *url.URL) ([]string, error) {
	file := os.Getenv(QuorumFile)
	if file == "" {
		return nil, bad(u, "the name of a quorum is looked up in the file that "+QuorumFile+" names, and it is not set")
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, bad(u, "the file of quorums: "+err.Error())
	}
	return membersIn(string(text), file, u)
}

// membersIn returns the members from the line of a file of quorums with the URL's name.
func membersIn(text, file string, u *url.URL) ([]string, error) {
	var names, members []string
	at := 0
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
		case strings.Contains(fields[0], "://"):
			// Do not show the line: it may be long and contain secrets.
			return nil, bad(u, fmt.Sprintf("%s, line %d: a URL stands where a name should: a line has a name, and then "+
				"the URLs of the members", file, n+1))
		case slices.Contains(names, fields[0]):
			if fields[0] == u.Host {
				return nil, bad(u, fmt.Sprintf("%s has that name twice, in lines %d and %d", file, at, n+1))
			}
		default:
			if names = append(names, fields[0]); fields[0] == u.Host {
				members, at = fields[1:], n+1
			}
		}
	}
	switch {
	case at > 0 && len(members) == 0:
		return nil, bad(u, fmt.Sprintf("%s, line %d: there are no members: a line has a name, and then their URLs", file, at))
	case at > 0:
		return members, nil
	case len(names) == 0:
		return nil, bad(u, file+" has no quorum: a line has a name, and then the URLs of the members")
	}
	return nil, bad(u, fmt.Sprintf("%s has no quorum of that name; it has %s", file, strings.Join(names, ", ")))
}
