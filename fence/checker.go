package fence

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold"
)

// A Checker remembers the largest token of each resource. [Memory] does so in the
// process, package fencesql in a table.
//
// To check is not yet to fence: a request that has passed may be paused, and go on
// after one with a newer token has passed too. [Gate] closes that gap within a
// process, fencesql.Fence.CheckTx closes it for data in the same database.
type Checker interface {
	// Check admits the token of h to the resource, or says why not.
	//
	// nil must mean that no smaller token was admitted after it and none will be:
	// the token is remembered, durably, before Check returns. A token that equals
	// the largest is admitted. A smaller one must be refused with a
	// [*FencedError], by way of [Refuse], and a holder that cannot write at all as
	// [Admit] says. Any other error, the context's too, means that nothing is
	// known: the token may have been remembered or not, and the work must not
	// begin. Check must be safe for concurrent use.
	Check(ctx context.Context, resource string, h Holder) error
}

// ParseToken reads a token as it stands in a header: a positive decimal number of 64
// bits, in the one way to write it, without sign, space or leading zero.
func ParseToken(s string) (Token, error) {
	n, _ := strconv.ParseInt(s, 10, 64) // what is no number is not written as one
	if n <= 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.40q is not a token: it must be a decimal number from 1 to 9223372036854775807", s)
	}
	return Token(n), nil
}

// Memory is a [Checker] that remembers in the process and nowhere else. The zero
// Memory is ready to use.
//
// A restart forgets everything: until a newer token has come, an old one is admitted
// again. Where that matters, let the service begin by checking the token that the
// lock has now, from [leasehold.Lock.Inspect]: older ones are then refused from the
// first request on. Memory never forgets a resource, so the resources should be names
// that the service knows, not names that a request chooses.
type Memory struct {
	mu     sync.Mutex
	newest map[string]leasehold.Token
}

// Check admits the token of h, or refuses it. It does not wait.
func (m *Memory) Check(_ context.Context, resource string, h Holder) error {
	if err := Admit(h); err != nil {
		return err
	}
	if newest := m.raise(resource, h.Token()); newest > h.Token() {
		return Refuse(h, resource, newest)
	}
	return nil
}

// raise remembers the token if it is the largest, and returns which one is.
func (m *Memory) raise(resource string, token leasehold.Token) leasehold.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		m.newest = make(map[string]leasehold.Token)
	}
	m.newest[resource] = max(m.newest[resource], token)
	return m.newest[resource]
}
