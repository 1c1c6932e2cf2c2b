package linear

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// model makes one from what it does with a state. Its step need not know whether what is
// unknown was done: if it was not, it can come last.
func model[S any](step func(s S, c Command, o Outcome) (bool, S)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return *new(S) },
		Step: func(state, input, output any) (bool, any) {
			s, _ := state.(S)
			c, _ := input.(Command)
			o, _ := output.(Outcome)
			if o.Is == Failed {
				return true, s
			}
			return step(s, c, o)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// Register is a store: under each key a value that is changed by compare-and-swap, "" if
// there is no object. Each value is written once only, so that it stands for its version.
//
//	get KEY               gives the value
//	put KEY EXPECT VALUE  writes the value; refused if what is there is not EXPECT
var Register = byKey(model(func(now string, c Command, o Outcome) (bool, string) {
	switch {
	case c.Op == "get":
		return o.Is == Unknown || o.Value == now, now
	case now != c.Expect:
		return o.Is != Done, now
	case o.Is == Refused:
		return false, now
	}
	return true, c.Value
}))

// byKey lets each key be checked by itself.
func byKey(m porcupine.Model) porcupine.Model {
	m.Partition = func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		index := map[string]int{}
		for _, op := range history {
			c, _ := op.Input.(Command)
			i, ok := index[c.Key]
			if !ok {
				i = len(parts)
				index[c.Key], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	}
	return m
}

// A lease is the state of a lock.
type lease struct {
	Holder int64 // the token of the lease; 0: nobody has one
	Last   int64 // the largest token so far
	Spare  bool  // no user has got Last, and its candidate may yet find one
}

// Lock is a mutex with a counter under each key, and so is an election. A lease under a
// session is one like all others. A history needs [Leases] first.
//
//	acquire KEY        gives the token of the lease
//	valid KEY TOKEN    the holder looked whether the lease is valid, and it was
//	release KEY TOKEN  ends the lease
//	inspect KEY        gives the token in the store, and "held" or "free"
//	saw KEY TOKEN      a follower was told of the leader; it may be a former one
var Lock = byKey(model(func(s lease, c Command, o Outcome) (bool, lease) {
	switch c.Op {
	case "acquire": // unknown: nobody got a lease
		if o.Is == Unknown {
			return true, s
		}
		next := o.Token > s.Last || o.Token == s.Last && s.Spare
		return s.Holder == 0 && next, lease{Holder: o.Token, Last: o.Token}
	case "valid":
		return o.Is == Unknown || s.Holder == c.Token, s
	case "release":
		if s.Holder != c.Token {
			return o.Is == Unknown, s
		}
		return true, lease{Last: s.Last}
	case "inspect":
		switch {
		case o.Is == Unknown:
			return true, s
		case o.Token == s.Last && o.Value == "held":
			return true, s
		case o.Token == s.Last:
			return s.Holder == 0, lease{Last: s.Last}
		}
		return s.replaced(o.Token)
	case "saw":
		if c.Token <= s.Last {
			return true, s
		}
		return s.replaced(c.Token)
	}
	return false, s
}))

// replaced: the store has shown a token that no user has got. Its candidate is dead or its
// user gave up, and it must have waited for the lease before it all the same. If the next
// user of that candidate comes before it has freed the lock, he gets it with this token.
func (s lease) replaced(by int64) (bool, lease) {
	return s.Holder == 0 && by > s.Last, lease{Last: by, Spare: true}
}

// semaphore is the state of a semaphore.
type semaphore struct {
	Held string // the holders, as " TOKEN*WEIGHT" each, in the order of their tokens
	Free int64
	Last int64 // the largest token so far
}

// Semaphore is a semaphore of that size under each key. A history needs [Leases] first.
//
//	acquire KEY WEIGHT  gives the token of the lease
//	valid KEY TOKEN     the holder looked whether the lease is valid, and it was
//	release KEY TOKEN   ends the lease
//	inspect KEY         gives the last token in the store, and those of all holders, a space after each
//
// A caller that gets no lease has done nothing that others can see, though the store may show its entry. A
// holder in an answer has asked before it, so no later lease has a token up to the last one in it.
func Semaphore(size int64) porcupine.Model {
	m := byKey(model(func(s semaphore, c Command, o Outcome) (bool, semaphore) {
		entry := func(token int64) (text string, weight int64) {
			for held := range strings.FieldsSeq(s.Held) {
				var t, w int64
				if _, err := fmt.Sscanf(held, "%d*%d", &t, &w); err == nil && t == token {
					return " " + held, w
				}
			}
			return "", 0
		}
		switch c.Op {
		case "acquire": // unknown: nobody got a lease
			if o.Is == Unknown {
				return true, s
			}
			fits := c.Weight <= s.Free && o.Token > s.Last
			return fits, semaphore{fmt.Sprintf("%s %d*%d", s.Held, o.Token, c.Weight), s.Free - c.Weight, o.Token}
		case "valid":
			_, weight := entry(c.Token)
			return o.Is == Unknown || weight > 0, s
		case "release":
			text, weight := entry(c.Token)
			if weight == 0 {
				return o.Is == Unknown, s
			}
			return true, semaphore{strings.Replace(s.Held, text, "", 1), s.Free + weight, s.Last}
		case "inspect":
			if o.Is == Unknown {
				return true, s
			}
			shown := strings.Fields(o.Value)
			for held := range strings.FieldsSeq(s.Held) {
				token, _, _ := strings.Cut(held, "*")
				if !slices.Contains(shown, token) {
					return false, s
				}
			}
			return o.Token >= s.Last, semaphore{s.Held, s.Free, o.Token}
		}
		return false, s
	}))
	m.Init = func() any { return semaphore{Free: size} }
	return m
}

// Leases completes the history of locks. A lease that was not released is as good as one
// of which the release is unknown: it can have ended at any time since its holder last saw
// that it was valid, but not before.
func Leases(ops []Op) []Op {
	type name struct {
		key   string
		token int64
	}
	released := map[name]bool{}
	seen := map[name]time.Duration{} // when the lease was last seen to be valid
	for _, op := range ops {
		lease := name{op.Asked.Key, op.Asked.Token}
		switch {
		case op.Told.Is != Done:
		case op.Asked.Op == "release":
			released[lease] = true
		case op.Asked.Op == "valid":
			seen[lease] = max(seen[lease], op.Begin)
		}
	}
	var all []Op
	for _, op := range ops {
		if op.Asked.Op == "release" && op.Told.Is != Done {
			continue
		}
		all = append(all, op)
		if lease := (name{op.Asked.Key, op.Told.Token}); op.Asked.Op == "acquire" && op.Told.Is == Done && !released[lease] {
			release := Command{Op: "release", Key: lease.key, Token: lease.token}
			all = append(all, Op{Client: op.Client, Asked: release, Begin: max(op.Begin, seen[lease])})
		}
	}
	return all
}

// fenced is the state of a fenced resource: what it holds, and the largest token that was
// used.
type fenced struct {
	Token int64
	Value string
}

// Object is a fenced object, as package fence has it.
//
//	claim TOKEN      gives the value
//	put TOKEN VALUE  writes it
//	delete TOKEN     makes it ""
//	get              gives it
//
// A command whose token is smaller than an earlier one is refused, and no other is.
var Object = model(func(r fenced, c Command, o Outcome) (bool, fenced) {
	switch {
	case c.Op == "get":
		return o.Is == Unknown || o.Value == r.Value, r
	case c.Token < r.Token: // what is unknown may have been refused, too
		return o.Is != Done, r
	case o.Is == Refused:
		return false, r
	}
	r.Token = c.Token
	switch c.Op {
	case "claim":
		return o.Is == Unknown || o.Value == r.Value, r
	case "put":
		r.Value = c.Value
	case "delete":
		r.Value = ""
	}
	return true, r
})

// Log is a fenced log, as package fence has it.
//
//	open TOKEN          claims it, once with each token
//	append TOKEN VALUE  adds the value
//	read                gives all values, a space after each
//
// An append without the token of the last claim is refused, and no other is.
var Log = model(func(l fenced, c Command, o Outcome) (bool, fenced) {
	switch {
	case c.Op == "read":
		return o.Is == Unknown || o.Value == l.Value, l
	case c.Op == "open" && c.Token <= l.Token, c.Op == "append" && c.Token != l.Token:
		return o.Is != Done, l
	case o.Is == Refused:
		return false, l
	case c.Op == "open":
		l.Token = c.Token
	default:
		l.Value += c.Value + " "
	}
	return true, l
})
