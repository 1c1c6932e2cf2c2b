// Package chaos_test attacks real processes of the command, on a network of their own,
// and judges what they do under the lock.
//
//	go test -count=1 -v ./proof/chaos                        a minute, the stores at once
//	go test -count=1 -v ./proof/chaos -run Chaos -long 5m    for as long as that
//	go test -count=1 -v ./proof/chaos -run Soak -soak 30m    200 candidates over 20 elections
//
// TestLanguages is a part of the everyday loop, for 20 s.
//
// The go command does not know that the outcome depends on the command under attack,
// hence -count=1.
package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var (
	long = flag.Duration("long", 0, "attack for so `long`, and not only until each kind of fault was reached")
	seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what decides on the order of the faults, their victims and how long they last")
	soak = flag.Duration("soak", 0, "soak 200 candidates over 20 elections for so `long`, and not 40 over 4 for a short time")
)

// built is the path of the command, if a test has built it.
var built string

// TestMain makes this binary a job or a tenant, or lets it into its arena, if it is told to.
func TestMain(m *testing.M) {
	flag.Parse()
	if url := os.Getenv(tenantVariable); url != "" {
		if err := rent(url, os.Getenv(jobVariable)); err != nil {
			fmt.Fprintln(os.Stderr, "tenant:", err)
			os.Exit(1)
		}
		return
	}
	if socket := os.Getenv(jobVariable); socket != "" {
		code, err := job(socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, "job:", err)
		}
		os.Exit(code)
	}
	if os.Getenv(arenaVariable) != "" {
		if err := furnish(); err != nil {
			fmt.Println(err)
			os.Exit(notPermitted)
		}
	}
	// Most of what runs here waits: for leases to end.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}
