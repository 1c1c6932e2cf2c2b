package faultstore

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"
)

// A Kind is a kind of failure.
type Kind int

// The kinds of fault. "Nothing lands" and "lands" are about the request of this
// call; where a kind is for puts and deletes only, other calls pass it by.
const (
	// Unavailable: nothing lands, and the store says so (503, no connection).
	Unavailable Kind = iota + 1
	// Throttled: nothing lands; the store asks for fewer requests.
	Throttled
	// Denied: nothing lands; the store refuses the credentials.
	Denied
	// Conflict: nothing lands; a rival write was under way. Puts only.
	Conflict
	// LostRequest: nothing lands, and no answer comes.
	LostRequest
	// LostAnswer: the request lands, and its answer is lost. A listing breaks
	// off in the middle, and so does the body that GetLarge opens.
	LostAnswer
	// Hang: nothing lands, and no answer comes until the context ends or the
	// store is cut off.
	Hang
	// DelayBefore: the request arrives after the delay. If the context ends
	// before, nothing lands, and the caller cannot know it.
	DelayBefore
	// DelayAfter: the request lands at once, and the answer comes after the delay.
	DelayAfter
	// LateLanding: no answer comes; the request arrives after the delay. Puts
	// and deletes only.
	LateLanding
	// LateDuplicate: all is well; the same request arrives once more after the
	// delay, and nobody hears of its answer. Puts and deletes only.
	LateDuplicate
	// SecondAnswer: the request arrives twice at once, and the second answer comes. So a
	// conditional put that has landed is refused, which no store can tell from a put that
	// lost a race. Puts and deletes only.
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

// ops are the calls that a fault of the kind can happen to.
func (k Kind) ops() []string {
	switch k {
	case Conflict:
		return []string{"put"}
	case LateLanding, LateDuplicate, SecondAnswer:
		return []string{"put", "delete"}
	}
	return []string{"get", "put", "delete", "list"}
}

// A Fault says what goes wrong, with which calls and how often. A call meets the
// first fault, in the order of their injection, that happens to it. The zero
// value of each field but Kind means that it does not matter.
type Fault struct {
	Kind Kind
	Op   string          // "get", "put", "delete" or "list"
	Key  string          // a pattern of path.Match; a list is matched by its prefix
	When func(Call) bool // must not call the store

	// Nth picks one of the calls that match all of the above, counted from 1.
	Nth int
	// Probability, from 0 to 1, picks calls by chance. Zero: every call.
	Probability float64

	// Delay is how long the request or the answer is held up. Jitter, drawn
	// evenly from zero to this, is added to it.
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

// check says why the fault could never happen.
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

// A float gives the next random number from 0 up to 1.
type float func() float64

// meets reports whether the fault happens to the call, and the delay. How many
// numbers it draws depends on the call alone, so that one fault that happens
// does not change when others do.
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
