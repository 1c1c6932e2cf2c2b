// Package admin has functions for tools that manage other processes' locks: list them, create
// one in advance, force-release one whose holder cannot be reached, move one, read its history,
// and delete leftovers. It also lists, inspects and force-releases semaphores. Programs that
// only hold locks do not need it.
//
// Functions for one lock take a [leasehold.Lock], which has checked the key, the layout and the
// options. The others take a store, opened as for the locks in it, and a prefix.
//
// Nothing here weakens the guarantee for tokens. The guarantee for valid leases holds except
// where a function says otherwise: with [Break], [BreakHolder] and [BreakSession], the holder may
// still be working until it notices, and [Collect] deletes markers, which have no tokens.
package admin

import (
	"context"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// LayoutTable is the layout of a semaphore in an [Entry]. No lock has it.
const LayoutTable leasehold.Layout = record.LayoutTable

// An Entry is a lock or a semaphore.
type Entry struct {
	leasehold.Info

	// Past has the lock's previous leases, newest first, from its own record: at most 16, and
	// none for a marker. [History] may return more.
	Past []Term
}

// entryOf returns the entry for the result of a read in any layout.
func entryOf(key string, s layout.Snapshot) Entry {
	e := Entry{Info: leasehold.Internal.Describe(key, s)}
	for _, t := range s.Past() {
		e.Past = append(e.Past, termOf(key, t))
	}
	return e
}

// newWriteID returns a new ID for one call's writes (rule A2).
func newWriteID() string { return engine.Process{}.Incarnation() }

// Init creates the lock's object in the free state, unless it exists. It returns the state of
// the lock, and reports whether this call created it. It costs one read, and one write if the
// object did not exist. You can call it again, and from several processes at once.
func Init(ctx context.Context, lock *leasehold.Lock) (info leasehold.Info, made bool, err error) {
	s, info, err := leasehold.Internal.Look(ctx, lock)
	if err != nil || info.Exists {
		return info, false, err
	}
	cfg := leasehold.Internal.Config(lock)
	w := candidate.Write{Op: candidate.Free, Record: candidate.First(cfg, newWriteID(), s.Date, time.Now())}
	written, err := leasehold.Internal.Layout(lock).Write(ctx, w)
	if err == nil {
		return leasehold.Internal.Describe(lock.Key(), written), true, nil
	}
	// Another process may have created the object, or our write may have landed after all. If
	// this read fails too, the write's error says more.
	if s, info, _ := leasehold.Internal.Look(ctx, lock); info.Exists {
		return info, s.Record.WriteID == w.Record.WriteID, nil
	}
	return leasehold.Info{}, false, leasehold.Internal.Explain(lock, err)
}
