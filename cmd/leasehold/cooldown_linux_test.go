package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold/internal/clitest"
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
	env := []string{
		"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_EC2_METADATA_DISABLED=true", "AWS_REGION=us-east-1",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
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
	for tries := 0; ; tries++ {
		code, talk := waits(home, "100ms")
		if code == 0 && talk == "" {
			break
		}
		if tries == 100 {
			t.Fatalf("two hours after it was first seen a run that waits ends with %d, %s", code, talk)
		}
	}
}
