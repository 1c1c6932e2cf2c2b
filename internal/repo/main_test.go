// Package repo_test holds the repository to its rules: who may import what, and which parsers are
// fuzzed.
package repo_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // paths are those of the repository
		panic(err)
	}
	os.Exit(m.Run())
}
