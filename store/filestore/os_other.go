//go:build !windows

package filestore

import "os"

// dirsSync says that a directory can be opened and flushed.
const dirsSync = true

func open(path string) (*os.File, error) { return os.Open(path) }
func rename(from, to string) error       { return os.Rename(from, to) }
func unlink(path string) error           { return os.Remove(path) }

// unusable says why no file can have that name, or "".
func unusable(string) string { return "" }

// refused reports whether the system says in its own way that it did nothing.
func refused(error) bool { return false }
