// Package upstream has what tests of tusd need when its lockers are those of package leasetusd.
package upstream

import (
	_ "github.com/Acconut/go-httptest-recorder"
	_ "github.com/golang/mock/gomock"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/tus/tusd/v2/pkg/filestore"
	_ "github.com/tus/tusd/v2/pkg/handler"
	_ "github.com/tus/tusd/v2/pkg/memorylocker"

	_ "github.com/leasehold/leasehold/adapter/tusd"
	_ "github.com/leasehold/leasehold/store/memstore"
)
