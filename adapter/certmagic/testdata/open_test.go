package certmagic_test

import (
	"github.com/caddyserver/certmagic"

	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/store/filestore"
)

func init() {
	certmagic.OpenStorage = func(path string) certmagic.LeaseStorage {
		st, err := filestore.New(path, nil)
		if err != nil {
			panic(err)
		}
		s, err := leasecertmagic.New(st, nil)
		if err != nil {
			panic(err)
		}
		return s
	}
}
