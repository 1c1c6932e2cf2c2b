// Package inside shows package admin what it needs of the root package, and of package semaphore, and what users do
// not: how a given lock lies in its store, and what the root says of a record and of an error.
// In the root's API these would be methods that no user should call; and a second
// implementation in admin would one day say something else of the same lock.
//
// The root fills in the [View] when it is initialized. It imports this package, so this package
// cannot name the root's types: they are parameters, and each side names them once.
package inside

import (
	"context"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A View is what the root package shows of its Lock, by its Info, and of its Detached.
type View[Lock, Info, Detached any] struct {
	// Parts are what a lock was made of.
	Parts func(Lock) Parts
	// Look reads a lock. Its errors say what the user can do.
	Look func(context.Context, Lock) (layout.Snapshot, Info, error)
	// Explain adds to another error about a lock what the user can do.
	Explain func(Lock, error) error
	// Describe says of a record under a key what is public.
	Describe func(key string, s layout.Snapshot) Info
	// Proof is what proves a detached lease.
	Proof func(Detached) candidate.Proof
	// Watching is the configuration of a candidate with the default options that watches
	// a session, but for its incarnation.
	Watching func() candidate.Config
}

// Parts are what a lock was made of, when its key and its options had been checked.
type Parts struct {
	Store  store.Store
	Layout layout.Layout
	Config candidate.Config // but for the incarnation
}

var view any

// Show is for the root package.
func Show[Lock, Info, Detached any](v View[Lock, Info, Detached]) { view = v }

// Seen is what the root package has shown. With types that are not the root's its functions are
// nil, so that the first call of any shows that.
func Seen[Lock, Info, Detached any]() View[Lock, Info, Detached] {
	v, _ := view.(View[Lock, Info, Detached])
	return v
}

// A TableView is what package semaphore shows: what is public of a table under a key.
type TableView[Info any] func(key string, t record.Table) Info

var tableView any

// ShowTable is for package semaphore.
func ShowTable[Info any](v TableView[Info]) { tableView = v }

// SeenTable is what package semaphore has shown.
func SeenTable[Info any]() TableView[Info] {
	v, _ := tableView.(TableView[Info])
	return v
}

// DefaultLayout is the layout of a lock whose options name none. It is a variable so that the
// tests of both packages can be run over another one: go test -ldflags
// "-X github.com/leasehold/leasehold/internal/inside.DefaultLayout=epochs".
var DefaultLayout = "object"

// A SessionView is what the root package shows of its Session to those that put more than locks under
// one: its engine, and the name of the store that it lies in.
type SessionView[Session any] func(Session) (s *engine.Session, in string)

var sessionView any

// ShowSession is for the root package.
func ShowSession[Session any](v SessionView[Session]) { sessionView = v }

// SeenSession is what the root package has shown of its Session.
func SeenSession[Session any]() SessionView[Session] {
	v, _ := sessionView.(SessionView[Session])
	return v
}
