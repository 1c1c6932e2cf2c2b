// Package linear says what leasehold must look like to its users: as if every operation
// happened at one instant between its call and its return, in an order that a simple
// model allows. It has the models, and [Check], which looks for such an order.
//
// Its tests let processes race on real stores, with a bad network between them, and kill
// and stop some of them in the middle; then they check what the processes tell.
package linear

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Command is what a client asked for. The models say what its fields mean.
type Command struct {
	Op     string
	Key    string `json:",omitempty"`
	Token  int64  `json:",omitempty"`
	Weight int64  `json:",omitempty"`
	Expect string `json:",omitempty"`
	Value  string `json:",omitempty"`
}

// An Outcome is what a client was told.
type Outcome struct {
	Is    Verdict
	Token int64  `json:",omitempty"`
	Value string `json:",omitempty"`
}

// A Verdict is what became of a command.
type Verdict int

const (
	// Unknown: it may have been done, or may yet be. So it is with a client that was
	// killed before it was told.
	Unknown Verdict = iota
	// Done: it was done.
	Done
	// Refused: it was not done, for the reason that the model is about.
	Refused
	// Failed: it was not done, for another reason, which says nothing.
	Failed
)

// An Op is one operation of a client.
type Op struct {
	Client     int
	Asked      Command
	Told       Outcome
	Begin, End time.Duration // by one clock for all clients; of what is unknown End means nothing
}

func (c Command) String() string {
	text := c.Op
	for _, part := range []string{c.Key, c.Expect, c.Value} {
		if part != "" {
			text += fmt.Sprintf(" %q", part)
		}
	}
	if c.Weight != 0 {
		text += fmt.Sprintf(" of weight %d", c.Weight)
	}
	if c.Token != 0 {
		text += fmt.Sprintf(" with token %d", c.Token)
	}
	return text
}

func (o Outcome) String() string {
	text := [...]string{"unknown", "done", "refused", "failed"}[o.Is]
	if o.Token != 0 {
		text += fmt.Sprintf(", token %d", o.Token)
	}
	if o.Value != "" {
		text += fmt.Sprintf(", %q", o.Value)
	}
	return text
}

// patience is how long Check looks for an order.
const patience = time.Minute

// Check reports why a history is not one of the model: none of the orders in which the
// operations can have happened is allowed, or none was found in a minute. The error has
// the history, and the path of a page in the directory that shows it.
func Check(m porcupine.Model, ops []Op, dir string) error {
	var history []porcupine.Operation
	for _, op := range ops {
		end := int64(op.End)
		if op.Told.Is == Unknown { // nobody can say when it happens
			end = math.MaxInt64
		}
		history = append(history, porcupine.Operation{
			ClientId: op.Client, Input: op.Asked, Call: int64(op.Begin), Output: op.Told, Return: end,
		})
	}
	result, info := porcupine.CheckOperationsVerbose(m, history, patience)
	if result == porcupine.Ok {
		return nil
	}
	page := filepath.Join(dir, "history.html")
	if err := porcupine.VisualizePath(m, info, page); err != nil {
		return err
	}
	return fmt.Errorf("no order of these operations was found that the model allows (%v); %s shows them:\n%s", result, page, text(ops))
}

// text is a history for people.
func text(ops []Op) string {
	ops = slices.SortedFunc(slices.Values(ops), func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	var all strings.Builder
	for _, op := range ops {
		since := op.Begin - ops[0].Begin
		fmt.Fprintf(&all, "%12v  client %2d  %v: %v", since, op.Client, op.Asked, op.Told)
		if op.Told.Is != Unknown {
			fmt.Fprintf(&all, ", after %v", op.End-op.Begin)
		}
		all.WriteByte('\n')
	}
	return all.String()
}
