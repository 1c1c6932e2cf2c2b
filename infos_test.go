package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// timeless is a store that does not tell its time by what is there, as a directory does not.
type timeless struct{ store.Store }

func (s timeless) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, unless)
	if o != nil {
		o.Date = time.Time{}
	}
	return o, err
}

// seenAs is what a record looks like after some time, in a store that tells its time or in one that
// does not.
func seenAs(t *testing.T, l leasehold.Layout, body string, tells bool, after time.Duration) leasehold.Info {
	t.Helper()
	st := memstore.New()
	if _, err := st.Put(t.Context(), "jobs/backup", []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	var look store.Store = st
	if !tells {
		look = timeless{st}
	}
	info, err := newLock(t, look, &leasehold.LockOptions{Layout: l}).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestAgeOfAnotherRecord: what a Lock has read of one holder says nothing of the next one, which
// it knows by a look of its user.
func TestAgeOfAnotherRecord(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		first, second, third := newLock(t, st, nil), newLock(t, st, nil), newLock(t, st, nil)
		tried := func() leasehold.Info {
			var held *leasehold.HeldError
			if _, err := third.TryAcquire(t.Context()); !errors.As(err, &held) {
				t.Fatal(err)
			}
			return held.Info
		}
		lease := acquire(t, first)
		tried()
		time.Sleep(7 * time.Second)
		release(t, lease)
		defer release(t, acquire(t, second))
		if _, err := third.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i := tried(); i.Holder == "" || i.Age > 0 {
			t.Errorf("the record was written just now, and is said to be %v old", i.Age)
		}
	})
}

// TestHintOfAge: a holder looks abandoned when its record is older than TTL, margin and what clocks that
// show whole seconds may be off: by the store's clock if that tells, else by the wall clocks, and where
// neither tells it does not.
func TestHintOfAge(t *testing.T) {
	const ttl = 15 * time.Second
	limit := protocol.Patience(ttl) + 3*time.Second
	text := func(state string, renewed time.Time) string {
		at := ""
		if !renewed.IsZero() {
			at = fmt.Sprintf(`,"renewed_at":%q`, renewed.UTC().Format(time.RFC3339Nano))
		}
		return fmt.Sprintf(`{"format":1,"token":7,"state":%q,"holder":"x","ttl_ms":15000,"write_id":"x.1"%s}`, state, at)
	}
	for name, c := range map[string]struct {
		state   string
		renewed time.Duration // this long before the record was written, by the wall clock of the holder; negative: it does not say
		tells   bool
		after   time.Duration
		gone    bool
	}{
		"at the limit":                         {"held", 0, true, limit, false},
		"just over the limit":                  {"held", 0, true, limit + 1, true},
		"free":                                 {"free", 0, true, time.Hour, false},
		"a holder whose clock is slow":         {"held", time.Hour, true, time.Second, false},
		"no time of renewal":                   {"held", -1, true, time.Hour, true},
		"by the wall clock, at the limit":      {"held", 0, false, limit, false},
		"by the wall clock, over it":           {"held", 0, false, limit + time.Second, true},
		"by the wall clock, that was slow":     {"held", time.Hour, false, time.Second, true},
		"no time at all":                       {"held", -1, false, time.Hour, false},
		"a free one, by the wall clock, is so": {"free", 0, false, time.Hour, false},
	} {
		bubble(t, func(t *testing.T) {
			var renewed time.Time
			if c.renewed >= 0 {
				renewed = time.Now().Add(-c.renewed).Truncate(time.Millisecond)
			}
			info := seenAs(t, leasehold.LayoutObject, text(c.state, renewed), c.tells, c.after)
			age := c.after
			if !c.tells {
				age = -1
			}
			if info.Abandoned != c.gone || info.Age != age || !info.RenewedAt.Equal(renewed) || info.TTL != ttl {
				t.Errorf("%s: %+v", name, info)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		info := seenAs(t, leasehold.LayoutMarker, "another tool's", true, time.Hour)
		if info.TTL != 0 || info.Abandoned || info.Age != time.Hour || !info.Held {
			t.Errorf("another tool's marker: %+v", info)
		}
	})
}

// TestTimesOfAnInfo: the times that a holder writes are those that are told.
func TestTimesOfAnInfo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		began := time.Now()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}))
		time.Sleep(6 * time.Second)
		info, err := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}).Inspect(t.Context())
		renewed := began.Add(protocol.Renewal(leasehold.DefaultTTL))
		if err != nil || !near(info.AcquiredAt, began) || !near(info.RenewedAt, renewed) || !near(info.ExpiresAt, renewed.Add(leasehold.DefaultTTL)) {
			t.Errorf("%+v, %v", info, err)
		}
		release(t, lease)
	})
}

// TestSessionIsWatchedAsASession: whatever the options of the lock are, the session of its holder is
// waited out for its TTL and margin, and one that is not there is over.
func TestSessionIsWatchedAsASession(t *testing.T) {
	for name, opts := range map[string]leasehold.LockOptions{
		"fast start": {FastStart: true, Layout: leasehold.LayoutObject},
		"existing":   {Existing: true, Layout: leasehold.LayoutObject},
		"epochs":     {Layout: leasehold.LayoutEpochs},
		"if-match":   {Layout: leasehold.LayoutEpochsIfMatch},
	} {
		for _, deleted := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				inner := memstore.New()
				a := startProcess(t, inner, "a")
				held, err := leasehold.NewLock(a.st, "jobs/backup", &leasehold.LockOptions{Layout: opts.Layout, Session: a.session})
				if err != nil {
					t.Fatal(err)
				}
				acquire(t, held)
				a.st.Partition(true)
				time.Sleep(time.Hour)
				other := newLock(t, inner, &opts)
				began := time.Now()
				if deleted {
					time.AfterFunc(5*time.Second, func() {
						if err := inner.Delete(t.Context(), a.session.Key()); err != nil {
							t.Error(err)
						}
					})
				}
				lease := acquire(t, other)
				took, patience := time.Since(began), protocol.Patience(leasehold.DefaultTTL)
				if !deleted && (took < patience || took > patience+5*time.Second) || deleted && (took < 5*time.Second || took > patience) {
					t.Errorf("%s, deleted %v: taken over after %v", name, deleted, took)
				}
				if !deleted && recordIn(t, inner, a.session.Key()).Held {
					t.Errorf("%s: the session was waited out, and not ended", name)
				}
				release(t, lease)
				a.st.Partition(false)
				a.end()
			})
		}
	}
}

// A look asks for the session of the holder if there is one, and for nothing else.
func TestInspectAsksForTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := a.acquire("shards/1")
		other := acquire(t, newLock(t, inner, nil))
		st := newStoreOver(inner)
		for key, want := range map[string]int{"shards/1": 2, "jobs/backup": 1} {
			st.Reset()
			if info, err := locksOf(t, st, nil, key)[0].Inspect(t.Context()); err != nil || !info.Held || info.Abandoned {
				t.Errorf("%s: %+v, %v", key, info, err)
			}
			lists := st.Counts().List // of epochs
			if sent := st.Log(); len(sent)-lists != want {
				t.Errorf("%s: %v, want %d reads", key, sent, want)
			}
		}
		release(t, other)
		release(t, lease)
		a.close()
	})
}

// A lock that is free is under no session, whatever its record says; and where the session cannot be read,
// that is said, with the lock.
func TestInspectBesideASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		plantRecord := func(key, state string) {
			body := fmt.Sprintf(`{"format":1,"token":1,"state":%q,"holder":"x","ttl_ms":1000,"write_id":"x.1","session":"../%s"}`, state, a.session.Key())
			if _, err := inner.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		plantRecord("jobs/free", "free")
		plantRecord("jobs/held", "held")
		st := newStoreOver(inner)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Key: a.session.Key()})
		object := &leasehold.LockOptions{Layout: leasehold.LayoutObject}
		if info, err := locksOf(t, st, object, "jobs/free")[0].Inspect(t.Context()); err != nil || info.Held || info.Abandoned {
			t.Errorf("free: %+v, %v", info, err)
		}
		info, err := locksOf(t, st, object, "jobs/held")[0].Inspect(t.Context())
		if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), a.session.Key()) || !info.Held || info.Abandoned {
			t.Errorf("held: %+v, %v", info, err)
		}
		a.end()
	})
}

// Anything may lie in the place of a session: its holder is then taken for one that is
// there, and to look at the lock is no error.
func TestInspectUnderAForeignSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		a.acquire("shards/1")
		o, err := inner.Get(t.Context(), a.session.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = inner.Put(t.Context(), a.session.Key(), []byte("rubbish"), store.IfMatch(o.Version)); err != nil {
			t.Fatal(err)
		}
		if info, err := locksOf(t, inner, nil, "shards/1")[0].Inspect(t.Context()); err != nil || !info.Held || info.Abandoned {
			t.Errorf("%+v, %v", info, err)
		}
		_ = leasehold.ReleaseAll(t.Context(), a.session.Leases()) // nobody knows what is there
		_ = a.session.Close(t.Context())
	})
}

// TestLayoutInAnInfo: whoever tells of a lock says in which layout it lies; the process that holds it too,
// which has not read that anywhere.
func TestLayoutInAnInfo(t *testing.T) {
	for _, l := range leasehold.Layouts {
		bubble(t, func(t *testing.T) {
			st := newStore()
			var log leasetest.Log
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if warned := strings.Contains(log.String(), "has no tokens"); warned == l.Tokens() {
				t.Errorf("%s: the log says %q", l, &log)
			}
			lease := acquire(t, lock)
			want := l
			if !l.Tokens() {
				want = leasehold.LayoutMarker // both say so in their records
			}
			for _, lock := range []*leasehold.Lock{lock, newLock(t, st, &leasehold.LockOptions{Layout: l})} {
				_, err := lock.TryAcquire(t.Context())
				var held *leasehold.HeldError
				if !errors.As(err, &held) || held.Info.Layout != want {
					t.Errorf("%s: %+v", l, held)
				}
			}
			release(t, lease)
		})
	}
}

// TestAnotherToolsMarkerIsSeldomLookedAt: a marker that says nothing of a TTL is looked at as often as one
// with the TTL of the candidate would be.
func TestAnotherToolsMarkerIsSeldomLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/backup", "another tool's")
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, TTL: time.Minute})
		if _, err := lock.Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		if c := st.Counts(); c.Get > 1520 { // 1446 on average, and 2596 at a TTL of 3 s and less
			t.Errorf("%d looks in an hour, where TTL/3 is 20 s", c.Get)
		}
	})
}

// TestTexts: what people read of a token and of a holder.
func TestTexts(t *testing.T) {
	info := leasehold.Info{Key: "jobs/backup", Holder: "db-1", Token: 1234567890, TTL: 15 * time.Second}
	gone := info
	gone.Abandoned = true
	for want, got := range map[string]string{
		"1234567890": leasehold.Token(1234567890).String(),
		"none":       leasehold.NoToken.String(),
		"the lock jobs/backup is held by db-1 (token 1234567890)":                                                                       (&leasehold.HeldError{Info: info}).Error(),
		"the lock jobs/backup is held by db-1 (token 1234567890); it looks abandoned, and a wait of a little over 15s can take it over": (&leasehold.HeldError{Info: gone}).Error(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
