package record_test

import (
	"math"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// TestBoundsOfTokens: programs of other versions rest on these.
func TestBoundsOfTokens(t *testing.T) {
	t.Parallel()
	if record.LastToken != math.MaxInt64/2 || record.MaxToken != math.MaxInt64 || record.MaxSize != 65536 || record.MaxTTL != 24*time.Hour {
		t.Error(int64(record.LastToken), int64(record.MaxToken), record.MaxSize, record.MaxTTL)
	}
}

func TestIncarnation(t *testing.T) {
	t.Parallel()
	for id, mark := range map[string]string{"me.7": "me", "me.7.8": "me", "me": "me", "": ""} {
		if got := (record.Record{WriteID: id}).Incarnation(); got != mark {
			t.Errorf("%q is written by %q, want %q", id, got, mark)
		}
	}
}

// TestSameLease: a lease is told by its token and its holder's mark, and where there are no tokens
// by when it was acquired.
func TestSameLease(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 10, 30, 0, 0, time.UTC)
	of := func(token int64, id string, acquired time.Time) record.Record {
		return record.Record{Token: token, WriteID: id, AcquiredAt: acquired}
	}
	for _, c := range []struct {
		title string
		a, b  record.Record
		same  bool
	}{
		{"a renewal", of(7, "me.1", at), of(7, "me.2", at), true},
		{"a renewal by a clock that was set", of(7, "me.1", at), of(7, "me.2", at.Add(time.Hour)), true},
		{"the next token", of(7, "me.1", at), of(8, "me.2", at), false},
		{"another candidate", of(7, "me.1", at), of(7, "you.1", at), false},
		{"a renewal without tokens", of(0, "me.1", at), of(0, "me.2", at.Add(time.Microsecond)), true},
		{"the next lease without tokens", of(0, "me.1", at), of(0, "me.2", at.Add(time.Millisecond)), false},
		{"another candidate without tokens", of(0, "me.1", at), of(0, "you.1", at), false},
		{"the first token", of(1, "me.1", at), of(1, "me.2", at.Add(time.Hour)), true},
	} {
		if got := c.a.SameLease(c.b); got != c.same {
			t.Errorf("%s: the same lease %t", c.title, got)
		}
	}
}
