package fence_test

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
)

func TestMemory(t *testing.T) {
	var m fence.Memory
	for _, step := range []struct {
		resource      string
		token, newest fence.Token // newest: by which it is refused, or 0
	}{
		{"a", 5, 0},
		{"a", 5, 0},
		{"a", 4, 5},
		{"b", 4, 0},
		{"a", 7, 0},
		{"a", 6, 7},
		{"a", 5, 7},
		{"b", 4, 0},
		{"a", 7, 0},
	} {
		err := m.Check(t.Context(), step.resource, step.token)
		if step.newest == 0 && err != nil {
			t.Errorf("%v on %s: %v", step.token, step.resource, err)
		} else if step.newest != 0 {
			wantFenced(t, err, step.resource, step.token, step.newest)
		}
	}
}

// However the calls interleave, each that was admitted was the largest by then.
func TestMemoryConcurrently(t *testing.T) {
	var m fence.Memory
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 500 {
				token := fence.Token(1 + 8*i + worker)
				err := m.Check(t.Context(), "r", token)
				if fenced, ok := errors.AsType[*fence.FencedError](err); err != nil && (!ok || fenced.Newest <= fenced.Token) {
					t.Errorf("token %d: %v", token, err)
				}
				if err == nil && m.Check(t.Context(), "r", token-1) == nil {
					t.Errorf("token %d was admitted after %d", token-1, token)
				}
			}
		})
	}
	wg.Wait()
}

func TestHolderThatCannotWrite(t *testing.T) {
	released := fencecheck.Lease(t)
	if err := released.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		h    fence.Holder
		want error
	}{
		{"nobody", nil, fence.ErrNoToken},
		{"no token", fence.Token(0), fence.ErrNoToken},
		{"negative", fence.Token(-1), fence.ErrNoToken},
		{"released", released, leasehold.ErrReleased},
	} {
		var m fence.Memory
		if err := m.Check(t.Context(), "r", tc.h); !errors.Is(err, tc.want) {
			t.Errorf("%s: Memory says %v, want %v", tc.name, err, tc.want)
		}
		if err := m.Check(t.Context(), "r", fence.Token(1)); err != nil {
			t.Errorf("%s left something behind: %v", tc.name, err)
		}
		blind := fence.NewGate(broken{func() error { return nil }})
		if _, _, err := blind.Enter(t.Context(), "r", tc.h); !errors.Is(err, tc.want) {
			t.Errorf("%s: Gate says %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestParseToken(t *testing.T) {
	for _, n := range []int64{1, 42, math.MaxInt64} {
		if got, err := fence.ParseToken(strconv.FormatInt(n, 10)); err != nil || got != fence.Token(n) {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "+1", " 1", "1 ", "01", "1.0", "0x1", "1_000", "1,2", "one", "9223372036854775808", "１"} {
		if got, err := fence.ParseToken(s); err == nil || got != 0 {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

// wantFenced checks that err says exactly which token was refused because of which.
func wantFenced(t *testing.T, err error, resource string, token, newest fence.Token) {
	t.Helper()
	fencecheck.Refused(t, err, resource, token.Token(), newest.Token())
}
