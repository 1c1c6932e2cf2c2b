// Package upstream has what tests of litestream need when its leaser is that of package leaselitestream.
package upstream

import (
	_ "github.com/benbjohnson/litestream/s3"

	_ "github.com/leasehold/leasehold/adapter/litestream"
	_ "github.com/leasehold/leasehold/store/memstore"
)
