package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// Each error of the library becomes the problem that tells a program what to do, with what is known of the lock where somebody
// else holds it. What it says is on one line.
func TestRefusalOf(t *testing.T) {
	t.Parallel()
	s, err := New(memstore.New(), &Options{Prefix: "p/", URL: func(key string) string { return "url:" + key }})
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(err error) error { return fmt.Errorf("wrapped:\r\n %w", err) }
	held := &leasehold.HeldError{Info: leasehold.Info{Key: "p/k", Exists: true, Held: true, Holder: "me", Token: 7, Age: -1, TTL: time.Second, Layout: leasehold.LayoutObject}}
	taken := &leasehold.HeldError{Info: leasehold.Info{Key: "p/k", Layout: admin.LayoutTable, Exists: true, Held: true, Age: -1, Size: 2, Token: 9, Version: "v", Holders: []leasehold.Entry{{Holder: "me", Weight: 2, Token: 9, Session: "x"}}}}
	empty := &leasehold.HeldError{Info: leasehold.Info{Key: "p/k", Layout: admin.LayoutTable, Exists: true, Age: -1, Size: 2}}
	const heldReport = `{"lock":"url:p/k","state":"held","holder":"me","token":7,"ttl_ms":1000,"abandoned":false}`
	for _, tc := range []struct {
		key  string
		err  error
		want string // its word and detail
		who  string // its report
	}{
		{"k", refuse(wordTooMany, "too %s", "many"), "too-many: too many", "null"},
		{"k", wrap(errStopping), "stopping: wrapped:; the server stops", "null"},
		{"k", wrap(errNoSession), "stopping: wrapped:; there is no session now", "null"},
		{"k", wrap(leasehold.ErrClosed), "stopping: wrapped:; " + oneLine(leasehold.ErrClosed), "null"},
		{"k", wrap(semaphore.ErrFull), "too-many: wrapped:; " + oneLine(semaphore.ErrFull), "null"},
		{"k", wrap(held), "held: wrapped:; " + oneLine(held), heldReport},
		{"k", wrap(errors.Join(held, context.DeadlineExceeded)), "held: wrapped:; " + oneLine(held) + "; context deadline exceeded", heldReport},
		{
			"k", wrap(taken), "held: wrapped:; " + oneLine(taken), `{"lock":"url:p/k","state":"held","token":9,"layout":"table","abandoned":false,"version":"v",` +
				`"semaphore":{"size":2,"taken":2,"holders":[{"holder":"me","weight":2,"token":9,"session":"x","abandoned":false}],"waiters":[]}}`,
		},
		{
			"k", empty, "held: " + oneLine(empty),
			`{"lock":"url:p/k","state":"free","layout":"table","abandoned":false,"semaphore":{"size":2,"taken":0,"holders":[],"waiters":[]}}`,
		},
		{"k", wrap(leasehold.ErrHeld), "held: wrapped:; " + oneLine(leasehold.ErrHeld), `{"lock":"url:p/k","state":"held","abandoned":false}`},
		{"k", wrap(leasehold.ErrForeignObject), "foreign: wrapped:; " + oneLine(leasehold.ErrForeignObject), "null"},
		{"k", wrap(leasehold.ErrTokenTooLarge), "foreign: wrapped:; " + oneLine(leasehold.ErrTokenTooLarge), "null"},
		{"k", wrap(semaphore.ErrSize), "foreign: wrapped:; " + oneLine(semaphore.ErrSize), "null"},
		{"k", wrap(admin.ErrAmbiguous), "foreign: wrapped:; " + oneLine(admin.ErrAmbiguous), "null"},
		{"k", wrap(admin.ErrNoHistory), "foreign: wrapped:; " + oneLine(admin.ErrNoHistory), "null"},
		{"k", wrap(store.ErrInvalid), "key: wrapped:; " + oneLine(store.ErrInvalid), "null"},
		{"k", wrap(leasehold.ErrSessionOver), "stopping: wrapped:; " + oneLine(leasehold.ErrSessionOver), "null"},
		{"k", wrap(leasehold.ErrLost), "stopping: wrapped:; " + oneLine(leasehold.ErrLost), "null"},
		{"k", context.DeadlineExceeded, "store: the store has not said whether the lock is free: context deadline exceeded", "null"},
		{"", context.DeadlineExceeded, "store: context deadline exceeded", "null"},
		{"k", wrap(errors.New("broken")), "store: wrapped:; broken", "null"},
	} {
		f := s.refusalOf(tc.key, tc.err)
		who, err := json.Marshal(f.report)
		if err != nil {
			t.Fatal(err)
		}
		if f.Error() != tc.want || string(who) != tc.who {
			t.Errorf("%v of %q: %s\n%s, want %s\n%s", tc.err, tc.key, f.Error(), who, tc.want, tc.who)
		}
	}
}
