package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A sink is a stderr that takes nothing while it is shut, and fails while it is broken.
type sink struct {
	gate   chan struct{}
	broken error
	bytes.Buffer
}

func (s *sink) Write(text []byte) (int, error) {
	<-s.gate
	if s.broken != nil {
		return 0, s.broken
	}
	return s.Buffer.Write(text)
}

// A renewal must not wait for whoever reads stderr: it used to, for ever, and the lease was lost.
func TestFullStderrBlocksNothing(t *testing.T) {
	t.Parallel()
	for _, json := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &sink{gate: make(chan struct{})}
			out := &talk{w: s}
			c := &console{w: out, json: json}
			out.notice = c.dropped
			began := time.Now()
			const messages = 1000
			for range messages {
				c.warn("%s", strings.Repeat("x", 1<<10))
				c.show("a line of the moment, which is no message")
			}
			if took := time.Since(began); took > 2*writePatience {
				t.Errorf("%d messages took %v", messages, took)
			}
			if out.wait(endPatience) {
				t.Error("all was written to a stderr that takes nothing")
			}
			close(s.gate)
			if !out.wait(endPatience) {
				t.Error("not written though stderr takes it")
			}
			text := s.String()
			kept := strings.Count(text, strings.Repeat("x", 1<<10))
			if kept < 60 || kept > 64 { // 64 KiB of them
				t.Errorf("%d messages of 1 KiB were kept", kept)
			}
			want := fmt.Sprintf("messages dropped because stderr took none: %d", messages-kept)
			if json {
				want = fmt.Sprintf("\n"+`{"time":%q,"event":"message","level":"warn","message":%q}`, time.Now().UTC().Format(time.RFC3339Nano), want)
			} else {
				want = "\nleasehold: " + want
			}
			if want += "\n"; !strings.HasSuffix(text, want) {
				t.Errorf("it ends with %q, want %q", text[len(text)-min(len(text), 200):], want)
			}
			if strings.Contains(text, "of the moment") {
				t.Error("a line of the moment was kept for later")
			}
			if out.size != 0 { // else the bound moves
				t.Errorf("an empty queue has %d bytes", out.size)
			}
		})
	}
}

// What stderr refuses is counted too, and said once it takes messages again.
func TestBrokenStderr(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{}), broken: errors.New("no space left on device")}
		close(s.gate)
		out := &talk{w: s}
		c := &console{w: out}
		out.notice = c.dropped
		c.warn("first")
		c.warn("second")
		if !out.wait(endPatience) {
			t.Fatal("a broken stderr blocks")
		}
		s.broken = nil
		c.warn("third")
		if want := "leasehold: third\nleasehold: messages dropped because stderr took none: 2\n"; s.String() != want {
			t.Errorf("stderr has %q, want %q", s.String(), want)
		}
		s.Reset()
		s.broken = errors.New("no space left on device")
		c.warn("fourth")
		s.broken = nil
		c.warn("fifth")
		if want := "leasehold: fifth\nleasehold: messages dropped because stderr took none: 1\n"; s.String() != want {
			t.Errorf("stderr has %q, want %q", s.String(), want)
		}
		if out.size != 0 {
			t.Errorf("an empty queue has %d bytes", out.size)
		}
	})
}

// What is written to a stderr that works is there when the call returns, as it always was.
func TestMessagesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{gate: make(chan struct{})}
		close(s.gate)
		out := &talk{w: s}
		if !out.wait(0) {
			t.Error("nothing is not written yet")
		}
		c := &console{w: out}
		for i := range 100 {
			c.warn("%d", i)
			if got := strings.Count(s.String(), "\n"); got != i+1 {
				t.Fatalf("%d lines after %d messages", got, i+1)
			}
		}
	})
}
