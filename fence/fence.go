// Package fence makes protected resources reject former leaders.
//
// A lease cannot stop a request that is already in flight: (1) A checks its lease, which is
// valid, and decides to write. (2) A is suspended. (3) The lease expires, B takes over and
// writes. (4) A resumes, and its write goes through. To prevent this, the resource must compare
// tokens: every write carries its lease's token, and after one token the resource rejects
// smaller ones. This does not depend on clocks.
//
//   - [Object] is an object in a store with such a check.
//   - Package fencelog is a log in a store that only its newest appender can append to.
//   - [Checker] remembers the highest token of each resource: in memory, in a store, or in
//     a SQL table. [Gate] uses one to admit the work of a process. Package fencehttp uses one
//     in front of a service, and sends the tokens of its clients.
//   - Package fencesql does the same for rows, in the transaction that changes them.
//
// The tokens need not come from this module's locks: [Token] makes a [Holder] from any number
// that grows with each holder. All writes to a resource must go through its fence.
// docs/fencing.md says what each fence guarantees, and what cannot be fenced.
package fence

import (
	"errors"
	"fmt"

	"github.com/leasehold/leasehold"
)

// A Holder is who writes: a [*leasehold.Lease] or a [Token]. If it has a method Err, as a lease
// has, nothing is sent once Err returns an error. If it has a method Abandon(error), it is
// called when a resource has rejected the token: the lease ends, and its context with the
// [FencedError] as the cause.
type Holder interface{ Token() leasehold.Token }

// Token is a Holder that has only a token, for code that was given one: a child process, a
// service that receives it with a call, another kind of lock.
type Token leasehold.Token

// Token returns the token itself.
func (t Token) Token() leasehold.Token { return leasehold.Token(t) }

var (
	// ErrFenced: the resource has seen a larger token, and rejects this one for good. Stop the
	// work: there is a later holder. Every such error is a [*FencedError].
	ErrFenced = errors.New("fenced")
	// ErrNoToken: the holder has no token, as in a layout without tokens, or one that is not
	// positive, so it cannot be fenced. Use a layout with tokens.
	ErrNoToken = errors.New("no token to fence by")
	// ErrForeign: the resource's object was not written through a fence that this version
	// understands, or was changed by other means. It is left as it is: inspect it, and restore it
	// or use another key.
	ErrForeign = errors.New("not an object of a fence")
)

// FencedError has the token that was rejected and the larger one. It matches [ErrFenced].
type FencedError struct {
	Resource string
	Token    leasehold.Token // the rejected one
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

// Admit returns an error if h cannot write to any resource, because it has no token
// ([ErrNoToken]) or its lease has ended. Use it to write your own fence.
func Admit(h Holder) error {
	if h == nil || h.Token() <= 0 {
		return ErrNoToken
	}
	if l, ok := h.(interface{ Err() error }); ok {
		return l.Err()
	}
	return nil
}

// Refuse returns the [*FencedError] for a holder whose token is smaller than newest, and ends
// its lease, if it is one. Use it to write your own fence.
func Refuse(h Holder, resource string, newest leasehold.Token) error {
	err := &FencedError{Resource: resource, Token: h.Token(), Newest: newest}
	if l, ok := h.(interface{ Abandon(cause error) }); ok {
		l.Abandon(err)
	}
	return err
}
