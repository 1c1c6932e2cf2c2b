package s3lect

import (
	"context"
	"strings"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
)

// A line is how this instance asks the leader, if it may: it can be switched on and
// off while an election goes on, which must be told at its making whether it has
// anybody to ask. A question that cannot be asked is kept, until it can or does not
// matter any more. To the election that is an answer that has not come yet, which
// changes nothing; a refusal would be a leader that does not answer, worth a line in
// the log and further questions.
type line struct {
	original func() bool // the leader is an instance of the original package
	heard    func()      // is told of every answer

	mu      sync.Mutex
	client  asker         // nil: switched off
	changed chan struct{} // closed when client is another
}

// An asker asks leaders; it is a [peer.Client].
type asker interface {
	leasehold.Peers
	Close() error
}

var (
	_ leasehold.Peers = (*line)(nil)
	_ asker           = (*peer.Client)(nil)
)

func newLine(original func() bool, heard func()) *line {
	return &line{original: original, heard: heard, changed: make(chan struct{})}
}

// use switches to next, or off if it is nil, and closes the former one.
func (l *line) use(next asker) {
	l.mu.Lock()
	former := l.client
	l.client = next
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if former != nil {
		_ = former.Close()
	}
}

// Ask never asks an instance of the original package: that says that it has renewed
// just now, whether it has or not.
func (l *line) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address // without a port, too
	}
	for {
		l.mu.Lock()
		client, changed := l.client, l.changed
		l.mu.Unlock()
		if client != nil && !l.original() {
			said, err := client.Ask(ctx, address, q)
			if err == nil {
				l.heard()
			}
			return said, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return peer.Leadership{}, ctx.Err()
		}
	}
}
