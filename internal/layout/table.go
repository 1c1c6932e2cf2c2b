package layout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Table keeps a table in one object, as Object keeps a lock. Its record is not a lock's.
type Table struct {
	Store store.Store
	Key   string
}

// A TableSnapshot is the result of a Look.
type TableSnapshot struct {
	Table   record.Table
	Version protocol.Version
}

func (t Table) String() string { return Object(t).String() }

// Look costs one Get.
func (t Table) Look(ctx context.Context, unless protocol.Version) (TableSnapshot, error) {
	obj, err := t.Store.Get(ctx, t.Key, store.Version(unless))
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return TableSnapshot{}, fmt.Errorf("the object %v is %w: %w", t, record.ErrForeign, err)
	case err != nil:
		return TableSnapshot{}, err
	}
	table, err := record.DecodeTable(obj.Body)
	if err != nil {
		return TableSnapshot{}, fmt.Errorf("the object %v is %w", t, err)
	}
	return TableSnapshot{mapSessions(table, func(way string) string { return follow(way, t.Key) }), protocol.Version(obj.Version)}, nil
}

// Write costs one Put, and returns the new version.
func (t Table) Write(ctx context.Context, w queue.Write) (protocol.Version, error) {
	body, err := mapSessions(w.Table, func(session string) string { return wayTo(session, t.Key) }).Encode()
	if err != nil {
		return "", &store.Error{Op: "put", Key: t.Key, Kind: store.ErrInvalid, Cause: err}
	}
	obj, err := t.Store.Put(ctx, t.Key, body, expected(w.Expect))
	if err != nil {
		return "", err
	}
	return protocol.Version(obj.Version), nil
}

// mapSessions returns a table with its sessions renamed. In the object they are relative paths,
// so a process finds them even if it opens the store from another root.
func mapSessions(t record.Table, name func(string) string) record.Table {
	for _, list := range []*[]record.Entry{&t.Holders, &t.Waiters} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i].Session = name((*list)[i].Session)
		}
	}
	return t
}

// TableRead turns a Look's result into a queue.Machine's event.
func TableRead(s TableSnapshot, err error) queue.ReadDone {
	switch {
	case errors.Is(err, store.ErrNotModified):
		return queue.ReadDone{Shown: protocol.Same}
	case errors.Is(err, store.ErrNotExist):
		return queue.ReadDone{Shown: protocol.Absent, Date: store.DateOf(err)}
	case errors.Is(err, record.ErrForeign):
		return queue.ReadDone{Shown: protocol.Foreign, Err: err}
	case err != nil:
		return queue.ReadDone{Err: err, Fatal: store.Final(err)}
	}
	return queue.ReadDone{Shown: protocol.Found, Version: s.Version, Table: s.Table}
}

// TableWritten turns a Write's result into a queue.Machine's event.
func TableWritten(v protocol.Version, err error) queue.WriteDone {
	return queue.WriteDone{Version: v, Err: err, Refused: refused(err), Fatal: store.Final(err)}
}

// refused reports whether a write's condition was not met, as far as the store says.
func refused(err error) bool {
	return errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConflict)
}
