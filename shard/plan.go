package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// ErrForeign: this version does not understand the object of a plan, a list or a worker, which is
// left as it is. Inspect it, and upgrade or use another prefix.
var ErrForeign = errors.New("not an object that this version understands")

// A Plan assigns each shard to a worker. The coordinator writes it. It is advice: a shard's
// owner is the holder of the shard's lock.
type Plan struct {
	Token       leasehold.Token   // of the coordinator that wrote it
	Serial      int64             // counts the plans of one coordinator
	Coordinator string            // its holder's name
	Workers     []Member          // the live workers, ordered by session
	Owners      map[string]string // shard to session; empty: no live worker knows it
}

// A Member is a worker in a plan.
type Member struct {
	Session string `json:"session"` // the last part of its key
	Holder  string `json:"holder"`
	Weight  int    `json:"weight"`
}

// planFormat is the format of plans this version writes and understands.
const planFormat = 1

// A wirePlan is a plan in the store. It contains no shard names: owners are numbers of workers,
// in the order of the sorted union of the lists. So 5,000 shards take about 15 KB.
type wirePlan struct {
	Format      int       `json:"format"`
	Token       int64     `json:"token"`
	Serial      int64     `json:"serial"`
	Coordinator string    `json:"coordinator"`
	WrittenAt   time.Time `json:"written_at"` // for people
	Lists       []string  `json:"lists"`
	Workers     []Member  `json:"workers"`
	Owners      []int     `json:"owners"`
}

// decodePlan reads a plan as far as possible without its lists.
func decodePlan(body []byte) (*wirePlan, error) {
	var head struct{ Format int }
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("it is not a JSON object with a format: %w", err)
	}
	if head.Format != planFormat {
		return nil, fmt.Errorf("it has format %d, and this version knows format %d: upgrade leasehold", head.Format, planFormat)
	}
	var p wirePlan
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	if p.Token < 1 || p.Serial < 1 {
		return nil, fmt.Errorf("its token %d or its serial %d is not a positive number", p.Token, p.Serial)
	}
	for _, w := range p.Owners {
		if w < nobody || w >= len(p.Workers) {
			return nil, fmt.Errorf("it gives a shard to worker %d of %d", w, len(p.Workers))
		}
	}
	return &p, nil
}

// A planStore caches what was read under one prefix.
type planStore struct {
	st     store.Store
	prefix string

	mu    sync.Mutex
	lists map[string][]string // by name; they never change
	last  *sum
}

// A sum is the sorted union of some lists, and which names are on which list.
type sum struct {
	lists []string
	names []string
	in    [][]bool
}

func (b *planStore) planKey() string                  { return b.prefix + "/plan" }
func (b *planStore) coordinatorKey() string           { return b.prefix + "/coordinator" }
func (b *planStore) sessionKey(session string) string { return b.prefix + "/sessions/" + session }
func (b *planStore) workerKey(session string) string  { return b.prefix + "/workers/" + session }
func (b *planStore) shardKey(name string) string      { return b.prefix + "/shards/" + name }
func (b *planStore) listKey(list string) string       { return b.prefix + "/lists/" + list }

func (b *planStore) foreign(key string, why error) error {
	return fmt.Errorf("the object %s in %v is %w: %w; it was left as it is: look at it, and move it away or use another prefix", key, b.st, ErrForeign, why)
}

// requestTimeout bounds each request of this package.
const requestTimeout = 10 * time.Second

func (b *planStore) get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.st.Get(ctx, key, unless)
}

func (b *planStore) put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.st.Put(ctx, key, body, only)
}

// readPlan reads the plan unless it has the version unless. If there is no plan, it returns nil
// without an error.
func (b *planStore) readPlan(ctx context.Context, unless store.Version) (*wirePlan, store.Version, error) {
	obj, err := b.get(ctx, b.planKey(), unless)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, "", nil
	case errors.Is(err, store.ErrTooLarge):
		return nil, "", b.foreign(b.planKey(), err)
	case err != nil:
		return nil, "", err
	}
	p, err := decodePlan(obj.Body)
	if err != nil {
		return nil, obj.Version, b.foreign(b.planKey(), err)
	}
	return p, obj.Version, nil
}

// resolve returns the session that should own each shard. It costs one read for each new list.
func (b *planStore) resolve(ctx context.Context, p *wirePlan) (owners map[string]string, err error) {
	all, err := b.union(ctx, p.Lists)
	if err != nil {
		return nil, err
	}
	if len(all.names) != len(p.Owners) {
		return nil, b.foreign(b.planKey(), fmt.Errorf("it has %d owners for %d shards", len(p.Owners), len(all.names)))
	}
	owners = make(map[string]string, len(all.names))
	for i, name := range all.names {
		owners[name] = ""
		if w := p.Owners[i]; w != nobody {
			owners[name] = p.Workers[w].Session
		}
	}
	return owners, nil
}

func (p *wirePlan) named(owners map[string]string) *Plan {
	return &Plan{Token: leasehold.Token(p.Token), Serial: p.Serial, Coordinator: p.Coordinator, Workers: p.Workers, Owners: owners}
}

// union merges lists. It caches the last result, because lists rarely change.
func (b *planStore) union(ctx context.Context, lists []string) (*sum, error) {
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	if last != nil && slices.Equal(last.lists, lists) {
		return last, nil
	}
	number := map[string]int{}
	all := make([][]string, len(lists))
	for l, list := range lists {
		var err error
		if all[l], err = b.list(ctx, list); err != nil {
			return nil, err
		}
		for _, name := range all[l] {
			number[name] = 0
		}
	}
	u := &sum{lists, slices.Sorted(maps.Keys(number)), make([][]bool, len(lists))}
	for i, name := range u.names {
		number[name] = i
	}
	for l := range lists {
		u.in[l] = make([]bool, len(u.names))
		for _, name := range all[l] {
			u.in[l][number[name]] = true
		}
	}
	b.mu.Lock()
	b.last = u
	b.mu.Unlock()
	return u, nil
}

// list reads a list, once.
func (b *planStore) list(ctx context.Context, list string) ([]string, error) {
	b.mu.Lock()
	names, known := b.lists[list]
	b.mu.Unlock()
	if known {
		return names, nil
	}
	key := b.listKey(list)
	obj, err := b.get(ctx, key, "")
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return nil, b.foreign(key, err)
	case err != nil:
		return nil, fmt.Errorf("a list of shards is not known: %w", err)
	case nameOf(obj.Body) != list:
		return nil, b.foreign(key, errors.New("its name is not the hash of what it holds"))
	}
	if err = json.Unmarshal(obj.Body, &names); err != nil {
		return nil, b.foreign(key, err)
	}
	b.know(list, names)
	return names, nil
}

func (b *planStore) know(list string, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists[list] = names
}

// nameOf returns a list's name. It is a hash of the list, so the object under a name never
// changes.
func nameOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// encodeList encodes a list of shards, one per line.
func encodeList(names []string) (body []byte, err error) {
	var lines []string
	for _, name := range names {
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, string(quoted))
	}
	return []byte("[\n" + strings.Join(lines, ",\n") + "\n]\n"), nil
}

// publish makes this worker's list known to the others. It costs one write.
func (b *planStore) publish(ctx context.Context, list string, body []byte) error {
	_, err := b.put(ctx, b.listKey(list), body, store.IfAbsent())
	if err == nil || errors.Is(err, store.ErrPrecondition) {
		return nil
	}
	return fmt.Errorf("the list of shards could not be published: %w", err)
}

func newPlanStore(st store.Store, prefix string) *planStore {
	return &planStore{st: st, prefix: prefix, lists: map[string][]string{}}
}
