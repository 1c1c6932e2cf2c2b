package shard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestWaits: a coordinator waits for more newcomers as long as some come and nobody goes,
// for three looks. No test noticed most changes of that: a plan that is written too early
// only moves shards twice, and one that is written late leaves the shards of a worker that
// has gone alone.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		plan string // the sessions in the plan that is there; "-": there is none
		look []string
		want string // for each look: w it waits, . it does not
	}{
		{"a fleet starts", "-", []string{"a", "ab", "abc", "abc"}, "www."},
		{"a fleet starts at once", "-", []string{"abc", "abc"}, "w."},
		{"a fleet that never ends to come", "-", []string{"a", "ab", "abc", "abcd", "abcde", "abcdef"}, "www.ww"},
		{"nothing changes", "ab", []string{"ab", "ab"}, ".."},
		{"nobody is there", "-", []string{"", "a", "a"}, ".w."},
		{"one comes to a fleet", "ab", []string{"abc", "abc"}, "w."},
		{"one comes later", "ab", []string{"ab", "abc", "abc"}, ".w."},
		{"one goes", "abc", []string{"ab", "ab"}, ".."},
		{"one goes while another comes", "abc", []string{"abd", "abd"}, ".."},
		{"one goes while others come for a while", "abc", []string{"abcd", "abde", "abde"}, "w.."},
		{"one stays, one goes and another comes", "ab", []string{"ac", "ac"}, ".."},
		{"all go and others come", "abc", []string{"d", "de", "def", "def"}, "www."},
		{"all go", "abc", []string{"", ""}, ".."},
		{"the wait begins anew after it has ended", "a", []string{"ab", "abc", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}, "ww.www.w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := new(coordinator)
			if c.plan != "-" {
				k.plan = new(wirePlan)
				for _, session := range strings.Split(c.plan, "") {
					k.plan.Workers = append(k.plan.Workers, Member{Session: session})
				}
			}
			got := ""
			for _, look := range c.look {
				var living []*member
				for _, session := range strings.Split(look, "") {
					living = append(living, &member{session: session})
				}
				got += map[bool]string{true: "w", false: "."}[k.waits(living)]
			}
			if got != c.want {
				t.Errorf("%s gives %s, want %s", fmt.Sprint(c.look), got, c.want)
			}
		})
	}
}

// TestForgets: a membership that is not listed any more is forgotten, and its watch ends.
func TestForgets(t *testing.T) {
	ended := false
	r := &members{Worker: &Worker{planStore: newPlanStore(memstore.New(), "x")}, all: map[string]*member{"gone": {alive: true, ignore: func() { ended = true }}}}
	if living, err := r.call(t.Context()); len(living)+len(r.all) > 0 || err != nil || !ended {
		t.Errorf("alive are %v, %v; of %d memberships; the watch has ended: %v", living, err, len(r.all), ended)
	}
}

// TestManyMemberships: more memberships are read than may be under way at a time, and what is
// none of one is nobody.
func TestManyMemberships(t *testing.T) {
	st := memstore.New()
	const n = 3*abreast + 1
	for i := range n {
		if _, err := st.Put(t.Context(), fmt.Sprint("x/workers/", i), []byte("nobody"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	w, err := NewWorker(st, "x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &members{Worker: w, all: map[string]*member{}}
	if living, err := r.call(t.Context()); len(living) > 0 || len(r.all) != n || err != nil {
		t.Errorf("alive are %v, %v; of %d memberships, want %d", living, err, len(r.all), n)
	}
}

// TestSamePlan: plans are the same if all that they say is.
func TestSamePlan(t *testing.T) {
	plan := func() *wirePlan {
		return &wirePlan{Lists: []string{"a"}, Workers: []Member{{Session: "s"}}, Owners: []int{0}}
	}
	other := plan()
	if other.Serial = 7; !plan().same(other) {
		t.Error("it is another with another number")
	}
	for what, change := range map[string]func(*wirePlan){
		"list":   func(p *wirePlan) { p.Lists[0] = "b" },
		"worker": func(p *wirePlan) { p.Workers[0].Weight = 2 },
		"owner":  func(p *wirePlan) { p.Owners[0] = nobody },
	} {
		other := plan()
		if change(other); plan().same(other) {
			t.Errorf("it is the same with another %s", what)
		}
	}
}

// TestEndsForGood: a worker ends for what will not pass, but not for what has ended a session.
func TestEndsForGood(t *testing.T) {
	denied := &store.Error{Kind: store.ErrDenied}
	for err, want := range map[error]bool{
		denied: true,
		fmt.Errorf("%w: %w", leasehold.ErrSessionOver, denied): false,
		&store.Error{Kind: store.ErrUnavailable}:               false,
	} {
		if final(err) != want {
			t.Errorf("%v ends it: %v, want %v", err, !want, want)
		}
	}
}
