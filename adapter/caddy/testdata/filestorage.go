package filestorage

import (
	"path/filepath"

	"github.com/caddyserver/caddy/v2"

	leasecaddy "github.com/leasehold/leasehold/adapter/caddy"
)

// ours is what Caddy's storage in a directory is made of.
type ours = leasecaddy.Storage

func (s *FileStorage) Provision(ctx caddy.Context) error {
	s.ours = ours{URL: "file://" + filepath.ToSlash(s.Root)}
	return s.ours.Provision(ctx)
}

func (s *FileStorage) Cleanup() error { return s.ours.Cleanup() }
