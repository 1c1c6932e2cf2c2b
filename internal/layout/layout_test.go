package layout_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A tapped store counts what a bill would count, each page of a listing too, and lets
// something happen between two requests.
type tapped struct {
	store.Store
	before                 func(op, key string) // each request
	get, put, list, delete int
}

func (s *tapped) begin(op, key string, count *int) {
	*count++
	if s.before != nil {
		s.before(op, key)
	}
}

func (s *tapped) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.begin("get", key, &s.get)
	return s.Store.Get(ctx, key, unless)
}

func (s *tapped) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	s.begin("put", key, &s.put)
	return s.Store.Put(ctx, key, body, only)
}

func (s *tapped) Delete(ctx context.Context, key string) error {
	s.begin("delete", key, &s.delete)
	return s.Store.Delete(ctx, key)
}

func (s *tapped) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		s.begin("list", prefix, &s.list)
		for e, err := range s.Store.List(ctx, prefix, after) {
			if n++; n > 1000 {
				n = 1
				s.begin("list", prefix, &s.list)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// cost is what f requests.
func (s *tapped) cost(f func()) string {
	s.get, s.put, s.list, s.delete = 0, 0, 0, 0
	f()
	return fmt.Sprintf("%d GET, %d PUT, %d LIST, %d DELETE", s.get, s.put, s.list, s.delete)
}

// stores are those that the layouts are tried on.
func stores(t *testing.T, f func(t *testing.T, st *tapped)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { f(t, &tapped{Store: memstore.New()}) })
	t.Run("directory", func(t *testing.T) {
		dir, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f(t, &tapped{Store: dir})
	})
}

// ways are the layouts with epochs.
func ways(t *testing.T, f func(t *testing.T, e layout.Epochs, st *tapped)) {
	t.Helper()
	for _, ifMatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("if-match=%v", ifMatch), func(t *testing.T) {
			stores(t, func(t *testing.T, st *tapped) {
				t.Helper()
				f(t, layout.Epochs{Store: st, Key: "jobs/l", IfMatch: ifMatch}, st)
			})
		})
	}
}

var serial int

// text is a record's body.
func text(t *testing.T, r record.Record) string {
	t.Helper()
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// free is the body of a record of the layout that is free.
func free(t *testing.T, l record.Layout) string {
	t.Helper()
	r := newRecord(false)
	r.Layout = l
	return text(t, r)
}

// a record that is held, or free, with a write ID of its own.
func newRecord(held bool) record.Record {
	serial++
	now := time.Now()
	return record.Record{
		Token: 1, Held: held, Holder: "h", TTL: 15 * time.Second, WriteID: fmt.Sprintf("i.%d", serial),
		AcquiredAt: now, RenewedAt: now, ExpiresAt: now.Add(15 * time.Second),
	}
}

// write carries out a write over what a Look showed.
func write(t *testing.T, l layout.Layout, op candidate.Op, over layout.Snapshot) layout.Snapshot {
	t.Helper()
	r := newRecord(op != candidate.Free)
	r.Previous = over.Record.Previous
	if op == candidate.Claim {
		r.Previous = over.Record.Epoch
	}
	if _, marker := l.(layout.Marker); marker {
		r.Token = 0
	}
	s, err := l.Write(t.Context(), candidate.Write{Op: op, Record: r, Over: over.Record, Expect: over.Version})
	if err != nil {
		t.Fatalf("%v: %v", op, err)
	}
	return s
}

func look(t *testing.T, l layout.Layout, unless protocol.Version) layout.Snapshot {
	t.Helper()
	s, err := l.Look(t.Context(), unless)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func plant(t *testing.T, st store.Store, key, body string) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, st store.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func keys(t *testing.T, st store.Store) (all []string) {
	t.Helper()
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Key)
	}
	return all
}

func wants(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestRegister: over each layout the same reads and writes mean the same.
func TestRegister(t *testing.T) {
	for name, at := range map[string]func(st store.Store) layout.Layout{
		"object":                  func(st store.Store) layout.Layout { return layout.Object{Store: st, Key: "l"} },
		"epochs":                  func(st store.Store) layout.Layout { return layout.Epochs{Store: st, Key: "l", IfMatch: true} },
		"epochs without If-Match": func(st store.Store) layout.Layout { return layout.Epochs{Store: st, Key: "l"} },
		"marker":                  func(st store.Store) layout.Layout { return layout.Marker{Store: st, Key: "l", IfMatch: true} },
	} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(t *testing.T, st *tapped) {
				l := at(st)
				none := look(t, l, "")
				if none.Version != "" || none.Record.Held {
					t.Fatalf("at first there is %+v", none)
				}
				claimed := write(t, l, candidate.Claim, none)
				for step, op := range []candidate.Op{candidate.Renew, candidate.Free, candidate.Claim, candidate.Claim, candidate.Renew} {
					seen := look(t, l, "")
					wants(t, "what is there", seen.Record.WriteID+string(seen.Version), claimed.Record.WriteID+string(claimed.Version))
					if _, err := l.Look(t.Context(), claimed.Version); !errors.Is(err, store.ErrNotModified) && claimed.Version != "" {
						t.Errorf("step %d: what is known gives %v", step, err)
					}
					next := write(t, l, op, seen)
					if again := look(t, l, claimed.Version); again.Record.WriteID != next.Record.WriteID && op != candidate.Free || again.Version != next.Version {
						t.Errorf("step %d: %v wrote %+v, and there is %+v", step, op, next, again)
					}
					// The same condition does not hold twice.
					if _, err := l.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: seen.Record, Expect: seen.Version}); err == nil {
						t.Fatalf("step %d: two writes over one version landed", step)
					}
					claimed = look(t, l, "")
				}
				remove(t, st, keys(t, st)...)
				if s := look(t, l, ""); s.Version != "" {
					t.Errorf("all is deleted, and there is %+v", s)
				}
			})
		})
	}
}

// TestLostAnswers: whatever answer is lost, a Look tells what became of the write.
func TestLostAnswers(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		s := write(t, e, candidate.Claim, look(t, e, ""))
		for _, fails := range []string{"put", "list"} {
			ctx, cancel := context.WithCancel(t.Context())
			lost := false
			st.before = func(op, _ string) {
				if op == "list" && fails == "list" && !lost {
					lost = true
					cancel()
				}
			}
			r := newRecord(true)
			_, err := e.Write(ctx, candidate.Write{Op: candidate.Claim, Record: r, Over: s.Record, Expect: s.Version})
			cancel()
			st.before = nil
			if fails == "list" && !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("a create that could not be listed gave %v", err)
			}
			if layout.WriteDone(layout.Snapshot{}, err).Fatal {
				t.Error("and it is called hopeless")
			}
			if s = look(t, e, s.Version); s.Record.WriteID != r.WriteID {
				t.Errorf("there is %+v, and %s was written", s.Record, r.WriteID)
			}
		}
	})
}

// TestListedThenRead: between the listing and the read the object that was listed is
// collected, and its number is created anew by a request that was late.
func TestListedThenRead(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		first := write(t, e, candidate.Claim, look(t, e, ""))
		late := newRecord(true)
		late.Layout = first.Record.Layout
		body := text(t, late)
		listed := false
		st.before = func(op, key string) {
			switch {
			case op == "list":
				listed = true
			case op == "get" && listed && key == layout.EpochKey(e.Key, 1):
				st.before = nil
				next := look(t, e, "")
				next = write(t, e, candidate.Free, next)
				write(t, e, candidate.Claim, next)
				remove(t, st, key)
				plant(t, st, key, body)
			}
		}
		s := look(t, e, "")
		if s.Record.Epoch == 1 {
			t.Errorf("the late one counts: %+v", s.Record)
		}
	})
}

// TestLateCreate: a create that lands after its number was collected does not count, and
// takes nothing away.
func TestLateCreate(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		start := write(t, e, candidate.Free, look(t, e, ""))
		s := start
		for range 3 {
			s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
		}
		remove(t, st, layout.EpochKey(e.Key, 2))
		_, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: start.Record, Expect: start.Version})
		if !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a number that was collected was created again: %v", err)
		}
		// It was created all the same, and is the lock's record if the later ones go: so it was not simply refused.
		if done := layout.WriteDone(layout.Snapshot{}, err); done.Refused || done.Void {
			t.Errorf("it landed, and is told as %+v", done)
		}
		if now := look(t, e, ""); now.Version != s.Version {
			t.Errorf("there is %+v", now)
		}
		// And if another has made it in between, that is refused too.
		remove(t, st, layout.EpochKey(e.Key, 2))
		top := look(t, e, "")
		next := layout.EpochKey(e.Key, top.Record.Epoch+1)
		st.before = func(op, key string) {
			if op == "list" {
				st.before = nil
				remove(t, st, next)
				plant(t, st, next, "another's")
			}
		}
		if _, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: top.Record, Expect: top.Version}); err == nil {
			t.Error("the listing shows another's object, and the write counts")
		}
	})
}

// TestForeignEpoch: it is never written over, never deleted, and the error names it.
func TestForeignEpoch(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		s := write(t, e, candidate.Free, look(t, e, ""))
		s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
		key := layout.EpochKey(e.Key, s.Record.Epoch+1)
		plant(t, st, key, "garbage")
		for _, unless := range []protocol.Version{"", s.Version} {
			if _, err := e.Look(t.Context(), unless); !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), key) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: s.Record, Expect: s.Version}); err == nil {
			t.Error("it was written over")
		}
		for _, err := range e.Collect(t.Context(), layout.Collection{Limit: -1}) {
			if err == nil {
				t.Error("something was collected without knowing the highest")
			}
		}
		other := e
		other.IfMatch = !e.IfMatch
		remove(t, st, key)
		if _, err := other.Look(t.Context(), ""); !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), "its lock is used with") {
			t.Errorf("the other way gives %v", err)
		}
	})
}

// TestNested: a lock whose name goes on where another's ends.
func TestNested(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		below := e
		below.Key += "/2026"
		var inner layout.Snapshot
		outer := write(t, e, candidate.Claim, look(t, e, ""))
		for range 5 {
			inner = write(t, below, candidate.Free, write(t, below, candidate.Claim, inner))
		}
		wants(t, "the outer lock", look(t, e, "").Version, outer.Version)
		wants(t, "the inner lock", look(t, below, "").Version, inner.Version)
		for p, err := range e.Collect(t.Context(), layout.Collection{Limit: -1}) {
			t.Errorf("collected %v, %v", p, err)
		}
		var found []string
		for f, err := range layout.Find(t.Context(), st, "") {
			if err != nil {
				t.Fatal(err)
			}
			s, err := f.Look(t.Context())
			found = append(found, fmt.Sprint(f.Key, " ", s.Record.Epoch, err))
		}
		wants(t, "found", found, []string{fmt.Sprint(e.Key, " ", outer.Record.Epoch, " <nil>"), fmt.Sprint(below.Key, " ", inner.Record.Epoch, " <nil>")})
	})
}

// TestLastNumber: after the last one there is a clear error, before anything is written.
func TestLastNumber(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		last := e
		body := free(t, e.Layout())
		plant(t, st, layout.EpochKey(e.Key, layout.MaxEpoch), body)
		s := look(t, last, "")
		_, err := last.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Over: s.Record, Expect: s.Version})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "another name") || st.put != 1 || !layout.WriteDone(s, err).Fatal {
			t.Errorf("got %v after %d puts", err, st.put-1)
		}
	})
}

// TestFinal: an answer that a store would give to every repetition ends an attempt at
// once. The refusal of a request that the store does not know used to be one to try again
// after, and so a candidate tried for ever. A write that may have landed is never final.
func TestFinal(t *testing.T) {
	for _, c := range []struct {
		kind        error
		void, fatal bool
	}{
		{store.ErrDenied, true, true},
		{store.ErrNoBucket, true, true},
		{store.ErrInvalid, true, true},
		{store.ErrRefused, true, true},
		{store.ErrUnavailable, true, false},
		{store.ErrThrottled, true, false},
		{store.ErrConflict, true, false},
		{store.ErrNotExist, true, false},
		{store.ErrPrecondition, false, false},
		{store.ErrUnknownOutcome, false, false},
		{fmt.Errorf("%w: %w", store.ErrUnknownOutcome, store.ErrRefused), false, false},
	} {
		err := &store.Error{Op: "put", Key: "k", Kind: c.kind}
		if got := layout.WriteDone(layout.Snapshot{}, err); got.Void != c.void || got.Fatal != c.fatal {
			t.Errorf("a write ends in %v: void %v, fatal %v", err, got.Void, got.Fatal)
		}
		if got := layout.ReadDone(layout.Snapshot{}, err); got.Fatal != c.fatal {
			t.Errorf("a read ends in %v: fatal %v", err, got.Fatal)
		}
	}
}

// TestNumbersForTheLastLease: the last acquisition leaves numbers for its renewals and its
// release. It could be neither renewed nor released once.
func TestNumbersForTheLastLease(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		for from, ok := range map[int64]bool{layout.LastClaim - 1: true, layout.LastClaim: false, layout.LastClaim + 5: false} {
			e.Key = fmt.Sprint("from/", from)
			body := free(t, e.Layout())
			plant(t, st, layout.EpochKey(e.Key, from), body)
			s, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Expect: look(t, e, "").Version})
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "another name") {
				t.Errorf("a claim over %d: %v", from, err)
			}
			if !ok {
				s = look(t, e, "")
			}
			for _, op := range []candidate.Op{candidate.Renew, candidate.Renew, candidate.Free} {
				s = write(t, e, op, s)
			}
		}
	})
}

// FuzzEpochKey: what is read as an epoch's key is written the same, and the other way
// round.
func FuzzEpochKey(f *testing.F) {
	for _, key := range []string{
		"a/0000000001.json", "a/b/9999999999.json", "/0000000001.json", "a/0000000000.json", "a/10000000000.json",
		"a/000000001.json", "a/+000000001.json", "a/0000000001.jso", "0000000001.json", "a/0000000001.json/", "a/00000000１1.json",
	} {
		f.Add(key, int64(len(key)))
	}
	f.Fuzz(func(t *testing.T, key string, n int64) {
		if lock, read, ok := layout.Epoch(key); ok && (layout.EpochKey(lock, read) != key || read < 1 || read > layout.MaxEpoch || lock == "") {
			t.Errorf("%q is read as epoch %d of %q", key, read, lock)
		}
		if n < 1 || n > layout.MaxEpoch || key == "" {
			return
		}
		if lock, m, ok := layout.Epoch(layout.EpochKey(key, n)); !ok || lock != key || m != n {
			t.Errorf("epoch %d of %q is read as %d of %q, %v", n, key, m, lock, ok)
		}
	})
}

func TestEpochKeysAreInOrder(t *testing.T) {
	var all []string
	for _, n := range []int64{1, 2, 9, 10, 11, 99, 100, 1000, 999_999_999, 1_000_000_000, layout.MaxEpoch} {
		all = append(all, layout.EpochKey("l", n))
	}
	if !slices.IsSorted(all) {
		t.Errorf("%q", all)
	}
}

// A timeless store does not tell the time.
type timeless struct{ tapped }

func (s *timeless) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.tapped.Get(ctx, key, unless)
	if o != nil {
		o.Date = time.Time{}
	}
	if e, ok := errors.AsType[*store.Error](err); ok {
		e.Date = time.Time{}
	}
	return o, err
}

// seal writes a lock over that a mover holds, as candidate.Move does.
func seal(t *testing.T, l layout.Layout, over layout.Snapshot) layout.Snapshot {
	t.Helper()
	m := candidate.Move{From: "here", To: "there"}
	r := m.Sealed(candidate.Place{Exists: true, Record: over.Record}, "m.1", time.Now())
	s, err := l.Write(t.Context(), candidate.Write{Op: candidate.Free, Record: r, Expect: over.Version})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealed checks a look at what is sealed.
func sealed(t *testing.T, l layout.Layout, unless protocol.Version, want layout.Snapshot) {
	t.Helper()
	s, err := l.Look(t.Context(), unless)
	if !errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) {
		t.Errorf("%s: a look unless it is %q: %v", l, unless, err)
	}
	if s.Record.Move.To != "there" || s.Version != want.Version || s.Record.Token != want.Record.Token {
		t.Errorf("%s: a look unless it is %q shows %+v, want %+v", l, unless, s, want)
	}
	if d := layout.ReadDone(s, err); d.Shown != protocol.Foreign || d.Version != "" {
		t.Errorf("%s: to a candidate it is %+v", l, d)
	}
}

// TestSealedEpochs: whoever knows an epoch, and guesses where the next one is, is told of the seal like
// one who comes.
func TestSealedEpochs(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, _ *tapped) {
		free := write(t, e, candidate.Free, layout.Snapshot{})
		held := write(t, e, candidate.Claim, free)
		renewed := write(t, e, candidate.Renew, held)
		s := seal(t, e, renewed)
		for _, unless := range []protocol.Version{"", free.Version, held.Version, renewed.Version} {
			sealed(t, e, unless, s)
		}
		// A claim on what was there before does not land, be it late.
		for _, over := range []layout.Snapshot{held, renewed} {
			if got, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Expect: over.Version, Over: over.Record}); err == nil {
				t.Errorf("a claim over what was there landed: %+v", got)
			}
		}
	})
}

// TestSealedObjects: to candidates of all layouts, and to whoever looks for one, it is sealed.
func TestSealedObjects(t *testing.T) {
	st := memstore.New()
	o := layout.Object{Store: st, Key: "l"}
	s := seal(t, o, write(t, o, candidate.Claim, layout.Snapshot{}))
	sealed(t, o, "", s)
	for _, l := range []layout.Layout{layout.Marker{Store: st, Key: "l", TTL: time.Minute}, layout.Marker{Store: st, Key: "l", IfMatch: true, TTL: time.Minute}} {
		if s, err := l.Look(t.Context(), ""); !errors.Is(err, record.ErrMoved) || s.Exists {
			t.Errorf("a marker: %+v, %v", s, err)
		}
	}
	if s, err := layout.LookAny(t.Context(), st, "l"); !errors.Is(err, record.ErrMoved) || s.Exists {
		t.Errorf("of no layout: %+v, %v", s, err)
	}
	for f, err := range layout.Find(t.Context(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		if s, err := f.Look(t.Context()); !errors.Is(err, record.ErrMoved) || s.Exists {
			t.Errorf("found: %+v, %v", s, err)
		}
	}
}

// A timid store tells its time of an absent object only, like a directory, or not at all.
type timid struct {
	*memstore.Store
	mute bool
	gets int
}

func (s *timid) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.gets++
	obj, err := s.Store.Get(ctx, key, unless)
	if obj != nil {
		obj.Date = time.Time{}
	}
	if failure, is := err.(*store.Error); is && s.mute { //nolint:errorlint // it is what memstore returns
		failure.Date = time.Time{}
	}
	return obj, err
}

// TestRestIsDated: a look at a lock that rests finds out how old the rest is, by one more request
// where the store does not tell with the first; of any other lock it does not ask.
func TestRestIsDated(t *testing.T) {
	for _, name := range []string{"object", "epochs", "epochs without If-Match"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &timid{Store: memstore.New()}
				lay := func(key string) layout.Layout {
					if name == "object" {
						return layout.Object{Store: st, Key: key}
					}
					return layout.Epochs{Store: st, Key: key, IfMatch: name == "epochs"}
				}
				write := func(key string, rest *record.Rest) {
					r := record.Record{Token: 1, TTL: time.Second, WriteID: "me.1", Rest: rest}
					if _, err := lay(key).Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: r}); err != nil {
						t.Fatal(err)
					}
				}
				write("rests", &record.Rest{Milliseconds: 60_000, WriteID: "me.1"})
				write("free", nil)
				time.Sleep(40 * time.Second)
				s, err := lay("rests").Look(t.Context(), "")
				if age, told := s.Age(); err != nil || !told || age != 40*time.Second || s.Rest(time.Now()) != 21*time.Second {
					t.Errorf("after 40 s: %v old, %t, rests for %v, %v", age, told, s.Rest(time.Now()), err)
				}
				if seen := layout.ReadDone(s, err); seen.Age != 40*time.Second {
					t.Errorf("the candidate hears of %v", seen.Age)
				}
				before := st.gets
				if _, err = lay("free").Look(t.Context(), ""); err != nil || st.gets != before+1 {
					t.Errorf("a look at a lock that does not rest took %d reads, %v", st.gets-before, err)
				}
				// Nobody tells: the candidate counts from its first sighting, and people see what the
				// wall clocks say.
				st.mute = true
				s, err = lay("rests").Look(t.Context(), "")
				s.Record.RenewedAt = time.Now().Add(-50 * time.Second)
				if seen := layout.ReadDone(s, err); err != nil || seen.Age != 0 || s.Rest(time.Now()) != 10*time.Second {
					t.Errorf("where nobody tells: %v old, rests for %v, %v", seen.Age, s.Rest(time.Now()), err)
				}
			})
		})
	}
}

// TestManyNested: a lock below another, with very many objects, costs that no listing.
func TestManyNested(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		s := terms(t, e, 2, layout.Snapshot{})
		for i := range 3000 {
			plant(t, st, fmt.Sprintf("%s/sub/%d", e.Key, i), "x")
		}
		wants(t, "a newcomer's look", st.cost(func() { look(t, e, "") }), "1 GET, 0 PUT, 1 LIST, 0 DELETE")
		wants(t, "a claim", strings.Fields(st.cost(func() { write(t, e, candidate.Claim, s) }))[4], "1")
	})
}

// TestMadeByHand: the highest stays, even if it was no lease.
func TestMadeByHand(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		r := newRecord(false)
		r.AcquiredAt = time.Time{}
		if _, err := e.Write(t.Context(), candidate.Write{Op: candidate.Free, Record: r}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wants(t, "collected", len(collected(t, e, layout.Collection{Limit: -1})), 0)
		for term, err := range e.Terms(t.Context()) {
			t.Errorf("it is called a lease: %+v, %v", term, err)
		}
	})
}

// TestTwoCollect: what another collects or puts up in between is no error.
func TestTwoCollect(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		var s layout.Snapshot
		for s.Record.Epoch < 500 {
			s = write(t, e, candidate.Free, write(t, e, candidate.Claim, s))
		}
		time.Sleep(time.Hour)
		first := layout.EpochKey(e.Key, 1)
		st.before = func(op, key string) {
			switch {
			case op == "get" && key == first:
				_ = st.Store.Delete(t.Context(), key)
			case op == "put":
				plant(t, st.Store, key, "{}")
			}
		}
		got := collected(t, e, layout.Collection{Limit: -1})
		st.before = nil
		if left := keys(t, st); len(left) != 2 || len(got) < 400 {
			t.Errorf("collected %d and left %q", len(got), left)
		}
	})
}

// TestHalfTakeover: the former lease is over, and the next has not begun.
func TestHalfTakeover(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		if !e.IfMatch {
			return // there it is one write
		}
		s := write(t, e, candidate.Claim, layout.Snapshot{})
		ctx, cancel := context.WithCancel(t.Context())
		puts := 0
		st.before = func(op, _ string) {
			if op == "put" {
				if puts++; puts == 2 {
					cancel()
				}
			}
		}
		next := newRecord(true)
		next.WriteID, next.RenewedAt = "rival.1", s.Record.RenewedAt.Add(time.Hour)
		if _, err := e.Write(ctx, candidate.Write{Op: candidate.Claim, Record: next, Over: s.Record, Expect: s.Version}); err == nil {
			t.Fatal("it took over")
		}
		for term, err := range e.Terms(t.Context()) {
			if err != nil || term.Why != record.EndedByTakeover || term.Ended.Sub(s.Record.ExpiresAt).Abs() > time.Millisecond {
				t.Errorf("%+v, %v", term, err)
			}
		}
		// And where it was the holder itself, which wanted another lease.
		st.before = nil
		ctx, cancel = context.WithCancel(t.Context())
		s = write(t, e, candidate.Claim, look(t, e, ""))
		puts = 0
		st.before = func(op, _ string) {
			if op == "put" {
				if puts++; puts == 2 {
					cancel()
				}
			}
		}
		next = newRecord(true)
		next.RenewedAt = s.Record.RenewedAt.Add(time.Hour)
		if _, err := e.Write(ctx, candidate.Write{Op: candidate.Claim, Record: next, Over: s.Record, Expect: s.Version}); err == nil {
			t.Fatal("it has another lease")
		}
		st.before = nil
		for term, err := range e.Terms(t.Context()) {
			if err != nil || term.Why != record.EndedByRelease || !term.Ended.Equal(next.RenewedAt) {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
	})
}

// An undated store does not tell in its listings when objects were written.
type undated struct{ *tapped }

func (s undated) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.tapped.List(ctx, prefix, after) {
			e.LastModified = time.Time{}
			if !yield(e, err) {
				return
			}
		}
	}
}

// An object without an age is not old: it used to count as older than anything.
func TestNoDates(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		terms(t, e, 5, layout.Snapshot{})
		e.Store = undated{st}
		wants(t, "collected", len(collected(t, e, layout.Collection{Limit: -1})), 0)
	})
}
