package leasehold_test

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// room is the longest text for which a candidate with it is not refused.
func room(refused func(text string) bool) string {
	text := strings.Repeat("x", protocol.MaxRecord)
	return text[:sort.Search(len(text), func(n int) bool { return refused(text[:n]) })-1]
}

// Options that were accepted gave a lock that could not be acquired, since its record was a few
// bytes too long, and a session whose heartbeats failed when it had to tell of many releases.
func TestWhatIsAcceptedFitsTheRecord(t *testing.T) {
	last := tokenRecord(here(), int64(protocol.LastToken)-1, "free")
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
			plant(t, st, objectKey("jobs/backup", protocol.LastToken-1), last)
			lock := newLock(t, st, opts(text))
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", what, len(text), err)
			}
			time.Sleep(lasting(time.Minute))
			release(t, lease)
			if _, err = lock.TryAcquire(t.Context()); err == nil && here().Tokens() {
				t.Errorf("%s: the token was not the last", what)
			}
		})
	}
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
			lock, err := leasehold.NewLock(st, fmt.Sprint("shards/", i), &leasehold.LockOptions{Holder: opts.Holder})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := lock.TryAcquire(t.Context(), leasehold.WithSession(session))
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
