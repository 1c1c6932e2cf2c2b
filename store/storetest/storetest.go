// Package storetest is the conformance suite of package store. Run it on a store
// that you write: a store that passes can carry a lock.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store {
//			return mystore.New(t.TempDir())
//		})
//	}
//
// A failure cites the sentence of the contract that was broken and says what
// was seen instead:
//
//	contract: "A reader must never see a part of a body.": a body of 40960 bytes
//
// If the store is a [store.Large] or a [store.Conditional], the suite checks that too. No call can show some things, and
// the store's own tests must: that one call is one request, that a missing bucket is
// [store.ErrNoBucket], how the store maps the answers of a server that denies, throttles or
// breaks off, and how much memory a large body takes. The racing cases are worth more under the
// race detector.
package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/store"
)

// A Violation is one sentence of the contract that a store was seen to break.
type Violation struct {
	Case     string // the case of the suite, as Run names its subtest
	Sentence string // from package store, word for word
	Detail   string // what was seen
}

func (v Violation) String() string {
	return fmt.Sprintf("contract: %q: %s", v.Sentence, v.Detail)
}

// A Planter is a store under test that can also write an object by other means
// than Put, as another program could: without a condition and of any size.
// Where open gives a Planter, the suite checks what a reader makes of an object
// over [store.MaxBody]; wrap the store in a type of the test to add the method.
type Planter interface {
	store.Store
	Plant(ctx context.Context, key string, body []byte) error
}

// Run checks a store, each case as a subtest. For each, open must give an empty
// store: a fresh directory, bucket or prefix.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			violations, skipped := c.check(t.Context(), open(t))
			for _, v := range violations {
				t.Error(v)
			}
			if skipped != "" {
				t.Skip(skipped)
			}
		})
	}
}

// Check is [Run] for programs, and for proving that the suite would notice a
// store that breaks a promise. It returns what it saw broken: nothing, if the
// store keeps the contract. A store that cannot be opened and a context that
// ends before the last case are reported too, so that an empty answer always
// means that all was checked.
func Check(ctx context.Context, open func() (store.Store, error)) []Violation {
	return checkCases(ctx, cases, open)
}

func checkCases(ctx context.Context, cases []testCase, open func() (store.Store, error)) []Violation {
	var all []Violation
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return append(all, Violation{Case: c.name, Sentence: untilTheEnd, Detail: err.Error()})
		}
		st, err := open()
		if err != nil {
			all = append(all, Violation{Case: c.name, Sentence: opens, Detail: err.Error()})
			continue
		}
		violations, _ := c.check(ctx, st)
		all = append(all, violations...)
	}
	return all
}

// A testCase is one behaviour, checked over an empty store.
type testCase struct {
	name string
	run  func(*trial)
}

var cases = []testCase{
	{name: "create", run: create},
	{name: "update", run: update},
	{name: "update of nothing", run: updateOfNothing},
	{name: "no condition", run: noCondition},
	{name: "get", run: get},
	{name: "versions", run: versions},
	{name: "bodies", run: bodies},
	{name: "body too large", run: bodyTooLarge},
	{name: "planted body too large", run: plantedBodyTooLarge},
	{name: "bodies are copied", run: bodiesAreCopied},
	{name: "odd keys", run: oddKeys},
	{name: "invalid keys", run: invalidKeys},
	{name: "delete", run: remove},
	{name: "times", run: times},
	{name: "list", run: list},
	{name: "list stops", run: listStops},
	{name: "list is current", run: listIsCurrent},
	{name: "list pages", run: listPages},
	{name: "context ended", run: contextEnded},
	{name: "context ends in flight", run: contextEndsInFlight},
	{name: "racing creates", run: racingCreates},
	{name: "racing updates", run: racingUpdates},
	{name: "counter", run: counter},
	{name: "read after write", run: readAfterWrite},
	{name: "torn reads", run: tornReads},
	{name: "conditional delete", run: deletesOnCondition},
	{name: "conditional delete races", run: racingDeletes},
	{name: "large bodies", run: largeBodies},
	{name: "large body in the making", run: largeInTheMaking},
	{name: "large body that fails", run: largeFails},
	{name: "large body and context", run: largeContext},
	{name: "large body and keys", run: largeKeys},
}

// check runs the case and says what it saw and, if it could not check, why.
// The case has a goroutine of its own so that it can end itself at any depth.
func (c testCase) check(ctx context.Context, st store.Store) ([]Violation, string) {
	p := &trial{name: c.name, ctx: ctx, st: st}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(p)
	}()
	<-done
	return p.violations, p.skipped
}

// A trial is one case under way. Its calls of the store check what is true of
// every answer, so that the cases need to look only at what they are about.
type trial struct {
	name string
	ctx  context.Context
	st   store.Store

	mu         sync.Mutex
	violations []Violation
	skipped    string
}

// perCase is how many violations of one sentence a case notes: what follows
// tells no more.
const perCase = 3

// report notes a violation and goes on. Safe for concurrent use.
func (p *trial) report(sentence, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	noted := 0
	for _, v := range p.violations {
		if v.Sentence == sentence {
			noted++
		}
	}
	if noted == perCase {
		return
	}
	p.violations = append(p.violations, Violation{p.name, sentence, fmt.Sprintf(format, args...)})
}

// stop notes a violation and ends the case. Only for the case's own goroutine.
func (p *trial) stop(sentence, format string, args ...any) {
	p.report(sentence, format, args...)
	runtime.Goexit()
}

// skip ends the case, which cannot be checked here.
func (p *trial) skip(reason string) {
	p.skipped = reason
	runtime.Goexit()
}
