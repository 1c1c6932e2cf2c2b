package leasehold

import "github.com/leasehold/leasehold/internal/lock"

// callbacks are what a driver calls functions of its user with. Most locks have none to call, so it is
// made when the first is called.
type callbacks struct {
	options lock.Callbacks // of those in the options
	traces  *traces        // of the Trace; nil: nothing has been told
}

// callbacks makes them. The engine is locked.
func (d *driver) callbacks() *callbacks {
	if d.calls == nil {
		d.calls = &callbacks{options: lock.Callbacks{Patience: d.opts.TTL, Hangs: d.hangs}}
	}
	return d.calls
}

// call runs a function of the user, after those before it.
func (d *driver) call(name string, f func()) { d.callbacks().options.Add(name, f) }

func (d *driver) hangs(name string) {
	d.opts.Logger.Warn("a callback does not return, and the next ones wait for it", "lock", d.at.String(), "callback", name)
}
