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

// What is answered about locks has the names of `leasehold status`, `list` and `history` with --output json.
type (
	// Report is what is known of a lock.
	Report = lockjson.Report
	// Seats are the part of a Report that only a semaphore has.
	Seats = lockjson.Seats
	// Seat is what one caller has in a semaphore, or waits for.
	Seat = lockjson.Seat
	// Term is one lease of the past, or the present one.
	Term = lockjson.Term
	// Leader is who leads an election.
	Leader = lockjson.Leader
)

// A Kind is what an object is that lies among the locks.
type Kind string

// The kinds. A record does not say that an election uses it: it is one where this server campaigns, or has
// since it was started.
const (
	KindLock      Kind = "lock"
	KindElection  Kind = "election"
	KindEpochs    Kind = "epochs"    // a lock that makes an object for each acquisition
	KindMarker    Kind = "marker"    // a lock whose object exists while it is held
	KindSemaphore Kind = "semaphore" // with more than one seat
	KindFairLock  Kind = "fair_lock" // a semaphore with one
	KindRWLock    Kind = "rw_lock"   // a reader/writer lock
	KindSession   Kind = "session"   // the heartbeat that leases are under
	KindMoved     Kind = "moved"     // a lock that has another name now
	KindForeign   Kind = "foreign"   // anything else
)

// An Object is what lies under one key among the locks, as it was when it was looked at.
type Object struct {
	Key  string `json:"key"` // in the API: without the server's prefix
	Kind Kind   `json:"kind"`
	Report

	// Left is how long the lease lasts yet that the record shows, by its age; negative: it is over and was not
	// renewed. It is for people. It is not there if the store does not tell the age, and under a session.
	Left *int64 `json:"left_ms,omitempty"`
	// Here is how many leases of this server hold it, and Waiting how many of its callers wait for it.
	Here    int `json:"here"`
	Waiting int `json:"waiting"`
	// History are the leases that have ended, the last one first, as far as the record itself tells of them.
	History []Term `json:"history,omitempty"`
	// Error says why it is foreign.
	Error string `json:"error,omitempty"`
}

// A Budget is what looking at the store may cost, and does. Leases are no part of it: their cost does not
// depend on how many ask.
type Budget struct {
	Limit   int `json:"requests_per_minute"` // that looks may send on average
	Spent   int `json:"spent"`               // what they have sent in the last minute
	Refused int `json:"refused"`             // looks that were put off or refused since the start, for want of budget

	// Sent is what this process has sent to the store in the last minute in all: looks, leases and the heartbeat.
	Sent int `json:"sent"`
	// Dollars is the price of a month like the last minute, of all that was sent, by the list prices of Price.
	// It is not there where there are no prices, as for a directory.
	Dollars *float64 `json:"dollars_a_month,omitempty"`
	Price   string   `json:"price,omitempty"`
}

// A Snapshot is everything under the prefix: what GET /v1/locks answers, and the first event of each stream.
type Snapshot struct {
	Seen
	Objects []Object `json:"objects"`
}

// Seen is what a [Snapshot] says besides the objects.
type Seen struct {
	Time    time.Time `json:"time"` // when the look ended; UTC
	Cut     bool      `json:"cut"`  // there are more than were read
	Trouble string    `json:"trouble,omitempty"`
	Budget  Budget    `json:"budget"`

	// Store is where the objects lie, and Prefix what is before each key of this API there. Every is the pause
	// between two looks, and Break whether this server breaks locks.
	Store  string `json:"store"`
	Prefix string `json:"prefix,omitempty"`
	Every  int64  `json:"every_ms"`
	Break  bool   `json:"break"`
}

// A Change is an event: the object is another than it was at the last look, or new.
type Change struct {
	Time time.Time `json:"time"`
	// Change is elected, renewed, resigned, expired, taken_over, appeared, changed (of a semaphore) or
	// unreadable, as in `leasehold watch`; also changed if nothing has, but who holds it here or waits.
	Change string `json:"change"`
	Object Object `json:"object"`
}

// Gone is an event: the object is not there any more.
type Gone struct {
	Time   time.Time `json:"time"`
	Change string    `json:"change"` // vanished; of a marker resigned
	Key    string    `json:"key"`
}

// Trouble is an event: the look failed, and earlier events may be out of date. When looks succeed again, a
// snapshot follows.
type Trouble struct {
	Time   time.Time `json:"time"`
	Error  string    `json:"error"`
	Budget Budget    `json:"budget"`
}

// Looked is an event: a look has ended, and all that has changed has been told.
type Looked struct {
	Time     time.Time `json:"time"`
	Requests int       `json:"requests"` // of this look
	Cut      bool      `json:"cut"`      // as in a Snapshot
	Budget   Budget    `json:"budget"`
}

// A LeaseAnswer is what the holder of a lease is told of it.
type LeaseAnswer struct {
	Lease  string          `json:"lease"` // its ID, which is the right to it: keep it secret
	Key    string          `json:"key"`
	Token  leasehold.Token `json:"token"`
	Holder string          `json:"holder"`
	// TTL is how long the lease lives after the caller was last heard of.
	TTL int64 `json:"ttl_ms"`
	// Left is for how long the lease is valid, if neither the caller nor this server is heard of again: count it
	// from the moment in which the request was sent. Deadline is the same by the wall clock of the server.
	Left     int64     `json:"left_ms"`
	Deadline time.Time `json:"deadline"`
}

// A Problem is the answer to a request that was refused or failed, as RFC 9457 has it. Type ends in one of the
// words that doc.go lists. If somebody else holds the lock, what is known of it is there too.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"` // names this answer, in the server's log too
	*Report
}

// objectOf describes what a look has shown.
func (s *Server) objectOf(e admin.Entry, foreign error) Object {
	key := s.outside(e.Key)
	url := s.opts.URL(e.Key)
	o := Object{Key: key, Kind: kindOf(e, foreign), Report: lockjson.DescribeEntry(url, "", e)}
	if foreign != nil {
		o.State, o.Error, o.TTL = lockjson.StateOfForeign(foreign), oneLine(foreign), 0
	}
	i := e.Info
	if i.Held && i.Session == "" && i.TTL > 0 && i.Age >= 0 && e.Semaphore == nil {
		left := (i.TTL - i.Age).Milliseconds()
		o.Left = &left
	}
	for _, t := range e.Past {
		o.History = append(o.History, lockjson.DescribeTerm(url, t))
	}
	return o
}

// own adds what only this server knows of an object.
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
	case e.Semaphore != nil && e.Semaphore.Size == 1:
		return KindFairLock
	case e.Semaphore != nil && e.Semaphore.Size == semaphore.RWSize:
		return KindRWLock
	case e.Semaphore != nil:
		return KindSemaphore
	case e.Layout == admin.LayoutSession:
		return KindSession
	case e.Layout == leasehold.LayoutEpochs || e.Layout == leasehold.LayoutEpochsIfMatch:
		return KindEpochs
	case e.Layout == leasehold.LayoutMarker || e.Layout == leasehold.LayoutMarkerIfMatch:
		return KindMarker
	}
	return KindLock
}

// rowOf is an object as the comparison of two looks has it.
func rowOf(e admin.Entry, foreign error) watchview.Row {
	r := watchview.Row{Info: e.Info, Semaphore: e.Semaphore}
	if foreign != nil {
		r.Foreign = oneLine(foreign)
	}
	return r
}

// changeName is the kind of a change as programs know it.
func changeName(kind string) string { return strings.ReplaceAll(kind, " ", "_") }

// oneLine is the message of an error: what it is made of may have several lines.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "; ")
}
