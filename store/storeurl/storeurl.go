// Package storeurl opens the store that a URL names. It is the one place that
// knows all stores.
//
//	s3://BUCKET/PREFIX?region=…&endpoint=…&path_style=true|false&profile=…&unquoted_etags=true|false
//	file:///DIR
//	mem://NAME
//
// The URL of a lock goes on with the lock's key, of which Open's prefix or
// directory is no part:
//
//	s3://BUCKET/KEY     the whole path is the key, in the store s3://BUCKET
//	file:///DIR/KEY     the last segment is the key, in the store file:///DIR
//	mem://NAME/KEY
//
// Paths are percent-encoded, as in any URL.
//
// On S3, what the URL does not say comes from where the AWS SDK looks for it:
// the environment, the shared configuration files, the role of the machine. With
// an endpoint, from whichever of these, the bucket stands in the path unless
// path_style=false, and the region is us-east-1 unless one is configured.
//
// A store in memory is one for each name, as long as the process runs.
//
// A directory is made by the first object that is created in it; opening and looking make
// nothing. [OpenExisting] never makes it: use that for a directory on a file system that
// may not be mounted, as the command leasehold does unless it is told --mkdir.
// A store that keeps connections is an io.Closer: that of an s3:// URL, which has a client of
// its own. A program that opens many stores, or must leave nothing behind, closes each when
// nothing uses it any more, and others need not:
//
//	if c, ok := st.(io.Closer); ok {
//		err = c.Close()
//	}
//
// Connections to the services that credentials come from are the SDK's, and close after 90 s
// without use.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// ErrURL is matched by every error that lies in the URL itself, and so can be
// mended only by writing another.
var ErrURL = errors.New("bad store URL")

// Open opens the store of a store URL. It reads configuration files, and sends
// nothing to the store. The context is for looking up the configuration only.
func Open(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, nil)
}

// OpenExisting is [Open] for a place that must exist: if the URL's directory does not, it
// fails with [store.ErrNoBucket], and so does every call if it is gone later; nothing makes
// it. A bucket is never made, and asked for only by the calls.
func OpenExisting(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, &filestore.Options{MustExist: true})
}

func open(ctx context.Context, rawurl string, files *filestore.Options) (store.Store, error) {
	u, query, err := parse(rawurl)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "s3":
		return openS3(ctx, u, query)
	case "file":
		dir, err := localPath(u)
		if err != nil {
			return nil, err
		}
		st, err := filestore.New(dir, files)
		if err != nil {
			return nil, err // and not a Store that holds a nil
		}
		return st, nil
	default:
		return openMem(u)
	}
}

// OpenLock opens the store of a lock URL and gives the lock's key in it.
func OpenLock(ctx context.Context, rawurl string) (st store.Store, key string, err error) {
	storeURL, key, err := SplitLock(rawurl)
	if err != nil {
		return nil, "", err
	}
	st, err = Open(ctx, storeURL)
	return st, key, err
}

// SplitLock divides a lock URL into the URL of its store and its key. It looks
// at the URL only.
func SplitLock(rawurl string) (storeURL, key string, err error) {
	u, _, err := parse(rawurl)
	if err != nil {
		return "", "", err
	}
	dir, key := "", strings.TrimPrefix(u.Path, "/")
	if u.Scheme == "file" {
		dir, key = path.Split(u.Path)
		dir = path.Clean(dir)
	}
	switch {
	case key == "" || strings.HasSuffix(key, "/"):
		return "", "", bad(u, "a lock needs a key: the path must not end with a slash")
	default:
		if err := store.CheckKey("lock", key); err != nil {
			return "", "", fmt.Errorf("%w: %w", bad(u, "the key cannot be used"), err)
		}
	}
	of := *u
	of.Path, of.RawPath = dir, ""
	return of.String(), key, nil
}

// parameters are the schemes and the parameters that each knows.
var parameters = map[string][]string{
	"s3":   {"region", "endpoint", "path_style", "profile", "unquoted_etags"},
	"file": nil,
	"mem":  nil,
}

// parse checks all that URLs of every scheme have in common.
func parse(rawurl string) (*url.URL, url.Values, error) {
	u, err := url.Parse(rawurl)
	if err != nil {
		// Without the URL, which url.Parse cites: there can be a password in it.
		if cited, ok := errors.AsType[*url.Error](err); ok {
			err = cited.Err
		}
		return nil, nil, fmt.Errorf("%w: %w (a %% in a path is written %%25)", ErrURL, err)
	}
	if u.User != nil {
		return nil, nil, fmt.Errorf("%w: it has a user or a password in it; credentials come from the environment or a profile, never from a URL", ErrURL)
	}
	if err = checkScheme(u.Scheme); err != nil {
		return nil, nil, err
	}
	switch {
	case u.Opaque != "":
		return nil, nil, fmt.Errorf("%w: no slashes follow %s: at its beginning: write %s:// and an absolute path", ErrURL, u.Scheme, u.Scheme)
	case u.Fragment != "" || strings.HasSuffix(rawurl, "#"):
		return nil, nil, bad(u, "it has a fragment (a # in a path is written %23)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, bad(u, "its parameters cannot be read: "+err.Error())
	}
	if err = checkPlace(u); err != nil {
		return nil, nil, err
	}
	return u, query, checkQuery(u, query)
}

func checkPlace(u *url.URL) error {
	switch {
	case u.Scheme == "file" && u.Host != "" && u.Host != "localhost":
		return bad(u, "a file URL names no host: three slashes begin an absolute path, file:///DIR")
	case u.Scheme == "s3" && u.Host == "":
		return bad(u, "there is no bucket: write s3://BUCKET")
	case u.Scheme == "s3" && strings.Contains(u.Host, ":"):
		return bad(u, "a bucket has no port; the server's address is the parameter endpoint")
	case u.Scheme == "file" && climbs(u.Path):
		return bad(u, "the path has a segment \"..\": write where it leads to")
	case u.Scheme == "mem" && u.Host == "":
		return bad(u, "a store in memory has a name: write mem://NAME")
	}
	return nil
}

// climbs reports that a path has a segment "..". Where that leads, a symbolic link before
// it decides, so that two URLs of one directory could differ, and one of two.
func climbs(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == ".." {
			return true
		}
	}
	return false
}

func checkScheme(scheme string) error {
	known := strings.Join(slices.Sorted(maps.Keys(parameters)), "://, ") + "://"
	_, ok := parameters[scheme]
	switch {
	case ok:
		return nil
	case scheme == "gs" || scheme == "azblob":
		return fmt.Errorf("%w: %s:// is not supported yet by this version; it knows %s", ErrURL, scheme, known)
	case scheme == "":
		return fmt.Errorf("%w: it has no scheme; it must begin with one of %s", ErrURL, known)
	}
	return fmt.Errorf("%w: unknown scheme %s://; this version knows %s", ErrURL, scheme, known)
}

func checkQuery(u *url.URL, query url.Values) error {
	known := parameters[u.Scheme]
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case len(known) == 0:
			return bad(u, fmt.Sprintf("unknown parameter %q; %s URLs have none", name, u.Scheme))
		case !slices.Contains(known, name):
			return bad(u, fmt.Sprintf("unknown parameter %q; there are %s", name, strings.Join(known, ", ")))
		case len(query[name]) > 1:
			return bad(u, fmt.Sprintf("the parameter %q is there %d times", name, len(query[name])))
		case query.Get(name) == "":
			return bad(u, fmt.Sprintf("the parameter %q is empty", name))
		}
	}
	return nil
}

// bad makes an error about the URL. It cites the URL without its parameters:
// what somebody wrote there by mistake may be a secret.
func bad(u *url.URL, why string) error {
	where := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, OmitHost: u.OmitHost}
	return fmt.Errorf("%w: %s: %s", ErrURL, where.String(), why)
}

var (
	memMu sync.Mutex
	mem   = map[string]*memstore.Store{}
)

func openMem(u *url.URL) (store.Store, error) {
	if strings.Trim(u.Path, "/") != "" {
		return nil, bad(u, "a store in memory has no path: write mem://NAME")
	}
	memMu.Lock()
	defer memMu.Unlock()
	st, ok := mem[u.Host]
	if !ok {
		st = memstore.New()
		mem[u.Host] = st
	}
	return st, nil
}
