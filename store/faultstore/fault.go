package faultstore

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"
)

// A Kind is a kind of fault.
type Kind int

// The kinds of fault. "Nothing lands" and "lands" refer to the request of this call. Kinds for
// puts and deletes only do not affect other calls.
const (
	// Unavailable: nothing lands, and the store says so (503, no connection).
	Unavailable Kind = iota + 1
	// Throttled: nothing lands; the store asks for fewer requests.
	Throttled
	// Denied: nothing lands; the store refuses the credentials.
	Denied
	// Conflict: nothing lands because of a concurrent write. Puts only.
	Conflict
	// LostRequest: nothing lands, and no answer comes.
	LostRequest
	// LostAnswer: the request lands, but its answer is lost. A listing breaks off in the
	// middle, and so does the body of GetLarge.
	LostAnswer
	// Hang: nothing lands, and no answer comes until the context ends or the store is
	// partitioned.
	Hang
	// DelayBefore: the request arrives after the delay. If the context ends first, nothing
	// lands, but the caller cannot know that.
	DelayBefore
	// DelayAfter: the request lands at once, and the answer comes after the delay.
	DelayAfter
	// LateLanding: no answer comes; the request arrives after the delay. Puts and deletes only.
	LateLanding
	// LateDuplicate: the call succeeds, and the same request arrives again after the delay. Its
	// answer is discarded. Puts and deletes only.
	LateDuplicate
	// SecondAnswer: the request arrives twice at once, and the second answer comes. So a
	// conditional put that has landed is refused, like a put that lost a race: no store can
	// tell them apart. Puts and deletes only.
	SecondAnswer
)

var kindNames = [...]string{
	Unavailable: "unavailable", Throttled: "throttled", Denied: "denied", Conflict: "conflict",
	LostRequest: "lost request", LostAnswer: "lost answer", Hang: "hang",
	DelayBefore: "delay before", DelayAfter: "delay after",
	LateLanding: "late landing", LateDuplicate: "late duplicate", SecondAnswer: "second answer",
}

func (k Kind) String() string {
	if k < Unavailable || k > SecondAnswer {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// ops returns the calls a fault of the kind can affect.
func (k Kind) ops() []string {
	switch k {
	case Conflict:
		return []string{"put"}
	case LateLanding, LateDuplicate, SecondAnswer:
		return []string{"put", "delete"}
	}
	return []string{"get", "put", "delete", "list"}
}

// A Fault says what goes wrong, with which calls and how often. A call gets the first injected
// fault that applies to it. Zero fields, except Kind, match every call.
type Fault struct {
	Kind Kind
	Op   string          // "get", "put", "delete" or "list"
	Key  string          // a pattern for path.Match; for a list it matches the prefix
	When func(Call) bool // must not call the store

	// Nth selects one of the calls that match all of the above, counted from 1.
	Nth int
	// Probability, from 0 to 1, selects calls at random. Zero: every call.
	Probability float64

	// Delay is how long the request or the answer is delayed, plus a random time of up to
	// Jitter, evenly distributed.
	Delay, Jitter time.Duration
}

func (f Fault) String() string {
	text := f.Kind.String()
	if f.Op != "" {
		text += " of " + f.Op
	}
	if f.Key != "" {
		text += fmt.Sprintf(" %q", f.Key)
	}
	if f.When != nil {
		text += " when its function says so"
	}
	if f.Nth != 0 {
		text += fmt.Sprintf(", call %d", f.Nth)
	}
	if f.Probability != 0 {
		text += fmt.Sprintf(", %v%% of calls", f.Probability*100)
	}
	if f.Delay != 0 || f.Jitter != 0 {
		text += fmt.Sprintf(", by %v", f.Delay)
	}
	if f.Jitter != 0 {
		text += fmt.Sprintf(" to %v", f.Delay+f.Jitter)
	}
	return text
}

// check returns an error if the fault can never happen.
func (f Fault) check() error {
	switch _, err := path.Match(f.Key, ""); {
	case f.Kind < Unavailable || f.Kind > SecondAnswer:
		return fmt.Errorf("there is no such kind")
	case f.Op != "" && !slices.Contains(f.Kind.ops(), f.Op):
		return fmt.Errorf("it can happen to %v only", f.Kind.ops())
	case err != nil:
		return fmt.Errorf("the key: %w", err)
	case f.Nth < 0 || f.Delay < 0 || f.Jitter < 0:
		return fmt.Errorf("a number is negative")
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("the probability is not from 0 to 1")
	}
	return nil
}

func (f Fault) matches(c Call) bool {
	if f.Op != "" && f.Op != c.Op || !slices.Contains(f.Kind.ops(), c.Op) {
		return false
	}
	if ok, _ := path.Match(f.Key, c.Key); f.Key != "" && !ok {
		return false
	}
	return f.When == nil || f.When(c)
}

// A rule is a fault and how many calls it has matched.
type rule struct {
	Fault
	matched int
}

// A float returns the next random number from 0 up to 1.
type float func() float64

// meets reports whether the fault happens to the call, and the delay. How many numbers it draws
// depends only on the call, so faults do not influence each other.
func (r *rule) meets(c Call, draw float) (time.Duration, bool) {
	if !r.matches(c) {
		return 0, false
	}
	r.matched++
	delay, meets := r.Delay, true
	if r.Jitter > 0 {
		delay += time.Duration(draw() * float64(r.Jitter))
	}
	if r.Probability > 0 {
		meets = draw() < r.Probability
	}
	if r.Nth > 0 && r.matched != r.Nth {
		meets = false
	}
	return delay, meets
}
