// Package early makes a process that was started as a guardian or a watcher take
// up its work as soon as it can.
//
// To import it is the same as to call [guardian.Main] first of all, only sooner:
// packages are initialized in the order of their paths as far as their imports let
// them, so the tables of the SDKs, which take longer than all that a guardian does
// before it starts the command, are not made in it, nor kept in its memory. A
// program that calls guardian.Main works without this package too.
package early

import "github.com/leasehold/leasehold/internal/guardian"

func init() { guardian.Main() }
