package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

var errInMemory = errors.New("a lock in the memory of this process keeps no other out: name a store that others share")

// A target is where a lock lies.
type target struct {
	name     string // as the user gave it
	store    store.Store
	key      string
	url      string
	storeURL string
	layout   leasehold.Layout // that was asked for; empty: any
	opening  opening
}

// An opening is how stores are opened.
type opening struct {
	mkdir   bool         // a directory may be made
	logger  *slog.Logger // is told of the members of a quorum; nil: nobody is
	private bool         // what is made in a directory is for those alone that may write it
}

func (a *app) opening() opening { return opening{mkdir: a.mkdir, logger: a.console.quorumLogger()} }

// locate opens the store of a lock that is given by its URL or by a bare name.
func (a *app) locate(ctx context.Context, name string, as leasehold.Layout) (target, error) {
	p, err := locate(ctx, name, as, a.opening(), a.home)
	a.at, a.lock = p.store, p.key
	a.console.about(p.url)
	return p, err
}

// locate is the same with a say in where a bare name lies.
func locate(
	ctx context.Context, name string, as leasehold.Layout, how opening, home func(name string) (string, error),
) (target, error) {
	p := target{name: name, key: name, url: name, layout: as, opening: how}
	err := checkName(name)
	if err != nil {
		return target{}, usage("%w", err)
	}
	if strings.Contains(name, "://") {
		p.storeURL, p.key, err = storeurl.SplitLock(name)
	} else if err = store.CheckKey("lock", name); err == nil {
		p.storeURL, err = home(name)
		p.url, _ = urlOf(p.storeURL, name) // what is wrong with the store's URL, open says
	}
	if err != nil {
		return target{}, failed(err)
	}
	return p, p.open(ctx)
}

// locatePrefix opens the store of all locks whose names begin with prefix, or that
// lie in the store whose URL it is. The key of the target is what they begin with.
func (a *app) locatePrefix(ctx context.Context, prefix string) (target, error) {
	p, err := locatePrefix(ctx, prefix, a.opening(), a.home)
	a.at = p.store
	return p, err
}

func locatePrefix(
	ctx context.Context, prefix string, how opening, home func(name string) (string, error),
) (target, error) {
	p := target{name: prefix, storeURL: prefix, opening: how}
	if err := checkName(prefix); err != nil {
		return target{}, usage("%w", err)
	}
	if !strings.Contains(prefix, "://") {
		p.key = prefix
		var err error
		if p.storeURL, err = home(prefix); err != nil {
			return target{}, err
		}
		return p, p.open(ctx)
	}
	if err := p.open(ctx); err != nil || !isLock(ctx, p.store) {
		return p, err
	}
	// It is a lock's own URL, seen as that of a store of its epochs.
	storeURL, key, err := storeurl.SplitLock(p.storeURL)
	if err != nil {
		return target{}, failed(err)
	}
	p.storeURL, p.key = storeURL, key
	return p, p.open(ctx)
}

// isLock reports that the objects of a store are epochs of one lock.
func isLock(ctx context.Context, st store.Store) bool {
	for entry, err := range (timeoutStore{Store: st}).List(ctx, "", "") {
		if err == nil && strings.HasPrefix(entry.Key, "!") {
			continue // a signpost, perhaps
		}
		lock, _, epoch := layout.Epoch("lock/" + entry.Key)
		return err == nil && epoch && lock == "lock"
	}
	return false
}

func (p *target) open(ctx context.Context) (err error) {
	if strings.HasPrefix(p.storeURL, "mem:") {
		return usage("%s: %w", p.name, errInMemory)
	}
	if p.store, err = openStore(ctx, p.storeURL, p.opening, p.byDefault()); err != nil {
		if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, store.ErrNoBucket) {
			return &exit{exitAbsent, fmt.Errorf("%s: %w: mount what is to be there, or make the directory, with leasehold init or with --mkdir of leasehold run, elect and fence", p.name, missing)}
		}
		if codeOf(err) == exitInternal { // nothing was sent: what is wrong is how it is set up
			return &exit{exitUsage, err}
		}
		return failed(err)
	}
	return nil
}

// openStore opens a store whose directory is left to the first write, if it may be made.
func openStore(ctx context.Context, url string, how opening, ours bool) (store.Store, error) {
	return storeurl.OpenWith(ctx, url, &storeurl.Options{MustExist: !how.mkdir && !ours, Private: how.private || ours, Logger: how.logger})
}

// byDefault reports that the store is the one of --local. Its directory is nobody else's, so it is made when it is
// needed.
func (p *target) byDefault() bool {
	base, err := localURL()
	return err == nil && p.storeURL == base
}

// urlOf is the URL of a lock in a store.
func urlOf(storeURL, key string) (string, error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return "", fmt.Errorf("%w: %w", storeurl.ErrURL, err)
	}
	return u.JoinPath(strings.Split(escaped(key), "/")...).String(), nil
}

// escaped is a key as a part of a URL.
func escaped(key string) string {
	var segments []string
	for segment := range strings.SplitSeq(key, "/") {
		segments = append(segments, url.PathEscape(segment))
	}
	return strings.Join(segments, "/")
}

// home is the URL of the store of bare names. Without LEASEHOLD_STORE there is none: a lock that was meant for other
// machines too would keep none of them out.
func (a *app) home(name string) (string, error) {
	base := os.Getenv(storeVariable)
	switch {
	case base == "" && !a.local && name == "":
		return "", usage("no store is given: "+noStore, storeVariable)
	case base == "" && !a.local:
		return "", usage("%q is a name, and no store is set for names: "+noStore, name, storeVariable)
	case base == "":
		return localURL()
	case a.local:
		return "", usage("--local and the variable %s exclude each other: unset one of them", storeVariable)
	}
	if err := checkName(base); err != nil {
		return "", usage("the variable %s: %w", storeVariable, err)
	}
	if !strings.Contains(base, "://") {
		return "", usage("the variable %s=%q is not a URL: set it to one such as s3://bucket/prefix or file:///dir", storeVariable, base)
	}
	return base, nil
}

const noStore = "set %s to the URL of a store that all machines share, or pass --local for a lock on this machine only"

// localURL is the URL of the directory that --local keeps locks in.
func localURL() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", usage("--local has no directory: %w: set %s to the URL of a store", err, storeVariable)
	}
	return fileURL(filepath.Join(dir, "leasehold")), nil
}

// stateDir is where programs of this user keep their state.
func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		return os.UserCacheDir() // %LocalAppData%
	case "darwin":
		return os.UserConfigDir() // ~/Library/Application Support
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // else to be ignored
		return dir, nil
	}
	dir, err := os.UserHomeDir()
	return filepath.Join(dir, ".local", "state"), err
}
