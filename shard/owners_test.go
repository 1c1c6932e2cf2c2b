package shard_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestOwners: who owns what, seen from outside.
func TestOwners(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 30)
		if owners, err := shard.Owners(t.Context(), f.st, prefix); err != nil || len(owners) > 0 {
			t.Errorf("of nothing: %v, %v", owners, err)
		}
		for _, name := range []string{"a", "b", "c"} {
			f.start(name, nil)
		}
		f.settle()
		gone := f.other()
		session := gone.worker.Status().Session
		look := func() map[shard.State]int {
			t.Helper()
			st := faultstore.Wrap(f.st, nil)
			owners, err := shard.Owners(t.Context(), st, prefix)
			if err != nil || len(owners) != 30 {
				t.Fatalf("%d owners, %v", len(owners), err)
			}
			if c := st.Counts(); c.List != 1 || c.Put+c.Delete > 0 || c.Get > 30+1+1+4 {
				t.Errorf("it has taken %+v", c)
			}
			states := map[shard.State]int{}
			f.mu.Lock()
			defer f.mu.Unlock()
			for i, o := range owners {
				states[o.State]++
				if o.Shard != f.shards[i] || o.Token != f.tokens[o.Shard] || o.State == shard.Owned && (o.Holder != f.at[o.Shard].node.name || o.Planned != o.Holder) {
					t.Errorf("%+v, and in truth %v", o, f.at[o.Shard].node.name)
				}
				if o.State == shard.Gone && (o.Session != session || o.Holder != gone.name) {
					t.Errorf("%+v is gone, and not with %s", o, session)
				}
			}
			return states
		}
		if got := look(); got[shard.Owned] != 30 {
			t.Errorf("%v", got)
		}
		f.set(func() { f.drain = time.Minute })
		f.start("d", nil)
		time.Sleep(40 * time.Second)
		if got := look(); got[shard.Moving] != 8 && got[shard.Moving] != 7 {
			t.Errorf("%v", got)
		}
		time.Sleep(2 * time.Minute)
		f.settle()
		f.set(func() { f.drain = 0 })
		f.crash(gone)
		for got := look(); got[shard.Gone] == 0; got = look() {
			time.Sleep(time.Second)
		}
		f.settle()
		f.end()
	})
}
