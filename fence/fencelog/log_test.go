package fencelog_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/fencecheck/histories"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func open(t *testing.T, st store.Store, token fence.Token) *fencelog.Appender {
	t.Helper()
	a, err := newLog(t, st).Claim(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func appendTo(t *testing.T, a *fencelog.Appender, records ...string) fencelog.Position {
	t.Helper()
	p, err := a.Append(t.Context(), of(records)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func of(records []string) (all [][]byte) {
	for _, r := range records {
		all = append(all, []byte(r))
	}
	return all
}

// reads checks what anybody reads after a position.
func reads(t *testing.T, st store.Store, after fencelog.Position, want ...string) {
	t.Helper()
	got, err := records(t.Context(), newLog(t, st), after)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("after %d the log has %q, %v, want %q", after, got, err, want)
	}
}

func records(ctx context.Context, l *fencelog.Log, after fencelog.Position) (all []string, err error) {
	for e, err := range l.Read(ctx, after) {
		if err != nil {
			return all, err
		}
		for _, r := range e.Records {
			all = append(all, string(r))
		}
	}
	return all, nil
}

func checkpoint(t *testing.T, a *fencelog.Appender, at fencelog.Position, state string) {
	t.Helper()
	if err := a.Checkpoint(t.Context(), at, strings.NewReader(state)); err != nil {
		t.Fatal(err)
	}
}

func trim(t *testing.T, a *fencelog.Appender) int {
	t.Helper()
	n, err := a.Trim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFormerAppenderIsRefused(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	appendTo(t, a, "a1")
	appendTo(t, a, "a2")
	b := open(t, st, 2)
	_, err := a.Append(t.Context(), []byte("late"))
	fencecheck.Fenced(t, err, 1, 2)
	fencecheck.Fenced(t, a.Err(), 1, 2)
	appendTo(t, b, "b1", "", "b2")
	reads(t, st, 0, "a1", "a2", "b1", "", "b2")
	for _, token := range []fence.Token{1, 2} { // a token claims once
		_, err := newLog(t, st).Claim(t.Context(), token)
		fencecheck.Fenced(t, err, token.Token(), 2)
	}
	fencecheck.Fenced(t, a.Checkpoint(t.Context(), 2, strings.NewReader("old")), 1, 2)
}

// (1) A sends an append that is delayed. (2) B claims, appends, makes a checkpoint and
// trims all before it. (3) A's request arrives. If B's fence entry had been trimmed, it
// would land, and A would tell its client so.
func TestLateAppendMeetsTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{
			{Kind: faultstore.DelayBefore, Op: "put", Key: "wal/0000000000000000003", Nth: 1, Delay: 30 * time.Second},
		}})
		a := open(t, slow, 1)
		appendTo(t, a, "a1")
		ended := make(chan error)
		go func() {
			_, err := a.Append(t.Context(), []byte("late"))
			ended <- err
		}()
		time.Sleep(time.Second)
		b := open(t, st, 2)
		for i := range 5 {
			appendTo(t, b, fmt.Sprint("b", i))
		}
		checkpoint(t, b, b.Last(), "state")
		if n := trim(t, b); n != 5 {
			t.Errorf("%d entries were trimmed, want 5", n)
		}
		fencecheck.Fenced(t, <-ended, 1, 2)
	})
}

// An appender that goes on as fast as it can, since nothing but the fence stops it, is
// always one entry ahead of who has read the last one.
func TestClaimOvertakesABusyAppender(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		slow := func() store.Store { // each request takes as long for both
			return faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: 10 * time.Millisecond}}})
		}
		a := open(t, slow(), 1)
		appended := 0
		var busy sync.WaitGroup
		busy.Go(func() {
			for {
				if _, err := a.Append(t.Context(), []byte{byte(appended)}); err != nil {
					fencecheck.Fenced(t, err, 1, 2)
					return
				}
				appended++
			}
		})
		time.Sleep(time.Second)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		b, err := newLog(t, slow()).Claim(ctx, fence.Token(2))
		if err != nil {
			a.Close()
			t.Fatal(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("the claim took %v, of 10 ms for a request", d)
		}
		busy.Wait()
		appendTo(t, b, "b")
		all, err := records(t.Context(), newLog(t, st), 0)
		if err != nil || len(all) != appended+1 {
			t.Errorf("%d records were appended, and then one, and %d are there; %v", appended, len(all), err)
		}
	})
}

// A claim that went ahead and did not come back leaves a gap, which the next one closes.
func TestClaimThatCrashedAhead(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	appendTo(t, a, "a1")
	// A claim with token 2 that lost a race has written this, and crashed.
	plant(t, st, 6, `{"format":1,"kind":"fence","token":2,"claim":"c","id":"f","previous":""}`)
	reads(t, st, 0, "a1")
	appendTo(t, a, "a2") // still allowed: the gap is open
	c := open(t, st, 3)
	_, err := a.Append(t.Context(), []byte("late"))
	fencecheck.Fenced(t, err, 1, 3)
	for i := range 5 {
		appendTo(t, c, fmt.Sprint("c", i))
	}
	reads(t, st, 0, "a1", "a2", "c0", "c1", "c2", "c3", "c4")
}

func plant(t *testing.T, st store.Store, at int, body string) {
	t.Helper()
	if _, err := st.Put(t.Context(), fmt.Sprintf("wal/%019d", at), []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

// plantCheckpoint puts something in the place of the checkpoint.
func plantCheckpoint(t *testing.T, st store.Store, body string) {
	t.Helper()
	o, err := fence.NewObject(st, "wal/checkpoint", nil)
	if err == nil {
		err = o.Put(t.Context(), fence.Token(1), strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing of ours appends such an entry; if one is there all the same, it is not read.
func TestReadersSkipOlderTokens(t *testing.T) {
	st := newStore()
	appendTo(t, open(t, st, 2), "new")
	plant(t, st, 3, `{"format":1,"kind":"data","token":1,"claim":"c","id":"x","previous":"","records":[3]}`+"\nold")
	reads(t, st, 0, "new")
	appendTo(t, open(t, st, 3), "newer")
	reads(t, st, 0, "new", "newer")
}

// A record that was trimmed is not silently missing, and a checkpoint takes its place.
func TestCheckpointAndTrim(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	var at []fencelog.Position
	for i := range 6 {
		at = append(at, appendTo(t, a, fmt.Sprint(i)))
	}
	if c, err := newLog(t, st).Checkpoint(t.Context()); err != nil || c.Position != 0 {
		t.Fatal(c, err)
	}
	large := strings.Repeat("state up to 3 ", 200_000)
	checkpoint(t, a, at[3], large)
	if n := trim(t, a); n != 3 {
		t.Errorf("%d entries were trimmed, want 3", n)
	}
	c, err := newLog(t, st).Checkpoint(t.Context())
	if err != nil || c.Position != at[3] || c.Token != 1 {
		t.Fatal(c, err)
	}
	r, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state, err := io.ReadAll(r); err != nil || string(state) != large || r.Close() != nil {
		t.Errorf("the state has %d bytes, %v", len(state), err)
	}
	reads(t, st, c.Position, "4", "5")
	for _, after := range []fencelog.Position{0, at[0], at[1]} {
		if all, err := records(t.Context(), newLog(t, st), after); !errors.Is(err, fencelog.ErrTrimmed) {
			t.Errorf("after %d: %q, %v, want ErrTrimmed", after, all, err)
		}
	}
	for _, at := range []fencelog.Position{0, at[2], a.Last() + 1} {
		if err := a.Checkpoint(t.Context(), at, strings.NewReader("")); err == nil {
			t.Errorf("a checkpoint at %d, after one at 4 and before the end at %d", at, a.Last())
		}
	}
	// The next appender goes on from there, and keeps the fence entries.
	b := open(t, st, 2)
	appendTo(t, b, "6")
	if err := b.Checkpoint(t.Context(), at[2], strings.NewReader("")); err == nil {
		t.Error("the next appender may go back")
	}
	checkpoint(t, b, b.Last(), "all")
	if n := trim(t, b); n != 3 { // 3, 4 and 5
		t.Errorf("%d entries were trimmed, want 3", n)
	}
	reads(t, st, b.Last())
	if keys := fencecheck.Keys(t, st, "wal/0"); len(keys) != 3 { // two fences, and the entry of the checkpoint
		t.Errorf("left: %q", keys)
	}
	st.Reset()
	if n := trim(t, b); n != 0 || st.Counts() != (faultstore.Counts{List: 1}) {
		t.Errorf("trimmed again: %d, with %+v", n, st.Counts())
	}
}

func TestAppendsShareEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Delay: 10 * time.Millisecond})
		a := open(t, st, 1)
		st.Reset()
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				for j := range 10 {
					appendTo(t, a, fmt.Sprintf("%d.%d", i, j))
				}
			})
		}
		all.Wait()
		if n := st.Counts(); n.Put > 2*10+1 {
			t.Errorf("64 times 10 appends took %+v, want 2 PUTs for each of the 10", n)
		}
		got, err := records(t.Context(), newLog(t, st), 0)
		if err != nil || len(got) != 640 {
			t.Fatalf("%d records, %v", len(got), err)
		}
		next := map[string]int{}
		for _, r := range got {
			who, number, _ := strings.Cut(r, ".")
			if number != fmt.Sprint(next[who]) {
				t.Fatalf("%s comes out of its order", r)
			}
			next[who]++
		}
	})
}

func TestEntriesAreBounded(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	big := bytes.Repeat([]byte("x"), fencelog.MaxRecord)
	if _, err := a.Append(t.Context(), big, []byte("y")); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := a.Append(t.Context()); err == nil {
		t.Error("no records were appended")
	}
	p, err := a.Append(t.Context(), big)
	if err != nil {
		t.Fatal(err)
	}
	many := make([][]byte, 4096)
	if _, err := a.Append(t.Context(), many...); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), append(many, nil)...); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("too many: %v", err)
	}
	if got, err := records(t.Context(), newLog(t, st), p-1); err != nil || len(got) != 1+4096 || got[0] != string(big) {
		t.Errorf("%d records, %v", len(got), err)
	}
	// Additions that fit alone and not together take two entries.
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { appendTo(t, a, string(big[:fencelog.MaxRecord*3/4])) })
	}
	all.Wait()
	if got, err := records(t.Context(), newLog(t, st), p+1); err != nil || len(got) != 4 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		appendTo(t, a, "0")
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 100)
		ended := make(chan error)
		go func() {
			for e, err := range newLog(t, st).Follow(ctx, 0, time.Second) {
				if err != nil {
					ended <- err
					return
				}
				for _, r := range e.Records {
					seen <- string(r)
				}
			}
		}()
		time.Sleep(10 * time.Minute) // idle
		if n := st.Counts(); n.List > 35 || n.Get > 610 {
			t.Errorf("ten idle minutes took %+v", n)
		}
		for i := 1; i < 30; i++ {
			if i == 15 {
				a = open(t, st, 2)
			}
			appendTo(t, a, fmt.Sprint(i))
		}
		time.Sleep(2 * time.Second)
		for i := range 30 {
			if r := <-seen; r != fmt.Sprint(i) {
				t.Fatalf("%s came in place of %d", r, i)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A follower that sleeps while what it has not seen is trimmed hears of it.
func TestFollowerFallsBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		ended := make(chan error)
		go func() {
			for _, err := range newLog(t, st).Follow(t.Context(), 0, time.Minute) {
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(time.Second)
		for i := range 9 {
			appendTo(t, a, fmt.Sprint(i))
		}
		checkpoint(t, a, a.Last(), "")
		trim(t, a)
		if err := <-ended; !errors.Is(err, fencelog.ErrTrimmed) {
			t.Error(err)
		}
	})
}

// A lost answer is settled before anything else is appended: nothing is lost, doubled or
// out of order, whatever the caller was told.
func TestLostAnswersOfAppends(t *testing.T) {
	for _, kind := range []faultstore.Kind{
		faultstore.LostAnswer, faultstore.LostRequest, faultstore.Unavailable, faultstore.Conflict, faultstore.LateLanding, faultstore.LateDuplicate,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				a := open(t, st, 1)
				st.Inject(faultstore.Fault{Kind: kind, Op: "put", Nth: 2, Delay: time.Minute})
				for i := range 4 {
					appendTo(t, a, fmt.Sprint(i))
				}
				st.Wait()
				reads(t, st, 0, "0", "1", "2", "3")
			})
		})
	}
}

// The store goes away in the middle of an append. The outcome of the write under way is
// unknown, and a record that was not sent fails. When the store is back, the next entry
// comes after the first if that has landed. If not, it takes the first one's place, so
// that the first never lands.
func TestAppendOfUnknownOutcome(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				a := open(t, st, 1)
				kind, want := faultstore.LateLanding, []string{"third"}
				if landed {
					kind, want = faultstore.LostAnswer, []string{"first", "third"}
				}
				st.Inject(faultstore.Fault{Kind: kind, Op: "put", Delay: time.Hour}, faultstore.Fault{Kind: faultstore.Unavailable, Op: "get"})
				first := make(chan error)
				go func() {
					_, err := a.Append(t.Context(), []byte("first"))
					first <- err
				}()
				time.Sleep(time.Second)
				_, second := a.Append(t.Context(), []byte("second"))
				if err := <-first; !errors.Is(err, store.ErrUnknownOutcome) {
					t.Errorf("first: %v, want that its outcome is unknown", err)
				}
				if second == nil || errors.Is(second, store.ErrUnknownOutcome) {
					t.Errorf("second: %v, want that it was not sent", second)
				}
				st.Clear()
				appendTo(t, a, "third")
				st.Wait()
				reads(t, st, 0, want...)
			})
		})
	}
}

func TestAppendGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 10 * time.Second})
		a := open(t, st, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sent, queued := make(chan error), make(chan error)
		for _, c := range []chan error{sent, queued} {
			go func() {
				p, err := a.Append(ctx, []byte("given up"))
				if p != 0 {
					t.Errorf("what was given up is at %d", p)
				}
				c <- err
			}()
			time.Sleep(100 * time.Millisecond)
		}
		if err := <-queued; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("what was not sent: %v", err)
		}
		if err := <-sent; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("what was sent: %v", err)
		}
		appendTo(t, a, "after")
		reads(t, st, 0, "given up", "after")
		a.Close()
		if _, err := a.Append(t.Context(), []byte("x")); !errors.Is(err, fencelog.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A claim of which no answer came can be made again, with the same token.
func TestClaimAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		appendTo(t, open(t, st, 1), "a")
		l := newLog(t, st)
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Key: "wal/0*"}, faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "wal/0*3"})
		if _, err := l.Claim(t.Context(), fence.Token(2)); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		st.Clear()
		b, err := l.Claim(t.Context(), fence.Token(2))
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, b, "b")
		reads(t, st, 0, "a", "b")
	})
}

func TestForeignEntries(t *testing.T) {
	for name, body := range map[string]string{
		"rubbish":         "rubbish",
		"a newer format":  `{"format":2,"kind":"data","token":1,"claim":"c","id":"x"}`,
		"without a token": `{"format":1,"kind":"data","claim":"c","id":"x"}`,
		"cut":             `{"format":1,"kind":"data","token":1,"claim":"c","id":"x","records":[5]}` + "\nabc",
		"too long":        `{"format":1,"kind":"data","token":1,"claim":"c","id":"x","records":[2]}` + "\nabc",
		"negative":        `{"format":1,"kind":"data","token":1,"claim":"c","id":"x","records":[-2,5]}` + "\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore()
			a := open(t, st, 1)
			plant(t, st, 2, body)
			if _, err := a.Append(t.Context(), []byte("x")); !errors.Is(err, fence.ErrForeign) {
				t.Errorf("append: %v", err)
			}
			if _, err := records(t.Context(), newLog(t, st), 0); !errors.Is(err, fence.ErrForeign) {
				t.Errorf("read: %v", err)
			}
			if _, err := newLog(t, st).Claim(t.Context(), fence.Token(2)); !errors.Is(err, fence.ErrForeign) {
				t.Errorf("claim: %v", err)
			}
		})
	}
	st := newStore()
	plant(t, st, 3, `{"format":1,"kind":"data","token":1,"claim":"c","id":"x"}`+"\n")
	if _, err := newLog(t, st).Claim(t.Context(), fence.Token(2)); !errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), "the entry 1 is missing") {
		t.Errorf("a log whose beginning was deleted: %v", err)
	}
}

// Each operation sends the requests that docs/requests-commands.md says.
func TestLogCost(t *testing.T) {
	st := newStore()
	cost := func(name string, want faultstore.Counts, do func()) {
		t.Helper()
		st.Reset()
		do()
		if n := st.Counts(); n != want {
			t.Errorf("%s sent %+v, want %+v", name, n, want)
		}
	}
	var a *fencelog.Appender
	cost("the first claim", faultstore.Counts{Get: 2, List: 1, Put: 2}, func() { a = open(t, st, 1) })
	cost("an append", faultstore.Counts{Put: 1}, func() { appendTo(t, a, "x") })
	cost("an append of ten", faultstore.Counts{Put: 1}, func() { appendTo(t, a, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9") })
	cost("a claim", faultstore.Counts{Get: 3, List: 1, Put: 2}, func() { a = open(t, st, 2) })
	appendTo(t, a, strings.Repeat("x", 1000))
	appendTo(t, a, "y")
	cost("a replay of five entries", faultstore.Counts{Get: 6, List: 1}, func() { _, _ = records(t.Context(), newLog(t, st), 0) })
	cost("a checkpoint", faultstore.Counts{Put: 1}, func() { checkpoint(t, a, a.Last(), "state") })
	cost("a trim of three entries and two fences", faultstore.Counts{Get: 5, List: 1, Delete: 3}, func() { trim(t, a) })
	cost("reading the checkpoint", faultstore.Counts{Get: 1}, func() { _, _ = newLog(t, st).Checkpoint(t.Context()) })
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"format":1,"kind":"data","token":1,"claim":"c","id":"x","records":[2,1]}` + "\nabc"))
	f.Add([]byte(`{"format":1,"kind":"fence","token":1,"claim":"c","id":"x"}` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		st := memstore.New()
		if _, err := st.Put(t.Context(), "wal/0000000000000000001", body, store.IfAbsent()); err != nil {
			t.Skip("the store takes no such body")
		}
		size := 0
		for e, err := range newLog(t, st).Read(t.Context(), 0) {
			if err != nil {
				if !errors.Is(err, fence.ErrForeign) {
					t.Error(err)
				}
				return
			}
			for _, r := range e.Records {
				size += len(r)
			}
		}
		if size > len(body) {
			t.Errorf("%d bytes of records in an entry of %d", size, len(body))
		}
	})
}

// A former appender that has not met the fence yet must not move the checkpoint, nor
// may it trim past the one that the next appender has read.
func TestLateCheckpointIsRefused(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	for i := range 4 {
		appendTo(t, a, fmt.Sprint(i))
	}
	b := open(t, st, 2)
	fencecheck.Fenced(t, a.Checkpoint(t.Context(), 3, strings.NewReader("late")), 1, 2)
	if n := trim(t, a); n != 0 {
		t.Errorf("%d entries were trimmed", n)
	}
	appendTo(t, b, "4")
	reads(t, st, 0, "0", "1", "2", "3", "4")
}

// (1) B, claiming, has read the checkpoint, which is at a fence entry. (2) C claims,
// appends, makes a checkpoint, and trims all but fence entries. (3) B lists what is there
// and takes that fence entry for the end of the log.
func TestClaimThatIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		checkpoint(t, a, a.Last(), "state")
		for i := range 3 {
			appendTo(t, a, fmt.Sprint(i))
		}
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Op: "list", Nth: 1, Delay: time.Minute}}})
		ended := make(chan error)
		go func() {
			_, err := newLog(t, slow).Claim(t.Context(), fence.Token(2))
			ended <- err
		}()
		time.Sleep(time.Second)
		c := open(t, st, 3)
		appendTo(t, c, "3")
		checkpoint(t, c, c.Last(), "state")
		if n := trim(t, c); n != 3 {
			t.Fatalf("%d entries were trimmed, want 3", n)
		}
		fencecheck.Fenced(t, <-ended, 2, 3)
		appendTo(t, c, "4")
		reads(t, st, c.Last()-1, "4")
	})
}

// The former appender wins a race against a claim, which goes ahead, and then is gone: the
// gap must not hide what the next one appends.
func TestClaimClosesTheGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 1)
		appendTo(t, a, "a1")
		slow := faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Op: "put", Key: "wal/0*", Nth: 1, Delay: time.Minute}}})
		claimed := make(chan *fencelog.Appender)
		go func() { claimed <- open(t, slow, 2) }()
		time.Sleep(time.Second)
		appendTo(t, a, "a2")
		appendTo(t, <-claimed, "b1")
		reads(t, st, 0, "a1", "a2", "b1")
	})
}

// A caller that gave up may reuse its bytes, although the record is still to be written,
// and written anew because another writer's entry is in the way.
func TestRecordsAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := open(t, st, 2)
		plant(t, st, 2, `{"format":1,"kind":"fence","token":1,"claim":"c","id":"f","previous":""}`)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 5 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		record := []byte("mine")
		if _, err := a.Append(ctx, record); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		copy(record, "xxxx")
		appendTo(t, a, "next")
		reads(t, st, 0, "mine", "next")
	})
}

// Each field of an entry's header is needed, and an error says what is wrong with it. No test
// noticed when an entry without its ID or its claim, or of another kind, was read.
func TestHeaders(t *testing.T) {
	const nothing, newer, line = "says nothing of an entry", "its format 2 is newer than this version", "its first line is no header"
	for header, want := range map[string]string{
		`rubbish`: line,
		`{"format":1,"kind":"data","token":1,"claim":"c","id":"x"}`:   "",
		`{"format":1,"kind":"fence","token":1,"claim":"c","id":"x"}`:  "",
		`{"format":2,"kind":"data","token":1,"claim":"c","id":"x"}`:   newer,
		`{"format":0,"kind":"data","token":1,"claim":"c","id":"x"}`:   nothing,
		`{"kind":"data","token":1,"claim":"c","id":"x"}`:              nothing,
		`{"format":1,"kind":"other","token":1,"claim":"c","id":"x"}`:  nothing,
		`{"format":1,"token":1,"claim":"c","id":"x"}`:                 nothing,
		`{"format":1,"kind":"data","token":0,"claim":"c","id":"x"}`:   nothing,
		`{"format":1,"kind":"data","token":-1,"claim":"c","id":"x"}`:  nothing,
		`{"format":1,"kind":"data","token":1,"id":"x"}`:               nothing,
		`{"format":1,"kind":"data","token":1,"claim":"c"}`:            nothing,
		`{"format":"1","kind":"data","token":1,"claim":"c","id":"x"}`: line,
	} {
		st := newStore()
		plant(t, st, 1, header+"\n")
		_, err := records(t.Context(), newLog(t, st), 0)
		if want == "" && err != nil || want != "" && (!errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
}

// A foreign object beside the entries is passed over, wherever it is listed. No test
// noticed when it was taken for an entry.
func TestKeysThatAreNoEntries(t *testing.T) {
	st := newStore()
	a := open(t, st, 1)
	for _, key := range []string{
		"wal/00000000000000000010",            // 20 digits, listed between the entries 1 and 2
		"wal/00000000000000000020",            // between 2 and 3
		"wal/0000000000000000002x",            // not a number
		"wal/9999999999999999999",             // more than there are
		"wal/0000000000000000002/part",        // below an entry
		"wal/0000000000000000003.tmp",         //
		"wal/checkpoint.former",               //
		"wal/00000000000000000000000000000x0", //
	} {
		if _, err := st.Put(t.Context(), key, []byte("not an entry"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(t, a, "a2")
	appendTo(t, a, "a3")
	appendTo(t, a, "a4")
	b := open(t, st, 2)
	if b.Last() != 5 {
		t.Errorf("the claim is at %d, want 5", b.Last())
	}
	appendTo(t, b, "b")
	reads(t, st, 0, "a2", "a3", "a4", "b")
}

// A checkpoint whose first line is not that of one is said to be foreign. No test noticed
// when any of its fields was believed.
func TestForeignCheckpoints(t *testing.T) {
	for body, want := range map[string]string{
		"":                                    "its first line is not that of a checkpoint",
		`{"position":3,"trimmed":1}`:          "EOF",
		"rubbish\n":                           "invalid character",
		"{}\n":                                `it says "{}\n"`,
		`{"position":0,"trimmed":0}` + "\n":   "it says",
		`{"position":-1,"trimmed":-1}` + "\n": "it says",
		`{"position":3,"trimmed":-1}` + "\n":  "it says",
		`{"position":3,"trimmed":4}` + "\n":   "it says",
		`{"position":3,"trimmed":3}` + "\n":   "",
		`{"position":1,"trimmed":0}` + "\n" + "state\nof two\n": "",
	} {
		st := newStore()
		plantCheckpoint(t, st, body)
		c, err := newLog(t, st).Checkpoint(t.Context())
		if want != "" {
			if !errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), " wal/checkpoint: ") {
				t.Errorf("%q: %v, want %q, and of which object", body, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", body, err)
			continue
		}
		r, err := c.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, state, _ := strings.Cut(body, "\n")
		if got, err := io.ReadAll(r); err != nil || string(got) != state || r.Close() != nil {
			t.Errorf("%q: the state is %q, %v", body, got, err)
		}
	}
	// There is none: the state is empty.
	c, err := newLog(t, newStore()).Checkpoint(t.Context())
	if err != nil || c.Position != 0 {
		t.Fatal(c, err)
	}
	r, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || len(got) > 0 {
		t.Errorf("without a checkpoint the state is %q, %v", got, err)
	}
}

// Follow looks once a second if it is not told otherwise, begins after the position that it
// is given, and ends when its reader or its context does, or the store fails for good. No
// test noticed when it did not.
func TestFollowEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, every := range []time.Duration{0, -time.Second, time.Second} {
			st := newStore()
			a := open(t, st, 1)
			for i := range 3 {
				appendTo(t, a, fmt.Sprint(i))
			}
			st.Reset()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
			var got []string
			var ends []error
			for e, err := range newLog(t, st).Follow(ctx, 3, every) {
				if err != nil {
					ends = append(ends, err)
				} else {
					got = append(got, string(e.Records[0]))
				}
			}
			cancel()
			if len(got) != 1 || got[0] != "2" || len(ends) != 1 || !errors.Is(ends[0], context.DeadlineExceeded) {
				t.Errorf("every %v: after the second record it yields %q and then %v", every, got, ends)
			}
			if n := st.Counts(); n.Get != 1+10 || n.List != 1 {
				t.Errorf("every %v: ten seconds took %+v, want a LIST and 11 GETs", every, n)
			}
		}
		// The reader has had enough: of what was there, and of what comes later.
		st := newStore()
		a := open(t, st, 1)
		appendTo(t, a, "0")
		for _, err := range newLog(t, st).Follow(t.Context(), 0, time.Second) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		appended := make(chan struct{})
		go func() {
			time.Sleep(3 * time.Second)
			appendTo(t, a, "1")
			close(appended)
		}()
		for _, err := range newLog(t, st).Follow(t.Context(), a.Last(), time.Second) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		<-appended
		// The store fails, while it is listed and while it is polled.
		for _, op := range []string{"list", "get"} {
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: op})
			var errs []error
			for _, err := range newLog(t, st).Follow(t.Context(), a.Last(), time.Second) {
				errs = append(errs, err)
			}
			if len(errs) != 1 || !errors.Is(errs[0], store.ErrDenied) {
				t.Errorf("each %s is denied: it yields %v", op, errs)
			}
			st.Clear()
		}
	})
}

// An error of any request of a claim, an append, a checkpoint or a trim is returned, and
// nothing that needs the request is done after it. No test noticed when one of these
// errors was dropped.
func TestErrorsOfTheStoreAreTold(t *testing.T) {
	for _, c := range []struct {
		name, op, key string
		do            func(a *fencelog.Appender, l *fencelog.Log) error
	}{
		{"a claim reads the checkpoint", "get", "wal/checkpoint", claim},
		{"a claim seals the checkpoint", "put", "wal/checkpoint", claim},
		{"a claim lists", "list", "", claim},
		{"a claim reads the tail", "get", "wal/0*", claim},
		{"a claim writes its fence", "put", "wal/0*", claim},
		{"an append", "put", "wal/0*", func(a *fencelog.Appender, _ *fencelog.Log) error {
			_, err := a.Append(context.Background(), []byte("x"))
			return err
		}},
		{"a checkpoint", "put", "wal/checkpoint", func(a *fencelog.Appender, _ *fencelog.Log) error {
			return a.Checkpoint(context.Background(), 4, strings.NewReader("x"))
		}},
		{"a trim lists", "list", "", trimming},
		{"a trim reads what could be a fence", "get", "wal/0*", trimming},
		{"a trim deletes", "delete", "wal/0*", trimming},
		{"a replay lists", "list", "", replays},
		{"a replay reads", "get", "wal/0*3", replays},
		{"the checkpoint is read", "get", "wal/checkpoint", func(_ *fencelog.Appender, l *fencelog.Log) error {
			_, err := l.Checkpoint(context.Background())
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				a := open(t, st, 1)
				for i := range 4 {
					appendTo(t, a, fmt.Sprint(i))
				}
				checkpoint(t, a, 3, "state")
				st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: c.op, Key: c.key})
				if err := c.do(a, newLog(t, st)); !errors.Is(err, store.ErrDenied) {
					t.Errorf("%v, want that access was denied", err)
				}
				st.Clear()
				reads(t, st, 2, "1", "2", "3")
			})
		})
	}
}

func claim(_ *fencelog.Appender, l *fencelog.Log) error {
	_, err := l.Claim(context.Background(), fence.Token(2))
	return err
}

func trimming(a *fencelog.Appender, _ *fencelog.Log) error {
	n, err := a.Trim(context.Background())
	if n != 0 {
		return fmt.Errorf("%d entries were trimmed: %w", n, err)
	}
	return err
}

func replays(_ *fencelog.Appender, l *fencelog.Log) error {
	_, err := records(context.Background(), l, 0)
	return err
}

var (
	count     = flag.Int("histories", 500, "how many histories to check")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
)

func TestLogHistories(t *testing.T) {
	t.Parallel()
	histories.Check(t, *firstSeed, *count, linear.Log, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *histories.History) {
		var all sync.WaitGroup
		for client := range 3 {
			own := rand.New(rand.NewPCG(r.Uint64(), 3))
			all.Go(func() { lead(t, own, st, h, client) })
		}
		all.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				h.Record(t, 9, linear.Command{Op: "read"}, func() (string, error) { return replay(t.Context(), newLog(t, st)) })
			}
		})
		all.Wait()
	})
}

// lead is one client of the log: it claims, and then appends, checkpoints and trims.
func lead(t *testing.T, r *rand.Rand, st store.Store, h *histories.History, client int) {
	t.Helper()
	ctx := t.Context()
	for term := range 2 {
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
		token := fence.Token(1 + client + 3*term) // a token claims once
		l := newLog(t, st)
		var a *fencelog.Appender
		open := func() (_ string, err error) {
			a, err = l.Claim(ctx, token)
			return "", err
		}
		if h.Record(t, client, linear.Command{Op: "open", Token: int64(token)}, open) != linear.Done {
			continue
		}
		var calls sync.WaitGroup
		for i := range 3 {
			for j := range 1 + r.IntN(2) {
				value := fmt.Sprintf("%d.%d.%d", token, i, j)
				calls.Go(func() {
					h.Record(t, 10*client+j, linear.Command{Op: "append", Token: int64(token), Value: value}, func() (string, error) {
						_, err := a.Append(ctx, []byte(value))
						return "", err
					})
				})
			}
			calls.Wait()
			if r.IntN(2) == 0 {
				compact(ctx, l, a)
			}
		}
		time.Sleep(time.Minute) // for what is stuck
		a.Close()
	}
}

// compact makes a checkpoint of the log so far, and trims it. That must change
// nothing for readers.
func compact(ctx context.Context, l *fencelog.Log, a *fencelog.Appender) {
	last := a.Last()
	state, at, err := restore(ctx, l, last)
	if err != nil || at == 0 || a.Checkpoint(ctx, at, strings.NewReader(state)) != nil {
		return
	}
	_, _ = a.Trim(ctx)
}

// replay reads the whole log.
func replay(ctx context.Context, l *fencelog.Log) (string, error) {
	state, _, err := restore(ctx, l, math.MaxInt64)
	return state, err
}

// restore reads the log up to an entry: the checkpoint, and what comes after it.
func restore(ctx context.Context, l *fencelog.Log, to fencelog.Position) (string, fencelog.Position, error) {
	for {
		state, at, err := fencecheck.Restore(ctx, l, to)
		if !errors.Is(err, fencelog.ErrTrimmed) && !errors.Is(err, fence.ErrReplaced) {
			return state, at, err
		}
	}
}
