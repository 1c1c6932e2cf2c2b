// Package conformance puts an implementation of the format of docs/format.md through cases, as a process that it
// speaks to over a line protocol. Between that process and the store stands a proxy, which sees all requests, and loses,
// delays, doubles and refuses them as a case wants it.
//
// A case fails by a rule: the number of a sentence of docs/format.md. Beside what a case looks for itself, [judge] goes
// through all requests and all that the process has said, in every case.
package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/store"
)

// Options are what a run needs.
type Options struct {
	Store    store.Store // reaches the objects without the proxy
	Endpoint *url.URL    // of the server of the store
	Bucket   string
	Prefix   string // of the store in the bucket; empty, or it ends with a slash
	Region   string // empty: that of the environment
	Command  []string
	Env      []string // of the process, before what is said of the store; it has the credentials

	TTL      time.Duration  // of most leases; default 2 s
	Parallel int            // how many cases at a time; default 8
	Run      *regexp.Regexp // names of cases; nil: all
	OnResult func(Result)   // is called for each case when it is over, one at a time; may be nil
}

// A Result is what came of a case.
type Result struct {
	Case     string        `json:"case"`
	About    string        `json:"about"`
	Passed   bool          `json:"passed"`
	Skipped  string        `json:"skipped,omitempty"` // why it was not tried
	Failures []Failure     `json:"failures,omitempty"`
	Requests []string      `json:"requests,omitempty"` // that were seen, of a case that failed
	Said     []string      `json:"said,omitempty"`     // by both sides, of a case that failed
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
}

// A Failure is a sentence of docs/format.md that was broken.
type Failure struct {
	Rule     string `json:"rule"`
	Sentence string `json:"sentence"`
	What     string `json:"what"`
}

// A Case is what an implementation is put through.
type Case struct {
	Name  string
	About string
	run   func(*trial)
}

// Cases are all that there are, in the order of their names.
func Cases() []Case {
	all := slices.Concat(plainCases, lossCases, trialCases(), storeCases(), foreignCases())
	slices.SortFunc(all, func(a, b Case) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Run puts the command through the cases, and returns what came of each, in the order of Cases. An error means that
// the run itself could not be made.
func Run(ctx context.Context, opts Options) ([]Result, error) {
	opts.TTL = cmp.Or(opts.TTL, 2*time.Second)
	opts.Parallel = cmp.Or(opts.Parallel, 8)
	cases := slices.DeleteFunc(Cases(), func(c Case) bool { //nolint:contextcheck // a trial has the context of the run
		return opts.Run != nil && !opts.Run.MatchString(c.Name)
	})
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case has a name that matches %q", opts.Run)
	}
	root := "leasehold-conformance-" + strings.ToLower(rand.Text()[:10]) + "/"
	if err := reachable(ctx, opts.Store, root); err != nil {
		return nil, err
	}
	results := make([]Result, len(cases))
	var told sync.Mutex
	var all sync.WaitGroup
	free := make(chan struct{}, opts.Parallel)
	for i, c := range cases {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			results[i] = try(ctx, &opts, c, root)
			if opts.OnResult != nil && ctx.Err() == nil {
				told.Lock()
				defer told.Unlock()
				opts.OnResult(results[i])
			}
		})
	}
	all.Wait()
	err := ctx.Err()
	return results, errors.Join(err, sweep(context.WithoutCancel(ctx), opts.Store, root))
}

// reachable writes an object, so that what is wrong with the store is not taken for a fault of the subject.
func reachable(ctx context.Context, st store.Store, root string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := st.Put(ctx, root+"reachable", []byte("a scratch object of leasehold conformance\n"), store.IfAbsent()); err != nil {
		return fmt.Errorf("the store cannot be written to: %w", err)
	}
	return nil
}

// sweep removes all that the cases have left.
func sweep(ctx context.Context, st store.Store, root string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var keys []string
	for e, err := range st.List(ctx, root, "") {
		if err != nil {
			return fmt.Errorf("scratch objects under %s could not be listed: %w", root, err)
		}
		keys = append(keys, e.Key)
	}
	for _, key := range keys {
		if err := st.Delete(ctx, key); err != nil {
			return fmt.Errorf("scratch objects under %s could not be removed: %w", root, err)
		}
	}
	return nil
}

// longest is how long a case may take, by the TTL: it only ends one that would never end.
func longest(ttl time.Duration) time.Duration { return 20*ttl + 2*time.Minute }

// errStop ends a case that has failed.
var errStop = errors.New("the case has failed")

// skipped ends a case that cannot be tried here.
type skipped string

// try runs one case.
func try(ctx context.Context, opts *Options, c Case, root string) (result Result) {
	began := clock.Now()
	result = Result{Case: c.Name, About: c.About}
	defer func() {
		result.Took = clock.Now() - began
		result.Seconds = result.Took.Seconds()
	}()
	ctx, cancel := context.WithTimeout(ctx, longest(opts.TTL))
	defer cancel()
	t := &trial{ctx: ctx, opts: opts, ttl: opts.TTL, key: root + c.Name, began: began, acquired: map[int64]time.Duration{}}
	var err error
	if t.proxy, err = startProxy(ctx, opts, t.key, began); err != nil {
		result.Failures = []Failure{{What: err.Error()}}
		return result
	}
	func() {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case skipped:
				result.Skipped = string(r)
			case error:
				if !errors.Is(r, errStop) {
					panic(r)
				}
			default:
				panic(r)
			}
		}()
		c.run(t)
	}()
	t.end()
	t.proxy.stop()
	if result.Skipped != "" {
		return result
	}
	for _, f := range judge(t) {
		t.note(f.Rule, "%s", f.What)
	}
	result.Failures, result.Passed = t.failures, len(t.failures) == 0
	if !result.Passed {
		result.Requests, result.Said = t.proxy.transcript(), t.said()
	}
	return result
}
