package fence

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold"
)

// A Checker remembers the largest token of each resource. [Memory] does so in the process,
// package fencesql in a table.
//
// Checking is not yet fencing: a request may be suspended after its check, and continue after a
// newer token's request has passed too. [Gate] closes this gap within a process, and
// fencesql.Fence.CheckTx for data in the same database.
type Checker interface {
	// Check admits the token of h to the resource, or returns an error.
	//
	// If Check returns nil, no smaller token has been admitted since, and none will be: Check
	// must store the token durably before it returns. A token equal to the largest is admitted.
	// Check must reject a smaller one with the [*FencedError] of [Refuse], and a holder that
	// cannot write at all with the error of [Admit]. After any other error, including the
	// context's, the token may or may not have been stored, and the work must not begin. Check
	// must be safe for concurrent use.
	Check(ctx context.Context, resource string, h Holder) error
}

// ParseToken parses a token from a header: a positive 64-bit decimal number without sign,
// spaces or leading zeros.
func ParseToken(s string) (Token, error) {
	n, _ := strconv.ParseInt(s, 10, 64) // the comparison below rejects what is not a number
	if n <= 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.40q is not a token: it must be a decimal number from 1 to 9223372036854775807", s)
	}
	return Token(n), nil
}

// Memory is a [Checker] that remembers tokens only in the process. The zero Memory is ready to
// use.
//
// A restart forgets everything: an old token is admitted again until a newer one arrives. If
// that matters, first check the lock's present token, from [leasehold.Lock.Inspect], when your
// service starts. Memory never forgets a resource, so resources should be names known to the
// service, not chosen by requests.
type Memory struct {
	mu     sync.Mutex
	newest map[string]leasehold.Token
}

// Check admits or rejects the token of h. It does not block.
func (m *Memory) Check(_ context.Context, resource string, h Holder) error {
	if err := Admit(h); err != nil {
		return err
	}
	if newest := m.raise(resource, h.Token()); newest > h.Token() {
		return Refuse(h, resource, newest)
	}
	return nil
}

// raise stores the token if it is the largest, and returns the largest.
func (m *Memory) raise(resource string, token leasehold.Token) leasehold.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		m.newest = make(map[string]leasehold.Token)
	}
	m.newest[resource] = max(m.newest[resource], token)
	return m.newest[resource]
}
