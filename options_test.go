package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// room is the longest text for which a candidate with it is not refused.
func room(refused func(text string) bool) string {
	text := strings.Repeat("x", record.MaxSize)
	return text[:sort.Search(len(text), func(n int) bool { return refused(text[:n]) })-1]
}

// Options that were accepted gave a lock that could not be acquired, since its record was a few
// bytes too long, and a session whose heartbeats failed when it had to tell of many releases.
func TestWhatIsAcceptedFitsTheRecord(t *testing.T) {
	for what, opts := range map[string]func(text string) *leasehold.LockOptions{
		"holder": func(text string) *leasehold.LockOptions {
			return &leasehold.LockOptions{Holder: text, TTL: leasehold.MaxTTL}
		},
		"address": func(text string) *leasehold.LockOptions { return &leasehold.LockOptions{Address: text} },
		"meta data": func(text string) *leasehold.LockOptions {
			return &leasehold.LockOptions{Meta: map[string]string{"k": text}}
		},
	} {
		bubble(t, func(t *testing.T) {
			text := room(func(text string) bool {
				_, err := leasehold.NewLock(memstore.New(), "jobs/backup", opts(text))
				return err != nil
			})
			st := newStore()
			if here() == leasehold.LayoutObject { // the longest token of all
				plant(t, st, "jobs/backup", tokenRecord(here(), int64(record.LastToken)-1, "free"))
			}
			lock := newLock(t, st, opts(text))
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", what, len(text), err)
			}
			time.Sleep(lasting(time.Minute))
			release(t, lease)
		})
	}
}

// TestWhatIsAcceptedHasAHistory: there is room for the leases of others, whatever they call themselves,
// in the longest record that is accepted.
func TestWhatIsAcceptedHasAHistory(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "the same in every layout")
	bubble(t, func(t *testing.T) {
		st := newStore()
		for n := range 20 {
			name := fmt.Sprint(n) + strings.Repeat("\x01", 100)
			release(t, acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: name})))
		}
		look := func() record.Record {
			o, err := st.Get(t.Context(), "jobs/backup", "")
			if err != nil {
				t.Fatal(err)
			}
			r, err := record.Decode(o.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		least := len(look().Past())
		text := room(func(text string) bool {
			_, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Address: text})
			return err != nil
		})
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Address: text}))
		if r := look(); len(r.Past()) < least || least < 4 || r.CountedTerm() != 21 {
			t.Errorf("it remembers %d leases where there were %d, and is the %d.", len(r.Past()), least, r.Term)
		}
		release(t, lease)
	})
}

func TestWhatIsAcceptedFitsTheHeartbeat(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		opts := &leasehold.SessionOptions{Prefix: strings.Repeat("s/", (store.MaxKey-32)/2-1) + "s"}
		st := memstore.New()
		opts.Holder = room(func(text string) bool {
			_, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Holder: text})
			return err != nil
		})
		session, err := leasehold.NewSession(t.Context(), st, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 70 {
			lock, err := leasehold.NewLock(st, fmt.Sprint("shards/", i), &leasehold.LockOptions{Holder: opts.Holder, Session: session})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
		}
		time.Sleep(time.Minute)
		if err := session.Err(); err != nil {
			t.Errorf("a minute after 70 releases: %v", err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDefaults: what is left out is as the options say.
func TestDefaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := acquire(t, newLock(t, newStore(), nil))
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s/%d", host, os.Getpid()); lease.Holder() != want {
			t.Errorf("the holder is %q, not %q", lease.Holder(), want)
		}
		if left := time.Until(lease.Deadline()); left != protocol.Validity(15*time.Second) {
			t.Errorf("the lease is valid for %v", left)
		}
		release(t, lease)
		for _, ttl := range []time.Duration{leasehold.MinTTL, leasehold.MaxTTL} {
			if _, err := leasehold.NewLock(newStore(), "k", &leasehold.LockOptions{TTL: ttl}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSessionOptions: a session is what its options say, in whatever layout locks are by default, and
// nothing is sent for one that cannot be.
func TestSessionOptions(t *testing.T) {
	defer setHere(leasehold.LayoutEpochs)()
	bubble(t, func(t *testing.T) {
		st := newStore()
		var log leasetest.Log
		proof := &asks{}
		var told []error
		s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{
			TTL: 6 * time.Second, Holder: "h", Address: "a:1", Meta: map[string]string{"k": "v"}, Proof: proof,
			OnTrouble: func(err error) { told = append(told, err) },
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := recordIn(t, st, s.Key())
		if !r.Held || r.TTL != 6*time.Second || r.Holder != "h" || r.Address != "a:1" || r.Meta["k"] != "v" {
			t.Errorf("the heartbeat says %+v", r)
		}
		if want := []string{st.String() + " object"}; !slices.Equal(proof.uses, want) {
			t.Errorf("the proof was asked for %q", proof.uses)
		}
		st.Partition(true)
		<-s.Done()
		synctest.Wait()
		if !strings.Contains(log.String(), "lease lost") {
			t.Errorf("the log says %q", &log)
		}
		if len(told) != 1 || !errors.Is(told[0], store.ErrUnavailable) {
			t.Errorf("of a store that is away it told %v", told)
		}
		_ = s.Close(t.Context())

		st = newStore()
		for says, opts := range map[string]leasehold.SessionOptions{
			"nobody has shown": {Proof: &asks{no: "object"}},
			"UTF-8":            {Holder: "a\xff"},
			"session":          {Prefix: "a//b"},
			"TTL":              {TTL: time.Millisecond},
		} {
			if _, err := leasehold.NewSession(t.Context(), st, &opts); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("want %q, got %v", says, err)
			}
		}
		if c := st.Counts(); c != (faultstore.Counts{}) {
			t.Errorf("%+v requests were made", c)
		}
	})
}

// TestSessionsOfLateConfirmation: a session that is confirmed too late to begin with is given up for another
// of a new name, twice.
func TestSessionsOfLateConfirmation(t *testing.T) {
	for late, works := range map[int]bool{1: true, 2: true, 3: false} {
		bubble(t, func(t *testing.T) {
			began := map[string]time.Time{}
			isLate := func(c faultstore.Call) bool {
				if began[c.Key].IsZero() && c.Op == "put" {
					began[c.Key] = time.Now()
				}
				return len(began) > 0 && len(began) <= late && time.Since(began[c.Key]) < 20*time.Second
			}
			st := newStore()
			st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: isLate})
			s, err := leasehold.NewSession(t.Context(), st, nil)
			if len(began) != min(late+1, 3) || works != (err == nil) {
				t.Errorf("%d sessions were confirmed late, %d tried: %v", late, len(began), err)
			}
			if err == nil {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestFinal: what a person has to mend is final, and what may pass is not.
func TestFinal(t *testing.T) {
	for err, want := range map[error]bool{
		&store.Error{Kind: store.ErrDenied}:         true,
		&store.Error{Kind: store.ErrNoBucket}:       true,
		&store.Error{Kind: store.ErrNotExist}:       true,
		leasehold.ErrForeignObject:                  true,
		leasehold.ErrTokenTooLarge:                  true,
		leasehold.ErrSessionOver:                    true,
		leasehold.ErrLost:                           false,
		leasehold.ErrHeld:                           false,
		context.Canceled:                            false,
		&store.Error{Kind: store.ErrUnavailable}:    false,
		&store.Error{Kind: store.ErrThrottled}:      false,
		&store.Error{Kind: store.ErrUnknownOutcome}: false,
	} {
		if leasehold.Final(fmt.Errorf("acquire: %w", err)) != want {
			t.Errorf("%v is final: %v, want %v", err, !want, want)
		}
	}
}
