package layout_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestOpaqueMarker: another tool's marker is held, never taken, never deleted.
func TestOpaqueMarker(t *testing.T) {
	for name, body := range map[string]string{
		"empty": "", "text": "pid 7", "another format": `{"format":9,"write_id":"x"}`, "too large": strings.Repeat("x", 100<<10),
	} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(t *testing.T, st *tapped) {
				plant(t, st, "l", body)
				m := layout.Marker{Store: st, Key: "l", TTL: time.Second}
				s := look(t, m, "")
				if !s.Record.Held || !s.Record.Opaque || s.Record.WriteID == "" || s.Version == "" {
					t.Errorf("it is seen as %+v", s)
				}
				if again, err := m.Look(t.Context(), s.Version); err == nil && again.Version != s.Version {
					t.Errorf("looked at again it is %+v", again)
				}
				if _, err := m.Expire(t.Context(), false); !errors.Is(err, layout.ErrNotExpired) || !strings.Contains(err.Error(), "another tool's") {
					t.Errorf("expire: %v", err)
				}
				if _, err := m.Write(t.Context(), candidate.Write{Op: candidate.Claim, Expect: s.Version, Record: newRecord(true)}); err == nil {
					t.Error("it was taken")
				}
				wants(t, "left", keys(t, st), []string{"l"})
			})
		})
	}
}

// TestExpire: only a marker that is old enough, by the store's clock, and the one that
// was seen.
func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &tapped{Store: memstore.New()}
		m := layout.Marker{Store: st, Key: "l", TTL: 15 * time.Second}
		refused := func(why string) {
			t.Helper()
			_, err := m.Expire(t.Context(), false)
			if !errors.Is(err, layout.ErrNotExpired) || !errors.Is(err, store.ErrPrecondition) || !strings.Contains(err.Error(), why) {
				t.Errorf("expire: %v, want %q", err, why)
			}
		}
		refused("there is none")
		claimed := write(t, m, candidate.Claim, look(t, m, ""))
		time.Sleep(protocol.Stale(15*time.Second) - 1)
		refused("old")
		if _, err := m.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: claimed.Record, Expect: claimed.Version}); err == nil {
			t.Error("a marker that is not old was swept")
		}
		time.Sleep(time.Nanosecond)
		st.before = func(op, _ string) {
			if op == "get" {
				time.Sleep(2 * time.Second)
			}
		}
		refused("slow")
		st.before = nil
		if age, err := m.Expire(t.Context(), true); err != nil || age < protocol.Stale(15*time.Second) || len(keys(t, st)) != 1 {
			t.Errorf("a dry run: %v, %v", age, err)
		}
		if _, err := m.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Expect: "another"}); err == nil || len(keys(t, st)) != 1 {
			t.Errorf("another marker than was seen was swept: %v", err)
		}
		next := write(t, m, candidate.Claim, look(t, m, ""))
		wants(t, "swept and taken", look(t, m, "").Version, next.Version)
		time.Sleep(time.Minute)
		if _, err := m.Expire(t.Context(), false); err != nil || len(keys(t, st)) != 0 {
			t.Errorf("expire: %v", err)
		}
	})
}

// In a directory only an answer about what is not there tells the time.
func TestTimeInADirectory(t *testing.T) {
	stores(t, func(t *testing.T, st *tapped) {
		m := layout.Marker{Store: st, Key: "l", TTL: 15 * time.Second}
		write(t, m, candidate.Claim, look(t, m, ""))
		if _, err := m.Expire(t.Context(), false); !strings.Contains(err.Error(), "its TTL and margin") {
			t.Errorf("expire: %v", err)
		}
		e := layout.Epochs{Store: st, Key: "e"}
		var s layout.Snapshot
		for range 5 {
			s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
		}
		if got := collected(t, e, layout.Collection{Limit: -1}); len(got) != 9 {
			t.Errorf("collected %q", got)
		}
	})
}

// TestFind: each lock once, whatever lies between.
func TestFind(t *testing.T) {
	stores(t, func(t *testing.T, st *tapped) {
		for _, key := range []string{"a/!b", "a/l", "a/l/0000000001.k", "b"} {
			e := layout.Epochs{Store: st, Key: key}
			write(t, e, candidate.Claim, write(t, e, candidate.Free, write(t, e, candidate.Claim, layout.Snapshot{})))
		}
		write(t, layout.Object{Store: st, Key: "a/o"}, candidate.Claim, layout.Snapshot{})
		write(t, layout.Object{Store: st, Key: "a/x/0000000001.json"}, candidate.Claim, layout.Snapshot{})
		plant(t, st, "a/!b/!9223372036854775306", "{}")
		found := func(prefix string) (got []string) {
			for f, err := range layout.Find(t.Context(), st, prefix) {
				if err != nil {
					t.Fatal(err)
				}
				text := f.Key
				if _, err := f.Look(t.Context()); errors.Is(err, record.ErrForeign) {
					text += "?"
				} else if err != nil {
					t.Fatal(err)
				}
				got = append(got, text)
			}
			return got
		}
		wants(t, "all", found(""), []string{"a/!b", "a/l", "a/l/0000000001.k", "a/o", "a/x?", "b"})
		wants(t, "below a lock", found("a/l/"), []string{"a/l/0000000001.k"})
	})
}
