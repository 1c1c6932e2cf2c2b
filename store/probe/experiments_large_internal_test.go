package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// closed is a body that knows whether it was closed.
type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error { c.times++; return nil }

// TestLargeBodies: no part of a large value is like another, or like that of another value; it is compared to its end, and closed.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	some := func(seed uint64) []byte {
		b, err := io.ReadAll(io.LimitReader(largeBody(seed), 1<<10))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, seed := range []uint64{0, 1 << 8, 1 << 63} {
		if !bytes.Equal(some(seed), some(seed)) || bytes.Equal(some(seed), some(seed+1)) || bytes.Equal(some(seed)[:512], some(seed)[512:]) {
			t.Errorf("the value of %d is that of another", seed)
		}
	}
	long := strings.Repeat("x", 40<<10)
	for _, c := range []struct {
		got, want string
		at        int
		same      bool
	}{
		{"", "", 0, true},
		{"abc", "abc", 3, true},
		{"abc", "abd", 0, false},
		{"abc", "ab", 0, false},
		{"ab", "abc", 0, false},
		{long, long, 40 << 10, true},
		{long + "a", long + "b", 32 << 10, false},
		{long, long + "b", 32 << 10, false},
		{long[:32<<10], long[:32<<10], 32 << 10, true},
		{long[:32<<10], long, 32 << 10, false},
		{long, long[:32<<10], 32 << 10, false},
	} {
		at, same, err := compare(strings.NewReader(c.got), strings.NewReader(c.want))
		if at != c.at || same != c.same || err != nil {
			t.Errorf("%d bytes and %d: %d, %t, %v", len(c.got), len(c.want), at, same, err)
		}
	}
	for _, before := range []string{"", long} {
		if at, same, err := compare(io.MultiReader(strings.NewReader(before), broken{}), strings.NewReader(long)); same || err == nil || at > len(before) {
			t.Errorf("after %d bytes: %d, %t, %v", len(before), at, same, err)
		}
	}
	b := &brokenstore.Store{Store: memstore.New()}
	body := &closed{Reader: strings.NewReader("")}
	b.OnGetLarge = func(context.Context, string) (io.ReadCloser, int64, error) { return body, largeValue, nil }
	s, err := newSurvey(t.Context(), b, &Options{Races: 1})
	if err != nil {
		t.Fatal(err)
	}
	for times := 1; times < 3; times++ {
		result, detail, err := s.a.isLarge(s.path("a"), largeBody(1))
		if want := "of 8454144 bytes that were written, those after the first 0 are others, or missing"; result != Bad || detail != want || err != nil || body.times != times {
			t.Errorf("%s, %s, %v; closed %d times", result, detail, err, body.times)
		}
	}
	b.OnPutLarge = func(_ context.Context, key string, _ io.Reader) (int64, error) {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
	}
	if err := s.a.putLarge(s.path("b"), largeBody(1)); !errors.Is(err, store.ErrUnknownOutcome) || !s.keys[s.path("b")] || s.settled("b") || s.report.Sent != largeValue {
		t.Errorf("%v; it may be there: %t, %d bytes were sent", err, s.keys[s.path("b")], s.report.Sent)
	}
	s.report.SentLimit = 2*largeValue - 1
	if err := s.a.putLarge(s.path("c"), largeBody(1)); !errors.Is(err, errNoBudget) {
		t.Errorf("with one byte too few left: %v", err)
	}
	s.report.Limit = s.reserve
	if result, _, err := s.a.isLarge(s.path("a"), largeBody(1)); result != Unknown || !errors.Is(err, errNoBudget) {
		t.Errorf("with no request left: %s, %v", result, err)
	}
}
