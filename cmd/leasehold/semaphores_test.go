package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/semaphore"
)

// TestSemaphoreSeen: how a line of watch and the lines of status say who has the slots of a semaphore, and who waits.
func TestSemaphoreSeen(t *testing.T) {
	t.Parallel()
	const rw = semaphore.RWSize
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	a, b, c := entryReport{Holder: "a", Weight: 1, Token: 5, Since: &since}, entryReport{Holder: "b", Weight: 2, Token: 6}, entryReport{Holder: "c\x1b", Weight: 3, Abandoned: true}
	writer, reader := entryReport{Holder: "w", Weight: rw, Token: 7}, entryReport{Holder: "r", Weight: 1, Token: 8, Abandoned: true}
	for _, tt := range []struct {
		report      semaphoreReport
		line, lines string
	}{
		{semaphoreReport{Size: 3}, "0 of 3 taken", "kind semaphore, 0 of 3 slots taken\n"},
		{semaphoreReport{Size: 3, Taken: 1, Holders: []entryReport{a}}, "1 of 3 taken by a", "kind semaphore, 1 of 3 slots taken\nholder a, 1 slot, token 5, since 2026-01-02 03:04:05 by its clock\n"},
		{
			semaphoreReport{Size: 3, Taken: 3, Holders: []entryReport{a, b}, Waiters: []entryReport{c}},
			"3 of 3 taken by a and 1 more, 1 waiting",
			"kind semaphore, 3 of 3 slots taken\nholder a, 1 slot, token 5, since 2026-01-02 03:04:05 by its clock\nholder b, 2 slots, token 6\nwaiter \"c\\x1b\", 3 slots, looks to be gone\n",
		},
		{semaphoreReport{Size: 6, Taken: 6, Holders: []entryReport{c, a, b}, Waiters: []entryReport{a, b}}, `6 of 6 taken by "c\x1b" and 2 more, 2 waiting`, ""},
		{semaphoreReport{Size: 2, Taken: 1, Holders: []entryReport{a}}, "1 of 2 taken by a", "kind semaphore, 1 of 2 slots taken\nholder a, 1 slot, token 5, since 2026-01-02 03:04:05 by its clock\n"},
		{semaphoreReport{Size: 1}, "0 of 1 taken", "kind fair lock\n"},
		{semaphoreReport{Size: 1, Taken: 1, Holders: []entryReport{a}, Waiters: []entryReport{a}}, "1 of 1 taken by a, 1 waiting", "kind fair lock\nholder a, token 5, since 2026-01-02 03:04:05 by its clock\nwaiter a, token 5, asked 2026-01-02 03:04:05 by its clock\n"},
		{semaphoreReport{Size: rw}, "free", "kind reader/writer lock\n"},
		{semaphoreReport{Size: rw, Taken: 1, Holders: []entryReport{reader}, Waiters: []entryReport{writer}}, "held for reading by r, 1 waiting", "kind reader/writer lock\nholder r, for reading, token 8, looks to be gone\nwaiter w, for writing, token 7\n"},
		{semaphoreReport{Size: rw, Taken: rw, Holders: []entryReport{writer}}, "held for writing by w", "kind reader/writer lock\nholder w, for writing, token 7\n"},
	} {
		if got := semaphoreSeen(&tt.report); got != tt.line {
			t.Errorf("%+v: %q, want %q", tt.report, got, tt.line)
		}
		var b strings.Builder
		semaphoreText(&tt.report, func(name, format string, args ...any) { fmt.Fprintf(&b, name+" "+format+"\n", args...) })
		if got := b.String(); got != tt.lines && tt.lines != "" {
			t.Errorf("%+v:\n%s\nwant\n%s", tt.report, got, tt.lines)
		}
	}
}
