package filestore

import (
	"context"
	"os"

	"github.com/leasehold/leasehold/store"
)

var _ store.Purger = (*Store)(nil)

// Purge removes the directory of that name with everything in it, including the locks of its
// directories. So call it only if nothing else uses the directory. It makes no requests.
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
