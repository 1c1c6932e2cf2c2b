package sim

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

// A bucket is a store as the protocol has to expect it: a version is a hash of the body, so
// it comes back with the body, and a listing has pages, each of its own time.
type bucket map[string]object

type object struct {
	body    []byte
	version store.Version
	written time.Time
}

// pageSize is how many objects a page of a listing shows.
const pageSize = 3

// put writes an object, whatever is there.
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

// serve carries out a request, and makes its answer.
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

// highest is the number of the highest epoch of a lock, and 0 if there is none.
func (b bucket) highest(lock string) (top int64) {
	for key := range b {
		if of, n, ok := layout.Epoch(key); ok && of == lock {
			top = max(top, n)
		}
	}
	return top
}
