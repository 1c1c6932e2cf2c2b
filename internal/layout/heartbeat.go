package layout

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Heartbeat keeps a session in one object, as Object keeps a lock. Its record is not a lock's.
type Heartbeat struct {
	Store store.Store
	Key   string

	// Freed, if set, returns what the record says about released locks.
	Freed func() *record.Freed
}

// heartbeat is the layout of its records.
var heartbeat = record.Layout{Name: record.LayoutSession}

func (h Heartbeat) String() string { return Object{h.Store, h.Key}.String() }

// Look costs one Get.
func (h Heartbeat) Look(ctx context.Context, unless protocol.Version) (Snapshot, error) {
	if strings.HasPrefix(h.Key, up) {
		return Snapshot{}, &store.Error{Op: "get", Key: h.Key, Kind: store.ErrInvalid, Cause: errOutside}
	}
	return look(ctx, h.Store, h.Key, heartbeat, unless)
}

// Dated is like Look, but also finds out the store's time. If a Get does not tell it, as in a
// directory, that costs a Get of a missing object.
func (h Heartbeat) Dated(ctx context.Context) (Snapshot, error) {
	s, err := h.Look(ctx, "")
	if err == nil && s.Exists {
		err = dated(ctx, h.Store, h.Key+".clock", &s)
	}
	return s, err
}

// Gone returns a hint that a session's holder is dead. If the session's object is unrecognized,
// or outside of the store as it was opened, the holder counts as alive, as it does for the
// lock's waiters. It costs one Get.
func (h Heartbeat) Gone(ctx context.Context, lock string) (bool, error) {
	s, err := h.Look(ctx, "")
	if errors.Is(err, record.ErrForeign) || errors.Is(err, store.ErrInvalid) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("whether the session %s of the holder of %s goes on is not known: %w", h.Key, lock, err)
	}
	return !s.Record.Held || s.Abandoned(time.Now()), nil // an absent session is not held
}

// Write costs one Put.
func (h Heartbeat) Write(ctx context.Context, w candidate.Write) (Snapshot, error) {
	if h.Freed != nil {
		w.Record.Freed = h.Freed()
	}
	return put(ctx, h.Store, h.Key, heartbeat, w.Record, expected(w.Expect))
}

// errOutside: the session's absence there would mean nothing.
var errOutside = errors.New("the session lies outside of the store as it was opened: open it by the URL that the lock's holder uses")

const up = "../"

// A record names its session by the relative path from its own object. A process that opens the
// same objects from another root finds the same session, or a path out of its root. It never
// takes an absent object under its own root for an ended session.

// wayTo returns the path to a session from the record under key.
func wayTo(session, key string) string {
	if session == "" {
		return ""
	}
	from, to := strings.Split(key, "/"), strings.Split(session, "/")
	for len(from) > 1 && len(to) > 1 && from[0] == to[0] {
		from, to = from[1:], to[1:]
	}
	return strings.Repeat(up, len(from)-1) + strings.Join(to, "/")
}

// follow returns the session at the end of a path from the record under key.
func follow(way, key string) string {
	if way == "" {
		return ""
	}
	return path.Join(path.Dir(key), way)
}

// look reads a record kept in one object, which may be absent.
func look(ctx context.Context, st store.Store, key string, layout record.Layout, unless protocol.Version) (Snapshot, error) {
	s, err := get(ctx, st, key, layout, store.Version(unless))
	if errors.Is(err, store.ErrNotExist) {
		return Snapshot{Date: store.DateOf(err)}, nil
	}
	return s, err
}
