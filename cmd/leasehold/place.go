package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// storeVariable names the store that bare names lie in.
const storeVariable = "LEASEHOLD_STORE"

// A place is where a lock lies.
type place struct {
	name     string // as the user gave it
	store    store.Store
	key      string
	url      string
	storeURL string
}

// locate opens the store of a lock that is given by its URL or by a bare name.
func locate(ctx context.Context, name string) (place, error) {
	p := place{name: name, key: name, url: name}
	var err error
	if strings.Contains(name, "://") {
		p.storeURL, p.key, err = storeurl.SplitLock(name)
	} else {
		p.storeURL, p.url, err = bare(name)
	}
	if err != nil {
		return place{}, failed(err)
	}
	if strings.HasPrefix(p.storeURL, "mem:") {
		return place{}, usage("%s: a lock in the memory of this process keeps no other out: name a store that others share", name)
	}
	if p.store, err = storeurl.Open(ctx, p.storeURL); err != nil {
		if codeOf(err) == exitInternal { // nothing was sent: what is wrong is how it is set up
			return place{}, &exit{exitUsage, err}
		}
		return place{}, failed(err)
	}
	return p, nil
}

// bare gives the URLs of the store that a bare name lies in, and of the lock.
func bare(name string) (storeURL, lockURL string, err error) {
	if err = store.CheckKey("lock", name); err != nil {
		return "", "", err
	}
	if storeURL, err = home(); err != nil {
		return "", "", err
	}
	u, err := url.Parse(storeURL)
	if err != nil {
		return "", "", fmt.Errorf("%w: the variable %s: %w", storeurl.ErrURL, storeVariable, err)
	}
	var segments []string
	for segment := range strings.SplitSeq(name, "/") {
		segments = append(segments, url.PathEscape(segment))
	}
	return storeURL, u.JoinPath(segments...).String(), nil
}

// home is the URL of the store of bare names.
func home() (string, error) {
	if base := os.Getenv(storeVariable); base != "" {
		if !strings.Contains(base, "://") {
			return "", usage("the variable %s=%q is not a URL: set it to one such as s3://bucket/prefix or file:///dir", storeVariable, base)
		}
		return base, nil
	}
	dir, err := stateDir()
	if err != nil {
		return "", usage("there is no directory for locks without a URL: %w: set %s to the URL of a store", err, storeVariable)
	}
	path := filepath.ToSlash(filepath.Join(dir, "leasehold"))
	if !strings.HasPrefix(path, "/") { // C:/Users/…
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), nil
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
