package main

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/internal/sdnotify"
)

// statusPeriod is how often the state is looked at that nobody tells of, such as a store that
// fails.
const statusPeriod = 5 * time.Second

// A notifier tells the service manager that has started this process how it does. It has a
// goroutine of its own, since the manager may be slow to take what it is sent: nothing that holds a
// lock waits for it. A nil notifier tells nobody.
type notifier struct {
	send     func(ctx context.Context, messages ...string) error
	interval time.Duration // of the watchdog; 0: there is none
	console  *console
	status   func() string // in a line, for people
	fit      func() bool   // to be kept alive by the watchdog
	wake     chan struct{}
	ended    chan struct{} // closed when all has been told
	complain sync.Once

	ready, stopping, last atomic.Bool
}

// notify begins to tell the service manager, if there is one.
func notify(ctx context.Context, console *console, status func() string, fit func() bool) *notifier {
	socket, err := sdnotify.FromEnvironment(os.Getenv, os.Getpid())
	if err != nil {
		console.warn("the service manager is not told, or not all: %s", oneLine(err))
	}
	if !socket.Open() {
		return nil
	}
	n := newNotifier(socket.Send, socket.Interval(), console, status, fit)
	go n.run(context.WithoutCancel(ctx))
	return n
}

func newNotifier(send func(context.Context, ...string) error, interval time.Duration, console *console, status func() string, fit func() bool) *notifier {
	return &notifier{
		send: send, interval: interval, console: console, status: status, fit: fit,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// changed has the status told again.
func (n *notifier) changed() {
	if n != nil {
		poke(n.wake)
	}
}

// begins tells that the service does its work from now on.
func (n *notifier) begins() {
	if n != nil {
		n.ready.Store(true)
		n.changed()
	}
}

// stops tells that the service is about to end.
func (n *notifier) stops() {
	if n != nil {
		n.stopping.Store(true)
		n.changed()
	}
}

// end tells that too, and returns when the manager was told, or could not be.
func (n *notifier) end() {
	if n != nil {
		n.last.Store(true)
		n.stops()
		<-n.ended
	}
}

func (n *notifier) run(ctx context.Context) {
	defer close(n.ended)
	look := time.NewTicker(statusPeriod)
	defer look.Stop()
	var alive <-chan time.Time
	if half := n.interval / 2; half > 0 {
		ticker := time.NewTicker(half)
		defer ticker.Stop()
		alive = ticker.C
	}
	var told telling
	for {
		last := n.last.Load() // before what is told, so that nothing is left out at the end
		messages, now := told.next(n.ready.Load(), n.stopping.Load(), n.status())
		if n.tell(ctx, messages) {
			told = now // else it is told again when there is anything to tell, or in a while
		}
		if last {
			return
		}
		select {
		case <-n.wake:
		case <-look.C:
		case <-alive:
			if n.fit() {
				n.tell(ctx, []string{sdnotify.Watchdog})
			}
		}
	}
}

// tell reports whether the manager has got the messages. If not, that is said, but once: it can go
// on for as long as this process.
func (n *notifier) tell(ctx context.Context, messages []string) bool {
	if len(messages) == 0 {
		return true
	}
	err := n.send(ctx, messages...)
	if err != nil {
		n.complain.Do(func() { n.console.warn("the service manager was not told: %s", oneLine(err)) })
	}
	return err == nil
}

// telling is what the manager was told.
type telling struct {
	ready, stopping bool
	status          string
}

// next is what it is to be told, and what it was told then.
func (t telling) next(ready, stopping bool, status string) (messages []string, now telling) {
	now = telling{t.ready || ready, t.stopping || stopping, sdnotify.Status(status)}
	if now.ready && !t.ready {
		messages = append(messages, sdnotify.Ready)
	}
	if now.stopping && !t.stopping {
		messages = append(messages, sdnotify.Stopping)
	}
	if now.status != t.status {
		messages = append(messages, now.status)
	}
	return messages, now
}

// A holding is what a run knows of its lock, for its notifier.
type holding struct {
	waitsFor atomic.Pointer[blocker]
	lease    atomic.Pointer[held]
	valid    atomic.Pointer[time.Time] // when the lease was last found valid: one that is over has no deadline
}

// standing says in a line how a run stands, for people.
func (h *holding) standing(lock string) string {
	if lease := h.lease.Load(); lease != nil {
		return "holding " + lock + " as " + plain.Word((*lease).Holder()) + withToken((*lease).Token())
	}
	return h.waitsFor.Load().inFull(lock)
}

// fit reports whether a run can do its work. It cannot once its lease has been over for longer than
// a TTL, and the command, which was to be killed at its end, is still there.
func (h *holding) fit(ttl time.Duration, now time.Time) bool {
	lease := h.lease.Load()
	if lease == nil || (*lease).Valid() || h.valid.Load() == nil {
		h.valid.Store(&now)
		return true
	}
	return now.Sub(*h.valid.Load()) <= ttl
}
