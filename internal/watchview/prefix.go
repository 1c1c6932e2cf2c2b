package watchview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
)

// A Snapshot is what one refresh has read of the locks under a prefix, in order of their keys.
type Snapshot struct {
	Rows     []Row
	Cut      bool   // there are more than were read
	Trouble  string // why it failed: there are no rows then
	Requests int
}

// A Row is one object: a lock, a semaphore, or the reason why it is neither.
type Row struct {
	Info    leasehold.Info
	Foreign string
}

// State is that of the object, for people.
func (r Row) State() string {
	switch {
	case r.Foreign != "":
		return "not a lock"
	case r.Info.Abandoned:
		return "abandoned"
	case r.Info.Held:
		return "held"
	}
	return "free"
}

// A RowChange is what happened to one lock between two refreshes. The kinds are those of
// [leasehold.ChangeKind], "appeared" for a lock that is new, and that nobody holds, and "changed" for a
// semaphore: see [SemaphoreChange].
type RowChange struct {
	Kind string
	Row  Row
}

// Diff is what happened between two refreshes, in order of the keys; with none before, what
// there is at the beginning. A change that was undone in between is not among them, but for
// a lease that a larger token tells of. Of keys that a snapshot did not get to it says nothing.
func Diff(before *Snapshot, after Snapshot, renewals bool) (changes []RowChange) {
	if after.Trouble != "" {
		return nil
	}
	known := map[string]Row{}
	if before != nil {
		for _, r := range before.Rows {
			known[r.Info.Key] = r
		}
	}
	for _, r := range after.Rows {
		old, was := known[r.Info.Key]
		delete(known, r.Info.Key)
		first := before == nil || !was && before.beyond(r)
		if kind := kindOf(old, was, first, r, renewals); kind != "" {
			changes = append(changes, RowChange{kind, r})
		}
	}
	for _, r := range known {
		if after.beyond(r) {
			continue
		}
		kind := leasehold.Vanished
		if r.Foreign == "" && !r.Info.Layout.Tokens() {
			kind = leasehold.Resigned // a marker that is gone is free
		}
		changes = append(changes, RowChange{kind.String(), r})
	}
	slices.SortStableFunc(changes, func(a, b RowChange) int { return strings.Compare(a.Row.Info.Key, b.Row.Info.Key) })
	return changes
}

// beyond reports that the snapshot ended before it came to this row.
func (s *Snapshot) beyond(r Row) bool {
	return s.Cut && (len(s.Rows) == 0 || r.listed() > s.Rows[len(s.Rows)-1].listed())
}

// listed is where the object lies in the order of a listing. Epochs lie below the lock's key:
// those of "a" come after the object "a-b".
func (r Row) listed() string {
	switch r.Info.Layout {
	case leasehold.LayoutEpochs:
		return r.Info.Key + "/"
	case leasehold.LayoutObject, leasehold.LayoutMarker:
	}
	return r.Info.Key
}

// kindOf is what happened to one object; "" is nothing. The first sight of an object is no
// change, but tells of a holder and of what is wrong.
func kindOf(old Row, was, first bool, r Row, renewals bool) string {
	a, b := old.Info, r.Info
	another := b.Token != a.Token || b.Token == leasehold.NoToken && (b.Holder != a.Holder || !b.AcquiredAt.Equal(a.AcquiredAt))
	switch {
	case r.Foreign != "":
		if was && old.Foreign != "" {
			return ""
		}
		return leasehold.Unreadable.String()
	case b.Size > 0:
		if kind := SemaphoreChange(a, b); kind != "" || was || first {
			return kind
		}
		return "appeared"
	case b.Held && (!was || !a.Held):
		return leasehold.Elected.String()
	case b.Held && another:
		return leasehold.TakenOver.String()
	case b.Held && b.Abandoned && !a.Abandoned:
		return leasehold.Expired.String()
	case b.Held && (a.Abandoned && !b.Abandoned || renewals && a.Version != b.Version):
		return leasehold.Renewed.String()
	case b.Held:
		return ""
	case was && (a.Held || another):
		return leasehold.Resigned.String()
	case !was && !first:
		return "appeared"
	}
	return ""
}

// A Table is the view of all locks under a prefix.
type Table struct {
	Name  string
	Every time.Duration // the pause between two refreshes
	Limit int           // how many locks are read

	last     Snapshot
	asked    time.Time
	answered time.Time
	trouble  string
	said     string
	scroll   scroll
}

// Take takes in an event.
func (t *Table) Take(ev Event, now time.Time) {
	switch ev := ev.(type) {
	case Asked:
		t.asked = now
	case Listed:
		t.asked, t.trouble = time.Time{}, plain.Word(ev.Trouble)
		if ev.Trouble == "" {
			t.last, t.answered = ev.Snapshot, now
		}
	case Said:
		t.said = plain.Word(ev.Text)
	case Pressed:
		t.scroll.press(ev.Key)
	case Changed, Answered:
	}
}

// Lines are the table.
func (t *Table) Lines(now time.Time, width, height int) []Line {
	lines := append([]Line{{{plain.Word(t.Name), Bold}}}, storeLines(t.asked, t.answered, t.trouble, now, width)...)
	if n := t.last.Requests; n > 0 {
		last := &lines[len(lines)-1]
		*last = append(*last, Span{fmt.Sprintf(", %d requests each %s", n, seconds(t.Every)), Dim})
	}
	if t.last.Cut {
		lines = append(lines, Line{{fmt.Sprintf("only the first %d are shown: give a longer prefix, or a larger --limit", t.Limit), Warn}})
	}
	if t.said != "" {
		lines = append(lines, Line{{t.said, Warn}})
	}
	if room := height - len(lines) - 3; room > 0 {
		head, rows := t.table(now, width)
		from, to := t.scroll.window(len(rows), room)
		lines = append(append(lines, Line{}, head), rows[from:to]...)
		for len(lines) < height-1 {
			lines = append(lines, Line{})
		}
		lines = append(lines, footer(from, to, len(rows)))
	}
	return lines[:min(len(lines), max(height, 0))]
}

const (
	between      = 2  // columns between two of the table
	widestHolder = 24 // where the screen is narrow
	leastName    = 12
)

// table gives the rows in columns that fit into the width, if the width allows for more than
// the least of a name.
func (t *Table) table(now time.Time, width int) (head Line, rows []Line) {
	cells := [][]string{{"NAME", "STATE", "HOLDER", "TOKEN", "AGE", "LAYOUT"}}
	special := false
	for _, r := range t.last.Rows {
		cells = append(cells, r.cells(t.answered, now))
		special = special || r.Foreign == "" && r.Info.Layout != leasehold.LayoutObject
	}
	columns := len(cells[0])
	if !special {
		columns--
	}
	widths, sum := make([]int, columns), 0
	for _, row := range cells {
		for i := range widths {
			widths[i] = max(widths[i], displaywidth.String(row[i]))
		}
	}
	for _, w := range widths {
		sum += w + between
	}
	sum -= between
	shrink := func(i, least int) {
		if n := min(sum-width, widths[i]-least); n > 0 {
			widths[i] -= n
			sum -= n
		}
	}
	shrink(2, widestHolder)
	shrink(0, leastName)
	shrink(2, len("HOLDER"))
	for n, row := range cells {
		style := Bold
		if n > 0 {
			style = t.last.Rows[n-1].style()
		}
		var l Line
		for i, w := range widths {
			text := cut(row[i], w)
			if i < columns-1 {
				text = pad(text, w+between)
			}
			span := Span{Text: text}
			if n == 0 || i == 1 {
				span.Style = style
			}
			l = append(l, span)
		}
		rows = append(rows, l)
	}
	return rows[0], rows[1:]
}

func (r Row) style() Style {
	switch r.State() {
	case "held":
		return Good
	case "abandoned":
		return Warn
	case "free":
		return Plain
	}
	return Bad
}

// cells are what the table has of an object, with the age as it is now.
func (r Row) cells(seen, now time.Time) []string {
	i := r.Info
	holder, token, old, layout := "-", "-", "-", "-"
	if text := HoldersOf(i); text != "" {
		holder = text
	}
	if i.Token != leasehold.NoToken {
		token = i.Token.String()
	}
	if age, about := ageOf(i, seen, now); age >= 0 && r.Foreign == "" {
		old = about + seconds(age)
	}
	if r.Foreign == "" {
		layout = string(i.Layout)
	}
	return []string{plain.Word(i.Key), r.State(), holder, token, old, layout}
}
