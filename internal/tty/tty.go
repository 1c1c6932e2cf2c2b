// Package tty is the device that a view is drawn on: it takes the terminal over, passes
// on what is typed, and gives the terminal back as it was.
package tty

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Usable reports whether a view can be drawn: both ends are one's terminal, the terminal can
// move its cursor (name is that of the variable TERM), and this process is in the foreground.
// In the background a program that changes the terminal's mode is stopped.
func Usable(in, out *os.File, name string) bool {
	return name != "dumb" && (name != "" || needsNoName) &&
		term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) && foreground(in)
}

// A Terminal is one that was taken over.
type Terminal struct {
	in, out *os.File
	enter   string
	leave   string
	typed   chan []byte
	wake    chan struct{}
	goesOn  chan struct{} // after the process was stopped

	mu     sync.Mutex
	before *term.State // nil while the terminal is given back
	modes  func() error
}

// Open takes the terminal over: what is typed is not shown, and comes at once. Then enter is
// written, and in the end leave.
func Open(in, out *os.File, enter, leave string) (*Terminal, error) {
	t := &Terminal{in: in, out: out, enter: enter, leave: leave, typed: make(chan []byte), wake: make(chan struct{}, 1), goesOn: make(chan struct{}, 1)}
	if err := t.Resume(); err != nil {
		return nil, err
	}
	t.notify()
	go t.read()
	return t, nil
}

// read passes on what is typed. Nothing ends a read of a terminal but a key: the goroutine
// goes on until the program ends.
func (t *Terminal) read() {
	defer close(t.typed)
	for {
		b := make([]byte, 256)
		n, err := t.in.Read(b)
		if n > 0 {
			t.typed <- b[:n]
		}
		if err != nil {
			return
		}
	}
}

// Typed is what is typed, as it comes. It is closed when the terminal is gone.
func (t *Terminal) Typed() <-chan []byte { return t.typed }

// Changed tells that the terminal may have another size, or something else on it, than when
// it was drawn last.
func (t *Terminal) Changed() <-chan struct{} { return t.wake }

// Size is that of the terminal, in columns and rows. One that does not know its size, as a serial
// line, says 0: it is taken for 80 by 24.
func (t *Terminal) Size() (width, height int, err error) {
	width, height, err = term.GetSize(int(t.out.Fd()))
	return cmp.Or(width, 80), cmp.Or(height, 24), err
}

// Write writes to the terminal.
func (t *Terminal) Write(text string) error {
	_, err := io.WriteString(t.out, text)
	return err
}

// Resume takes the terminal over again. It does no harm where it was not given back: another
// program may have changed its mode while this one was stopped.
func (t *Terminal) Resume() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return err
	}
	givenBack := t.before == nil
	if givenBack {
		t.before = before
	}
	if t.modes == nil {
		if t.modes, err = sequences(t.out); err != nil {
			return errors.Join(err, t.restore())
		}
	}
	if !givenBack { // entered twice, it would be left with the cursor of the first time lost
		return nil
	}
	return t.Write(t.enter)
}

// Close gives the terminal back. It may be called again.
func (t *Terminal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		return nil
	}
	return errors.Join(t.Write(t.leave), t.restore())
}

func (t *Terminal) restore() error {
	err := term.Restore(int(t.in.Fd()), t.before)
	if t.modes != nil {
		err = errors.Join(err, t.modes())
	}
	t.before, t.modes = nil, nil
	return err
}

// changed wakes the one that draws. One word is enough for any number of changes.
func (t *Terminal) changed() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
