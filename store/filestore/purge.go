package filestore

import (
	"context"
	"os"

	"github.com/leasehold/leasehold/store"
)

var _ store.Purger = (*Store)(nil)

// Purge removes the directory of that name with all that is in it, the locks of its
// directories too: so only where nobody else is at work. It makes no requests.
func (s *Store) Purge(ctx context.Context, directory string) (requests int, err error) {
	if err = check(ctx, "delete", directory); err != nil {
		return 0, err
	}
	path, err := s.path(directory)
	if err == nil {
		err = os.RemoveAll(path)
	}
	if err != nil {
		return 0, failed("delete", directory, err)
	}
	return 0, nil
}
