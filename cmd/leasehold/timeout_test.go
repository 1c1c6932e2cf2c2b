package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A sleepy store takes its time for each answer, and for each entry of a listing.
type sleepy struct {
	store.Store
	pause time.Duration
}

func (s sleepy) sleep(ctx context.Context) error {
	select {
	case <-time.After(s.pause):
		return nil
	case <-ctx.Done():
		return &store.Error{Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
}

func (s sleepy) Get(ctx context.Context, _ string, _ store.Version) (*store.Object, error) {
	return nil, s.sleep(ctx)
}

func (s sleepy) Put(ctx context.Context, _ string, _ []byte, _ store.Condition) (*store.Object, error) {
	return nil, s.sleep(ctx)
}

func (s sleepy) Delete(ctx context.Context, _ string) error { return s.sleep(ctx) }

func (s sleepy) List(ctx context.Context, _, _ string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for range 3 {
			if err := s.sleep(ctx); !yield(store.Entry{}, err) || err != nil {
				return
			}
		}
	}
}

// questions lists all methods of a store.
var questions = map[string]func(ctx context.Context, s timeoutStore) error{
	"get": func(ctx context.Context, s timeoutStore) error { _, err := s.Get(ctx, "k", ""); return err },
	"put": func(ctx context.Context, s timeoutStore) error {
		_, err := s.Put(ctx, "k", nil, store.IfAbsent())
		return err
	},
	"delete": func(ctx context.Context, s timeoutStore) error { return s.Delete(ctx, "k") },
	"list": func(ctx context.Context, s timeoutStore) (err error) {
		for _, err = range s.List(ctx, "", "") {
			time.Sleep(2 * patience) // which is not the store's
		}
		return err
	},
}

// Each answer may take as long as the patience lasts, and what is done in between does
// not count; an answer that takes longer is an error that says so, with the exit code
// of a store that cannot be reached.
func TestPatience(t *testing.T) {
	t.Parallel()
	for what, call := range questions {
		synctest.Test(t, func(t *testing.T) {
			if err := call(t.Context(), timeoutStore{Store: sleepy{pause: patience - 1}}); err != nil {
				t.Errorf("%s: just in time, and %v", what, err)
			}
			err := call(t.Context(), timeoutStore{Store: sleepy{pause: patience + 1}})
			if !errors.Is(err, context.DeadlineExceeded) || codeOf(err) != exitUnavailable || !strings.Contains(err.Error(), "the store did not answer for 30s") {
				t.Errorf("%s: too late, and %v", what, err)
			}
		})
	}
}

// An answer that takes longer than a moment is announced, once however many there are: a
// command that asked a store without an answer used to say nothing for half a minute.
func TestSlowAnswersAreAnnounced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pause time.Duration
		lines int
	}{{silence - 1, 0}, {silence + 1, 1}} {
		for what, call := range questions {
			synctest.Test(t, func(t *testing.T) {
				said := &bytes.Buffer{}
				a := &app{console: console{w: said, least: levelNotice}, at: memstore.New()}
				s := a.withTimeout(sleepy{pause: tt.pause})
				for range 3 {
					if err := call(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait() // for what announces it
				if n := strings.Count(said.String(), "has not answered for 5s: waiting for 30s at most\n"); n != tt.lines || n != strings.Count(said.String(), "\n") {
					t.Errorf("%s: after answers that took %v it is said %q", what, tt.pause, said)
				}
			})
		}
	}
}
