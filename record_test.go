package leasehold_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// stored has the members of each kind of object with a record, by the record's layout. Those of all
// kinds come first. What Terraform reads in a marker is left out.
var stored = func() map[string]string {
	const all = "format state holder address ttl_ms write_id session meta acquired_at renewed_at expires_at "
	const lock = all + "token successor moved_to ended rest term term_token history "
	return map[string]string{
		"":                   lock + "moves_from",
		"epochs":             lock + "layout if_match previous",
		record.LayoutMarker:  all + "layout",
		record.LayoutSession: all + "layout token ended freed",
	}
}()

// A clerk is a store that notes the members of all objects written to it.
type clerk struct {
	store.Store
	mu   sync.Mutex
	seen map[string]map[string]bool // by layout
}

func (c *clerk) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	all, err := record.Members(body)
	if err != nil {
		return nil, err
	}
	var layout string
	if raw, ok := all["layout"]; ok {
		if err := json.Unmarshal(raw, &layout); err != nil {
			return nil, err
		}
	}
	layout, _, _ = strings.Cut(layout, "+") // the ways of a layout store the same
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[layout] == nil {
		c.seen[layout] = map[string]bool{}
	}
	for name := range all {
		c.seen[layout][name] = true
	}
	return c.Store.Put(ctx, key, body, only)
}

// TestMembersOfRecords: each kind of object stores these members, and no others.
func TestMembersOfRecords(t *testing.T) {
	st := &clerk{Store: memstore.New(), seen: map[string]map[string]bool{}}
	for _, layout := range leasehold.Layouts {
		bubble(t, func(t *testing.T) { useAll(t, st, layout) })
	}
	for layout, members := range stored {
		want := slices.Sorted(slices.Values(strings.Fields(members)))
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(st.seen[layout])), func(name string) bool {
			return layout == record.LayoutMarker && name[0] <= 'Z'
		})
		if !slices.Equal(got, want) {
			t.Errorf("layout %q: stored are\n%q, want\n%q", layout, got, want)
		}
	}
	if len(st.seen) != len(stored) {
		t.Errorf("there are records of %d layouts, want %d", len(st.seen), len(stored))
	}
}

// useAll uses a lock, and a session and a move if the layout allows them, in all ways that show in
// records.
func useAll(t *testing.T, st store.Store, layout leasehold.Layout) {
	t.Helper()
	opts := leasehold.LockOptions{Layout: layout, Holder: "a", Address: "a:80", Meta: map[string]string{"k": "v"}}
	lock := func(key string, opts leasehold.LockOptions) *leasehold.Lock {
		t.Helper()
		l, err := leasehold.NewLock(st, key, &opts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := "jobs/" + string(layout)
	first := lock(key, opts)
	release(t, acquire(t, first))
	if !layout.Tokens() {
		return
	}
	resting, err := first.Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Minute))
	must(err)
	release(t, resting)
	e, err := leasehold.NewElection(st, key, &leasehold.ElectionOptions{LockOptions: opts})
	must(err)
	_, err = e.Campaign(t.Context())
	must(err)
	must(e.ResignTo(t.Context(), "a"))
	broken := acquire(t, first)
	_, err = admin.Break(t.Context(), lock(key, opts), broken.Token())
	must(err)
	<-broken.Done()
	_ = broken.Release(t.Context()) // it was force-released

	s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{Holder: "a", Meta: opts.Meta})
	must(err)
	under := opts
	under.Session = s
	release(t, acquire(t, lock(key, under)))
	time.Sleep(leasehold.DefaultTTL) // the next heartbeat tells of it
	must(admin.BreakSession(t.Context(), st, s.Key()))
	<-s.Done()

	opts.Layout = leasehold.LayoutObject
	_, err = admin.Move(t.Context(), first, lock("moved/"+string(layout), opts), nil)
	must(err)
}
