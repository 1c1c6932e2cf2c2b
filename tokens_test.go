package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// tokenRecord is the text of a record with a token that somebody has set by hand.
func tokenRecord(l leasehold.Layout, token int64, state string) string {
	name := ""
	if l != leasehold.LayoutObject {
		name = fmt.Sprintf(`,"layout":%q`, l)
	}
	return fmt.Sprintf(`{"format":1,"token":%d,"state":%q,"holder":"x","ttl_ms":1000,"write_id":"x%d"%s}`, token, state, token, name)
}

// The largest token but one was acquired over, and the record of the next one was called
// foreign ever after: nobody could acquire, inspect or break the lock, or learn how to repair it.
func TestTokenThatIsTooLarge(t *testing.T) {
	for _, l := range leasehold.Layouts {
		if !l.Tokens() {
			continue
		}
		for _, token := range []int64{record.LastToken - 1, record.LastToken, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
			for _, state := range []string{"free", "held"} {
				t.Run(fmt.Sprintf("%s, %s, %d", l, state, token), func(t *testing.T) {
					bubble(t, func(t *testing.T) { tooLarge(t, l, token, state) })
				})
			}
		}
	}
}

func tooLarge(t *testing.T, l leasehold.Layout, token int64, state string) {
	t.Helper()
	st := memstore.New()
	key := "jobs/backup"
	if l != leasehold.LayoutObject {
		key = layoutKey(7)
	}
	obj, err := st.Put(t.Context(), key, []byte(tokenRecord(l, token, state)), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	lock := newLock(t, st, &leasehold.LockOptions{Layout: l, TTL: time.Second})
	// Either the acquisition is refused, or its lease can be used as before.
	lease, err := lock.Acquire(t.Context())
	if usable := token < record.LastToken; usable != (err == nil) {
		t.Fatalf("acquired: %v", err)
	}
	if err == nil {
		if lease.Token() <= leasehold.Token(token) {
			t.Errorf("token %v after %d", lease.Token(), token)
		}
		time.Sleep(time.Minute)
		release(t, lease)
		return
	}
	e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: l}})
	if err != nil {
		t.Fatal(err)
	}
	_, acquired := lock.Acquire(t.Context())
	_, tried := lock.TryAcquire(t.Context())
	_, all := leasehold.AcquireAll(t.Context(), []*leasehold.Lock{lock})
	_, campaigned := e.Campaign(t.Context())
	ran := e.Run(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
	for _, err := range []error{acquired, tried, all, campaigned, ran} {
		if !errors.Is(err, leasehold.ErrTokenTooLarge) || errors.Is(err, leasehold.ErrForeignObject) || !strings.Contains(err.Error(), "another name") {
			t.Errorf("got %v", err)
		}
	}
	if now, look := st.Get(t.Context(), key, ""); look != nil || now.Version != obj.Version {
		t.Errorf("it was written over: %+v, %v", now, look)
	}
	info, err := lock.Inspect(t.Context())
	if err != nil || info.Token != leasehold.Token(token) || info.Held != (state == "held") {
		t.Errorf("inspected: %+v, %v", info, err)
	}
	for info, err := range admin.List(t.Context(), st, "") {
		if err != nil || info.Token != leasehold.Token(token) {
			t.Errorf("listed: %+v, %v", info, err)
		}
	}
	if info, err = admin.Break(t.Context(), lock, info.Token); err != nil || info.Held {
		t.Errorf("broken: %+v, %v", info, err)
	}
	if token == record.LastToken {
		return // it may have been given out, so who has seen it goes on from there
	}
	// Somebody puts it right, as docs/maintain.md says, and the same candidates go on.
	keys := objects(t, st)
	key = keys[len(keys)-1]
	if obj, err = st.Get(t.Context(), key, ""); err == nil {
		_, err = st.Put(t.Context(), key, []byte(tokenRecord(l, 100, "free")), store.IfMatch(obj.Version))
	}
	if err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, lock)
	if lease.Token() != 101 {
		t.Errorf("after 100 came the token %v", lease.Token())
	}
	release(t, lease)
}

// layoutKey is the key of the n-th epoch of the lock.
func layoutKey(n int) string { return fmt.Sprintf("jobs/backup/%010d.json", n) }
