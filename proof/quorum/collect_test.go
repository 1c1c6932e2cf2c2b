//go:build unix

package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// TestCollectUnderLoad: processes write, read and delete a few objects while what the deletions leave is collected, all
// the time, by collectors that are interrupted anywhere. To all of them each object is one register.
func TestCollectUnderLoad(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]func(t *testing.T) []func() store.Store{
		"directories": func(t *testing.T) []func() store.Store {
			return []func() store.Store{directory(t), directory(t), directory(t)}
		},
		"azurite": func(t *testing.T) []func() store.Store {
			server := servers.StartAzurite(t)
			return []func() store.Store{blobs(t, server), blobs(t, server), directory(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opens := places(t)
			h := &scribbles{t: t, seed: newSeed()}
			open := func(cut func(faultstore.Call) bool) *quorumstore.Store {
				var members []store.Store
				for i, open := range opens {
					faults := []faultstore.Fault{
						{Kind: faultstore.LostAnswer, Probability: 0.02, When: apart},
						{Kind: faultstore.Unavailable, Probability: 0.02, When: apart},
						{Kind: faultstore.DelayBefore, Probability: 0.05, Jitter: 200 * time.Millisecond, When: apart},
						{Kind: faultstore.LateLanding, Op: "put", Probability: 0.02, Jitter: 500 * time.Millisecond, When: apart},
					}
					if cut != nil { // else so many are interrupted that nothing is collected
						faults = []faultstore.Fault{{Kind: faultstore.Unavailable, When: cut}, {Kind: faultstore.DelayBefore, Probability: 0.05, Jitter: 200 * time.Millisecond, When: apart}}
					}
					members = append(members, aged{faultstore.Wrap(open(), &faultstore.Options{Seed: h.seed + h.opened.Add(1), Faults: faults}), fmt.Sprint("member:", i)})
				}
				st, err := quorumstore.New(members, nil)
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			until(t, "the quorum is made", func() bool { return open(nil).Init(t.Context()) == nil })
			ended, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() { h.scribble(ended, open, i) })
			}
			all.Go(func() {
				defer cancel()
				h.collect(ended, open)
			})
			all.Wait()
			h.judge()
		})
	}
}

// enough is how many deletions are to be collected, and how many collectors interrupted.
const enough = 6

// apart leaves the trials of members alone.
func apart(c faultstore.Call) bool { return len(c.Key) < 2 || c.Key[:1] != "!" }

func directory(t *testing.T) func() store.Store {
	t.Helper()
	dir, err := os.MkdirTemp("", "collect") //nolint:usetesting // what lands late is waited for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if err = os.RemoveAll(dir); err == nil || time.Now().After(end) {
				break // a request that nobody waits for any more may make a file in it meanwhile
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return func() store.Store {
		st, err := filestore.New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

func blobs(t *testing.T, server *servers.Azurite) func() store.Store {
	t.Helper()
	box := server.Container(t)
	return func() store.Store {
		key, err := container.NewSharedKeyCredential(server.Account, server.Key)
		if err != nil {
			t.Fatal(err)
		}
		st, err := azstore.New(server.Endpoint+"/"+box, &azstore.Options{SharedKey: key})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

// aged is a member to whose clock everything is more than a day old.
type aged struct {
	*faultstore.Store
	name string
}

func (a aged) String() string { return a.name }

func (a aged) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := a.Store.Put(ctx, key, body, only)
	if err == nil && !o.Date.IsZero() {
		o.Date = o.Date.Add(25 * time.Hour)
	}
	return o, err
}

// scribbles are a history of some objects.
type scribbles struct {
	t      *testing.T
	seed   uint64
	opened atomic.Uint64

	mu                                 sync.Mutex
	history                            []porcupine.Operation
	unknown                            int
	gone, settled, touched, interrupts int
}

// A stroke is one operation of a history.
type stroke struct {
	key, op    string
	over, body string // the body stands for the version: no two are the same
}

// An outcome is what was said of it.
type outcome struct {
	body  string // that was read; empty: no object
	kind  error  // nil: it was done
	maybe bool
}

// An opener opens the quorum as a process of its own would, whose requests fail by chance, or only where it is said.
type opener func(cut func(faultstore.Call) bool) *quorumstore.Store

// scribble is one process after the other, of which each has its own store.
func (h *scribbles) scribble(ctx context.Context, open opener, id int) {
	random := rand.New(rand.NewPCG(h.seed, uint64(id))) //nolint:gosec // it is small, and a test
	st := open(nil)
	for n := 0; ctx.Err() == nil; n++ {
		if random.IntN(30) == 0 {
			st = open(nil)
		}
		key := fmt.Sprint("k/", random.IntN(8))
		o, read := h.get(context.WithoutCancel(ctx), st, id, key)
		if read != nil && !errors.Is(read, store.ErrNotExist) {
			continue
		}
		s := stroke{key: key, op: "put", body: fmt.Sprintf("%d.%d", id, n)}
		only := store.IfAbsent()
		if o != nil {
			s.over, only = string(o.Body), store.IfMatch(o.Version)
			if random.IntN(3) > 0 {
				s = stroke{key: key, op: "delete"}
			}
		}
		began := time.Now()
		var err error
		if s.op == "delete" {
			err = st.Delete(context.WithoutCancel(ctx), key)
		} else {
			_, err = st.Put(context.WithoutCancel(ctx), key, []byte(s.body), only)
		}
		h.note(id, s, began, "", err)
	}
}

func (h *scribbles) get(ctx context.Context, st store.Store, id int, key string) (*store.Object, error) {
	began := time.Now()
	o, err := st.Get(ctx, key, "")
	body := ""
	if err == nil {
		body = string(o.Body)
	}
	h.note(id, stroke{key: key, op: "get"}, began, body, err)
	return o, err
}

// note takes an operation into the history. One of unknown outcome ends never, and has a client of its own.
func (h *scribbles) note(id int, s stroke, began time.Time, body string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op := porcupine.Operation{ClientId: id, Input: s, Call: began.UnixNano(), Return: time.Now().UnixNano()}
	out := outcome{body: body}
	switch {
	case err == nil:
	case s.op == "get" && errors.Is(err, store.ErrNotExist):
	case errors.Is(err, store.ErrUnknownOutcome):
		h.unknown++
		out.maybe, op.Return, op.ClientId = true, 1<<62, 1000+h.unknown
	case s.op == "put" && (errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrNotExist)):
		out.kind = store.ErrPrecondition
	default:
		return // nothing was done, nor said
	}
	op.Output = out
	h.history = append(h.history, op)
}

// collect is one collector after the other, of which every second one is cut off at some request.
func (h *scribbles) collect(ctx context.Context, open opener) {
	random := rand.New(rand.NewPCG(h.seed, 99))
	for i := 0; ctx.Err() == nil && (h.gone < enough || h.interrupts < enough); i++ {
		var requests atomic.Int64
		after := 10 + random.Int64N(80)
		did, err := open(func(c faultstore.Call) bool {
			return i%2 == 1 && apart(c) && requests.Add(1) > after
		}).Collect(ctx, nil)
		h.mu.Lock()
		h.gone, h.settled, h.touched = h.gone+did.Gone, h.settled+did.Settled, h.touched+did.Left
		if err != nil {
			h.interrupts++
		}
		h.mu.Unlock()
	}
}

// one is a register, by the bodies.
var one = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		keys := map[string]int{}
		for _, op := range history {
			key := op.Input.(stroke).key //nolint:errcheck,forcetypeassert // all are
			i, known := keys[key]
			if !known {
				i = len(parts)
				keys[key] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, in, out any) []any {
		is, s, o := state.(string), in.(stroke), out.(outcome) //nolint:errcheck,forcetypeassert // they are
		next := s.body
		switch {
		case s.op == "get":
			if o.body == is {
				return []any{is}
			}
			return nil
		case o.kind != nil:
			if is != s.over {
				return []any{is}
			}
			return nil
		case s.op == "put" && is != s.over:
			if o.maybe {
				return []any{is}
			}
			return nil
		}
		if o.maybe {
			return []any{is, next}
		}
		return []any{next}
	},
	Equal: func(a, b any) bool { return a == b },
}

func (h *scribbles) judge() {
	h.t.Logf("figures: seed %d: %d operations, %d of unknown outcome; %d deletions collected, %d settled first, %d touched meanwhile, %d collectors interrupted",
		h.seed, len(h.history), h.unknown, h.gone, h.settled, h.touched, h.interrupts)
	if h.gone < enough || h.interrupts < enough || len(h.history) < 100 {
		h.t.Error("that is too little to say anything")
	}
	if result := porcupine.CheckOperationsTimeout(one.ToModel(), h.history, time.Minute); result != porcupine.Ok {
		h.t.Errorf("no register tells this history: %v", result)
	}
}
