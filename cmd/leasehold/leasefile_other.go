//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "io/fs"

// readableByOthers is not known: access control lists say it.
func readableByOthers(fs.FileInfo) bool { return false }

// syncDir: a directory cannot be flushed here.
func syncDir(string) error { return nil }

// lockDir: a directory cannot be locked here.
func lockDir(string) (unlock func(), taken bool) { return func() {}, false }
