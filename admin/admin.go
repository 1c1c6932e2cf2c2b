// Package admin is what tools do to locks that others hold: list them, make one beforehand,
// break one whose holder is out of reach, move one to another place, look at its past, and delete
// what is left of that.
// A program that only holds locks needs none of it. Semaphores are listed, looked at and broken too.
//
// A function for one lock takes a [leasehold.Lock], which has checked the key, the layout and
// the options; the others take a store, as the locks in it are opened, and a prefix.
//
// Nothing here weakens the guarantee for tokens, nor for valid leases but where a
// function says so: [Break], [BreakSeat] and [BreakSession] free what its holder may still be working
// under, until he notices, and [Collect] deletes markers, which have no tokens.
package admin

import (
	"context"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

// root is what the root package shows, and describeTable what package semaphore does.
var (
	root          = inside.Seen[*leasehold.Lock, leasehold.Info, leasehold.Detached]()
	describeTable = inside.SeenTable[semaphore.Info]()
)

// LayoutTable is what [Entry] has as the layout of a semaphore. No lock has it.
const LayoutTable leasehold.Layout = record.LayoutTable

// An Entry is what lies under a name: a lock, or a semaphore.
type Entry struct {
	// Info is the lock. Of a semaphore there are Key, Layout, Exists, Age and Version; Held if a seat is
	// taken; Token of the last grant; and Abandoned if all its holders look to be gone.
	leasehold.Info
	Semaphore *semaphore.Info // nil: it is a lock

	// Past are the leases of a lock that have ended, the last one first, as far as its record tells of them
	// itself: sixteen at most, and none of a marker. [History] may know more.
	Past []Term
}

// entryOf is what a look has shown that asked for no layout.
func entryOf(key string, s layout.Snapshot) Entry {
	e := Entry{Info: root.Describe(key, s)}
	for _, t := range s.Past() {
		e.Past = append(e.Past, termOf(key, t))
	}
	if s.Table != nil {
		seats := describeTable(key, *s.Table)
		seats.Version = store.Version(s.Version)
		e.Semaphore = &seats
	}
	return e
}

// newWriteID marks what one call writes, as an attempt of its own (rule A2).
func newWriteID() string { return engine.Process{}.Incarnation() }

// Init makes the lock's object, free, if there is none, and returns what is there
// then, and whether it was this call that made it. It costs one read, and one write
// if there was none. It is safe to call it again, and from two processes at once.
func Init(ctx context.Context, lock *leasehold.Lock) (info leasehold.Info, made bool, err error) {
	s, info, err := root.Look(ctx, lock)
	if err != nil || info.Exists {
		return info, false, err
	}
	p := root.Parts(lock)
	w := protocol.Write{Op: protocol.Free, Record: protocol.First(p.Config, newWriteID(), s.Date, time.Now())}
	written, err := p.Layout.Write(ctx, w)
	if err == nil {
		return root.Describe(lock.Key(), written), true, nil
	}
	// Another may have made it, or our write have landed all the same: look. A look that
	// fails shows nothing, and the write's error says more.
	if s, info, _ := root.Look(ctx, lock); info.Exists {
		return info, s.Record.WriteID == w.Record.WriteID, nil
	}
	return leasehold.Info{}, false, root.Explain(lock, err)
}
