package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/filestore"
)

// A process is one run of the program.
type process struct {
	lines chan string
	stop  context.CancelFunc
	end   chan error
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	p := &process{make(chan string, 100), stop, make(chan error, 1)}
	go func() {
		p.end <- run(ctx, args, w)
		_ = w.Close()
	}()
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// await reads so many lines that have a word.
func (p *process) await(t *testing.T, word string, n int) {
	t.Helper()
	for n > 0 {
		line, more := <-p.lines
		if !more {
			t.Fatalf("it has ended, and %d lines with %q are missing: %v", n, word, <-p.end)
		}
		if strings.Contains(line, word) {
			n--
		}
	}
}

// TestShards: a second process gets half of the shards, and the first gets them back.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	leasetest.Bubble(t, func(t *testing.T) {
		st, err := filestore.New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--store", st.String(), "--n", "6", "--ttl", "3s"}
		a := start(t, args...)
		a.await(t, " begin ", 6)
		b := start(t, args...)
		a.await(t, " end ", 3)
		b.await(t, " begin ", 3)
		b.stop()
		b.await(t, " end ", 3)
		if err := <-b.end; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		a.await(t, " begin ", 3)
		a.stop()
		a.await(t, " end ", 6)
		if err := <-a.end; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"--store", "ftp://x"}, io.Discard); err == nil {
		t.Error("a store that is none")
	}
}
