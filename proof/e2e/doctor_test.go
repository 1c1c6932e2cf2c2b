package e2e_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/s3store"
)

// behind is a bucket of gofakes3, which checks no signatures, behind a proxy that spoils
// it; each call of open has connections of its own.
func behind(t *testing.T, opts *servers.ProxyOptions) (open func(context.Context) (store.Store, error)) {
	t.Helper()
	if underTest != leasetest.Object {
		t.Skip("the same in every layout: it is about stores")
	}
	server := servers.Start(t, "gofakes3")
	proxy := servers.StartProxy(t, server.Endpoint, opts)
	bucket := server.Bucket(t)
	return func(context.Context) (store.Store, error) {
		return s3store.New(server.ClientAt(proxy.Endpoint), bucket, nil)
	}
}

func probeOf(t *testing.T, races int, open func(context.Context) (store.Store, error)) *probe.Report {
	t.Helper()
	st, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Run(t.Context(), st, &probe.Options{Open: open, Races: races})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestProbeNoticesDroppedConditions: a server that overlooks the conditions is found out
// soon and for little, and neither a lock nor an election works there if a proof is asked
// for.
func TestProbeNoticesDroppedConditions(t *testing.T) {
	t.Parallel()
	open := behind(t, &servers.ProxyOptions{DropConditions: true})
	r := probeOf(t, 50, open)
	for _, use := range probe.Uses() {
		if use != "fast start" && r.Proves(r.Store, use) == nil {
			t.Errorf("it is said to be safe for %s", use)
		}
	}
	if f := r.Finding("create over an object"); f.Result != probe.Bad || !strings.Contains(f.Detail, "does not keep the condition") {
		t.Errorf("%+v", f)
	}
	if n := r.Requests.Put; n > 1000 {
		t.Errorf("%d writes to find that out", n)
	}
	st, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leasehold.NewLock(st, "lock", &leasehold.LockOptions{Proof: r}); !errors.Is(err, probe.ErrUnproven) {
		t.Errorf("a lock: %v", err)
	}
	if _, err := leasehold.NewElection(st, "lock", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Proof: r}}); !errors.Is(err, probe.ErrUnproven) {
		t.Errorf("an election: %v", err)
	}
}

// TestProbeNoticesRareFaults: a server that overlooks the condition of one write in 500, so
// that one race in 500 has two winners, is found out nearly always.
func TestProbeNoticesRareFaults(t *testing.T) {
	t.Parallel()
	rounds, least := 1, 1
	if *long {
		rounds, least = 20, 18
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(uint64(rounds), 500))
	open := behind(t, &servers.ProxyOptions{Alter: func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut && random.IntN(500) == 0 {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
		}
	}})
	caught, made := 0, 0
	// One in 400 passes by chance, so a second and third try decide about a single one.
	for made < rounds || rounds == 1 && caught == 0 && made < 3 {
		if r := probeOf(t, 0, open); r.Proves(r.Store, "object") != nil {
			caught++
		}
		made++
	}
	t.Logf("figures: %d of %d probes noticed one race in 500", caught, made)
	if caught < least {
		t.Errorf("only %d of %d noticed it", caught, made)
	}
}

// TestProbeAllowsForUnquotedETags: a server that compares ETags without their quotes can
// carry locks, once it has been found out.
func TestProbeAllowsForUnquotedETags(t *testing.T) {
	t.Parallel()
	open := behind(t, &servers.ProxyOptions{Fault: func(r *http.Request, _ int) servers.Fault {
		if r.Method == http.MethodPut && strings.HasPrefix(r.Header.Get("If-Match"), `"`) {
			return servers.Status(http.StatusPreconditionFailed)
		}
		return servers.Pass
	}})
	r := probeOf(t, 50, open)
	if !r.UnquotedETags || !strings.Contains(r.Store, "unquoted_etags=true") || r.Proves(r.Store, "object") != nil {
		t.Fatalf("%+v", r)
	}
	st, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = leasehold.NewLock(st, "lock", &leasehold.LockOptions{Proof: r}); !errors.Is(err, probe.ErrUnproven) {
		t.Errorf("without allowing for it: %v", err)
	}
	lock, err := leasehold.NewLock(r.Adapt(st), "lock", &leasehold.LockOptions{Proof: r})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // each takes over what the last one has released
		if err := lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProbeSaysWhatIsDenied: with the rights of a holder alone, doctor finds out as much
// as it can, and names the missing rights.
func TestProbeSaysWhatIsDenied(t *testing.T) {
	t.Parallel()
	if underTest != leasetest.Object {
		t.Skip("the same in every layout: it is about stores")
	}
	for _, name := range servers.IAMNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartIAM(t, name)
			bucket := server.Bucket(t)
			as := func(operations ...string) (*probe.Report, error) {
				policy, err := locksIn(t, server, bucket).Policy(operations...)
				if err != nil {
					t.Fatal(err)
				}
				return probe.Run(t.Context(), locksIn(t, server.Restricted(t, policy), bucket), &probe.Options{Races: 20})
			}
			if r, err := as("get", "list"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("an observer: %+v, %v", r, err)
			}
			r, err := as("get", "put")
			if err != nil {
				t.Fatal(err)
			}
			if f := r.Finding("delete"); f.Result != probe.Unknown || !strings.Contains(f.Detail, "may not delete") || r.Left == 0 || r.Proves(r.Store, "object") == nil {
				t.Errorf("a holder that may not delete: %+v, %d left, %+v", f, r.Left, r.Verdicts)
			}
			if r, err = as("get", "put", "list", "delete"); err != nil {
				t.Fatal(err)
			}
			if err := r.Proves(r.Store, "epochs"); err != nil || r.Left > 0 {
				t.Errorf("all four: %v, %d left", err, r.Left)
			}
			if f := r.Finding("versioning"); f.Result != probe.Unknown || !strings.Contains(f.Detail, "may not ask") {
				t.Errorf("%+v", f)
			}
			if len(r.Policy) == 0 || !strings.Contains(string(r.Policy), "s3:PutObject") {
				t.Errorf("the policy is %s", r.Policy)
			}
		})
	}
}
