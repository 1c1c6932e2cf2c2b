package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/semaphore"
)

// TestSeatsSeen: how a line of watch and the lines of status say who has the seats of a semaphore, and who waits.
func TestSeatsSeen(t *testing.T) {
	t.Parallel()
	const rw = semaphore.RWSize
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	a, b, c := seatReport{Holder: "a", Weight: 1, Token: 5, Since: &since}, seatReport{Holder: "b", Weight: 2, Token: 6}, seatReport{Holder: "c\x1b", Weight: 3, Abandoned: true}
	writer, reader := seatReport{Holder: "w", Weight: rw, Token: 7}, seatReport{Holder: "r", Weight: 1, Token: 8, Abandoned: true}
	for _, tt := range []struct {
		seats       seatsReport
		line, lines string
	}{
		{seatsReport{Size: 3}, "0 of 3 taken", "kind semaphore, 0 of 3 seats taken\n"},
		{seatsReport{Size: 3, Taken: 1, Holders: []seatReport{a}}, "1 of 3 taken by a", "kind semaphore, 1 of 3 seats taken\nholder a, 1 seat, token 5, since 2026-01-02 03:04:05 by its clock\n"},
		{
			seatsReport{Size: 3, Taken: 3, Holders: []seatReport{a, b}, Waiters: []seatReport{c}},
			"3 of 3 taken by a and 1 more, 1 in line",
			"kind semaphore, 3 of 3 seats taken\nholder a, 1 seat, token 5, since 2026-01-02 03:04:05 by its clock\nholder b, 2 seats, token 6\nwaiter \"c\\x1b\", 3 seats, looks to be gone\n",
		},
		{seatsReport{Size: 6, Taken: 6, Holders: []seatReport{c, a, b}, Waiters: []seatReport{a, b}}, `6 of 6 taken by "c\x1b" and 2 more, 2 in line`, ""},
		{seatsReport{Size: 2, Taken: 1, Holders: []seatReport{a}}, "1 of 2 taken by a", "kind semaphore, 1 of 2 seats taken\nholder a, 1 seat, token 5, since 2026-01-02 03:04:05 by its clock\n"},
		{seatsReport{Size: 1}, "0 of 1 taken", "kind fair lock\n"},
		{seatsReport{Size: 1, Taken: 1, Holders: []seatReport{a}, Waiters: []seatReport{a}}, "1 of 1 taken by a, 1 in line", "kind fair lock\nholder a, token 5, since 2026-01-02 03:04:05 by its clock\nwaiter a, token 5, asked 2026-01-02 03:04:05 by its clock\n"},
		{seatsReport{Size: rw}, "free", "kind reader/writer lock\n"},
		{seatsReport{Size: rw, Taken: 1, Holders: []seatReport{reader}, Waiters: []seatReport{writer}}, "held for reading by r, 1 in line", "kind reader/writer lock\nholder r, for reading, token 8, looks to be gone\nwaiter w, for writing, token 7\n"},
		{seatsReport{Size: rw, Taken: rw, Holders: []seatReport{writer}}, "held for writing by w", "kind reader/writer lock\nholder w, for writing, token 7\n"},
	} {
		if got := seatsSeen(&tt.seats); got != tt.line {
			t.Errorf("%+v: %q, want %q", tt.seats, got, tt.line)
		}
		var b strings.Builder
		seatsText(&tt.seats, func(name, format string, args ...any) { fmt.Fprintf(&b, name+" "+format+"\n", args...) })
		if got := b.String(); got != tt.lines && tt.lines != "" {
			t.Errorf("%+v:\n%s\nwant\n%s", tt.seats, got, tt.lines)
		}
	}
}
