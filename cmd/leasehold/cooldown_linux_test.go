package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// Behind a proxy that hides the store's clock, a rest ends for runs that do not wait too: this machine counts it from
// when it first saw it. Each run used to count from its own start, so that after the first one none ever ran again, and
// -q hid why.
func TestRestWithoutStoreClock(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip("a marker cannot rest")
	}
	memory := s3mem.New()
	if err := memory.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(memory).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Via", "1.1 proxy")
		s3.ServeHTTP(w, r)
	}))
	defer server.Close()
	home := t.TempDir()
	env := awsEnv()
	waits := func(state, wait string) (int, string) {
		t.Helper()
		return outcome(t, append(env, "XDG_STATE_HOME="+state), "run", "-q", "--wait", wait, "--hold-at-least", "1h",
			"s3://bucket/l?endpoint="+server.URL, "--", "true")
	}
	run := func(state string) (int, string) { t.Helper(); return waits(state, "0") }
	sightings := func() []string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(home, "leasehold-cooldowns", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if code, talk := run(home); code != 0 || talk != "" {
		t.Fatalf("the first run: %d, %s", code, talk)
	}
	for range 2 {
		if code, _ := run(home); code != exitHeld {
			t.Fatalf("a run in the rest ends with %d", code)
		}
	}
	seen := sightings()
	if len(seen) != 1 {
		t.Fatalf("kept: %q", seen)
	}
	if code, talk := run(filepath.Join(os.DevNull, "none")); code != exitHeld || !strings.Contains(talk, "this machine cannot count it: ") {
		t.Errorf("a machine that cannot keep it: %d, %q", code, talk)
	}

	// Half an hour later there is still half an hour to go; two hours later there is none.
	text, err := os.ReadFile(seen[0])
	if err != nil {
		t.Fatal(err)
	}
	var c cooldown
	if err = json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	for ago, want := range map[time.Duration]int{30 * time.Minute: exitHeld, -time.Hour: exitHeld} {
		c.Since = time.Now().Add(-ago)
		if err = os.WriteFile(seen[0], []byte(toJSON(c)), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, talk := run(home); code != want {
			t.Errorf("%v after it was first seen: %d, %s", ago, code, talk)
		}
	}
	c.Since = time.Now().Add(-2 * time.Hour)
	other := c
	other.Token++
	if err = os.WriteFile(seen[0], []byte(toJSON(other)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := run(home); code != exitHeld {
		t.Errorf("with what was seen of another lease: %d", code)
	}
	if err = os.WriteFile(seen[0], []byte(toJSON(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, talk := run(home); code != 0 || talk != "" {
		t.Errorf("two hours after it was first seen: %d, %s", code, talk)
	}
	if left := sightings(); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}

	// So it does for one that waits for less than the rest. The store may take longer than that to answer.
	if code, _ := run(home); code != exitHeld {
		t.Fatalf("a run in the next rest ends with %d", code)
	}
	if text, err = os.ReadFile(sightings()[0]); err != nil {
		t.Fatal(err)
	}
	if err = json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	c.Since = time.Now().Add(-2 * time.Hour)
	if err = os.WriteFile(sightings()[0], []byte(toJSON(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		code, talk := waits(home, wait.String())
		if code == 0 && talk == "" {
			break
		}
		if len(sightings()) == 0 {
			t.Fatalf("a run that waits %v has ended the rest, and ends with %d, %s", wait, code, talk)
		}
		if wait > time.Minute {
			t.Fatalf("two hours after it was first seen a run that waits %v ends with %d, %s", wait, code, talk)
		}
	}
}

// TestRestIsCountedHere: a rest is counted from when this machine first saw it, and ended when it has lasted. One that cannot
// be ended is known of further on. What is no rest, or one whose beginning the store tells, is not counted.
func TestRestIsCountedHere(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	synctest.Test(t, func(t *testing.T) {
		st := &racedStore{memstore.New(), store.ErrDenied, 1000, 0}
		lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		const resting = `{"format":1,"token":7,"state":"free","holder":"me","address":"","ttl_ms":15000,"write_id":"x.1","session":"","renewed_at":"2999-01-01T00:00:00Z","rest":{"ms":3600000,"write_id":"x.1"}}`
		if _, err = st.Store.Put(t.Context(), "l", []byte(resting), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		h := &runCmd{contest: &lockContest{Lock: lock}}
		h.target.url = "mem:///l"
		rest := leasehold.Info{Rest: time.Hour, Age: -1, Token: 7}
		kept := func() int {
			files, err := filepath.Glob(filepath.Join(home, "leasehold-cooldowns", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return len(files)
		}
		dated, over := rest, rest
		dated.Age, over.Rest = 0, 0
		for _, none := range []error{nil, store.ErrDenied, &leasehold.HeldError{Info: dated}, &leasehold.HeldError{Info: over}} {
			if h.cooled(t.Context(), none) || kept() != 0 {
				t.Errorf("%v is counted", none)
			}
		}
		if (&runCmd{contest: &tried{}}).cooled(t.Context(), &leasehold.HeldError{Info: rest}) || kept() != 0 {
			t.Error("that of a semaphore is counted")
		}
		began := time.Now()
		for range 2 { // the second time in its middle
			if h.cooled(t.Context(), &leasehold.HeldError{Info: rest}) || h.uncounted != nil || !h.cooling.Equal(began) || kept() != 1 {
				t.Errorf("it is over, or not kept: %v, since %v", h.uncounted, h.cooling)
			}
			time.Sleep(30 * time.Minute)
		}
		if info, err := os.Stat(filepath.Join(home, "leasehold-cooldowns")); err != nil || info.Mode().Perm()&^0o700 != 0 {
			t.Errorf("others can read it: %v, %v", info, err)
		}
		if h.cooled(t.Context(), &leasehold.HeldError{Info: rest}) || !errors.Is(h.uncounted, store.ErrDenied) || kept() != 1 {
			t.Errorf("the store denies its end: %v, and %d are kept", h.uncounted, kept())
		}
		st.first = 0
		if !h.cooled(t.Context(), &leasehold.HeldError{Info: rest}) || h.uncounted != nil || kept() != 0 {
			t.Errorf("it is not over: %v, and %d are kept", h.uncounted, kept())
		}
		if info, err := lock.Inspect(t.Context()); err != nil || info.Rest > 0 || info.Token != 7 {
			t.Errorf("it rests further on: %+v, %v", info, err)
		}
	})
}

// TestRestSeenInTheFuture: a clock that was set back keeps no lock at rest: what was seen in the future counts from now.
func TestRestSeenInTheFuture(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	now := time.Now().Round(0)
	for _, tt := range []struct {
		token      leasehold.Token
		now, since time.Duration
	}{
		{7, time.Hour, time.Hour}, {7, time.Hour, time.Hour}, {7, 0, 0}, {7, time.Minute, 0}, {8, time.Minute, time.Minute}, {8, time.Hour, time.Minute},
	} {
		if since, err := coolingSince("l", tt.token, now.Add(tt.now)); err != nil || !since.Equal(now.Add(tt.since)) {
			t.Errorf("%+v: %v, %v", tt, since.Sub(now), err)
		}
	}
}

// TestRestCannotBeKept: what keeps this machine from counting is told, and nothing is left of the attempt.
func TestRestCannotBeKept(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	path, err := cooldownFile("l")
	if err != nil {
		t.Fatal(err)
	}
	if err = os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if since, err := coolingSince("l", 7, now); err == nil || !since.Equal(now) {
		t.Errorf("a directory was replaced: %v, %v", since, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
	home = t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	if link := os.Symlink("/proc", filepath.Join(home, "leasehold-cooldowns")); link != nil { // where no file can be made
		t.Fatal(link)
	}
	if since, err := coolingSince("l", 7, now); err == nil || !since.Equal(now) {
		t.Errorf("a file was made: %v, %v", since, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if since, err := coolingSince("l", 7, now); err == nil || !strings.Contains(err.Error(), "HOME") || !since.Equal(now) {
		t.Errorf("without a home: %v, %v", since, err)
	}
}
