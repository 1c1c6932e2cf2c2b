package sim

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A server is the store.
type server struct {
	*fleet
	objects         bucket
	throttled, slow time.Duration // until then
	skew            time.Duration // of the store's clock
	poisoned        string        // the key of the unrecognized object
	poisonIs        store.Version // its version
	instead         *object       // what it replaced, if anything
}

func (st *server) date() time.Time { return epoch.Add(st.now + st.skew).Truncate(time.Second) }

// highest returns the number of a lock's highest epoch with a record.
func (st *server) highest(lock string) int64 {
	top := st.objects.highest(lock)
	if of, n, ok := layout.Epoch(st.poisoned); ok && of == lock && n == top {
		top--
	}
	return top
}

func (st *server) current(l *lock) (record.Record, bool) {
	key := l.key
	if st.cfg.Numbered {
		key = layout.EpochKey(key, st.objects.highest(key))
	}
	o, exists := st.objects[key]
	if !exists {
		return record.Record{}, false
	}
	r, err := record.DecodeIn(record.AnyLayout, o.body)
	r.Session = strings.TrimPrefix(r.Session, "../") // the relative path from an epoch
	return r, err == nil
}

// wouldLand reports whether a write would begin a lease if it arrived now.
func (st *server) wouldLand(r *request) bool {
	o, exists := st.objects[r.key]
	if of, n, numbered := layout.Epoch(r.key); numbered && (!r.only.Absent() || n <= st.objects.highest(of)) {
		return false
	}
	return r.only.Absent() && !exists || exists && !r.only.Absent() && o.version == r.only.Match()
}

func (st *server) initialize(l *lock) {
	r := candidate.First(candidate.Config{TTL: ttls[0], Holder: "init"}, "init", st.date(), epoch)
	st.objects.put(l.key, encode(r), st.date())
	l.top = r.Token
}

// poison replaces the object with an unrecognized one. With epochs, it takes the place of the
// next one. Markers are left alone: replacing one would be a deletion.
func (st *server) poison() {
	l := st.locks[st.choose(len(st.locks))]
	key := l.key
	if st.cfg.Numbered {
		key = layout.EpochKey(key, st.objects.highest(key)+1)
	}
	if n := len(st.sessions); n > 0 && st.choose(3) == 2 {
		key = st.sessions[n-1].String()
	}
	t := st.table
	if t != nil && st.choose(2) == 1 {
		key = t.key
	}
	before, exists := st.objects[key]
	if exists && st.cfg.Tokenless || !exists && key[0] == 's' {
		return
	}
	st.poisoned, st.instead = key, nil
	if exists {
		st.instead = &before
	}
	st.poisonIs = st.objects.put(key, st.foreignBody(l, key[0] == 's'), st.date()).version
	if st.met(Poison, key); st.tablePoisoned() {
		st.met(TablePoisoned, key)
	}
}

func (st *server) tablePoisoned() bool { return st.table != nil && st.poisoned == st.table.key }

// foreignBody returns an unrecognized object, which may look much like a record.
func (st *server) foreignBody(l *lock, session bool) []byte {
	r := record.Record{Token: l.top + 1, Layout: st.cfg.Layout, Holder: "stranger", TTL: time.Second, WriteID: "stranger.1"}
	if st.cfg.Tokenless {
		r.Token = 0
	}
	format := `"format":1`
	switch st.choose(5) {
	case 0:
		return []byte("this is no record")
	case 1:
		format = `"format":2`
	case 2:
		r.Layout = "another"
	case 3:
		r.Layout = "another"
		if !session {
			r.Layout = record.LayoutSession
		}
	default:
		// This record is readable. With epochs it would be the highest, and others could be
		// collected. A lock under a session would seem free.
		if r.Token = math.MaxInt64; st.cfg.Numbered || len(st.sessions) > 0 {
			format = `"format":3`
		}
	}
	return bytes.Replace(encode(r), []byte(`"format":1`), []byte(format), 1)
}

func encode(r record.Record) []byte {
	body, err := r.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return body
}

func (st *server) unpoison() {
	key, before := st.poisoned, st.instead
	st.poisoned = ""
	for _, l := range st.locks {
		l.restored = l.restored || l.key == key
	}
	switch {
	case st.objects[key].version != st.poisonIs: // a released marker
	case before == nil:
		delete(st.objects, key)
	default:
		st.objects.put(key, before.body, st.date())
	}
	st.logf("the poison %q is removed", key)
}

// sweep deletes an expired marker, by the store's clock, if no client can.
func (st *server) sweep() {
	key := st.locks[0].key
	o, exists := st.objects[key]
	if !exists || !st.cfg.WriteOnce || st.poisoned != "" {
		return
	}
	if epoch.Add(st.now).Sub(o.written) > protocol.Stale(st.longest) {
		st.logf("the marker is swept")
		delete(st.objects, key)
	}
}

func (st *server) sweepInterval() time.Duration { return max(time.Second, st.longest/1000) }

func (st *server) reclaim() {
	for _, s := range st.sessions {
		l := s.heartbeat.on
		if l.there && l.over && !l.reused && len(l.inFlight) == 0 && l.key != st.poisoned && st.choose(2) == 1 {
			st.met(Reclaimed, s)
			delete(st.objects, l.key)
			l.there = false
		}
	}
}

// A bucket is a store with the weakest expected properties: a version is a hash of the body, so
// it comes back with the body, and each page of a listing has its own time.
type bucket map[string]object

type object struct {
	body    []byte
	version store.Version
	written time.Time
}

const pageSize = 3

func (b bucket) put(key string, body []byte, now time.Time) object {
	o := object{body, store.Version(strconv.FormatUint(sum(body), 16)), now}
	b[key] = o
	return o
}

func sum(body []byte) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	return hash.Sum64()
}

func (b bucket) serve(r *request, now time.Time) answer {
	var a answer
	o, exists := b[r.key]
	switch {
	case r.op == "list":
		a.entries, a.truncated = b.page(r.key, r.after)
	case r.op == "delete":
		delete(b, r.key)
	case r.op == "get" && !exists:
		a.err = r.fails(store.ErrNotExist)
	case r.op == "get" && o.version == r.unless:
		a.err = r.fails(store.ErrNotModified)
	case r.op == "get":
		a.object = &store.Object{Key: r.key, Body: o.body, Version: o.version, LastModified: o.written}
	case exists == r.only.Absent() || o.version != r.only.Match():
		a.err = r.fails(store.ErrPrecondition)
	default:
		o = b.put(r.key, r.body, now)
		if r.version != "" {
			o.version = r.version
			b[r.key] = o
		}
		a.object = &store.Object{Key: r.key, Version: o.version, LastModified: now}
	}
	return a
}

func (b bucket) page(prefix, after string) (entries []store.Entry, truncated bool) {
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(entries) == pageSize {
			return entries, true
		}
		o := b[key]
		entries = append(entries, store.Entry{Key: key, Version: o.version, Size: int64(len(o.body)), LastModified: o.written})
	}
	return entries, false
}

func (b bucket) highest(lock string) (top int64) {
	for key := range b {
		if of, n, ok := layout.Epoch(key); ok && of == lock {
			top = max(top, n)
		}
	}
	return top
}
