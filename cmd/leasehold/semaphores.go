package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/semaphore"
)

// semaphoreText are the lines of a semaphore, for people.
func semaphoreText(s *semaphoreReport, line func(name, format string, args ...any)) {
	switch s.Size {
	case 1:
		line("kind", "fair lock")
	case semaphore.RWSize:
		line("kind", "reader/writer lock")
	default:
		line("kind", "semaphore, %d of %s taken", s.Taken, plural(s.Size, "slot"))
	}
	for _, h := range s.Holders {
		line("holder", "%s", entryLine(s, h, "since"))
	}
	for _, w := range s.Waiters {
		line("waiter", "%s", entryLine(s, w, "asked"))
	}
}

// semaphoreSeen is what a line of watch says of a semaphore.
func semaphoreSeen(s *semaphoreReport) string {
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
		text += " by " + plain.Word(s.Holders[0].Holder)
	}
	if more := len(s.Holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if n := len(s.Waiters); n > 0 {
		text += fmt.Sprintf(", %d waiting", n)
	}
	return text
}

// entryLine is one of its holders or waiters.
func entryLine(s *semaphoreReport, h entryReport, since string) string {
	parts := []string{plain.Word(h.Holder)}
	switch {
	case s.Size == semaphore.RWSize && h.Weight == s.Size:
		parts = append(parts, "for writing")
	case s.Size == semaphore.RWSize:
		parts = append(parts, "for reading")
	case s.Size > 1:
		parts = append(parts, plural(h.Weight, "slot"))
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
