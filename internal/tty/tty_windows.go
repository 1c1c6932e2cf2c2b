package tty

import (
	"os"

	"golang.org/x/sys/windows"
)

// needsNoName: no console has a name.
const needsNoName = true

// foreground: there are no jobs of which one has the console.
func foreground(*os.File) bool { return true }

// sequences has the console understand them, until the returned function is called.
func sequences(out *os.File) (func() error, error) {
	console := windows.Handle(out.Fd())
	var before uint32
	if err := windows.GetConsoleMode(console, &before); err != nil {
		return nil, err
	}
	err := windows.SetConsoleMode(console, before|windows.ENABLE_PROCESSED_OUTPUT|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return func() error { return windows.SetConsoleMode(console, before) }, err
}

// notify: a console tells nobody of its new size. It is asked whenever a view is drawn.
func (t *Terminal) notify() {}

// Suspend does nothing: there is no such key.
func (t *Terminal) Suspend() error { return nil }
