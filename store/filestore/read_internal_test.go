package filestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in the place of an object is called by its name, not by the letters of its mode ("d---------").
func TestKindOfFile(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode]string{
		fs.ModeDir | 0o700: "a directory", fs.ModeSymlink: "a symbolic link", fs.ModeNamedPipe: "a named pipe", fs.ModeSocket: "a socket",
		fs.ModeDevice: "a device", fs.ModeDevice | fs.ModeCharDevice: "a device", fs.ModeIrregular: "something else",
	} {
		if got := kindOfFile(mode); got != want {
			t.Errorf("%v is %s, want %s", mode, got, want)
		}
	}
	dir := t.TempDir()
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Get(t.Context(), "d", ""); err == nil || !strings.Contains(err.Error(), "d is a directory, not a file: use another key") {
		t.Errorf("a directory at a key: %v", err)
	}
}
