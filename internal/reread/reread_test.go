package reread_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/reread"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pair is two files, and what of them is in use. A text "bad" cannot be used.
func pair(t *testing.T) (s *reread.Set, one, two string, used *string) {
	t.Helper()
	dir, used := t.TempDir(), new(string)
	one, two = filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write(t, one, "1")
	write(t, two, "2")
	s, err := reread.Open(func(texts [][]byte) error {
		if string(texts[0]) == "bad" {
			return errors.New("--one: it is bad")
		}
		*used = fmt.Sprintf("%s %s %v", texts[0], texts[2], texts[1] == nil)
		return nil
	}, reread.File{Flag: "--one", Name: one}, reread.File{Flag: "--none"}, reread.File{Flag: "--two", Name: two, Secret: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, one, two, used
}

// What is in use changes as a whole, and only to what can be used.
func TestReload(t *testing.T) {
	t.Parallel()
	s, one, two, used := pair(t)
	wants := func(what string, change bool, fails, use string) {
		t.Helper()
		changed, err := s.Reload()
		if changed != change || (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) || *used != use {
			t.Errorf("%s: %t, %v, and %q is used; want %t, %q, %q", what, changed, err, *used, change, fails, use)
		}
	}
	wants("nothing has changed", false, "", "1 2 true")
	write(t, one, "3")
	wants("one has", true, "", "3 2 true")
	// The same size at the same time, as a copy that keeps times can have.
	past := time.Unix(1, 0)
	if err := os.Chtimes(one, past, past); err != nil {
		t.Fatal(err)
	}
	wants("its time has changed", false, "", "3 2 true")
	write(t, one, "4")
	if err := os.Chtimes(one, past, past); err != nil {
		t.Fatal(err)
	}
	wants("its time is that of before", true, "", "4 2 true")
	write(t, one, "bad")
	write(t, two, "5")
	wants("one is bad", false, "--one: it is bad", "4 2 true")
	write(t, one, "6")
	wants("both are good", true, "", "6 5 true")
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	wants("one is gone", false, "--two: open "+two, "6 5 true")
	write(t, two, strings.Repeat("x", 1<<20+1))
	wants("a huge one", false, "--two: "+two+" has more than 1048576 bytes", "6 5 true")
	write(t, two, "7")
	wants("it is there again", true, "", "6 7 true")
}

// The files are read every ten seconds and when that is asked for; what is wrong is told once, and not of a moment.
func TestFollow(t *testing.T) {
	s, one, _, used := pair(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		now, done := make(chan os.Signal, 1), make(chan struct{})
		tells := make(chan string, 16)
		go func() {
			defer close(done)
			s.Follow(ctx, now, func(err error) { tells <- fmt.Sprint(err) })
		}()
		wants := func(what string, begins ...string) {
			t.Helper()
			synctest.Wait()
			var told []string
			for len(tells) > 0 {
				told = append(told, <-tells)
			}
			if len(told) != len(begins) {
				t.Fatalf("%s: it told %q, want %q", what, told, begins)
			}
			for i, begin := range begins {
				if !strings.HasPrefix(told[i], begin) {
					t.Errorf("%s: it told %q, want %q", what, told[i], begin)
				}
			}
		}
		time.Sleep(time.Minute)
		wants("nothing has changed")
		write(t, one, "another")
		time.Sleep(reread.Every)
		wants("another text", "<nil>")
		now <- syscall.SIGTERM
		wants("asked", "<nil>")
		write(t, one, "bad")
		time.Sleep(reread.Every)
		wants("a moment")
		time.Sleep(time.Minute)
		wants("for longer", "--one: ")
		now <- syscall.SIGTERM
		wants("asked", "--one: ")
		write(t, one, "third")
		now <- syscall.SIGTERM
		wants("mended", "<nil>")
		write(t, one, "bad")
		time.Sleep(reread.Every)
		synctest.Wait()
		write(t, one, "third")
		time.Sleep(time.Minute)
		wants("what was wrong for a moment")
		if *used != "third 2 true" {
			t.Errorf("%q is used", *used)
		}
		cancel()
		<-done
	})
}
