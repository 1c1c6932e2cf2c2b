package leasehold

import "github.com/leasehold/leasehold/internal/lock"

// callbacks call the user's functions for a driver. Most locks have none, so they are created
// at the first call.
type callbacks struct {
	options lock.Callbacks // of the callbacks in the options
	traces  *traces        // of the Trace; nil: no event so far
}

// callbacks returns them, and creates them if necessary. The engine is locked.
func (d *driver) callbacks() *callbacks {
	if d.calls == nil {
		d.calls = &callbacks{options: lock.Callbacks{Patience: d.opts.TTL, Hangs: d.hangs}}
	}
	return d.calls
}

// call runs a function of the user after the earlier ones.
func (d *driver) call(name string, f func()) { d.callbacks().options.Add(name, f) }

func (d *driver) hangs(name string) {
	d.opts.Logger.Warn("a callback does not return, and the next ones wait for it", "lock", d.at.String(), "callback", name)
}
