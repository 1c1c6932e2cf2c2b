package fencelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A closed appender neither trims nor makes a checkpoint. No test noticed when it did.
func TestTrimAfterClose(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	appendTo(t, a, "a")
	checkpoint(t, a, a.Last(), "state")
	a.Close()
	st.Reset()
	if err := a.Checkpoint(t.Context(), a.Last(), strings.NewReader("x")); !errors.Is(err, fencelog.ErrClosed) {
		t.Errorf("a checkpoint after Close: %v", err)
	}
	if n, err := a.Trim(t.Context()); n != 0 || !errors.Is(err, fencelog.ErrClosed) || st.Counts() != (faultstore.Counts{}) {
		t.Errorf("it has deleted %d with %+v: %v", n, st.Counts(), err)
	}
}

// A foreign object among the entries stays, whatever its name and size, and the entries
// after it are trimmed. It used to end the trim, so that later entries stayed for ever.
func TestTrimAmongOthers(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	for i := range 4 {
		appendTo(t, a, fmt.Sprint(i))
	}
	others := []string{"wal/00000000000000000020", "wal/0000000000000000002x", "wal/0000000000000000003.tmp", "wal/0000000000000000003/part"}
	for _, key := range others {
		if _, err := st.Put(t.Context(), key, bytes.Repeat([]byte("x"), 1000), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint(t, a, a.Last(), "state")
	if n := trim(t, a); n != 3 {
		t.Errorf("%d entries were trimmed, want 3", n)
	}
	want := append([]string{"wal/0000000000000000001", "wal/0000000000000000005"}, others...)
	slices.Sort(want)
	if keys := fencecheck.Keys(t, st, "wal/0"); !slices.Equal(keys, want) {
		t.Errorf("left: %q\nwant: %q", keys, want)
	}
}

// A store may list sizes that are rounded up, down or missing. Fence entries stay, and all
// entries of data go: Trim used to take a fence entry for data by its listed size, and a
// former appender was told that its late record, in that place, was safe.
func TestTrimTrustsNoListedSize(t *testing.T) {
	for _, listed := range []int64{0, 1, 4096} {
		b := &brokenstore.Store{Store: memstore.New()}
		brokenstore.ListThen(func(all []store.Entry) []store.Entry {
			for i := range all {
				all[i].Size = listed
			}
			return all
		})(b)
		appendTo(t, open(t, b, 1), "a")
		a := open(t, b, 2)
		for range 3 {
			appendTo(t, a, strings.Repeat("b", 2000))
		}
		checkpoint(t, a, a.Last(), "state")
		if n := trim(t, a); n != 3 {
			t.Errorf("sizes listed as %d: %d entries were trimmed, want 3", listed, n)
		}
		want := []string{"wal/0000000000000000001", "wal/0000000000000000003", "wal/0000000000000000006"}
		if keys := fencecheck.Keys(t, b, "wal/0"); !slices.Equal(keys, want) {
			t.Errorf("sizes listed as %d: left %q, want %q", listed, keys, want)
		}
	}
}

// An entry that somebody else has deleted between the LIST and the GET is passed over, and
// does not count. No test noticed when it did, or ended the trim.
func TestTrimWhileAnotherTrims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		slow := faultstore.Wrap(st, nil)
		a := open(t, slow, 1)
		for i := range 4 {
			appendTo(t, a, fmt.Sprint(i))
		}
		checkpoint(t, a, a.Last(), "state")
		slow.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "wal/0*3", Delay: time.Second})
		slow.Reset()
		done := make(chan int)
		go func() { done <- trim(t, a) }()
		time.Sleep(500 * time.Millisecond)
		if err := st.Delete(t.Context(), "wal/0000000000000000003"); err != nil {
			t.Fatal(err)
		}
		if n := <-done; n != 2 || slow.Counts().Delete != 2 {
			t.Errorf("it says that it has deleted %d entries, with %+v, want 2", n, slow.Counts())
		}
	})
}

// Without trouble, a write waits for nothing. No test noticed when each did.
func TestAppendTakesNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		a := open(t, newStore(), 1)
		appendTo(t, a, "a")
		if d := time.Since(begin); d > 0 {
			t.Errorf("a claim and an append took %v", d)
		}
	})
}

// An appender that is closed while the store is away gives up, and says both. No test
// noticed when it said only one.
func TestCloseWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put"})
		failed := make(chan error)
		go func() {
			_, err := a.Append(t.Context(), []byte("x"))
			failed <- err
		}()
		time.Sleep(10 * time.Second)
		begin := time.Now()
		a.Close()
		if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnavailable) || time.Since(begin) > 0 {
			t.Errorf("%v later: %v, want that it was cancelled while the store was away", time.Since(begin), err)
		}
	})
}

// An error of a write says things once: see fencecheck.
func TestErrorsOfWritesSayThingsOnce(t *testing.T) {
	fencecheck.SaysThingsOnce(t, func(t *testing.T, st *faultstore.Store) func() error {
		t.Helper()
		a := open(t, st, 1)
		return func() error {
			_, err := a.Append(t.Context(), []byte("x"))
			return err
		}
	})
}

// The records that may go into one entry do, however many lengths its header has to say; and
// what was small enough once is so for ever. No test noticed when there was less room for the
// header.
func TestLargestEntry(t *testing.T) {
	if fencelog.MaxRecord < 1_015_296 {
		t.Errorf("a record may have %d bytes", fencelog.MaxRecord)
	}
	st := newStore()
	a := open(t, st, 1)
	all := make([][]byte, 4096)
	for i := range all {
		all[i] = make([]byte, fencelog.MaxRecord*(i+1)/4096-fencelog.MaxRecord*i/4096)
	}
	if p, err := a.Append(t.Context(), all...); p != 2 || err != nil {
		t.Errorf("4096 records of %d bytes together: %d, %v", fencelog.MaxRecord, p, err)
	}
}

// A checkpoint that lies apart is read when it is opened, and that may fail. No test noticed
// when its error was dropped.
func TestCheckpointThatCannotBeOpened(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	checkpoint(t, a, 1, strings.Repeat("x", store.MaxBody))
	c, err := newLog(t, st).Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get"})
	if _, err := c.Open(t.Context()); !errors.Is(err, store.ErrDenied) {
		t.Errorf("%v, want that access was denied", err)
	}
	if _, err := newLog(t, st).Checkpoint(t.Context()); !errors.Is(err, store.ErrDenied) {
		t.Errorf("%v, want that access was denied", err)
	}
}

// A rival puts an entry of its own into each place just before the claim does.
type rival struct {
	store.Store
	entry string
	tries int // that it wins
	at    []string
}

func (s *rival) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if strings.HasPrefix(key, "wal/0") {
		if s.at = append(s.at, key); len(s.at) > s.tries {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrDenied}
		}
		if _, err := s.Store.Put(ctx, key, []byte(fmt.Sprintf(s.entry, len(s.at))), store.IfAbsent()); err != nil {
			return nil, err
		}
	}
	return s.Store.Put(ctx, key, body, only)
}

// A claim that always loses goes further and further ahead, and then gives up, after a dozen
// tries. No test noticed when it did not, or that it went on after a larger token.
func TestClaimThatAlwaysLoses(t *testing.T) {
	st := &rival{Store: newStore(), tries: 20, entry: `{"format":1,"kind":"data","token":1,"claim":"c","id":"x%d","previous":""}` + "\n"}
	appendTo(t, open(t, st.Store, 1), "a")
	_, err := newLog(t, st).Claim(t.Context(), fence.Token(2))
	if err == nil || !strings.Contains(err.Error(), "the log grows faster than it can be claimed") || len(st.at) != 12 {
		t.Errorf("after %d tries: %v\n%q", len(st.at), err, st.at)
	}
	requests := newStore()
	st = &rival{Store: requests, tries: 20, entry: `{"format":1,"kind":"fence","token":3,"claim":"c","id":"x%d","previous":""}` + "\n"}
	appendTo(t, open(t, st.Store, 1), "a")
	requests.Reset()
	_, err = newLog(t, st).Claim(t.Context(), fence.Token(2))
	fencecheck.Fenced(t, err, 2, 3)
	if n := requests.Counts(); len(st.at) != 1 || n.List != 1 {
		t.Errorf("it has met a larger token, and gone on to %q, with %+v", st.at, n)
	}
}

// A record that cannot be appended has no position, and the error names the log and the
// reason. No test noticed when it said less.
func TestAppendsThatAreNone(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	st.Reset()
	large := make([]byte, fencelog.MaxRecord/2+1)
	for _, records := range [][][]byte{nil, {large, large}, make([][]byte, 4097)} {
		p, err := a.Append(t.Context(), records...)
		if p != 0 || err == nil {
			t.Errorf("%d records: %d, %v", len(records), p, err)
		}
		if e, ok := errors.AsType[*store.Error](err); records != nil && (!ok || e.Op != "append" || e.Key != "wal" || !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), "in 4096")) {
			t.Errorf("%d records: %v, want that they are too large", len(records), err)
		}
	}
	a.Close()
	if p, err := a.Append(t.Context(), []byte("x")); p != 0 || !errors.Is(err, fencelog.ErrClosed) {
		t.Errorf("after Close: %d, %v", p, err)
	}
	if n := st.Counts(); n != (faultstore.Counts{}) {
		t.Errorf("it sent %+v", n)
	}
}

// stubborn is a slow store that sends what it has begun to send, whatever its context says.
type stubborn struct{ store.Store }

func (s stubborn) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	time.Sleep(5 * time.Second)
	return s.Store.Put(context.WithoutCancel(ctx), key, body, only)
}

// A record that waits when its appender is closed is not sent, although the write before it
// goes well. No test noticed when it was.
func TestCloseWhileAnAppendWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, stubborn{st}, 1)
		first, second := make(chan error, 1), make(chan error, 1)
		for i, c := range []chan error{first, second} {
			go func() {
				_, err := a.Append(t.Context(), []byte(fmt.Sprint(i)))
				c <- err
			}()
			time.Sleep(time.Second)
		}
		a.Close()
		if err := <-first; err != nil {
			t.Errorf("what was under way: %v", err)
		}
		if err := <-second; !errors.Is(err, fencelog.ErrClosed) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("what has waited: %v", err)
		}
		reads(t, st, 0, "0")
	})
}

// Waiting records go into one entry as far as its limits of bytes and of records allow, and
// the rest into the next. No test noticed when either limit was not kept.
func TestRoomOfAnEntry(t *testing.T) {
	most := make([]byte, fencelog.MaxRecord*3/4)
	for name, c := range map[string]struct {
		records [][]byte // of each addition
		want    []fencelog.Position
	}{
		"bytes":   {[][]byte{most}, []fencelog.Position{2, 3, 4, 5, 6}},
		"records": {make([][]byte, 2000), []fencelog.Position{2, 3, 3, 4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				a := open(t, st, 1)
				st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Delay: 5 * time.Second})
				var got [5]fencelog.Position
				var all sync.WaitGroup
				for i := range got {
					all.Go(func() {
						p, err := a.Append(t.Context(), c.records...)
						if got[i] = p; err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Second / 2)
				}
				all.Wait()
				if !slices.Equal(got[:], c.want) {
					t.Errorf("they are at %v, want %v", got, c.want)
				}
			})
		})
	}
}
