// Package watchview is what leasehold watch shows on a terminal: a view takes in what has
// happened, and says which lines are to be on the screen. It is pure: the time, the size of
// the screen and the keys are arguments, and what comes out is text. Package tty has
// the device.
package watchview

import (
	"strings"

	"github.com/clipperhouse/displaywidth"

	"github.com/leasehold/leasehold/internal/plain"
)

// A Style is how a part of a line looks where there are colours.
type Style uint8

// The styles.
const (
	Plain Style = iota
	Bold
	Dim
	Good
	Warn
	Bad
)

var sgr = [...]string{Bold: "1", Dim: "2", Good: "32", Warn: "33", Bad: "31"}

// A Span is text of one style.
type Span struct {
	Text  string
	Style Style
}

// A Line is what is on one row of the screen.
type Line []Span

// Text is the line without its styles.
func (l Line) Text() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// more is how a line ends that was longer.
const more = "…"

// Encode is the line in so many columns at most, with its styles if there are to be
// colours. A line that is longer ends with an ellipsis. A terminal would break it, and the
// rows below would be off by one.
func (l Line) Encode(width int, colours bool) string {
	var b strings.Builder
	l = l.printable()
	left, whole := width, displaywidth.String(l.Text()) <= width
	if !whole {
		left -= displaywidth.String(more)
	}
	for _, s := range l {
		text := s.Text
		if columns := displaywidth.String(text); columns > left {
			text = displaywidth.TruncateString(text, left, "")
			left = 0
		} else {
			left -= columns
		}
		if code := sgr[s.Style]; colours && code != "" && text != "" {
			text = "\x1b[" + code + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
		if left == 0 && !whole {
			break
		}
	}
	if !whole && width > 0 {
		b.WriteString(more)
	}
	return b.String()
}

// printable is the line without anything that a terminal would obey.
func (l Line) printable() Line {
	safe := make(Line, len(l))
	for i, s := range l {
		safe[i] = Span{plain.Word(s.Text), s.Style}
	}
	return safe
}

// pad fills text up to so many columns.
func pad(text string, columns int) string {
	if n := columns - displaywidth.String(text); n > 0 {
		return text + strings.Repeat(" ", n)
	}
	return text
}

// cut is text in so many columns at most.
func cut(text string, columns int) string {
	return displaywidth.TruncateString(text, columns, more)
}

// wrap breaks text into so many lines of so many columns at most, between words where it can;
// what is left then is cut by the screen.
func wrap(text string, columns, most int) (lines []string) {
	columns = max(columns, 10)
	for len(lines) < most-1 && displaywidth.String(text) > columns {
		line := displaywidth.TruncateString(text, columns, "")
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			line = line[:i]
		}
		lines = append(lines, line)
		text = strings.TrimPrefix(text[len(line):], " ")
	}
	return append(lines, text)
}
