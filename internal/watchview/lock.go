package watchview

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
)

const (
	// keptChanges bounds the list: a view may run for months.
	keptChanges = 1000
	// slowAnswer is how long a request may take without a word.
	slowAnswer = 3 * time.Second
	// foreignLooks is how long an object that is not a lock is believed to be there without
	// another word: two of the looks at such an object, which are 4 s apart at most, and slow.
	foreignLooks = 10 * time.Second
)

// A Lock is the view of one lock.
type Lock struct {
	// Name is the lock's URL. Renewals has them among the changes.
	Name     string
	Renewals bool

	info  leasehold.Info
	seen  time.Time // when info was
	state string

	asked    time.Time // the request that is under way
	answered time.Time
	trouble  string // why the store did not answer last
	foreign  string // why the object is not a lock
	foundAt  time.Time

	changes []entry // the last one first
	scroll  scroll
}

// An entry is one change in the list, or the same one so many times.
type entry struct {
	at    time.Time
	kind  string
	text  string
	style Style
	times int
}

// NewLock is a view that begins with what a look has shown.
func NewLock(name string, info leasehold.Info, now time.Time) *Lock {
	return &Lock{Name: name, info: info, seen: now, answered: now, state: stateOf(info)}
}

func stateOf(i leasehold.Info) string {
	switch {
	case i.Held:
		return "held"
	case i.Exists:
		return "free"
	}
	return "absent"
}

// Take takes in an event.
func (l *Lock) Take(ev Event, now time.Time) {
	switch ev := ev.(type) {
	case Changed:
		l.changed(ev.Change, plain.Word(ev.Trouble))
	case Asked:
		l.asked = now
	case Answered:
		l.asked = time.Time{}
		l.trouble = plain.Word(ev.Trouble)
		if l.trouble != "" {
			return
		}
		l.answered = now
		if now.Sub(l.foundAt) > foreignLooks {
			l.foreign = ""
		}
	case Said:
		l.add(entry{at: now, kind: "leasehold", text: plain.Word(ev.Text), style: Warn})
	case Pressed:
		l.scroll.press(ev.Key)
	case Listed:
	}
}

func (l *Lock) changed(c leasehold.Change, trouble string) {
	e := entry{at: c.Time, kind: c.Kind.String(), text: about(c.Info)}
	if c.Kind == leasehold.Unreadable {
		if errors.Is(c.Err, leasehold.ErrForeignObject) {
			l.foreign, l.foundAt = trouble, c.Time
		}
		e.text, e.style = trouble, Bad
		l.add(e)
		return
	}
	l.info, l.seen, l.foreign, l.state = c.Info, c.Time, "", stateOf(c.Info)
	switch c.Kind {
	case leasehold.Elected, leasehold.TakenOver:
		e.style = Good
	case leasehold.Expired:
		l.state, e.style = "expired", Warn
	case leasehold.Vanished:
		l.state, e.style = "absent", Bad
	case leasehold.Resigned: // a marker that was deleted is no object any more
		if l.state == "held" {
			l.state = "free"
		}
	case leasehold.Renewed, leasehold.Unreadable:
	}
	if c.Kind != leasehold.Renewed || l.Renewals {
		l.add(e)
	}
}

// add puts a change at the top. Where the list is scrolled, the rows on the screen stay.
func (l *Lock) add(e entry) {
	e.times = 1
	if len(l.changes) > 0 && l.changes[0].kind == e.kind && l.changes[0].text == e.text && e.style == Bad {
		l.changes[0].times++
		l.changes[0].at = e.at
		return
	}
	l.changes = append([]entry{e}, l.changes[:min(len(l.changes), keptChanges-1)]...)
	if l.scroll.first > 0 {
		l.scroll.first++
	}
}

// about is whom a change is about.
func about(i leasehold.Info) string {
	text := plain.Word(i.Holder)
	if i.Token != leasehold.NoToken {
		text += fmt.Sprintf("  token %v", i.Token)
	}
	if i.Address != "" {
		text += "  " + plain.Word(i.Address)
	}
	return text
}

// Lines are the lock, and below the last changes.
func (l *Lock) Lines(now time.Time, width, height int) []Line {
	lines := l.head(now, width)
	if room := height - len(lines) - 2; room > 0 {
		lines = append(lines, Line{}, Line{{"changes", Bold}})
		room--
		from, to := l.scroll.window(len(l.changes), room)
		for _, e := range l.changes[from:to] {
			lines = append(lines, e.line())
		}
		if len(l.changes) == 0 {
			lines = append(lines, Line{{"none since this began", Dim}})
		}
		for len(lines) < height-1 {
			lines = append(lines, Line{})
		}
		lines = append(lines[:height-1], footer(from, to, len(l.changes)))
	}
	return lines[:min(len(lines), max(height, 0))]
}

// head is what is known of the lock, the most important first: a small screen shows less.
func (l *Lock) head(now time.Time, width int) []Line {
	lines := append([]Line{{{plain.Word(l.Name), Bold}}}, storeLines(l.asked, l.answered, l.trouble, now, width)...)
	row := func(name, value string, style Style) {
		if value != "" {
			lines = append(lines, Line{{pad(name, 9), Dim}, {value, style}})
		}
	}
	i := l.info
	if l.foreign != "" {
		row("state", "not a lock: "+l.foreign, Bad)
		row("before", l.state, Plain)
	} else {
		text, style := l.stateText(now)
		row("state", text, style)
	}
	if !i.Exists {
		return lines
	}
	holder := "holder"
	if l.state != "held" {
		holder = "last"
	}
	row(holder, plain.Word(i.Holder), Plain)
	if i.Token != leasehold.NoToken {
		row("token", i.Token.String(), Plain)
	}
	row("lease", l.lease(now), Plain)
	if old, about := l.age(now); old >= 0 {
		row("age", about+seconds(old)+" since the last write", Plain)
	}
	row("address", plain.Word(i.Address), Plain)
	layout := string(i.Layout)
	if i.NoIfMatch && i.Layout == leasehold.LayoutEpochs {
		layout += " without If-Match"
	}
	row("layout", layout, Plain)
	return lines
}

func (l *Lock) stateText(now time.Time) (string, Style) {
	switch l.state {
	case "held":
		if left, _, ok := l.left(now); ok && left < 0 {
			return "held, and not renewed in time", Warn
		}
		if l.info.Abandoned {
			return "held, but its holder looks to be gone", Warn
		}
		return "held", Good
	case "expired":
		return "expired: not renewed in time, so that another may take over", Warn
	}
	return l.state, Plain
}

func (l *Lock) age(now time.Time) (old time.Duration, about string) {
	return ageOf(l.info, l.seen, now)
}

// ageOf is the time since a record was written that was seen a while ago. Where the store
// does not tell, it is by the holder's clock and this machine's, and marked; -1 if neither is
// known.
func ageOf(i leasehold.Info, seen, now time.Time) (old time.Duration, about string) {
	switch {
	case i.Age >= 0:
		return i.Age + max(now.Sub(seen), 0), ""
	case !i.RenewedAt.IsZero():
		return max(now.Sub(i.RenewedAt), 0), "~"
	}
	return -1, ""
}

// left is what is left of the lease's term, by the age of the record. It is for people: no
// decision rests on it. Of a lease under a session the record does not tell.
func (l *Lock) left(now time.Time) (left time.Duration, about string, ok bool) {
	old, about := l.age(now)
	if !l.info.Held || l.info.Session != "" || l.info.TTL == 0 || old < 0 {
		return 0, "", false
	}
	return l.info.TTL - old, about, true
}

func (l *Lock) lease(now time.Time) string {
	if !l.info.Held || l.state == "free" || l.state == "absent" {
		return ""
	}
	if l.info.Session != "" {
		return "under the session " + plain.Word(l.info.Session)
	}
	left, about, ok := l.left(now)
	switch {
	case !ok:
		return seconds(l.info.TTL)
	case left < 0:
		return fmt.Sprintf("%s, over for %s%s", seconds(l.info.TTL), about, seconds(-left))
	}
	return fmt.Sprintf("%s, %s%s left", seconds(l.info.TTL), about, seconds(left))
}

// troubleLines bounds the message of an error.
const troubleLines = 3

// storeLines say when the store has answered last, and what is wrong if it has not since.
func storeLines(asked, answered time.Time, trouble string, now time.Time, width int) []Line {
	name := Span{pad("store", 9), Dim}
	last := Span{Text: "answered " + seconds(now.Sub(answered)) + " ago"}
	if answered.IsZero() {
		last.Text = "has not answered yet"
	}
	if trouble == "" {
		if wait := now.Sub(asked); !asked.IsZero() && wait >= slowAnswer {
			return []Line{{name, {"no answer for " + seconds(wait), Warn}, {", " + last.Text, Dim}}}
		}
		return []Line{{name, last}}
	}
	var lines []Line
	for _, text := range wrap(trouble, width-9, troubleLines) {
		lines = append(lines, Line{name, {text, Bad}})
		name.Text = pad("", 9)
	}
	return append(lines, Line{name, last})
}

func (e entry) line() Line {
	text := e.text
	if e.times > 1 {
		text += fmt.Sprintf("  (%d times)", e.times)
	}
	return Line{{e.at.Local().Format(time.TimeOnly) + "  ", Dim}, {pad(e.kind, 10) + "  ", e.style}, {Text: text}}
}

// footer says which part of a list is shown, and which keys there are.
func footer(from, to, of int) Line {
	text := "q ends"
	if to-from < of {
		text += fmt.Sprintf(", arrows and page keys scroll: %d to %d of %d", min(from+1, to), to, of)
	}
	return Line{{text, Dim}}
}
