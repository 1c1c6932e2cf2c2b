package admin_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// inspected is what Inspect says of a lock, and what it costs.
func inspected(t *testing.T, st *faultstore.Store, key string) (info leasehold.Info, spent requests) {
	t.Helper()
	spent = cost(st, func() {
		e, err := admin.Inspect(t.Context(), st, key)
		if err != nil || e.Size != 0 {
			t.Fatal(e.Size, err)
		}
		info = e.Info
	})
	return info, spent
}

// TestInspect: a lock is found and described as by a Lock of its own layout, held, free and gone.
// The requests are those that the documentation names.
func TestInspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "me", Address: "a:1", Meta: map[string]string{"k": "v"}})
		check := func(state string, want requests) {
			t.Helper()
			got, spent := inspected(t, st, lock.Key())
			own, err := lock.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !here().Tokens() {
				own.NoIfMatch = true // its records do not say
				if !own.Held {       // it is no object
					own = leasehold.Info{Key: lock.Key(), Age: -1}
				}
			}
			if !same(got, own) || spent != want {
				t.Errorf("%s: it is said\n%+v for %v, want\n%+v for %v", state, got, spent, own, want)
			}
			if !got.Exists {
				return
			}
			found := newLock(t, st, &leasehold.LockOptions{Layout: got.Layout, NoIfMatch: got.NoIfMatch})
			if again, err := found.Inspect(t.Context()); err != nil || !same(again, got) {
				t.Errorf("%s: opened as what was found it is\n%+v, %v, not\n%+v", state, again, err, got)
			}
		}
		there, absent := documented(t, "detect the layout"), documented(t, "detect that no lock exists")
		check("absent", absent)
		lease := acquire(t, lock)
		time.Sleep(time.Second)
		check("held", there)
		release(t, lease)
		check("free", there)
	})
}

// cellsOf are those of a row of a page.
func cellsOf(t *testing.T, page, what string) (cells []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(string(text), "\n| "+what+" |")
	row, _, _ = strings.Cut(row, "\n")
	if !found {
		t.Fatalf("docs/%s has no row %q", page, what)
	}
	for _, cell := range strings.Split(strings.TrimSuffix(row, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// documented is what docs/requests.md says that something costs in the layout of this test.
func documented(t *testing.T, what string) (r requests) {
	t.Helper()
	cells := cellsOf(t, "requests.md", what) // in the order of Ways, as TestBudgetsAreDocumented checks of the first table
	if len(cells) != len(leasetest.Ways) {
		t.Fatalf("docs/requests.md says %q of the layouts for %s", cells, what)
	}
	for _, request := range strings.Fields(cells[slices.Index(leasetest.Ways, here())]) {
		n := 1
		if digits := request[:len(request)-1]; digits != "" {
			var err error
			if n, err = strconv.Atoi(digits); err != nil {
				t.Fatal(err)
			}
		}
		switch request[len(request)-1] {
		case 'G':
			r.get += n
		case 'L':
			r.list += n
		default:
			t.Fatalf("%q is no request to look", request)
		}
	}
	return r
}

// same compares all fields.
func same(a, b leasehold.Info) bool {
	if !maps.Equal(a.Meta, b.Meta) {
		return false
	}
	a.Meta, b.Meta = nil, nil
	return a.Key == b.Key && a.Layout == b.Layout && a.NoIfMatch == b.NoIfMatch && a.Exists == b.Exists && a.Held == b.Held && a.Holder == b.Holder &&
		a.Address == b.Address && a.Session == b.Session && a.Token == b.Token && a.TTL == b.TTL && a.AcquiredAt.Equal(b.AcquiredAt) &&
		a.RenewedAt.Equal(b.RenewedAt) && a.ExpiresAt.Equal(b.ExpiresAt) && a.Age == b.Age && a.Abandoned == b.Abandoned && a.Version == b.Version
}

// TestHistoryIsDocumented: docs/requests.md says what a history costs of whose lock the layout is known, as by --layout.
func TestHistoryIsDocumented(t *testing.T) {
	needs(t, here().Tokens(), "a marker keeps no history")
	bubble(t, func(t *testing.T) {
		st := newStore()
		for _, holder := range []string{"a", "b", "c"} {
			release(t, acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: holder})))
		}
		all, costs := remembered(t, st, newLock(t, st, nil))
		if want := documented(t, "history of 3 leases, with `--layout`"); len(all) != 3 || costs != want {
			t.Errorf("%d leases for %v, want %v", len(all), costs, want)
		}
	})
}

// TestWatchIsDocumented: docs/requests-commands.md says what a refresh of the locks under a prefix costs.
func TestWatchIsDocumented(t *testing.T) {
	for row, want := range map[string][]string{
		"layout `object`, markers":      {"N", "1 for each 1000 objects"},
		"with epochs":                   {"N", "the same, and 1 for each lock"},
		"each session that holds locks": {"1", "0"},
	} {
		if cells := cellsOf(t, "requests-commands.md", row); !slices.Equal(cells, want) {
			t.Errorf("%s: the document says %q, want %q", row, cells, want)
		}
	}
	bubble(t, func(t *testing.T) {
		const n = 20
		st := newStore()
		refresh := func(sessions int) {
			t.Helper()
			want := requests{get: n + sessions, list: 1}
			if hasEpochs() {
				want.list += n
			}
			locks := 0
			got := cost(st, func() {
				for _, err := range admin.List(t.Context(), st, "shards/") {
					if locks++; err != nil {
						t.Error(err)
					}
				}
			})
			if locks != n || got != want {
				t.Errorf("%d locks under %d sessions: %v, want %v", locks, sessions, got, want)
			}
		}
		var leases []*leasehold.Lease
		for i := range n {
			leases = append(leases, acquire(t, lockOf(t, st, fmt.Sprintf("shards/%05d", i), nil)))
		}
		refresh(0)
		if err := multilock.ReleaseAll(t.Context(), leases); err != nil || !here().Tokens() {
			return // a marker has no record that can name a session
		}
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		for i := range n {
			[]*process{a, b}[i%2].acquire(fmt.Sprintf("shards/%05d", i))
		}
		refresh(2)
		a.end()
		b.end()
	})
}

// TestInspectUnderASession: whether the holder is gone is asked of its session, for a read more.
func TestInspectUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		p := startProcess(t, st, "a")
		p.acquire("l")
		want := requests{get: 2, list: 1}
		if hasEpochs() {
			want.get++
		}
		if info, spent := inspected(t, st, "l"); info.Abandoned || info.Session != p.session.Key() || spent != want {
			t.Errorf("it goes on: %+v for %v, want %v", info, spent, want)
		}
		p.close()
		if info, spent := inspected(t, st, "l"); !info.Abandoned || spent != want {
			t.Errorf("it is over: %+v for %v, want %v", info, spent, want)
		}
	})
}

// TestInspectManyEntries: each entry of a semaphore is judged, even if there are more of them than reads at a time.
func TestInspectManyEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		const n = 40
		table := record.Table{Size: n, Token: n, WriteID: "a.1"}
		for i := range int64(n) {
			id := fmt.Sprintf("a.%d", i+1)
			table.Holders = append(table.Holders, record.Entry{ID: id, Session: "jobs/over", Weight: 1, Token: i + 1, Holder: "a"})
		}
		body, err := table.Encode()
		if err != nil {
			t.Fatal(err)
		}
		plant(t, st, "s", string(body))
		var e admin.Entry
		spent := cost(st, func() { e, err = admin.Inspect(t.Context(), st, "s") })
		if err != nil || e.Size == 0 || len(e.Holders) != n || !e.Abandoned || spent != (requests{get: 2, list: 1}) {
			t.Errorf("for %v: %+v, %v", spent, e, err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Key: "jobs/over"})
		if e, err = admin.Inspect(t.Context(), st, "s"); !errors.Is(err, store.ErrDenied) || e.Size == 0 {
			t.Errorf("nobody knows whether they go on: %+v, %v", e, err)
		}
	})
}

// createOnly is a store that proves nothing that needs If-Match.
type createOnly struct{ store.Store }

func (createOnly) Proves(_, use string) error {
	if strings.HasSuffix(use, " without If-Match") {
		return nil
	}
	return store.ErrRefused
}

// TestInspectNeedsNoProof: a lock is found in a store that cannot carry the layout object.
func TestInspectNeedsNoProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := createOnly{memstore.New()}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs}))
		if e, err := admin.Inspect(t.Context(), st, "jobs/backup"); err != nil || !e.Held || e.Layout != leasehold.LayoutEpochs || !e.NoIfMatch {
			t.Errorf("%+v, %v", e, err)
		}
		release(t, lease)
	})
}

// TestInspectRefuses: nothing is guessed, and each error is one that a program can ask for.
func TestInspectRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		for _, l := range []leasetest.Way{leasetest.Object, leasetest.EpochsNoIfMatch} {
			release(t, acquire(t, lockOf(t, st, "both", l.Options())))
		}
		plant(t, st, "garbage", "pid 7")
		for _, tt := range []struct {
			key  string
			kind error
			says string
		}{
			{"both", admin.ErrAmbiguous, "object and epochs: give --layout"},
			{"garbage", leasehold.ErrForeignObject, "garbage"},
			{"a/../b", store.ErrInvalid, `"a/../b"`},
		} {
			info, err := admin.Inspect(t.Context(), st, tt.key)
			if info.Exists || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %+v, %v", tt.key, info, err)
			}
		}
		if _, err := admin.Inspect(t.Context(), nil, "l"); err == nil {
			t.Error("a store that is nil is no error")
		}
	})
}

// TestInspectWithoutAListing: a caller that may not list is told what the object says, and that there may
// be epochs, too; if there is no object, that is all that there is to say.
func TestInspectWithoutAListing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStoreOver(memstore.New())
		release(t, acquire(t, lockOf(t, st, "o", &leasehold.LockOptions{Layout: leasehold.LayoutObject, Holder: "me"})))
		release(t, acquire(t, lockOf(t, st, "e", leasetest.EpochsNoIfMatch.Options())))
		plant(t, st, "garbage", "pid 7")
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "list"})
		if info, err := admin.Inspect(t.Context(), st, "o"); !errors.Is(err, store.ErrDenied) || info.Holder != "me" || info.Layout != leasehold.LayoutObject || !info.Exists {
			t.Errorf("an object: %+v, %v", info, err)
		}
		for _, key := range []string{"e", "none"} {
			if info, err := admin.Inspect(t.Context(), st, key); !errors.Is(err, store.ErrDenied) || info.Exists {
				t.Errorf("%s: %+v, %v", key, info, err)
			}
		}
		if _, err := admin.Inspect(t.Context(), st, "garbage"); !errors.Is(err, leasehold.ErrForeignObject) {
			t.Errorf("garbage: %v", err)
		}
		st.Clear()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "o"})
		if info, err := admin.Inspect(t.Context(), st, "o"); !errors.Is(err, store.ErrDenied) || info.Exists {
			t.Errorf("an object that may not be read: %+v, %v", info, err)
		}
		st.Clear()
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: layout.EpochKey("e", 2)})
		if info, err := admin.Inspect(t.Context(), st, "e"); !errors.Is(err, store.ErrDenied) || info.Exists {
			t.Errorf("an epoch that may not be read: %+v, %v", info, err)
		}
	})
}
