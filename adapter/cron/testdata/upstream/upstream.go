// Package upstream is where cron's own tests are compiled, with what they import besides.
package upstream

import (
	_ "github.com/robfig/cron/v3"

	_ "github.com/leasehold/leasehold/adapter/cron"
	_ "github.com/leasehold/leasehold/store/memstore"
)
