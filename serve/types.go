package serve

import (
	"errors"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
)

// Reports about locks have the members of `leasehold status`, `list` and `history` with
// --output json.
type (
	// Report is the state of a lock.
	Report = lockjson.Report
	// Semaphore is the part of a Report that only semaphores have.
	Semaphore = lockjson.Semaphore
	// Entry is one caller's entry in a semaphore: the slots that it holds or waits for.
	Entry = lockjson.Entry
	// Term is a present or past lease.
	Term = lockjson.Term
	// Leader is the leader of an election.
	Leader = lockjson.Leader
)

// A Kind says what an object among the locks is.
type Kind string

// The kinds. Records do not say whether an election uses them: a lock counts as an election if
// this server campaigns for it, or has done so since its start.
const (
	KindLock      Kind = "lock"
	KindElection  Kind = "election"
	KindEpochs    Kind = "epochs"    // a lock with an object for each acquisition
	KindMarker    Kind = "marker"    // a lock whose object exists while it is held
	KindSemaphore Kind = "semaphore" // with several slots
	KindFairLock  Kind = "fair_lock" // a semaphore with one slot
	KindRWLock    Kind = "rw_lock"   // a reader/writer lock
	KindSession   Kind = "session"   // the heartbeat of other leases
	KindMoved     Kind = "moved"     // a lock with a new name
	KindForeign   Kind = "foreign"   // anything else
)

// An Object is the object under one key among the locks, as last read.
type Object struct {
	Key  string `json:"key"` // in the API: without the server's prefix
	Kind Kind   `json:"kind"`
	Report

	// Left is how long the lease in the record still lasts, by its age. Negative: it has
	// expired. It is for people. It is missing if the store does not report the age, and for
	// leases under a session.
	Left *int64 `json:"left_ms,omitempty"`
	// Here is the number of this server's leases of it, and Waiting the number of its callers
	// that wait for it.
	Here    int `json:"here"`
	Waiting int `json:"waiting"`
	// History has the past leases in the record, the last one first.
	History []Term `json:"history,omitempty"`
	// Error says why the object is foreign.
	Error string `json:"error,omitempty"`
}

// A Budget is the limit on reads by the watcher, and their cost. It does not limit leases,
// because their cost does not depend on the number of requests.
type Budget struct {
	Limit   int `json:"requests_per_minute"` // the average limit on reads
	Spent   int `json:"spent"`               // requests of reads in the last minute
	Refused int `json:"refused"`             // reads put off or refused for lack of budget, since the start

	// Sent is the number of requests to the store in the last minute, including leases and the
	// heartbeat.
	Sent int `json:"sent"`
	// Dollars is the cost of a month like the last minute, with all requests, at the list
	// prices of Price. It is missing where there are no prices, as for a directory.
	Dollars *float64 `json:"dollars_a_month,omitempty"`
	Price   string   `json:"price,omitempty"`
}

// A Snapshot has all objects under the prefix. It answers GET /v1/locks, and is the first event
// of each stream.
type Snapshot struct {
	Seen
	Objects []Object `json:"objects"`
}

// Seen is the part of a [Snapshot] besides the objects.
type Seen struct {
	Time    time.Time `json:"time"` // when the read ended; UTC
	Cut     bool      `json:"cut"`  // some objects were not read
	Trouble string    `json:"trouble,omitempty"`
	Budget  Budget    `json:"budget"`

	// Store is the store's name, and Prefix comes before each key of the API there. Every is
	// the interval between two reads, and Break says whether this server breaks locks.
	Store  string `json:"store"`
	Prefix string `json:"prefix,omitempty"`
	Every  int64  `json:"every_ms"`
	Break  bool   `json:"break"`
}

// A Change is an event: an object is new, or has changed since the last read.
type Change struct {
	Time time.Time `json:"time"`
	// Change is elected, renewed, resigned, expired, taken_over, appeared, changed (of a
	// semaphore) or unreadable, as in `leasehold watch`. It is also changed if only Here,
	// Waiting or Kind differ.
	Change string `json:"change"`
	Object Object `json:"object"`
}

// Gone is an event: an object no longer exists.
type Gone struct {
	Time   time.Time `json:"time"`
	Change string    `json:"change"` // vanished; resigned for a marker
	Key    string    `json:"key"`
}

// Trouble is an event: a read failed, and earlier events may be out of date. A snapshot follows
// when reads succeed again.
type Trouble struct {
	Time   time.Time `json:"time"`
	Error  string    `json:"error"`
	Budget Budget    `json:"budget"`
}

// Looked is an event: a read has ended, and all its changes have been sent.
type Looked struct {
	Time     time.Time `json:"time"`
	Requests int       `json:"requests"` // of this read
	Cut      bool      `json:"cut"`      // as in a Snapshot
	Budget   Budget    `json:"budget"`
}

// A LeaseAnswer describes a lease to its caller.
type LeaseAnswer struct {
	Lease  string          `json:"lease"` // its ID; keep it secret, because it gives access to the lease
	Key    string          `json:"key"`
	Token  leasehold.Token `json:"token"`
	Holder string          `json:"holder"`
	// TTL is how long the lease lasts after its caller was last heard from.
	TTL int64 `json:"ttl_ms"`
	// Left is how long the lease is valid even if both the caller and this server fail. Count
	// it from when you sent the request. Deadline is the same by the server's wall clock.
	Left     int64     `json:"left_ms"`
	Deadline time.Time `json:"deadline"`
}

// A Problem is the answer to a request that was refused or failed (RFC 9457). Type ends in one
// of the words in the package documentation. If another caller holds the lock, a Report on the
// lock is included.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"` // identifies this answer, also in the server's log
	*Report
}

func (s *Server) objectOf(e admin.Entry, foreign error) Object {
	key := s.outside(e.Key)
	url := s.opts.URL(e.Key)
	o := Object{Key: key, Kind: kindOf(e, foreign), Report: lockjson.Describe(url, "", e.Info)}
	if foreign != nil {
		o.State, o.Error, o.TTL = lockjson.StateOfForeign(foreign), oneLine(foreign), 0
	}
	i := e.Info
	if i.Held && i.Session == "" && i.TTL > 0 && i.Age >= 0 {
		left := (i.TTL - i.Age).Milliseconds()
		o.Left = &left
	}
	for _, t := range e.Past {
		o.History = append(o.History, lockjson.DescribeTerm(url, t))
	}
	return o
}

// own adds what only this server knows about an object.
func (s *Server) own(o Object) Object {
	var campaigned bool
	o.Here, o.Waiting, campaigned = s.usage(o.Key)
	if campaigned && o.Kind == KindLock {
		o.Kind = KindElection
	}
	return o
}

func kindOf(e admin.Entry, foreign error) Kind {
	switch {
	case errors.Is(foreign, leasehold.ErrMoved):
		return KindMoved
	case foreign != nil:
		return KindForeign
	case e.Size == 1:
		return KindFairLock
	case e.Size == semaphore.RWSize:
		return KindRWLock
	case e.Size > 0:
		return KindSemaphore
	case e.Layout == admin.LayoutSession:
		return KindSession
	case e.Layout == leasehold.LayoutEpochs:
		return KindEpochs
	case e.Layout == leasehold.LayoutMarker:
		return KindMarker
	}
	return KindLock
}

// rowOf returns an object in the form that watchview.Diff compares.
func rowOf(e admin.Entry, foreign error) watchview.Row {
	r := watchview.Row{Info: e.Info}
	if foreign != nil {
		r.Foreign = oneLine(foreign)
	}
	return r
}

func changeName(kind string) string { return strings.ReplaceAll(kind, " ", "_") }

func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "; ")
}
