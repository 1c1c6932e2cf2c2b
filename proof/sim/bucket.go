package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A bucket is a store with the weakest expected properties: a version is a hash of the body, so
// it comes back with the body, and each page of a listing has its own time.
type bucket struct {
	*fleet
	objects  map[string]object
	skew     time.Duration // of the store's clock
	poisoned string        // the key of the unrecognized object
	poisonIs store.Version // its version
	instead  *object       // what it replaced, if anything
}

type object struct {
	body    []byte
	version store.Version
	written time.Time
}

const pageSize = 3

func (b *bucket) date() time.Time { return epoch.Add(b.now + b.skew).Truncate(time.Second) }

func (b *bucket) serve(r *request) answer {
	var a answer
	o, exists := b.objects[r.key]
	switch {
	case r.op == "list":
		a.entries, a.truncated = b.page(r.key, r.after)
	case r.op == "delete":
		b.remove(r.key)
	case r.op == "get" && !exists:
		a.err = r.fails(store.ErrNotExist)
	case r.op == "get" && o.version == r.unless:
		a.err = r.fails(store.ErrNotModified)
	case r.op == "get":
		a.object = &store.Object{Key: r.key, Body: o.body, Version: o.version, LastModified: o.written}
	case exists == r.only.Absent() || o.version != r.only.Match():
		a.err = r.fails(store.ErrPrecondition)
	default:
		o = b.put(r.key, r.body)
		if r.version != "" {
			o.version = r.version
			b.objects[r.key] = o
		}
		a.object = &store.Object{Key: r.key, Version: o.version, LastModified: o.written}
	}
	return a
}

func (b *bucket) put(key string, body []byte) object {
	o := object{body, store.Version(strconv.FormatUint(sum(body), 16)), b.date()}
	b.objects[key] = o
	return o
}

// remove deletes an object, and reports whether there was one.
func (b *bucket) remove(key string) bool {
	_, exists := b.objects[key]
	delete(b.objects, key)
	return exists
}

func sum(body []byte) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	return hash.Sum64()
}

func encode(r record.Record) []byte {
	body, err := r.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return body
}

func (b *bucket) page(prefix, after string) (entries []store.Entry, truncated bool) {
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(entries) == pageSize {
			return entries, true
		}
		o := b.objects[key]
		entries = append(entries, store.Entry{Key: key, Version: o.version, Size: int64(len(o.body)), LastModified: o.written})
	}
	return entries, false
}

// highest returns the number of a lock's highest epoch with a record.
func (b *bucket) highest(lock string) int64 {
	top := b.last(lock)
	if of, n, ok := layout.Epoch(b.poisoned); ok && of == lock && n == top {
		top--
	}
	return top
}

// last returns the number of a lock's highest epoch, whatever it has.
func (b *bucket) last(lock string) (top int64) {
	for key := range b.objects {
		if of, n, ok := layout.Epoch(key); ok && of == lock {
			top = max(top, n)
		}
	}
	return top
}

func (b *bucket) current(l *lock) (record.Record, bool) {
	key := l.key
	if b.cfg.Numbered {
		key = layout.EpochKey(key, b.last(key))
	}
	o, exists := b.objects[key]
	if !exists {
		return record.Record{}, false
	}
	r, err := record.DecodeIn(record.AnyLayout, o.body)
	r.Session = strings.TrimPrefix(r.Session, "../") // the relative path from an epoch
	return r, err == nil
}

// wouldLand reports whether a write would begin a lease if it arrived now.
func (b *bucket) wouldLand(r *request) bool {
	o, exists := b.objects[r.key]
	if of, n, numbered := layout.Epoch(r.key); numbered && (!r.only.Absent() || n <= b.last(of)) {
		return false
	}
	return r.only.Absent() && !exists || exists && !r.only.Absent() && o.version == r.only.Match()
}

// tablePoisoned reports whether the unrecognized object is in the semaphore's place.
func (b *bucket) tablePoisoned() bool { return b.table != nil && b.poisoned == b.table.key }
