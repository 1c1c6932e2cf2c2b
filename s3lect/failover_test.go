package s3lect_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestFailover measures, for docs/s3lect.md, the time from the last renewal of a leader
// that is cut off from everybody until the next one leads. In storage mode it grows with
// InfrequentInterval; in peer mode it is at most 30 s with the defaults.
func TestFailover(t *testing.T) {
	for _, tc := range []struct {
		name       string
		infrequent time.Duration
		peers      bool
		limit      time.Duration
	}{
		{"30s", 0, false, 80 * time.Second},
		{"7.5s", 7500 * time.Millisecond, false, 30 * time.Second},
		{"5s", 5 * time.Second, false, 25 * time.Second},
		{"peers", 0, true, 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGroup(t, func(c *s3lect.ElectorConfig) {
					c.InfrequentInterval, c.PeerMode = tc.infrequent, tc.peers
				})
				var took []time.Duration
				for n := range 12 {
					// Not at a multiple of 5 s: as the first leader renews.
					time.Sleep(61*time.Second + time.Duration(n)*1277*time.Millisecond)
					took = append(took, g.failOver(t))
				}
				slices.Sort(took)
				worst := took[len(took)-1]
				t.Logf("median %v, worst %v", took[len(took)/2].Round(time.Second), worst.Round(time.Second))
				if worst > tc.limit {
					t.Errorf("that is over %v", tc.limit)
				}
			})
		})
	}
}

// A group is three instances that can ask each other.
type group struct {
	all   []*instance
	wires map[*instance]*wire
}

func newGroup(t *testing.T, edit func(*s3lect.ElectorConfig)) *group {
	t.Helper()
	st := memstore.New()
	g := &group{wires: map[*instance]*wire{}}
	for _, id := range []string{"a", "b", "c"} {
		i := newInstance(t, st, id, edit)
		g.all = append(g.all, i)
		g.wires[i] = newWire()
		i.AskThrough(g.wires[i])
	}
	g.cut(nil)
	for _, i := range g.all {
		if err := i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { i.quit(t) })
	}
	return g
}

// cut cuts one instance off from the storage and the others, or none.
func (g *group) cut(off *instance) {
	for _, i := range g.all {
		i.net.Partition(i == off)
		g.wires[i].clear()
		for _, other := range g.all {
			if other != off && i != off {
				g.wires[i].join(other)
			}
		}
	}
}

// failOver cuts the leader off and returns how long ago it last renewed when the next
// one leads.
func (g *group) failOver(t *testing.T) time.Duration {
	t.Helper()
	leader := ruler(t, g.all...)
	if leader == nil {
		t.Fatal("nobody leads")
	}
	renewed := leader.GetLeadershipStatus().LeaderLastSeen
	g.cut(leader)
	defer g.cut(nil)
	for {
		if next := ruler(t, g.all...); next != nil && next != leader {
			return time.Since(renewed)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
