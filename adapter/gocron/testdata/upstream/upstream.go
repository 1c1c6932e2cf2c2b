// Package upstream is where gocron's own tests are compiled, with what they import besides.
package upstream

import (
	_ "github.com/go-co-op/gocron/v2"
	_ "github.com/google/uuid"
	_ "github.com/jonboulle/clockwork"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"

	_ "github.com/leasehold/leasehold/adapter/gocron"
	_ "github.com/leasehold/leasehold/store/memstore"
)
