// Command example is Caddy with the storage.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/leasehold/leasehold/adapter/caddy"
)

func main() { caddycmd.Main() }
