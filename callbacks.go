package leasehold

import "github.com/leasehold/leasehold/internal/callback"

// call runs a function of the user, after those before it.
func (d *driver) call(name string, f func()) {
	if d.calls == nil {
		d.calls = &callback.Queue{Patience: d.opts.TTL, Hangs: d.hangs}
	}
	d.calls.Add(name, f)
}

func (d *driver) hangs(name string) {
	d.opts.Logger.Warn("a callback does not return, and the next ones wait for it", "lock", d.at.String(), "callback", name)
}
