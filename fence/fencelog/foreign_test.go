package fencelog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

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
