// Package leasecaddy is a Caddy module, caddy.storage.leasehold: certificates, keys and locks of all instances of Caddy in
// one bucket. It is adapter/certmagic, configured by a Caddyfile or JSON.
package leasecaddy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap/exp/zapslog"

	"github.com/leasehold/leasehold"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

func init() { caddy.RegisterModule(new(Storage)) }

// Storage is the module's configuration, and what comes of it. All configurations of a process with the same values
// share one storage, so what a configuration has locked stays locked while it is replaced.
type Storage struct {
	// The store, as for storeurl.Open: s3://BUCKET/PREFIX, gs://…, azblob://…, file:///DIR. Placeholders such
	// as {env.BUCKET} are replaced. Credentials are no part of it.
	URL string `json:"url"`

	// How long a lock outlives a process that is gone. Default 15 s; from 1 s to 24 h.
	TTL caddy.Duration `json:"ttl,omitempty"`

	use    usage // empty: not provisioned
	shared *shared
}

var (
	_ caddy.Module           = (*Storage)(nil)
	_ caddy.Provisioner      = (*Storage)(nil)
	_ caddy.Validator        = (*Storage)(nil)
	_ caddy.CleanerUpper     = (*Storage)(nil)
	_ caddy.StorageConverter = (*Storage)(nil)
	_ caddyfile.Unmarshaler  = (*Storage)(nil)
)

// CaddyModule says what the module is.
func (*Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.leasehold", New: func() caddy.Module { return new(Storage) }}
}

// pool has the storages in use.
var pool = caddy.NewUsagePool()

// A usage is what configurations share a storage by.
type usage struct {
	url string
	ttl time.Duration
}

// Provision opens the store, which sends nothing to it.
func (s *Storage) Provision(ctx caddy.Context) error {
	url, err := caddy.NewReplacer().ReplaceOrErr(s.URL, true, true)
	if err != nil {
		return fmt.Errorf("the url of the storage leasehold: %w", err)
	}
	use := usage{url, time.Duration(s.TTL)}
	opened, _, err := pool.LoadOrNew(use, func() (caddy.Destructor, error) { return open(ctx, use) })
	if err != nil {
		return fmt.Errorf("the storage leasehold: %w", err)
	}
	s.use, s.shared = use, opened.(*shared) //nolint:errcheck // nothing else is in the pool
	return nil
}

// Validate reports that there is no storage: the URL and the TTL were looked at when it was opened.
func (s *Storage) Validate() error {
	if s.shared == nil {
		return errors.New("the storage leasehold was not provisioned")
	}
	return nil
}

// Cleanup closes the storage if no other configuration uses it, and waits up to 5 s for work under its locks to end.
func (s *Storage) Cleanup() error {
	if s.shared == nil {
		return nil
	}
	s.shared = nil
	_, err := pool.Delete(s.use)
	return err
}

// CertMagicStorage gives the storage.
func (s *Storage) CertMagicStorage() (certmagic.Storage, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s.shared.Storage, nil
}

// UnmarshalCaddyfile reads the module's part of a Caddyfile:
//
//	storage leasehold URL {
//		ttl DURATION
//	}
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the module
	if !d.Args(&s.URL) || d.NextArg() {
		return d.Err("storage leasehold takes one argument, the URL of a store such as s3://bucket/prefix")
	}
	for d.NextBlock(0) {
		var text string
		if d.Val() != "ttl" {
			return d.Errf("storage leasehold has no option %q; there is ttl", d.Val())
		}
		if !d.AllArgs(&text) {
			return d.ArgErr()
		}
		ttl, err := caddy.ParseDuration(text)
		if err != nil {
			return d.Errf("ttl: %v", err)
		}
		s.TTL = caddy.Duration(ttl)
	}
	return nil
}

// shared is a storage that is open, and its store.
type shared struct {
	*leasecertmagic.Storage
	st store.Store
}

func open(ctx context.Context, use usage) (*shared, error) {
	st, err := storeurl.Open(ctx, use.url)
	if err != nil {
		return nil, err
	}
	storage, err := leasecertmagic.New(st, &leasehold.LockOptions{TTL: use.ttl, Logger: slog.New(logHandler{})})
	return &shared{storage, st}, err
}

// A logHandler writes to Caddy's log. Caddy replaces its log with each configuration, so each
// message asks for it.
type logHandler struct{ attrs []slog.Attr }

func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return caddyLog().Enabled(ctx, level)
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	return caddyLog().WithAttrs(h.attrs).Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{append(slices.Clip(h.attrs), attrs...)}
}

// WithGroup ignores the name: the locks use no groups.
func (h logHandler) WithGroup(string) slog.Handler { return h }

func caddyLog() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("storage.leasehold"))
}

// Destruct closes the storage, and the store's connections if nothing uses them any more.
func (s *shared) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		return fmt.Errorf("the storage leasehold is left open: %w", err)
	}
	if c, ok := s.st.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
