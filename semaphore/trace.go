package semaphore

import (
	"slices"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
)

// sent notes an action of the table before it is carried out.
func (d *driver) sent(action protocol.Action) {
	if w, ok := action.(queue.Write); ok && d.tracer != nil {
		shown, _ := d.Machine().Shown()
		d.reaps = slices.ContainsFunc(shown.Holders, func(h record.Entry) bool {
			stays := slices.ContainsFunc(w.Table.Holders, func(s record.Entry) bool { return s.ID == h.ID })
			return !stays && d.sessions[h.Session] == nil
		})
	}
	d.tracer.Sent(action)
}

// taken notes an event.
func (d *driver) taken(ev protocol.Event) {
	written, ok := ev.(queue.WriteDone)
	d.reaped = ok && written.Err == nil && d.reaps
	if answer, ok := d.tracer.Taken(ev, 0); ok {
		if d.failures++; answer.Err == nil {
			d.failures = 0
		}
	}
}
