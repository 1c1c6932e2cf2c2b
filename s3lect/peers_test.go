package s3lect_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

// A wire is how the instances of a test ask each other, without a network.
type wire struct {
	mu     sync.Mutex
	ends   map[string]*instance // by address
	asked  map[string]int
	closed bool
}

func newWire() *wire { return &wire{ends: map[string]*instance{}, asked: map[string]int{}} }

func (w *wire) join(i *instance) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends["https://"+i.GetConfig().ServerAddr] = i
	return i
}

func (w *wire) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.ends)
}

func (w *wire) Ask(ctx context.Context, address string, q peer.Question) (peer.Leadership, error) {
	w.mu.Lock()
	end := w.ends[address]
	w.asked[address]++
	w.mu.Unlock()
	if end == nil {
		return peer.Leadership{}, errors.New("connection refused")
	}
	return end.Attend(ctx, q)
}

func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}

func (w *wire) count(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked["https://"+address]
}

func peerMode(c *s3lect.ElectorConfig) { c.PeerMode = true }

// A follower reads once in four TTLs while the leader answers, from the moment on in which
// peer mode is switched on, and learns of a resignation at once.
func TestPeerModeIsSwitchedOnWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, w := memstore.New(), newWire()
		a := w.join(begin(t, st, "a", nil))
		a.lead(t)
		b := w.join(newInstance(t, st, "b", nil))
		b.AskThrough(w)
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := w.count("a:8443"); n > 0 {
			t.Fatalf("the leader was asked %d times without peer mode", n)
		}
		if err := b.EnablePeerMode(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.net.Reset()
		time.Sleep(time.Hour)
		if got := b.net.Counts(); got.Get > 121 || got.Put > 0 { // a look in two TTLs
			t.Errorf("the follower made %+v in an hour", got)
		}
		s, err := b.WaitForNextElection(t.Context(), time.Now()) // each answer ends a cycle
		if err != nil || s.LeaderID != "a" || time.Since(s.LeaderLastSeen) > 10*time.Second {
			t.Errorf("%+v, %v", s, err)
		}
		time.Sleep(time.Second) // its next question is open
		resigned := time.Now()
		a.quit(t)
		b.lead(t)
		if took := time.Since(resigned); took > time.Second {
			t.Errorf("the next leader began after %v", took)
		}
		b.quit(t)
		if !w.closed {
			t.Error("Stop left the client open")
		}
	})
}

// The word of an instance of the original package, that it renews now, is not asked for.
func TestTheOriginalIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, w := memstore.New(), newWire()
		o := beginOriginal(t, st, "old")
		o.lead(t)
		a := newInstance(t, st, "a", peerMode)
		a.AskThrough(w)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.quit(t) })
		time.Sleep(10 * time.Minute)
		if n := w.count("old:8443"); n > 0 {
			t.Errorf("it was asked %d times", n)
		}
		a.net.Reset()
		time.Sleep(time.Hour)
		if n := a.net.Counts().Get; n < 700 || n > 740 { // every 5 s
			t.Errorf("the follower read %d times in an hour", n)
		}
		o.crash()
		a.lead(t)
	})
}
