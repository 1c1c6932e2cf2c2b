package quorumstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

var large = bytes.Repeat([]byte("large "), store.MaxBody/4)

// bodies counts the bodies that lie beside their values in a member.
func (p *place) bodies(t *testing.T) (n int) {
	t.Helper()
	for _, err := range p.inner.List(t.Context(), "!leasehold-quorum-values-", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func readsLarge(t *testing.T, st store.Large, key string) {
	t.Helper()
	r, size, err := st.GetLarge(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || size != int64(len(large)) || !bytes.Equal(text, large) {
		t.Errorf("%s has %d of %d bytes, %v, want the %d that were written", key, len(text), size, err, len(large))
	}
}

// TestReplaceBringsBodies: a new member has every large body, so the others may go.
func TestReplaceBringsBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		if _, err := st.PutLarge(t.Context(), "large", bytes.NewReader(large)); err != nil {
			t.Fatal(err)
		}
		put(t, st, "full", strings.Repeat("x", store.MaxBody), store.IfAbsent())
		putLarge(t, st, "one", "x")
		by := newPlace("mem://new")
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err != nil {
			t.Fatal(err)
		}
		if n := by.bodies(t); n != 3 {
			t.Errorf("the new member has %d bodies, want 3", n)
		}
		synctest.Wait()
	})
}

// TestBodyOfAnUnknownWrite: while it is not known whether a value was written, its body stays.
func TestBodyOfAnUnknownWrite(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(ctx context.Context, st *quorumstore.Store) error{
		"PutLarge": func(ctx context.Context, st *quorumstore.Store) error {
			return second(st.PutLarge(ctx, "large", bytes.NewReader(large)))
		},
		"Put": func(ctx context.Context, st *quorumstore.Store) error {
			return second(st.Put(ctx, "large", large[:store.MaxBody], store.IfAbsent()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBodyOfAnUnknownWrite(t, write)
		})
	}
}

func testBodyOfAnUnknownWrite(t *testing.T, write func(ctx context.Context, st *quorumstore.Store) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "other", "x", store.IfAbsent())
		synctest.Wait()
		for _, p := range places {
			// The acceptance arrives, its answer does not, and then nobody can look.
			puts := 0
			p.Inject(
				faultstore.Fault{Kind: faultstore.LostAnswer, Key: "large", When: func(c faultstore.Call) bool {
					if c.Op == "put" {
						puts++
					}
					return c.Op == "put" && puts == 2
				}},
				faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "large", When: func(faultstore.Call) bool { return puts == 2 }},
			)
		}
		if err := write(t.Context(), st); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatalf("%v, want an unknown outcome", err)
		}
		time.Sleep(time.Minute)
		for _, p := range places {
			p.Clear()
			if n := p.bodies(t); n != 1 {
				t.Errorf("%s has %d bodies, want the one that may be named", p.name, n)
			}
		}
		// What is there now is either nothing or all of it.
		if o, err := open(t, places).Get(t.Context(), "large", ""); errors.Is(err, store.ErrTooLarge) {
			readsLarge(t, open(t, places), "large")
		} else if err == nil {
			if !bytes.Equal(o.Body, large[:store.MaxBody]) {
				t.Errorf("%d bytes", len(o.Body))
			}
		} else if !errors.Is(err, store.ErrNotExist) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestBodyOfARefusedWrite: what was refused leaves nothing behind.
func TestBodyOfARefusedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		put(t, st, "there", "x", store.IfAbsent())
		places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "!leasehold-quorum-values-*", Delay: time.Second})
		if _, err := st.PutLarge(t.Context(), "there", bytes.NewReader(large)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a large body over an object: %v", err)
		}
		if _, err := st.Put(t.Context(), "there", large[:store.MaxBody], store.IfAbsent()); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("a second object: %v", err)
		}
		time.Sleep(time.Minute) // until all requests have ended
		for _, p := range places {
			if n := p.bodies(t); n != 0 {
				t.Errorf("%s has %d bodies left", p.name, n)
			}
		}
	})
}

const asideKeys = "!leasehold-quorum-values-*"

// body is the key of the one body that lies beside its value.
func (p *place) body(t *testing.T) (key string) {
	t.Helper()
	for e, err := range p.inner.List(t.Context(), "!leasehold-quorum-values-", "") {
		if err != nil || key != "" {
			t.Fatalf("%s, %s, %v", key, e.Key, err)
		}
		key = e.Key
	}
	return key
}

func putLarge(t *testing.T, st store.Large, key, text string) {
	t.Helper()
	if n, err := st.PutLarge(t.Context(), key, strings.NewReader(text)); err != nil || n != int64(len(text)) {
		t.Fatalf("%d of %d bytes, %v", n, len(text), err)
	}
}

// TestLargeFails: a large body that is not written leaves nothing behind, and the error says which member did not take it.
func TestLargeFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault func(places []*place, cancel func())
		want  string
		told  string // in the log
	}{
		{"bodies", func(places []*place, _ func()) {
			places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: asideKeys})
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: asideKeys})
		}, `put "large": access denied: no majority of the members
mem://0: put "BODY": access denied: faultstore: denied
mem://1: put "BODY": access denied: faultstore: denied`, "mem://0 mem://1"},
		{"values", func(places []*place, _ func()) {
			places[0].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "large"})
			places[1].Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "large"})
		}, `put "large": access denied: no majority of the members
mem://0: put "large": access denied: faultstore: denied
mem://1: put "large": access denied: faultstore: denied`, "mem://0 mem://1"},
		{"the context ends", func(places []*place, cancel func()) {
			places[0].Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "put", Key: asideKeys})
			places[1].Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "put", Key: asideKeys})
			time.AfterFunc(time.Second, cancel)
		}, `put "large": store unavailable: context canceled`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				places, _ := newQuorum(t, 3)
				var log bytes.Buffer
				st, err := quorumstore.New([]store.Store{places[0], places[1], places[2]}, &quorumstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				put(t, st, "other", "x", store.IfAbsent()) // the configuration is known from here on
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.fault(places, cancel)
				began := time.Now()
				_, err = st.PutLarge(ctx, "large", strings.NewReader("body"))
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				got := errorText(err)
				if _, name, ok := strings.Cut(got, "!leasehold-quorum-values-"); ok {
					name, _, _ = strings.Cut(name, `"`)
					got = strings.ReplaceAll(got, "!leasehold-quorum-values-"+name, "BODY")
				}
				first, second := "mem://0: ", "mem://1: "
				swapped := strings.NewReplacer(first, second, second, first).Replace(got) // either may answer first
				if got != tc.want && swapped != tc.want {
					t.Errorf("error:\n%s\nwant:\n%s", got, tc.want)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, p := range places {
					p.Clear()
					if n := p.bodies(t); n != 0 {
						t.Errorf("%s has %d bodies left", p.name, n)
					}
				}
				for _, p := range places {
					if want := strings.Contains(tc.told, p.name); strings.Contains(log.String(), "WARN") && strings.Contains(log.String(), p.name) != want {
						t.Errorf("the log names %s: want %t: %s", p.name, want, &log)
					}
				}
				if (tc.told != "") != strings.Contains(log.String(), "a member of the quorum fails") {
					t.Errorf("the log says: %s", &log)
				}
				// What is asked of a store that is no quorum says so.
				other := open(t, []*place{newPlace("mem://a"), newPlace("mem://b"), newPlace("mem://c")})
				if _, err := other.PutLarge(t.Context(), "large", strings.NewReader("x")); !errors.Is(err, quorumstore.ErrNoQuorum) {
					t.Errorf("%v, want ErrNoQuorum", err)
				}
				if _, _, err := other.GetLarge(t.Context(), "large"); !errors.Is(err, quorumstore.ErrNoQuorum) {
					t.Errorf("%v, want ErrNoQuorum", err)
				}
			})
		})
	}
}

// TestLargeRefused: what PutLarge and GetLarge say of a key or a body that cannot be used.
func TestLargeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		_, st := newQuorum(t, 3)
		put(t, st, "there", "x", store.IfAbsent())
		_, err := st.PutLarge(t.Context(), "there", strings.NewReader("x"))
		says(t, err, `put "there": invalid argument: there is an object already: a large body needs a key that nobody has used`)
		_, err = st.PutLarge(t.Context(), "/", strings.NewReader("x"))
		says(t, err, `put "/": invalid argument: the key begins or ends with a slash, or has two in a row`)
		_, _, err = st.GetLarge(t.Context(), "/")
		says(t, err, `get "/": invalid argument: the key begins or ends with a slash, or has two in a row`)
		_, _, err = st.GetLarge(t.Context(), "none")
		says(t, err, `get "none": object does not exist`)
		_, err = st.PutLarge(t.Context(), "large", io.MultiReader(strings.NewReader("x"), broken{}))
		says(t, err, `put "large": invalid argument: it is broken`)
		// A context that ends while the body is read ends the reading.
		ctx, cancel := context.WithCancel(t.Context())
		_, err = st.PutLarge(ctx, "large", io.MultiReader(strings.NewReader("x"), reading(cancel), strings.NewReader("y")))
		says(t, err, `put "large": store unavailable: context canceled`)
		_, err = st.PutLarge(ctx, "large", broken{})
		says(t, err, `put "large": store unavailable: context canceled`)
		if keys := listed(t, st, "", ""); fmt.Sprint(keys) != "[there]" {
			t.Errorf("there are %v", keys)
		}
		// It is not read to its end.
		ctx, cancel = context.WithCancel(t.Context())
		times := 0
		_, err = st.PutLarge(ctx, "large", endless(func() {
			if times++; times == 3 {
				cancel()
			}
		}))
		says(t, err, `put "large": store unavailable: context canceled`)
		if times != 3 {
			t.Errorf("it is read %d times, want 3", times)
		}
		putLarge(t, st, "one", "x")
		reads(t, st, "one", "x")
		for key, want := range map[string]string{"one": "x", "there": "x"} {
			r, n, failed := st.GetLarge(t.Context(), key)
			if failed != nil {
				t.Fatal(failed)
			}
			if text, failed := io.ReadAll(r); failed != nil || string(text) != want || n != 1 || r.Close() != nil {
				t.Errorf("%s: %q, %d, %v", key, text, n, failed)
			}
		}
		putLarge(t, st, "full", string(large[:store.MaxBody]))
		reads(t, st, "full", string(large[:store.MaxBody]))
		putLarge(t, st, "over", string(large[:store.MaxBody+1]))
		_, err = st.Get(t.Context(), "over", "")
		says(t, err, `get "over": body too large: 1048577 bytes`)
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("it is broken") }

// endless is a reader that calls a function each time, and has a hundred more bytes.
type endless func()

func (e endless) Read(p []byte) (int, error) {
	e()
	return copy(p, make([]byte, 100)), nil
}

// reading is a reader that calls a function, and has nothing.
type reading func()

func (r reading) Read([]byte) (int, error) {
	r()
	return 0, io.EOF
}

// TestTemporaryFiles: a large body is in a temporary file until the members have it, or are too slow, and in none after that.
func TestTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	synctest.Test(t, func(t *testing.T) {
		files := func(what string, want int) {
			t.Helper()
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != want {
				t.Errorf("%s: %d temporary files, %v, want %d", what, len(entries), err, want)
			}
		}
		places, st := newQuorum(t, 3)
		putLarge(t, st, "all", "x")
		synctest.Wait()
		files("all have it", 0)
		if _, err := st.PutLarge(t.Context(), "broken", broken{}); err == nil {
			t.Error("a broken body was written")
		}
		files("a broken body", 0)
		if _, err := open(t, []*place{newPlace("mem://a"), newPlace("mem://b"), newPlace("mem://c")}).PutLarge(t.Context(), "x", strings.NewReader("x")); err == nil {
			t.Error("a body was written to no quorum")
		}
		files("no quorum", 0)
		if err := places[1].inner.Delete(t.Context(), places[1].body(t)); err != nil {
			t.Fatal(err)
		}
		all(t, st)
		if places[1].bodies(t) != 1 {
			t.Error("the body was not copied")
		}
		files("a repair", 0)
		places[2].Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "put", Key: asideKeys})
		if _, err := st.PutLarge(t.Context(), "slow", bytes.NewReader(large)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(quorumstore.DefaultTimeout - time.Second)
		synctest.Wait()
		files("one member is slow", 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		files("one member was too slow", 0)
		places[2].Clear()
		t.Setenv("TMPDIR", dir+"/none")
		_, err := st.PutLarge(t.Context(), "nowhere", strings.NewReader("x"))
		if !errors.Is(err, store.ErrInvalid) || !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), `put "nowhere": invalid argument: open `) {
			t.Errorf("without a directory for it: %v", err)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}

// TestBodyIsDamaged: a body that is gone from a member, or cut short, is read from another one. If no member has it, the error says
// what each of them said.
func TestBodyIsDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		putLarge(t, st, "large", "body")
		synctest.Wait()
		key := places[0].body(t)
		whole := func(what string) {
			t.Helper()
			reads(t, st, "large", "body")
			r, n, err := st.GetLarge(t.Context(), "large")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if text, err := io.ReadAll(r); err != nil || string(text) != "body" || n != 4 || r.Close() != nil {
				t.Errorf("%s: %q, %d, %v", what, text, n, err)
			}
		}
		whole("well")
		places[0].overwrite(t, key, "bod")
		whole("cut short")
		if err := places[1].inner.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		whole("gone")
		places[2].overwrite(t, key, "bodies")
		want := `get "large": store unavailable: the body of 4 bytes
mem://0: 3 bytes
mem://1: get "` + key + `": object does not exist
mem://2: 6 bytes`
		_, err := st.Get(t.Context(), "large", "")
		says(t, err, want)
		_, _, err = st.GetLarge(t.Context(), "large")
		says(t, err, want)
		places[0].overwrite(t, key, "body")
		places[0].Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "get", Key: asideKeys})
		if o, err := st.Get(t.Context(), "large", ""); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a body that breaks off: %v, %v", o, err)
		}
	})
}

// TestBodyIsOpenedAtAnother: a member that fails is not asked for a body first, and one that does not answer for a second is not
// waited for. Every body that was opened is closed.
func TestBodyIsOpenedAtAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, _ := newQuorum(t, 3)
		var open [3]atomic.Int64
		var ends [3]context.Context
		var members []store.Store
		for i, p := range places {
			members = append(members, opening{p, func(ctx context.Context, n int64) {
				if open[i].Add(n); ctx != nil {
					ends[i] = ctx //nolint:fatcontext // kept to see it end
				}
			}})
		}
		st, err := quorumstore.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		putLarge(t, st, "large", "body")
		synctest.Wait()
		asked := func() (n string) {
			for _, p := range places {
				count := 0
				for _, e := range p.Log() {
					if e.Op == "get" && strings.HasPrefix(e.Key, asideKeys[:len(asideKeys)-1]) {
						count++
					}
				}
				n += fmt.Sprint(count)
				p.Reset()
			}
			return n
		}
		read := func(what, want string, most time.Duration) {
			t.Helper()
			asked()
			began := time.Now()
			r, _, err := st.GetLarge(t.Context(), "large")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if took := time.Since(began); took != most {
				t.Errorf("%s: it took %v, want %v", what, took, most)
			}
			if text, err := io.ReadAll(r); err != nil || string(text) != "body" {
				t.Errorf("%s: %q, %v", what, text, err)
			}
			if err := r.Close(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(5 * time.Second)
			if got := asked(); got != want {
				t.Errorf("%s: %s requests to each member, want %s", what, got, want)
			}
			for i := range open {
				if n := open[i].Load(); n != 0 || ends[i] != nil && ends[i].Err() == nil {
					t.Errorf("%s: %d bodies of member %d are still open, or its request goes on", what, n, i)
				}
			}
		}
		read("well", "100", 0)
		places[0].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: asideKeys, Delay: 3 * time.Second})
		read("slow", "110", time.Second)
		places[1].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: asideKeys, Delay: 2500 * time.Millisecond})
		read("both slow", "111", 2*time.Second)
		places[0].Clear()
		places[1].Clear()
		places[0].Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "large"})
		for _, p := range places[1:] { // so the failure comes first
			p.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: "large", Delay: time.Millisecond})
		}
		read("failing", "010", time.Millisecond)
		read("still failing", "010", time.Millisecond)
		for _, p := range places {
			p.Clear()
		}
		reads(t, st, "large", "body")
		if err := places[2].inner.Delete(t.Context(), places[2].body(t)); err != nil {
			t.Fatal(err)
		}
		if err := st.Repair(t.Context()); err != nil || places[2].bodies(t) != 1 {
			t.Errorf("a repair: %v", err)
		}
		for i := range open {
			if n := open[i].Load(); n != 0 {
				t.Errorf("after a small read and a repair %d bodies of member %d are open", n, i)
			}
		}
		// A member that hangs has the time for one request.
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "get", Key: asideKeys})
		}
		began := time.Now()
		if _, _, err := st.GetLarge(t.Context(), "large"); err == nil || time.Since(began) != quorumstore.DefaultTimeout+2*time.Second {
			t.Errorf("all hang: %v after %v", err, time.Since(began))
		}
	})
}

// opening tells of each large body that is opened, and closed.
type opening struct {
	*place
	tell func(ctx context.Context, n int64)
}

func (o opening) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	r, n, err := o.place.GetLarge(ctx, key)
	if err == nil {
		o.tell(ctx, 1)
		r = opened{r, o.tell}
	}
	return r, n, err
}

type opened struct {
	io.ReadCloser
	tell func(ctx context.Context, n int64)
}

func (o opened) Close() error {
	o.tell(nil, -1)
	return o.ReadCloser.Close()
}

// TestRepairBodies: Repair brings a member the bodies that it lacks, says so where it cannot, and asks a member that hangs once, however
// many bodies there are.
func TestRepairBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		putLarge(t, st, "large", "body")
		synctest.Wait()
		key := places[0].body(t)
		for i, p := range places {
			if err := p.inner.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := open(t, places).Repair(t.Context()); err != nil {
				t.Errorf("member %d: %v", i, err)
			}
			if got := p.body(t); got != key {
				t.Errorf("after a repair %s has the body %q, want %q", p.name, got, key)
			}
		}
		by := newPlace("mem://new")
		replace := func() error { return open(t, places, by).Replace(t.Context(), "mem://2", by) }
		missed := `repair "": invalid argument: mem://new has not taken every object: see what it says, and try again`
		by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: asideKeys})
		says(t, replace(), missed)
		by.Clear()
		by.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: asideKeys})
		says(t, replace(), missed)
		by.Clear()
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: asideKeys})
		}
		says(t, replace(), missed)
		for _, p := range places {
			p.Clear()
		}
		for _, p := range places {
			p.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "get", Key: asideKeys}) // the body breaks off
		}
		says(t, replace(), missed)
		for _, p := range places {
			p.Clear()
		}
		// Another process may bring it the same body meanwhile.
		by.before("put", asideKeys, 1, func() { put(t, by.inner, key, "body", store.IfAbsent()) })
		says(t, replace(), "")
		by.Clear()

		for i := range 40 {
			putLarge(t, open(t, places, by), fmt.Sprintf("more/%d", i), "x")
		}
		synctest.Wait()
		places[1].Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "get", Key: asideKeys})
		began := time.Now()
		if err := open(t, places, by).Repair(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > quorumstore.DefaultTimeout+time.Second {
			t.Errorf("a repair with a member that hangs took %v, want the time of one request", took)
		}
	})
}

// TestFullBodyFails: a body that fits no acceptor is written as one that does, and what is refused leaves nothing behind.
func TestFullBodyFails(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("x", store.MaxBody)
	for _, tc := range []struct {
		key, fault string // of what the puts are denied
		want       string
	}{
		{"new", asideKeys, `put "new": access denied: no majority of the members`},
		{"new", "new", `put "new": access denied: no majority of the members`},
		{"there", "", `put "there": precondition failed`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // until all requests have ended
				places, st := newQuorum(t, 3)
				put(t, st, "there", "x", store.IfAbsent())
				synctest.Wait()
				for _, p := range places[1:] {
					if tc.fault != "" {
						p.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: tc.fault})
					}
				}
				_, err := st.Put(t.Context(), tc.key, []byte(full), store.IfAbsent())
				if !strings.HasPrefix(errorText(err), tc.want) {
					t.Errorf("%v, want %s", err, tc.want)
				}
				time.Sleep(time.Minute)
				for _, p := range places {
					if n := p.bodies(t); n != 0 {
						t.Errorf("%s has %d bodies left", p.name, n)
					}
				}
				if keys := listed(t, open(t, places), "", ""); fmt.Sprint(keys) != "[there]" {
					t.Errorf("there are %v", keys)
				}
			})
		})
	}
}

// TestBodyIsOpen: a body may be read for longer than a request may take, by who has opened the quorum while a member hangs, and its request
// ends when it is closed. A member that fails is asked last, but it is asked.
func TestBodyIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		putLarge(t, st, "large", "body")
		synctest.Wait()
		key := places[0].body(t)
		var request context.Context
		var bodies atomic.Int64
		var members []store.Store
		for _, p := range places {
			members = append(members, opening{p, func(ctx context.Context, n int64) {
				if bodies.Add(n); ctx != nil {
					request = ctx //nolint:fatcontext // kept to see it end
				}
			}})
		}
		st, err := quorumstore.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		places[2].Inject(faultstore.Fault{Kind: faultstore.Hang})
		r, _, err := st.GetLarge(t.Context(), "large")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * quorumstore.DefaultTimeout)
		if request.Err() != nil {
			t.Errorf("the request of an open body has ended: %v", request.Err())
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != "body" || r.Close() != nil || request.Err() == nil {
			t.Errorf("%q, %v, and then the request is %v", text, err, request.Err())
		}
		places[2].Clear()

		places[1].overwrite(t, key, "bod")
		if err := places[2].inner.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		places[0].Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "large"})
		for range 2 { // the second time it is known to fail
			reads(t, st, "large", "body")
			synctest.Wait()
		}
		if n := bodies.Load(); n != 0 {
			t.Errorf("%d bodies are open", n)
		}
	})
}

// TestRepairHasBodies: a member that has every body already becomes whole, and a large body may be copied for a second more for each MiB.
func TestRepairHasBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // until all requests have ended
		places, st := newQuorum(t, 3)
		const size = 3 << 20
		putLarge(t, st, "large", strings.Repeat("x", size))
		synctest.Wait()
		places[2].mark(t, func(m *register.Marker) { m.Whole = false })
		all(t, st)
		if !places[2].marker(t).Whole {
			t.Error("the member is not whole")
		}
		by := newPlace("mem://new")
		for _, tc := range []struct {
			delay time.Duration
			want  string
		}{
			{13500 * time.Millisecond, `repair "": invalid argument: mem://new has not taken every object: see what it says, and try again`},
			{12500 * time.Millisecond, ""},
		} {
			by.Clear()
			by.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: asideKeys, Delay: tc.delay})
			says(t, open(t, places, by).Replace(t.Context(), "mem://0", by), tc.want)
		}
	})
}
