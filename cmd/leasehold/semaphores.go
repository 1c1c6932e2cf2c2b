package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/semaphore"
)

// seatsReport is the part of a report that only a semaphore has. The names are for scripts: they
// stay.
type seatsReport struct {
	Size    int          `json:"size"`
	Taken   int          `json:"taken"`
	Holders []seatReport `json:"holders"`
	Waiters []seatReport `json:"waiters"` // in order: the first is the next
}

type seatReport struct {
	Holder    string          `json:"holder"`
	Weight    int             `json:"weight"`
	Token     leasehold.Token `json:"token,omitempty"` // of a holder
	Since     *time.Time      `json:"since,omitempty"` // when it was granted, or asked for
	Session   string          `json:"session"`
	Abandoned bool            `json:"abandoned"`
}

// describeEntry is what is known of a lock, or of a semaphore.
func describeEntry(p target, e admin.Entry) report {
	r := describe(p, e.Info)
	if e.Semaphore != nil {
		r.Semaphore = &seatsReport{e.Semaphore.Size, e.Semaphore.Taken(), describeSeats(e.Semaphore.Holders), describeSeats(e.Semaphore.Waiters)}
	}
	return r
}

func describeSeats(seats []semaphore.Seat) []seatReport {
	all := []seatReport{} // [] in JSON, and not null
	for _, s := range seats {
		all = append(all, seatReport{s.Holder, s.Weight, s.Token, known(s.Since), s.Session, s.Abandoned})
	}
	return all
}

// text are the lines of it, for people.
func (s *seatsReport) text(line func(name, format string, args ...any)) {
	switch s.Size {
	case 1:
		line("kind", "fair lock")
	case semaphore.RWSize:
		line("kind", "reader/writer lock")
	default:
		line("kind", "semaphore, %d of %s taken", s.Taken, plural(s.Size, "seat"))
	}
	for _, h := range s.Holders {
		line("holder", "%s", s.line(h, "since"))
	}
	for _, w := range s.Waiters {
		line("waiter", "%s", s.line(w, "asked"))
	}
}

// seen is what a line of watch says of it.
func (s *seatsReport) seen() string {
	text := fmt.Sprintf("%d of %d taken", s.Taken, s.Size)
	switch {
	case s.Size == semaphore.RWSize && s.Taken == s.Size:
		text = "held for writing"
	case s.Size == semaphore.RWSize && s.Taken > 0:
		text = "held for reading"
	case s.Size == semaphore.RWSize:
		text = "free"
	}
	if len(s.Holders) > 0 {
		text += " by " + printable(s.Holders[0].Holder)
	}
	if more := len(s.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if n := len(s.Waiters); n > 0 {
		text += fmt.Sprintf(", %d in line", n)
	}
	return text
}

// line is one of its seats.
func (s *seatsReport) line(h seatReport, since string) string {
	parts := []string{printable(h.Holder)}
	switch {
	case s.Size == semaphore.RWSize && h.Weight == s.Size:
		parts = append(parts, "for writing")
	case s.Size == semaphore.RWSize:
		parts = append(parts, "for reading")
	case s.Size > 1:
		parts = append(parts, plural(h.Weight, "seat"))
	}
	if h.Token != leasehold.NoToken {
		parts = append(parts, fmt.Sprintf("token %v", h.Token))
	}
	if h.Since != nil {
		parts = append(parts, since+" "+h.Since.Local().Format(time.DateTime)+" by its clock")
	}
	if h.Abandoned {
		parts = append(parts, "looks to be gone")
	}
	return strings.Join(parts, ", ")
}
