package terraform_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var seeds = flag.Int("seeds", 25, "how many histories TestHistories makes")

// TestHistories: runs of Terraform through two servers over a bad network, with locks that are broken at any moment.
// Each run reads a number under its lock and stores a larger one. What was answered with 200 is never lost: every run
// that locks later reads that number, or a larger one; and what a run has read stays what it is until it stores itself.
func TestHistories(t *testing.T) {
	stored := 0
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, st *memstore.Store) { stored += history(t, st, uint64(seed)) })
		})
	}
	if *seeds > 10 && stored < *seeds {
		t.Errorf("only %d states were stored", stored)
	}
	t.Logf("figures: %d histories, %d states stored", *seeds, stored)
}

// A run is one of Terraform.
type run struct {
	t      *testing.T
	id     string
	server *server
	rand   *rand.Rand
}

// try sends a request until it is answered with no 5xx, three times at most, as Terraform does.
func (r *run) try(method, target, body string) answer {
	for n := 1; ; n++ {
		a := r.server.do(method, target, body)
		if a.status < 500 || n == 3 {
			return a
		}
		time.Sleep(time.Second)
	}
}

func history(t *testing.T, st *memstore.Store, seed uint64) (stored int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed that is to be repeated
	opts := &terraform.Options{TTL: 20 * time.Second, Versions: 3}
	servers := []*server{start(t, st, opts), start(t, st, opts)}
	for _, s := range servers {
		s.st.Inject(
			faultstore.Fault{Kind: faultstore.LostAnswer, Probability: 0.05},
			faultstore.Fault{Kind: faultstore.LostRequest, Probability: 0.03},
			faultstore.Fault{Kind: faultstore.Throttled, Probability: 0.03},
			faultstore.Fault{Kind: faultstore.LateLanding, Op: "put", Probability: 0.04, Delay: time.Second, Jitter: 2 * time.Minute},
			faultstore.Fault{Kind: faultstore.LateDuplicate, Op: "put", Probability: 0.04, Delay: time.Second, Jitter: 2 * time.Minute},
			faultstore.Fault{Kind: faultstore.DelayBefore, Probability: 0.2, Jitter: 3 * time.Second},
		)
	}
	acknowledged := &acknowledgements{t: t, by: map[int]string{}}
	results := make(chan int)
	const workers, runs = 4, 6
	for w := range workers {
		go func() {
			n := 0
			for i := range runs {
				one := &run{t, fmt.Sprintf("run-%d-%d", w, i), servers[(w+i)%2], rand.New(rand.NewPCG(seed, uint64(w*100+i+2)))} //nolint:gosec // see above
				n += one.run(acknowledged)
			}
			results <- n
		}()
	}
	done := make(chan struct{})
	broken := make(chan struct{})
	go func() { // somebody who breaks locks
		defer close(broken)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(10+r.IntN(60)) * time.Second):
				servers[r.IntN(2)].do("UNLOCK", "/s", "")
			}
		}
	}()
	for range workers {
		stored += <-results
	}
	close(done)
	<-broken
	for _, s := range servers {
		s.st.Clear()
		s.st.Wait()
	}
	acknowledged.check("the end", acknowledged.largest(), servers[0].do("GET", "/s", ""))
	return stored
}

// acknowledgements are the states that were answered with 200: their numbers, and the runs that have stored them.
type acknowledgements struct {
	t  *testing.T
	mu sync.Mutex
	by map[int]string
}

func (a *acknowledgements) add(number int, by string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, is := a.by[number]; is && other != by {
		a.t.Errorf("state %d was acknowledged to %s and to %s: one has written over the other's", number, other, by)
	}
	a.by[number] = by
}

func (a *acknowledgements) largest() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number := range a.by {
		n = max(n, number)
	}
	return n
}

// check compares a state that was read with what was acknowledged before it was asked for, and returns its number.
func (a *acknowledgements) check(reader string, before int, read answer) int {
	number, by := 0, ""
	if read.status != http.StatusNotFound {
		var s struct {
			Serial  int
			Outputs struct{ Of struct{ Value string } }
		}
		if err := json.Unmarshal([]byte(read.body), &s); err != nil || read.status != http.StatusOK {
			a.t.Errorf("no state: %d, %v: %s", read.status, err, read.body)
		}
		number, by = s.Serial, s.Outputs.Of.Value
	}
	if number < before {
		a.t.Errorf("%s has read state %d, and %d was acknowledged before it asked", reader, number, before)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if of, is := a.by[number]; is && of != by {
		a.t.Errorf("%s has read a state %d of %s, and that number was acknowledged to %s", reader, number, by, of)
	}
	return number
}

// run locks, reads, works, stores and unlocks. It returns how many states it has stored.
func (r *run) run(acknowledged *acknowledgements) (stored int) {
	for n := 1; r.try("LOCK", "/s", lockBody(r.id)).status != http.StatusOK; n++ {
		if n == 1000 {
			r.t.Errorf("%s could not lock", r.id)
			return 0
		}
		time.Sleep(time.Duration(1+r.rand.IntN(10)) * time.Second)
	}
	before := acknowledged.largest()
	a := r.try("GET", "/s", "")
	if a.status >= 500 {
		r.try("UNLOCK", "/s", lockBody(r.id))
		return 0
	}
	number := acknowledged.check(r.id, before, a)
	for range 1 + r.rand.IntN(3) {
		time.Sleep(time.Duration(r.rand.IntN(15)) * time.Second)
		number++
		if r.try("POST", "/s?ID="+r.id, stateOf(number, r.id)).status != http.StatusOK {
			break // Terraform would write errored.tfstate
		}
		stored++
		acknowledged.add(number, r.id)
	}
	r.try("UNLOCK", "/s", lockBody(r.id))
	return stored
}
