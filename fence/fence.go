// Package fence makes the protected resource refuse a former leader.
//
// A lease cannot stop a request that is already under way: (1) A looks at its lease,
// which is valid, and decides to write. (2) A is paused. (3) The lease ends, B takes
// over and writes. (4) A wakes up, and its write goes through. So a resource that a
// former holder must never overwrite has to compare tokens: every write carries the
// token of its lease, and after one token the resource refuses smaller ones. That
// rests on no clock.
//
//   - [Object] is an object in a store that is guarded in this way.
//   - Package fencelog is a log in a store that only its newest appender can append to.
//   - [Checker] remembers the highest token of each resource: in memory, in a store,
//     or in a SQL table. [Gate] puts one before the work of a process; package
//     fencehttp puts it before a service, and sends its clients' tokens along.
//   - Package fencesql does the same for rows, in the transaction that changes them.
//
// The tokens need not come from this module's locks: [Token] makes a [Holder] of any
// number that grows with each holder. All writes of a resource must go through its
// fence. docs/fencing.md says what each fence gives, and what cannot be fenced.
package fence

import (
	"errors"
	"fmt"

	"github.com/leasehold/leasehold"
)

// A Holder is the one on whose behalf something is written: a [*leasehold.Lease], or a
// [Token]. If it has a method Err, as a lease has, nothing is sent once that returns
// an error. If it has a method Abandon(error), that is called when a resource has
// refused the token: the lease ends, and its context with the [FencedError] as cause.
type Holder interface{ Token() leasehold.Token }

// Token is a Holder that is a token and nothing else, for code that was given one: a
// child process, a service that is called with it, another kind of lock.
type Token leasehold.Token

// Token gives the number itself.
func (t Token) Token() leasehold.Token { return leasehold.Token(t) }

var (
	// ErrFenced: the resource has seen a larger token, and refuses this one for ever.
	// Every such error is a [*FencedError].
	ErrFenced = errors.New("fenced")
	// ErrNoToken: the holder has no token, as in a layout without tokens, or one
	// that is not positive. Nothing can be fenced by it.
	ErrNoToken = errors.New("no token to fence by")
	// ErrForeign: what lies in the resource's place was not written through a fence
	// that this version understands, or was changed past it. It is left as it is.
	ErrForeign = errors.New("not an object of a fence")
)

// FencedError says which token was refused, and because of which. It matches
// [ErrFenced].
type FencedError struct {
	Resource string
	Token    leasehold.Token // that was refused
	Newest   leasehold.Token // the largest that the resource has seen
}

func (e *FencedError) Error() string {
	if e.Newest == e.Token {
		return fmt.Sprintf("%s refuses token %v: a newer writer has claimed it with the same one", e.Resource, e.Token)
	}
	return fmt.Sprintf("%s refuses token %v: a holder with token %v has claimed it", e.Resource, e.Token, e.Newest)
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Admit says why h cannot write anything, whatever the resource has seen: it has no token
// ([ErrNoToken]), or its lease has ended. It is for fences of your own.
func Admit(h Holder) error {
	if h == nil || h.Token() <= 0 {
		return ErrNoToken
	}
	if l, ok := h.(interface{ Err() error }); ok {
		return l.Err()
	}
	return nil
}

// Refuse returns the [*FencedError] of a holder whose token is smaller than newest, and
// ends its lease, if it is one. It is for fences of your own.
func Refuse(h Holder, resource string, newest leasehold.Token) error {
	err := &FencedError{Resource: resource, Token: h.Token(), Newest: newest}
	if l, ok := h.(interface{ Abandon(cause error) }); ok {
		l.Abandon(err)
	}
	return err
}
