package main

import (
	"io"
	"testing"

	"github.com/leasehold/leasehold"
)

// TestOpenLock: a command that reads or writes a lock once bounds its requests and logs nothing, because it prints the error
// itself.
func TestOpenLock(t *testing.T) {
	t.Parallel()
	opts := &leasehold.LockOptions{Layout: leasehold.LayoutObject}
	p, lock, err := (&app{console: console{w: io.Discard}}).open(t.Context(), "file://"+t.TempDir()+"/l", opts)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	if _, is := p.store.(timeoutStore); !is || opts.Logger != silent {
		t.Errorf("its store is %T, its logger %v", p.store, opts.Logger)
	}
	p, _, err = (&app{console: console{w: io.Discard}}).see(t.Context(), "file://"+t.TempDir()+"/l", &leasehold.LockOptions{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := p.store.(timeoutStore); !is {
		t.Errorf("where the layout is found out, its store is %T", p.store)
	}
}
