package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A town is candidates that can ask each other by address, without a network: package
// peer has that. A candidate that is away hears and says nothing.
type town struct {
	mu     sync.Mutex
	places map[string]*place
	asked  atomic.Int64
	open   atomic.Int64  // questions that wait for their answer
	delay  time.Duration // of each answer
	bend   func(peer.Leadership) peer.Leadership
}

type place struct {
	election *leasehold.Election
	ctx      context.Context // its end breaks the open questions
	leave    context.CancelFunc
}

var errSilence = errors.New("nobody answers")

func newTown() *town { return &town{places: map[string]*place{}} }

func (w *town) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	w.mu.Lock()
	p, bend, delay := w.places[address], w.bend, w.delay
	w.asked.Add(1)
	w.mu.Unlock()
	if p == nil || p.ctx.Err() != nil {
		return peer.Leadership{}, errSilence
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.ctx, stop)() //nolint:contextcheck // its end is that of the place
	w.open.Add(1)
	said, err := peer.Attend(ctx, p.election, q)
	w.open.Add(-1)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
	switch {
	case p.ctx.Err() != nil:
		return peer.Leadership{}, errSilence
	case bend != nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		said = bend(said)
	}
	return said, err
}

// join opens the door of a candidate.
func (w *town) join(address string, e *leasehold.Election) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, leave := context.WithCancel(context.Background())
	w.places[address] = &place{e, ctx, leave}
}

// leave breaks what is open at an address, and answers nothing there any more.
func (w *town) leave(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[address].leave()
}

// settlers are candidates named 0, 1, 2… in one town.
func (w *town) settlers(t *testing.T, n int, ttl time.Duration) []*campaigner {
	t.Helper()
	st := memstore.New()
	var all []*campaigner
	for i := range n {
		name := fmt.Sprint(i)
		c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl, Holder: name, Address: name}, Peers: w})
		w.join(name, c.Election)
		all = append(all, c)
		time.Sleep(time.Second) // they begin to wait one after the other
	}
	return all
}

// TestPeersBudget: while the leader answers, its followers look once in two TTLs, so that
// its word alone is not believed for ever.
func TestPeersBudget(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		w := newTown()
		all := w.settlers(t, 5, 0)
		time.Sleep(time.Minute)
		n, leader := leaders(all)
		if n != 1 {
			t.Fatalf("%d leaders", n)
		}
		for _, c := range all {
			c.net.Reset()
		}
		synctest.Wait()
		w.asked.Store(0)
		look := budgets[here()].news
		if here() == leasetest.EpochsNoIfMatch {
			look = budgets[here()].jump // over the renewals that nobody looked at
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, c := range all {
			got := since(c.net, faultstore.Counts{})
			if c == leader && !leads(got, 720) {
				t.Errorf("the leader made %v", got)
			}
			if s := c.Status(); c != leader && (!got.within(look.times(119), look.times(121)) || s.Questions < 400 || time.Since(s.LastHeard) > 8*time.Second) {
				t.Errorf("follower %d made %v: %+v", i, got, s)
			}
		}
		if n := w.asked.Load(); n < 4*480 || n > 4*482 { // one for each half of a TTL
			t.Errorf("%d questions", n)
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// TestPeersHandOver: a resignation reaches the followers through the questions that
// wait. The one that has waited for longest leads within one look and one write, or
// the one that was named; the others look once, not all at once, and then ask it.
func TestPeersHandOver(t *testing.T) {
	needsSuccessors(t)
	b := budgets[here()]
	freed := b.freed
	if here() == leasetest.EpochsNoIfMatch {
		freed = b.jump // over the renewals that nobody looked at, if there were any
	}
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTown()
				w.delay = time.Millisecond
				all := w.settlers(t, 5, 0)
				for round := range 4 {
					time.Sleep(20 * time.Second) // less than two TTLs, after which they look
					for w.open.Load() < int64(len(all)-1) {
						time.Sleep(10 * time.Millisecond) // who is about to ask anew cannot be named
					}
					_, leader := leaders(all)
					if leader != all[round] {
						t.Fatalf("round %d: the leader is %v", round, leader.Status().Holder)
					}
					want := all[round+1] // it has waited for longest
					successor := ""
					if named && round == 2 {
						want, successor = all[round+2], "4"
					}
					for _, c := range all {
						c.net.Reset()
					}
					before := time.Now()
					if err := leader.ResignTo(t.Context(), successor); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := leasetest.Lead(ctx, want.Election); err != nil {
						_, other := leaders(all)
						t.Fatalf("round %d: not the expected one leads, but %+v", round, other.Status())
					}
					cancel()
					if d := time.Since(before); d > w.delay {
						t.Errorf("round %d: the next leader began after %v", round, d)
					}
					if got := since(want.net, faultstore.Counts{}); !got.within(b.freed.plus(b.acquire), freed.plus(b.acquire)) {
						t.Errorf("round %d: it made %v", round, got)
					}
					time.Sleep(20 * time.Second)
					for i, c := range all {
						// The former leader rests and then looks, to campaign.
						if got := since(c.net, faultstore.Counts{}); c != want && c != leader && !got.within(b.freed, b.jump) {
							t.Errorf("round %d: follower %d made %v", round, i, got)
						}
					}
					if named && round == 2 {
						break
					}
				}
				for _, c := range all {
					c.quit(t)
				}
				noOverlap(t, all...)
			})
		})
	}
}

// TestPeersLeaderCrashes: the end of the leader's process breaks the questions that
// wait. The followers look soon, and the next one leads when the lease has ended, not
// before.
func TestPeersLeaderCrashes(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		w := newTown()
		all := w.settlers(t, 3, ttl)
		for round := range 20 {
			time.Sleep(time.Minute + rand.N(10*time.Second))
			_, leader := leaders(all)
			name := leader.Status().Holder
			renewed := lastWrite(leader)
			leader.net.Partition(true)
			w.leave(name)
			crashed := time.Now()
			for n := 0; n == 0; {
				n, _ = leaders(others(all, leader))
				time.Sleep(10 * time.Millisecond)
			}
			if leader.IsLeader() {
				t.Errorf("round %d: two leaders", round)
			}
			// Three tries, a look with its jitter, the patience with its jitter.
			limit := 1100*time.Millisecond + ttl/24 + protocol.Patience(ttl) + ttl/10 + ttl/6
			if early, late := time.Since(renewed), time.Since(crashed); early < ttl || late > limit {
				t.Errorf("round %d: the next leader began %v after the last renewal, %v after the crash", round, early, late)
			}
			leader.net.Partition(false)
			w.join(name, leader.Election)
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

func others(all []*campaigner, but *campaigner) (rest []*campaigner) {
	for _, c := range all {
		if c != but {
			rest = append(rest, c)
		}
	}
	return rest
}

// TestPeersLeaderIsCutOff: the leader loses the store, but not its peers. It says so
// before its deadline, a follower takes over, and no two ever lead.
func TestPeersLeaderIsCutOff(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		random := rand.New(rand.NewPCG(2, 0))
		w := newTown()
		all := w.settlers(t, 4, ttl)
		for round := range 40 {
			time.Sleep(20*time.Second + time.Duration(random.Int64N(int64(10*time.Second))))
			n, leader := leaders(all)
			if n != 1 {
				t.Fatalf("round %d: %d leaders", round, n)
			}
			leader.net.Partition(true)
			var successor *campaigner
			for successor == nil {
				time.Sleep(10 * time.Millisecond)
				said, err := peer.Attend(t.Context(), leader.Election, peer.Question{Lock: "leaders/scheduler"})
				if err != nil || said.Leading && !leader.IsLeader() || said.Remaining > protocol.Validity(ttl) || said.Remaining < 0 {
					t.Fatalf("round %d: it says %+v: %v", round, said, err)
				}
				n, someone := leaders(all)
				if n > 1 {
					t.Fatalf("round %d: %d leaders", round, n)
				}
				if someone != nil && someone != leader {
					successor = someone
				}
			}
			time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
			leader.net.Partition(false)
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

// TestPeersFallBack: without an answer a follower looks at the store like any other,
// and asks the leader again when it has renewed.
func TestPeersFallBack(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		w := newTown()
		all := w.settlers(t, 2, 0)
		time.Sleep(time.Minute)
		w.leave("0")
		time.Sleep(10 * time.Second)
		all[1].net.Reset()
		time.Sleep(time.Hour)
		if got := since(all[1].net, faultstore.Counts{}); !watches(got, 720) {
			t.Errorf("without peers the follower made %v", got)
		}
		w.join("0", all[0].Election)
		time.Sleep(20 * time.Second)
		all[1].net.Reset()
		time.Sleep(time.Hour)
		look := budgets[here()].news
		if here() == leasetest.EpochsNoIfMatch {
			look = budgets[here()].jump
		}
		if got := since(all[1].net, faultstore.Counts{}); !got.within(look.times(119), look.times(121)) {
			t.Errorf("with peers again the follower made %v", got)
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// TestPeersLie: whatever leaders say, there are never two valid leases, and terms do
// not overlap.
func TestPeersLie(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		random, lies := rand.New(rand.NewPCG(3, 0)), rand.New(rand.NewPCG(4, 0))
		w := newTown()
		w.bend = func(l peer.Leadership) peer.Leadership {
			switch lies.IntN(8) {
			case 0:
				l.Leading, l.Free = false, true
			case 1:
				l.Leading, l.Remaining = true, time.Duration(lies.Int64N(int64(time.Hour)))
			case 2:
				l.Version, l.Remaining = fmt.Sprint(lies.Int()), -l.Remaining
			case 3:
				l.Token += lies.Int64N(3) - 1
			case 4:
				l.Incarnation, l.Holder = "", ""
			}
			return l
		}
		all := w.settlers(t, 4, 3*time.Second)
		for range 20000 {
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			n, leader := leaders(all)
			if n > 1 {
				t.Fatalf("%d leaders", n)
			}
			switch random.IntN(400) {
			case 0:
				if leader != nil {
					_ = leader.Resign(t.Context())
				}
			case 1:
				all[random.IntN(4)].net.Partition(random.IntN(2) == 0)
			}
		}
		for _, c := range all {
			c.net.Partition(false)
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

// A parrot is a network in which a candidate that has died goes on giving its last honest answer.
type parrot struct {
	*town
	last map[string]peer.Leadership // by address; of those who have died
}

func (p *parrot) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	p.mu.Lock()
	said, died := p.last[address]
	p.mu.Unlock()
	if died {
		return said, nil
	}
	return p.town.Ask(ctx, address, q)
}

// TestPeersLieForLong: a leader that says for ever that it leads is taken over from after four TTLs, whenever it has
// died. It used to take up to eight: at the first look the last renewal was new, and its word was believed again.
func TestPeersLieForLong(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		p := &parrot{newTown(), map[string]peer.Leadership{}}
		st := memstore.New()
		var all []*campaigner
		for _, name := range []string{"a", "b"} {
			c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl, Holder: name, Address: name}, Peers: p})
			p.join(name, c.Election)
			all = append(all, c)
			time.Sleep(time.Second)
		}
		longest := time.Duration(0)
		for round := range 50 {
			time.Sleep(time.Minute + time.Duration(round)*ttl/12)
			n, leader := leaders(all)
			if n != 1 {
				t.Fatalf("round %d: %d leaders", round, n)
			}
			name := leader.Status().Holder
			said := attend(t, leader.Election, "")
			p.mu.Lock()
			p.last[name] = said
			p.mu.Unlock()
			leader.net.Partition(true)
			died := time.Now()
			for n := 0; n == 0; {
				n, _ = leaders(others(all, leader))
				time.Sleep(10 * time.Millisecond)
			}
			longest = max(longest, time.Since(died))
			p.mu.Lock()
			delete(p.last, name)
			p.mu.Unlock()
			leader.net.Partition(false)
		}
		if longest > candidate.Trusted*2*ttl+ttl/10 || longest > 4*ttl+ttl/10 {
			t.Errorf("the next leader began up to %v after the end of one", longest)
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

// TestAttend: what a candidate says of itself at each point of its leadership, and
// that a question which waits is answered when that changes.
func TestAttend(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		c := campaign(t, memstore.New(), leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl, Holder: "a", Address: "a:1", Meta: map[string]string{"k": "v"}}})
		e, err := leasehold.NewElection(memstore.New(), "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		if said := attend(t, e, ""); said.Leading || said.Token != 0 || said.Holder != "" || said.Version == "" {
			t.Errorf("a candidate that never led says %+v", said)
		}
		if _, err := peer.Attend(t.Context(), e, peer.Question{Lock: "another"}); err == nil {
			t.Error("it answered for another lock")
		}

		if err := leasetest.Lead(t.Context(), c.Election); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		first := attend(t, c.Election, "")
		if !first.Leading || first.Free || first.Holder != "a" || first.Address != "a:1" || first.Meta["k"] != "v" || first.Incarnation == "" || first.TTL != ttl {
			t.Errorf("the leader says %+v", first)
		}
		if want := protocol.Validity(ttl) - time.Second; first.Remaining != want || time.Since(first.RenewedAt) != time.Second || time.Since(first.AcquiredAt) != 3*time.Second {
			t.Errorf("a second after a renewal the leader says %+v, not %v remaining", first, want)
		}
		began := time.Now()
		if again := attend(t, c.Election, first.Version); !again.Leading || time.Since(began) != time.Minute || again.Version != first.Version {
			t.Errorf("after %v the leader says %+v", time.Since(began), again)
		}

		// A renewal that hangs is late after half a TTL.
		c.net.Partition(true)
		late := attend(t, c.Election, first.Version)
		if late.Leading || late.Free || !c.IsLeader() || late.Remaining != 0 {
			t.Errorf("a leader without a store says %+v", late)
		}
		c.net.Partition(false)
		if well := attend(t, c.Election, late.Version); !well.Leading || well.Version != first.Version || well.Token != first.Token {
			t.Errorf("a leader that is well again says %+v", well)
		}
		c.net.Partition(true)
		late = attend(t, c.Election, first.Version)
		over := attend(t, c.Election, late.Version)
		if over.Leading || over.Free || c.IsLeader() || over.Token != first.Token {
			t.Errorf("a leader whose lease is over says %+v", over)
		}
		c.net.Partition(false)

		second := attend(t, c.Election, over.Version)
		for !second.Leading {
			second = attend(t, c.Election, second.Version)
		}
		if here().Tokens() != (second.Token > first.Token) {
			t.Errorf("token %d, then %d", first.Token, second.Token)
		}
		if err := leasetest.Lead(t.Context(), c.Election); err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.ResignTo(t.Context(), "b") }()
		if freed := attend(t, c.Election, second.Version); freed.Leading || !freed.Free || freed.Successor != "b" || freed.Token != second.Token {
			t.Errorf("a leader that resigned says %+v", freed)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		said := attend(t, c.Election, "")
		if _, err := peer.Attend(ctx, c.Election, peer.Question{Lock: "leaders/scheduler", Known: said.Version, Wait: time.Hour}); !errors.Is(err, context.Canceled) {
			t.Errorf("the end of its context gives %v", err)
		}
		c.quit(t)
	})
}

// attends returns a function that answers for the candidate.
func attends(e *leasehold.Election) func(context.Context, peer.Question) (peer.Leadership, error) {
	return func(ctx context.Context, q peer.Question) (peer.Leadership, error) { return peer.Attend(ctx, e, q) }
}

// attend asks, and waits for a minute for something else than what is known.
func attend(t *testing.T, e *leasehold.Election, known string) peer.Leadership {
	t.Helper()
	said, err := peer.Attend(t.Context(), e, peer.Question{Lock: "leaders/scheduler", Known: known, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// TestReleaseNamesWhoWaits: who asks only to know is never named, nor who has gone.
func TestReleaseNamesWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e, err := leasehold.NewElection(memstore.New(), "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		known := attend(t, e, "").Version
		wait := func(ctx context.Context, holder string, waited time.Duration) {
			go func() {
				_, _ = peer.Attend(ctx, e, peer.Question{
					Lock: "leaders/scheduler", Holder: holder, Waited: waited, Known: known, Wait: time.Hour,
				})
			}()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		wait(t.Context(), "observer", 0)
		wait(gone, "gone", time.Hour)
		wait(t.Context(), "second", time.Second)
		wait(t.Context(), "first", time.Minute)
		leave()
		synctest.Wait()
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := attend(t, e, ""); said.Successor != "first" {
			t.Errorf("the release names %q", said.Successor)
		}
	})
}

// TestSuccessorHearsFirst: of a release; the others have time, but none who gave up, or does
// not wait, is held back, and nobody when no successor is named.
func TestSuccessorHearsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, successor := range []string{"heir", ""} {
			e, err := leasehold.NewElection(memstore.New(), "leaders/scheduler", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = e.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			known := attend(t, e, "").Version
			began := time.Now()
			told := map[string]<-chan time.Duration{}
			ask := func(ctx context.Context, holder string, wait time.Duration) {
				after := make(chan time.Duration, 1)
				told[holder] = after
				go func() {
					said, err := peer.Attend(ctx, e, peer.Question{Lock: "leaders/scheduler", Holder: holder, Known: known, Wait: wait})
					if err != nil || !said.Free || said.Successor != successor {
						t.Errorf("%s is told %+v, %v", holder, said, err)
					}
					after <- time.Since(began)
				}()
			}
			leaving, leave := context.WithCancel(t.Context())
			ask(t.Context(), "other", time.Hour)
			ask(leaving, "leaving", time.Hour)
			ask(t.Context(), "heir", time.Hour)
			ask(t.Context(), "short of time", time.Second+5*time.Millisecond)
			synctest.Wait()
			time.Sleep(time.Second)
			began = time.Now()
			if err := e.ResignTo(t.Context(), successor); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			leave()
			synctest.Wait()
			ask(t.Context(), "at once", 0)
			later, soon := 20*time.Millisecond, 5*time.Millisecond
			if successor == "" {
				later, soon = 0, 0
			}
			for holder, want := range map[string]time.Duration{"heir": 0, "other": later, "short of time": soon, "leaving": 0, "at once": 0} {
				if after := <-told[holder]; after != want {
					t.Errorf("successor %q: %s is told after %v, not %v", successor, holder, after, want)
				}
			}
		}
	})
}

// TestSuccessorThatDoesNotFit: a name that the record has no room for is left out,
// since a release must not fail for a courtesy. Nor does the history make room for it.
func TestSuccessorThatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		room := map[string]string{"k": strings.Repeat("x", record.MaxSize-9000)}
		e, err := leasehold.NewElection(st, "leaders/scheduler", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Meta: room}})
		if err != nil {
			t.Fatal(err)
		}
		size := func() (most int) {
			for o, err := range st.List(t.Context(), "leaders/", "") {
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, int(o.Size))
			}
			return most
		}
		const would = -1 // a name that would fit if the history, of one entry, gave way
		for _, n := range []int{1, 9000, would, 1} {
			if _, err := e.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			long := n == 9000 || n == would && here().Tokens()
			if n == would {
				n = record.MaxSize - size() - len(`,"successor":""`) + 50
			}
			if err := e.ResignTo(t.Context(), strings.Repeat("b", n)); err != nil {
				t.Errorf("a successor with a name of %d bytes: %v", n, err)
			}
			if said := attend(t, e, ""); !said.Free || long && said.Successor != "" {
				t.Errorf("a name of %d bytes: it names one of %d", n, len(said.Successor))
			}
		}
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.ResignTo(t.Context(), "\xff"); err != nil {
			t.Error(err)
		}
	})
}

// TestPeersForgeAProof: a release that is only said, of the version that the store has,
// is not believed.
func TestPeersForgeAProof(t *testing.T) {
	needs(t, here() == leasetest.Object, "the same in every layout that has proofs, which need one object")
	bubble(t, func(t *testing.T) {
		w := newTown()
		st, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var forging atomic.Bool
		w.bend = func(l peer.Leadership) peer.Leadership {
			if !forging.Load() {
				return l
			}
			for e, err := range st.List(t.Context(), "", "") {
				if err != nil {
					t.Error(err)
					return l
				}
				o, err := st.Get(t.Context(), e.Key, "")
				if err != nil {
					t.Error(err)
					return l
				}
				l.Record = []byte(strings.Replace(string(o.Body), `"state":"held"`, `"state":"free"`, 1))
				l.Object, l.Leading, l.Free = o.Version, false, true
			}
			return l
		}
		var all []*campaigner
		for i := range 2 {
			name := fmt.Sprint(i)
			c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: name, Address: name}, Peers: w})
			w.join(name, c.Election)
			all = append(all, c)
			time.Sleep(time.Second)
		}
		forging.Store(true)
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			if n, leader := leaders(all); n != 1 || leader != all[0] {
				t.Fatalf("%d leaders", n)
			}
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

// asker is peers that note what they are asked, and answer as a function says.
type asker struct {
	mu     sync.Mutex
	asked  []peer.Question
	of     []string
	answer func(context.Context, peer.Question) (peer.Leadership, error)
}

func (a *asker) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	a.mu.Lock()
	a.asked, a.of = append(a.asked, q), append(a.of, address)
	a.mu.Unlock()
	return a.answer(ctx, q)
}

// TestQuestions: a follower asks the leader at its address, and says which lock it is about, who asks, for
// how long it has waited if it wants to lead, and what it knows.
func TestQuestions(t *testing.T) {
	for _, wants := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a:1", Layout: leasehold.LayoutObject}})
			if _, err := leader.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			peers := &asker{answer: attends(leader)}
			var log leasetest.Log
			follower := newElection(t, st, leasehold.ElectionOptions{
				LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				Peers:       peers,
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			began := time.Now()
			if wants {
				_, _ = follower.Campaign(ctx)
			} else {
				for range follower.Observe(ctx) {
					continue
				}
			}
			synctest.Wait()
			if log.String() != "" {
				t.Errorf("a question that was given up is no silence: %s", &log)
			}
			if len(peers.asked) < 3 {
				t.Fatalf("only asked %+v", peers.asked)
			}
			last := 0 * time.Second
			for i, q := range peers.asked {
				if q.Lock != "leaders/scheduler" || q.Holder != "me" || q.Wait <= 0 || q.Wait > 15*time.Second || (q.Known == "") != (i == 0) || peers.of[i] != "a:1" {
					t.Errorf("question %d at %q: %+v", i, peers.of[i], q)
				}
				if q.Waited < last || q.Waited > time.Since(began) {
					t.Errorf("question %d: %+v", i, q)
				}
				last = q.Waited
			}
			if (last > 45*time.Second) != wants || !wants && last > 0 {
				t.Errorf("at the end of a minute it has waited for %v, wants to lead: %v", last, wants)
			}
			if err := leader.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestComplaints: that a leader cannot be asked is logged, once for each leader, and why; nothing is logged
// of one that answers.
func TestComplaints(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(*peer.Leadership) error
		says string
	}{
		"well":         {func(*peer.Leadership) error { return nil }, ""},
		"too early":    {func(*peer.Leadership) error { return nil }, ""}, // does not know yet that it leads
		"silence":      {func(*peer.Leadership) error { return errSilence }, errSilence.Error()},
		"another lock": {func(l *peer.Leadership) error { l.Lock = "other"; return nil }, `it answers for the lock \"other\"`},
		"another one":  {func(l *peer.Leadership) error { l.Incarnation = "other"; return nil }, "answers there, with token"},
	} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			var log leasetest.Log
			peers := &asker{}
			follower := newElection(t, st, leasehold.ElectionOptions{
				LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				Peers:       peers,
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range follower.Observe(ctx) {
					continue
				}
			}()
			for n := 1; n <= 2; n++ {
				leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: fmt.Sprint("leader ", n), Address: fmt.Sprint("a:", n), Layout: leasehold.LayoutObject}})
				var early atomic.Bool
				early.Store(true)
				peers.mu.Lock()
				peers.answer = func(context.Context, peer.Question) (peer.Leadership, error) {
					return peer.Leadership{}, c.bend(&peer.Leadership{})
				}
				if c.bend(&peer.Leadership{}) == nil {
					peers.answer = func(ctx context.Context, q peer.Question) (peer.Leadership, error) {
						if name == "too early" && early.CompareAndSwap(true, false) {
							return peer.Leadership{Lock: q.Lock}, nil
						}
						said, err := peer.Attend(ctx, leader, q)
						_ = c.bend(&said)
						return said, err
					}
				}
				peers.mu.Unlock()
				if _, err := leader.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				text, want := log.String(), n
				if c.says == "" {
					want = 0
				}
				if got := strings.Count(text, "the leader does not answer"); got != want || strings.Count(text, fmt.Sprintf("leader=%q address=a:%d", fmt.Sprint("leader ", n), n)) != want/n || !strings.Contains(text, c.says) {
					t.Errorf("%s, %d leaders: it is logged %d times: %s", name, n, got, text)
				}
				if heard := !follower.Status().LastHeard.IsZero(); heard != (c.says == "") {
					t.Errorf("%s: heard %v", name, heard)
				}
				if err := leader.Resign(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // or it asks the next leader about this one
			}
			stop()
			<-done
		})
	}
}

// TestWordOfALeader: what a leader says under a session ends with that; when it has resigned it proves it,
// where its store can show what it wrote; and who does not wait is answered at once.
func TestWordOfALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		e := newElection(t, a.st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: a.session, Layout: leasehold.LayoutObject}})
		time.Sleep(2 * time.Second)
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := attend(t, e, ""); !said.Leading || said.Remaining != protocol.Validity(leasehold.DefaultTTL)-2*time.Second {
			t.Errorf("under a session: %+v", said)
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		a.end()
	})
	files, err := filestore.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for l, st := range map[leasehold.Layout]store.Store{leasehold.LayoutObject: files, leasehold.LayoutMarker: memstore.New()} {
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: l}})
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		leads, err := peer.Attend(t.Context(), e, peer.Question{Lock: "leaders/scheduler"})
		if err != nil || !leads.Leading || len(leads.Record) > 0 || leads.Object != "" {
			t.Errorf("%s: it leads: %+v, %v", l, leads, err)
		}
		for _, wait := range []time.Duration{0, -1} { // which waits for nothing
			if again, failed := peer.Attend(t.Context(), e, peer.Question{Lock: "leaders/scheduler", Known: leads.Version, Wait: wait}); failed != nil || again.Version != leads.Version {
				t.Errorf("%s: at once: %+v, %v", l, again, failed)
			}
		}
		if err = e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		said, err := peer.Attend(t.Context(), e, peer.Question{Lock: "leaders/scheduler"})
		if err != nil || !said.Free || (l == leasehold.LayoutObject) != (len(said.Record) > 0) || (len(said.Record) > 0) != (said.Object != "") {
			t.Errorf("%s: it has resigned: %+v, %v", l, said, err)
		}
		if l != leasehold.LayoutObject {
			continue
		}
		if o, err := st.Get(t.Context(), "leaders/scheduler", ""); err != nil || string(o.Body) != string(said.Record) || o.Version != said.Object {
			t.Errorf("its proof is %q, %s, and in the store there is %+v", said.Record, said.Object, o)
		}
	}
}

// TestLateToTheMoment: a follower is told that a leader's renewal is late at that moment, also where it
// has asked since the leader last looked at its clock.
func TestLateToTheMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		time.Sleep(7200 * time.Millisecond)
		leads := attend(t, e, "")
		late := attend(t, e, leads.Version)
		if after := time.Since(began); !leads.Leading || late.Leading || after != leasehold.DefaultTTL/2 {
			t.Errorf("after %v: %+v, and then %+v", after, leads, late)
		}
		st.Clear()
		release(t, lease)
	})
}

// TestProofSparesALook: where the version of a record is its hash, the word of a leader that has resigned is
// as good as a look, and the next one leads by one write.
func TestProofSparesALook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		leader := newElection(t, files, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a", Address: "a", Layout: leasehold.LayoutObject}})
		if _, err = leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(files)
		follower := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Holder: "b", Layout: leasehold.LayoutObject},
			Peers:       &asker{answer: attends(leader)},
		})
		done := make(chan error)
		go func() {
			_, err := follower.Campaign(t.Context())
			done <- err
		}()
		time.Sleep(61 * time.Second)
		got := cost(st, func() {
			if err := leader.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		if want := (requests{put: 1}); got != want {
			t.Errorf("it made %v, want %v", got, want)
		}
		if err := follower.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSilenceIsForgiven: a leader that was silent twice in a row is asked on, and the store is not asked instead.
func TestSilenceIsForgiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a", Layout: leasehold.LayoutObject}})
		if _, err := leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(inner)
		questions, silent := 0, 0
		var before, after requests
		follower := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject},
			Peers: &asker{
				answer: func(ctx context.Context, q peer.Question) (peer.Leadership, error) {
					if questions++; questions > 10 && silent < 2 {
						if silent++; silent == 1 {
							before = since(st, faultstore.Counts{})
						}
						return peer.Leadership{}, errSilence
					}
					if silent == 2 && after == (requests{}) {
						after = since(st, faultstore.Counts{})
					}
					return peer.Attend(ctx, leader, q)
				},
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		for range follower.Observe(ctx) {
			continue
		}
		if silent != 2 || before != after {
			t.Errorf("it was silent %d times, and the requests to the store went from %v to %v", silent, before, after)
		}
		if err := leader.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOthersLetTheSuccessorGoFirst: a follower that hears that another is to lead next does not look at once.
func TestOthersLetTheSuccessorGoFirst(t *testing.T) {
	for successor, looks := range map[string]int{"heir": 0, "me": 1} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a", Layout: leasehold.LayoutObject}})
			if _, err := leader.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			st := newStoreOver(inner)
			follower := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject}, Peers: &asker{answer: attends(leader)}})
			done := make(chan error)
			go func() {
				_, err := follower.Campaign(t.Context())
				done <- err
			}()
			time.Sleep(61 * time.Second)
			got := cost(st, func() {
				if err := leader.ResignTo(t.Context(), successor); err != nil {
					t.Error(err)
				}
				time.Sleep(35 * time.Millisecond) // it hears of it 20 ms later, and looks 20 ms after that at the soonest
			})
			if got.get != looks {
				t.Errorf("%s was named, and it made %v in a moment", successor, got)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := follower.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
