package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// TestTroubleIsLogged: a program that says nothing of a Logger learns why it waits for a store that cannot be reached,
// and how to bound that. It used to hang in silence.
func TestTroubleIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var text leasetest.Log
		leasetest.LogByDefault(t, &text)
		st := newStore()
		lock, err := leasehold.NewLock(st, "report", leasetest.Patient(leasehold.LockOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		st.Partition(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := lock.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returned %v", err)
		}
		if n := strings.Count(text.String(), "the store fails, and is tried again"); n < 4 || n > 6 {
			t.Errorf("in five minutes it was said %d times: %s", n, &text)
		}
		for _, part := range []string{"level=WARN", "mem://", "report", "store unavailable", "goes on until its context ends: give it a deadline"} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("the log does not say %q: %s", part, &text)
			}
		}
	})
}
