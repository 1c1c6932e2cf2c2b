package watchview

import (
	"fmt"
	"strings"
)

// The beginning and the end of a view: another screen than the shell's, without a cursor.
const (
	Enter = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
	Leave = "\x1b[?25h\x1b[?1049l"
)

// A Frame is what is on the screen.
type Frame struct {
	rows          []string
	width, height int
	colours       bool
}

// NewFrame is an empty screen.
func NewFrame(colours bool) *Frame { return &Frame{colours: colours} }

// Reset forgets what is on the screen: all of it is drawn again.
func (f *Frame) Reset() { f.width, f.height, f.rows = 0, 0, nil }

// Draw gives what a terminal of this size has to be sent so that it shows the lines and
// nothing else. Rows that are there already are not sent again: a view is drawn every second,
// perhaps over a slow line, and a screen that is cleared each time flickers.
func (f *Frame) Draw(lines []Line, width, height int) string {
	var b strings.Builder
	if width != f.width || height != f.height {
		// Terminals break or cut what was there when their width changes, each in its own way.
		b.WriteString("\x1b[H\x1b[2J")
		f.width, f.height, f.rows = width, height, make([]string, max(height, 0))
	}
	for i := range f.rows {
		row := ""
		if i < len(lines) {
			row = lines[i].Encode(width, f.colours)
		}
		if row == f.rows[i] {
			continue
		}
		f.rows[i] = row
		// Erased first: after a row that is as wide as the screen, the cursor is on its
		// last column, and erasing would take that away.
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s", i+1, row)
	}
	return b.String()
}
