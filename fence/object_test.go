package fence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/fencecheck/histories"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func put(t *testing.T, o *fence.Object, h fence.Holder, value string) {
	t.Helper()
	if err := o.Put(t.Context(), h, strings.NewReader(value)); err != nil {
		t.Fatal(err)
	}
}

// holds checks what anybody reads.
func holds(t *testing.T, st store.Store, want string) {
	t.Helper()
	v, err := newObject(t, st, nil).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	body, err := v.ReadAll(t.Context())
	if err != nil || string(body) != want || v.Size != int64(len(want)) || !v.Exists {
		t.Errorf("the object holds %.40q of %d bytes, %v, want %.40q", body, v.Size, err, want)
	}
}

func raw(t *testing.T, st store.Store) []byte {
	t.Helper()
	o, err := st.Get(t.Context(), "state.json", "")
	if err != nil {
		t.Fatal(err)
	}
	return o.Body
}

func TestFormerHolderIsRefused(t *testing.T) {
	st := newStore()
	a, b := newObject(t, st, nil), newObject(t, st, nil)
	put(t, a, fence.Token(1), "from a")
	v, err := b.Claim(t.Context(), fence.Token(2))
	if err != nil || v.Token != 2 {
		t.Fatal(v, err)
	}
	body, err := v.ReadAll(t.Context())
	if err != nil || string(body) != "from a" {
		t.Errorf("what was claimed is %q, %v", body, err)
	}
	for _, err = range []error{
		a.Put(t.Context(), fence.Token(1), strings.NewReader("late")),
		a.Delete(t.Context(), fence.Token(1)),
		newObject(t, st, nil).Put(t.Context(), fence.Token(1), strings.NewReader("late")),
	} {
		fencecheck.Fenced(t, err, 1, 2)
	}
	_, err = a.Claim(t.Context(), fence.Token(1))
	fencecheck.Fenced(t, err, 1, 2)
	holds(t, st, "from a")
	put(t, b, fence.Token(2), "from b")
	put(t, a, fence.Token(2), "from a again")
	holds(t, st, "from a again")
}

// The write of a former holder that is on its way while the next one claims carries the
// version of then. The claim must not bring it back, though all bytes stay the same, and
// nor must any write after it.
func TestClaimChangesTheVersion(t *testing.T) {
	st := newStore()
	a := newObject(t, st, nil)
	put(t, a, fence.Token(1), "x")
	seen := map[string]bool{}
	for i := range 20 {
		o, err := st.Get(t.Context(), "state.json", "")
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(o.Version)] {
			t.Fatalf("the version %v came back", o.Version)
		}
		seen[string(o.Version)] = true
		o2 := newObject(t, st, nil)
		if i%2 == 0 {
			put(t, o2, fence.Token(2+i/2), "x")
		} else if _, err := o2.Claim(t.Context(), fence.Token(2+i/2+1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeletedObjectKeepsItsToken(t *testing.T) {
	st := newStore()
	o := newObject(t, st, nil)
	put(t, o, fence.Token(5), "x")
	if err := o.Delete(t.Context(), fence.Token(5)); err != nil {
		t.Fatal(err)
	}
	if _, err := newObject(t, st, nil).Get(t.Context()); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("what was deleted reads as %v", err)
	}
	fencecheck.Fenced(t, newObject(t, st, nil).Put(t.Context(), fence.Token(4), strings.NewReader("late")), 4, 5)
	v, err := newObject(t, st, nil).Claim(t.Context(), fence.Token(6))
	if err != nil || v.Exists || v.Token != 6 {
		t.Errorf("%+v, %v", v, err)
	}
	put(t, newObject(t, st, nil), fence.Token(6), "anew")
	holds(t, st, "anew")
}

// A claim of what does not exist keeps former holders from creating it.
func TestClaimOfNothing(t *testing.T) {
	st := newStore()
	v, err := newObject(t, st, nil).Claim(t.Context(), fence.Token(2))
	if err != nil || v.Exists {
		t.Fatalf("%+v, %v", v, err)
	}
	fencecheck.Fenced(t, newObject(t, st, nil).Put(t.Context(), fence.Token(1), strings.NewReader("late")), 1, 2)
}

// Other tools see the user's bytes and blanks.
func TestPlainReadersSeeTheBytes(t *testing.T) {
	st := newStore()
	const value = `{"step": 7}`
	put(t, newObject(t, st, nil), fence.Token(3), value)
	body := raw(t, st)
	if !bytes.HasPrefix(body, []byte(value)) || strings.TrimRight(string(body), " \t\n") != value || len(body) != len(value)+394 {
		t.Errorf("a plain GET shows %q", body)
	}
	var parsed map[string]int
	if err := json.Unmarshal(body, &parsed); err != nil || parsed["step"] != 7 {
		t.Errorf("JSON with a seal does not parse: %v", err)
	}
}

func TestLargeValuesLieApart(t *testing.T) {
	st := newStore()
	o := newObject(t, st, nil)
	large := strings.Repeat("0123456789abcdef", 200_000)
	put(t, o, fence.Token(1), large)
	holds(t, st, large)
	var at struct {
		Data string
		Size int
	}
	if err := json.Unmarshal(raw(t, st), &at); err != nil || at.Size != len(large) || !strings.HasPrefix(at.Data, "state.json.data/0000000000000000001-") {
		t.Fatalf("%+v, %v", at, err)
	}
	r, _, err := st.GetLarge(t.Context(), at.Data)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err = b.ReadFrom(r); err != nil || b.String() != large {
		t.Errorf("a plain GET of the data differs: %d bytes, %v", b.Len(), err)
	}

	// A claim leaves it where it is, and a new value removes it.
	if _, err = o.Claim(t.Context(), fence.Token(2)); err != nil {
		t.Fatal(err)
	}
	holds(t, st, large)
	old, err := o.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, o, fence.Token(2), "small")
	holds(t, st, "small")
	if _, err := old.ReadAll(t.Context()); !errors.Is(err, fence.ErrReplaced) {
		t.Errorf("the value that was replaced: %v", err)
	}
	if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
	fencecheck.Fenced(t, o.Put(t.Context(), fence.Token(1), strings.NewReader(large)), 1, 2)
	if keys := fencecheck.Keys(t, st, "state.json.data/"); len(keys) != 0 {
		t.Errorf("who was refused left behind: %q", keys)
	}
}

// A read gives the value that was written, or an error.
func TestDamagedDataIsNoticed(t *testing.T) {
	st := newStore()
	o := newObject(t, st, &fence.ObjectOptions{Apart: true})
	put(t, o, fence.Token(1), "the value")
	data := fencecheck.Keys(t, st, "state.json.data/")[0]
	if err := st.Delete(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Put(t.Context(), data, []byte("the vague"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	v, err := o.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := v.ReadAll(t.Context()); err == nil {
		t.Errorf("%q was read", b)
	}
}

func TestCollect(t *testing.T) {
	st := newStore()
	opts := &fence.ObjectOptions{Apart: true}
	put(t, newObject(t, st, opts), fence.Token(1), "first")
	// The next holder crashes after the data: what it wrote is an orphan.
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "state.json"}, faultstore.Fault{Kind: faultstore.Unavailable, Op: "delete"})
	if err := newObject(t, st, opts).Put(t.Context(), fence.Token(2), strings.NewReader("orphan")); !errors.Is(err, store.ErrDenied) {
		t.Fatal(err)
	}
	st.Clear()
	o := newObject(t, st, opts)
	if n, err := o.Collect(t.Context()); n != 0 || err != nil || len(fencecheck.Keys(t, st, "state.json.data/")) != 2 {
		t.Errorf("while a holder with the token of the orphan may go on: %d collected, %v", n, err)
	}
	if _, err := o.Claim(t.Context(), fence.Token(3)); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Collect(t.Context()); n != 1 || err != nil || len(fencecheck.Keys(t, st, "state.json.data/")) != 1 {
		t.Errorf("%d collected, %v", n, err)
	}
	holds(t, st, "first")
}

// An object that was not written through a fence, or was changed past it, is not touched.
func TestForeignObjects(t *testing.T) {
	sealed := func() []byte {
		st := newStore()
		put(t, newObject(t, st, nil), fence.Token(7), "value")
		return raw(t, st)
	}()
	edited := bytes.Replace(sealed, []byte("value"), []byte("Value"), 1)
	for name, body := range map[string][]byte{
		"a plain object":     []byte("plain"),
		"an empty object":    {},
		"edited":             edited,
		"cut":                sealed[1:],
		"with blanks":        []byte("x\n" + strings.Repeat(" ", 392) + "\n"),
		"with a wrong blank": append(bytes.Clone(sealed[:len(sealed)-2]), "x\n"...),
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore()
			if _, err := st.Put(t.Context(), "state.json", body, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			o := newObject(t, st, nil)
			_, get := o.Get(t.Context())
			_, claim := o.Claim(t.Context(), fence.Token(9))
			for _, err := range []error{get, claim, o.Put(t.Context(), fence.Token(9), strings.NewReader("new")), o.Delete(t.Context(), fence.Token(9))} {
				if !errors.Is(err, fence.ErrForeign) || !strings.Contains(err.Error(), "state.json") {
					t.Errorf("%v, want ErrForeign and the key", err)
				}
			}
			if now := raw(t, st); !bytes.Equal(now, body) {
				t.Errorf("it was changed to %q", now)
			}
			o = newObject(t, st, &fence.ObjectOptions{Adopt: true})
			v, err := o.Claim(t.Context(), fence.Token(9))
			if err != nil || !v.Exists {
				t.Fatal(v, err)
			}
			if all, err := v.ReadAll(t.Context()); err != nil || !bytes.Equal(all, body) {
				t.Errorf("adopted as %q, %v", all, err)
			}
			fencecheck.Fenced(t, o.Put(t.Context(), fence.Token(8), strings.NewReader("late")), 8, 9)
			holds(t, st, string(body)) // it is a fence's from now on
		})
	}
}

// The lease that has the token ends, with the reason.
func TestFencedLeaseEnds(t *testing.T) {
	st, lease := memstore.New(), fencecheck.Lease(t)
	newest := lease.Token() + 1
	put(t, newObject(t, st, nil), fence.Token(newest), "from b")
	fencecheck.Fenced(t, newObject(t, st, nil).Put(t.Context(), lease, strings.NewReader("late")), lease.Token(), newest)
	if cause := context.Cause(lease.Context()); !errors.Is(cause, leasehold.ErrLost) || lease.Valid() {
		t.Errorf("the lease ended with %v, valid: %v", cause, lease.Valid())
	} else {
		fencecheck.Fenced(t, cause, lease.Token(), newest)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, fence.ErrFenced) {
		t.Error(err)
	}
}

// Whose lease has ended, and who has no token, sends nothing.
func TestNothingIsSentWithoutALease(t *testing.T) {
	inner, lease := newStore(), fencecheck.Lease(t)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := newObject(t, inner, nil)
	for _, c := range []struct {
		h    fence.Holder
		want error
	}{{lease, leasehold.ErrReleased}, {fence.Token(0), fence.ErrNoToken}, {fence.Token(-1), fence.ErrNoToken}, {nil, fence.ErrNoToken}} {
		if _, err := o.Claim(t.Context(), c.h); !errors.Is(err, c.want) {
			t.Errorf("claim: %v, want %v", err, c.want)
		}
		if err := o.Put(t.Context(), c.h, strings.NewReader("x")); !errors.Is(err, c.want) {
			t.Errorf("put: %v, want %v", err, c.want)
		}
	}
	if n := inner.Counts(); n != (faultstore.Counts{}) {
		t.Errorf("%+v were sent", n)
	}
}

// A lost answer is no failure: the write is found again, or made again.
func TestLostAnswers(t *testing.T) {
	for _, kind := range []faultstore.Kind{
		faultstore.LostAnswer, faultstore.LostRequest, faultstore.Unavailable, faultstore.Throttled, faultstore.Conflict, faultstore.LateLanding,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				o := newObject(t, st, nil)
				put(t, o, fence.Token(1), "before")
				st.Inject(faultstore.Fault{Kind: kind, Op: "put", Nth: 1, Delay: time.Minute})
				v, err := o.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := o.PutOver(t.Context(), fence.Token(1), v, strings.NewReader("after")); err != nil {
					t.Error(err)
				}
				holds(t, st, "after")
				st.Wait()
				holds(t, st, "after")
			})
		})
	}
}

// An answer was lost, and then another has written: whether this write was there before
// it nobody knows, and it must not be done twice.
func TestUnknownOutcomeIsSaid(t *testing.T) {
	for newest, fenced := range map[fence.Token]bool{1: false, 2: true} {
		t.Run(fmt.Sprint("token ", newest), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				o, other := newObject(t, st, nil), newObject(t, st, nil)
				put(t, o, fence.Token(1), "before")
				st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Nth: 1, When: func(c faultstore.Call) bool {
					return bytes.HasPrefix(c.Body, []byte("mine"))
				}}, faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Nth: 1, Delay: time.Minute})
				ended := make(chan error)
				go func() { ended <- o.Put(t.Context(), fence.Token(1), strings.NewReader("mine")) }()
				time.Sleep(10 * time.Second)
				put(t, other, newest, "theirs")
				err := <-ended
				if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, fence.ErrFenced) != fenced {
					t.Errorf("%v, want that its outcome is unknown, and fenced: %v", err, fenced)
				}
				holds(t, st, "theirs")
			})
		})
	}
}

func TestObjectGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		begin := time.Now()
		err := newObject(t, st, nil).Put(t.Context(), fence.Token(1), strings.NewReader("x"))
		if d := time.Since(begin); !errors.Is(err, store.ErrUnavailable) || d > 45*time.Second {
			t.Errorf("%v after %v", err, d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := newObject(t, st, nil).Put(ctx, fence.Token(1), strings.NewReader("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestObjectKeys(t *testing.T) {
	for _, key := range []string{"", "a//b", "a/", strings.Repeat("k", 198)} {
		if _, err := fence.NewObject(memstore.New(), key, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := fence.NewObject(nil, "k", nil); err == nil {
		t.Error("a store that is nil was taken")
	}
}

// Each operation sends the requests that docs/requests-commands.md says.
func TestObjectCost(t *testing.T) {
	large := strings.Repeat("x", store.MaxBody)
	for _, c := range []struct {
		name   string
		do     func(o *fence.Object) error
		before func(o *fence.Object) error
		want   faultstore.Counts
	}{
		{"put, written last by this one", putting(2, "y"), putting(2, "x"), faultstore.Counts{Put: 1}},
		{"put, read before by this one", putting(2, "y"), reading, faultstore.Counts{Put: 1}},
		{"put, nothing known", putting(2, "y"), nil, faultstore.Counts{Get: 1, Put: 1}},
		{"put, fenced", putting(1, "y"), nil, faultstore.Counts{Get: 1}},
		{"claim", claiming(3), nil, faultstore.Counts{Get: 1, Put: 1}},
		{"claim, its token is there", claiming(2), nil, faultstore.Counts{Get: 1}},
		{"delete, written last by this one", deleting(2), putting(2, "x"), faultstore.Counts{Put: 1}},
		{"put apart", putting(2, large), putting(2, "x"), faultstore.Counts{Get: 1, Put: 2}},
		{"put apart, fenced", putting(1, large), nil, faultstore.Counts{Get: 1}},
		{"put apart over apart", putting(2, large), putting(2, large), faultstore.Counts{Get: 1, Put: 2, Delete: 1}},
		{"read", reading, nil, faultstore.Counts{Get: 1}},
		{"read apart", reading, putting(2, large), faultstore.Counts{Get: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newStore()
			put(t, newObject(t, st, nil), fence.Token(2), "first")
			o := newObject(t, st, nil)
			if c.before != nil {
				if err := c.before(o); err != nil {
					t.Fatal(err)
				}
			}
			st.Reset()
			if err := c.do(o); err != nil && !errors.Is(err, fence.ErrFenced) {
				t.Fatal(err)
			}
			if n := st.Counts(); n != c.want {
				t.Errorf("it sent %+v, want %+v", n, c.want)
			}
		})
	}
}

func putting(token fence.Token, value string) func(*fence.Object) error {
	return func(o *fence.Object) error { return o.Put(context.Background(), token, strings.NewReader(value)) }
}

func claiming(token fence.Token) func(*fence.Object) error {
	return func(o *fence.Object) error {
		_, err := o.Claim(context.Background(), token)
		return err
	}
}

func deleting(token fence.Token) func(*fence.Object) error {
	return func(o *fence.Object) error { return o.Delete(context.Background(), token) }
}

func reading(o *fence.Object) error {
	v, err := o.Get(context.Background())
	if err != nil {
		return err
	}
	_, err = v.ReadAll(context.Background())
	return err
}

func FuzzUnseal(f *testing.F) {
	st := memstore.New()
	o, err := fence.NewObject(st, "k", nil)
	if err != nil {
		f.Fatal(err)
	}
	if err = o.Put(f.Context(), fence.Token(42), strings.NewReader("value")); err != nil {
		f.Fatal(err)
	}
	sealed, err := st.Get(f.Context(), "k", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed.Body)
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, body []byte) {
		st := memstore.New()
		if _, err := st.Put(t.Context(), "state.json", body, store.IfAbsent()); err != nil {
			t.Skip("the store takes no such body")
		}
		v, err := newObject(t, st, nil).Get(t.Context())
		if err != nil {
			if !errors.Is(err, fence.ErrForeign) && !errors.Is(err, store.ErrNotExist) {
				t.Error(err)
			}
			return
		}
		if v.Token <= 0 || v.Size > int64(len(body)) {
			t.Errorf("%+v", v)
		}
	})
}

// TestPutOver: two writers with one token, of which each writes over what it has read, lose nothing; and neither is a
// value written over that was only claimed since.
func TestPutOver(t *testing.T) {
	for what, opts := range map[string]*fence.ObjectOptions{"inline": nil, "apart": {Apart: true}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				a, b := newObject(t, st, opts), newObject(t, st, opts)
				over := func(o *fence.Object, v *fence.Value, text string) error {
					return o.PutOver(t.Context(), fence.Token(1), v, strings.NewReader(text))
				}
				none, err := a.Claim(t.Context(), fence.Token(1))
				if err != nil || none.Exists {
					t.Fatal(none, err)
				}
				if err = over(a, none, "first"); err != nil {
					t.Fatal(err)
				}
				if err = over(a, none, "again"); !errors.Is(err, fence.ErrReplaced) {
					t.Errorf("over what was there before: %v", err)
				}
				first, err := b.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Key: "state.json", Nth: 1})
				if err = over(b, first, "second"); err != nil {
					t.Errorf("its answer was lost: %v", err)
				}
				if err = over(a, first, "third"); !errors.Is(err, fence.ErrReplaced) {
					t.Errorf("over what another has replaced: %v", err)
				}
				second, err := a.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				text, err := second.ReadAll(t.Context())
				if err != nil || string(text) != "second" {
					t.Errorf("it is %q, %v", text, err)
				}
				if _, err = b.Claim(t.Context(), fence.Token(2)); err != nil {
					t.Fatal(err)
				}
				if err = a.PutOver(t.Context(), fence.Token(2), second, strings.NewReader("fourth")); !errors.Is(err, fence.ErrReplaced) {
					t.Errorf("over what was claimed since: %v", err)
				}
				if err = over(a, second, "fourth"); !errors.Is(err, fence.ErrFenced) {
					t.Errorf("by a former holder: %v", err)
				}
			})
		})
	}
}

// TestPutOverWithOldKnowledge: what an Object has seen last may be older than the value that is to be written over: another
// Object has read that, or an earlier read of its own is answered late. PutOver used to say of a value that was there that it
// was replaced.
func TestPutOverWithOldKnowledge(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			o, other := newObject(t, st, nil), newObject(t, st, nil)
			put(t, o, fence.Token(1), "1")
			read := make(chan struct{})
			if late {
				o = newObject(t, st, nil)
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Nth: 1, Delay: 2 * time.Second})
				go func() {
					defer close(read)
					if _, err := o.Get(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			} else {
				close(read)
			}
			time.Sleep(time.Second)
			put(t, other, fence.Token(1), "2")
			reader := other
			if late {
				reader = o
			}
			v, err := reader.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			<-read
			if err := o.PutOver(t.Context(), fence.Token(1), v, strings.NewReader("3")); err != nil {
				t.Errorf("late %v: over the value that is there: %v", late, err)
			}
			holds(t, st, "3")
		})
	}
}

var (
	count     = flag.Int("histories", 1500, "how many histories to check")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history")
)

func TestObjectHistories(t *testing.T) {
	t.Parallel()
	histories.Check(t, *firstSeed, *count, linear.Object, func(t *testing.T, r *rand.Rand, st *faultstore.Store, h *histories.History) {
		var all sync.WaitGroup
		for client := range 4 {
			o := newObject(t, st, &fence.ObjectOptions{Apart: r.IntN(4) == 0})
			token := fence.Token(1 + r.IntN(4))
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			all.Go(func() {
				for range 5 {
					time.Sleep(time.Duration(own.Int64N(int64(2 * time.Second))))
					use(t, own, h, client, o, token)
				}
			})
		}
		all.Wait()
	})
}

// use does one operation. The few values come again and again, and with them the bytes.
func use(t *testing.T, r *rand.Rand, h *histories.History, client int, o *fence.Object, token fence.Token) {
	t.Helper()
	ctx := t.Context()
	value := []string{"x", "y"}[r.IntN(2)]
	read := func(v *fence.Value, err error) (string, error) {
		if errors.Is(err, store.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		b, err := v.ReadAll(ctx)
		if err != nil { // of a claim that was done
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
		return string(b), err
	}
	switch k := r.IntN(10); {
	case k < 2:
		h.Record(t, client, linear.Command{Op: "claim", Token: int64(token)}, func() (string, error) { return read(o.Claim(ctx, token)) })
	case k < 6:
		h.Record(t, client, linear.Command{Op: "put", Token: int64(token), Value: value}, func() (string, error) {
			return "", o.Put(ctx, token, strings.NewReader(value))
		})
	case k < 7:
		h.Record(t, client, linear.Command{Op: "delete", Token: int64(token)}, func() (string, error) { return "", o.Delete(ctx, token) })
	default:
		h.Record(t, client, linear.Command{Op: "get"}, func() (string, error) { return read(o.Get(ctx)) })
	}
}
