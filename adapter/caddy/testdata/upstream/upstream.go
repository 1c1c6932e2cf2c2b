// Package upstream has what tests of Caddy need when its storage is that of package leasecaddy.
package upstream

import (
	_ "github.com/caddyserver/caddy/v2/caddytest"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/stretchr/testify/assert"

	_ "github.com/leasehold/leasehold/adapter/caddy"
)
