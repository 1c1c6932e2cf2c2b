package clock_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// printsClock makes this test binary print one reading and end, as the other
// process of TestProcessesAgree.
const printsClock = "CLOCK_TEST_PRINT"

func TestMain(m *testing.M) {
	if os.Getenv(printsClock) != "" {
		fmt.Println(int64(clock.Now()))
		return
	}
	os.Exit(m.Run())
}

func TestNeverDecreases(t *testing.T) {
	last := clock.Now()
	if last <= 0 {
		t.Fatalf("first reading is %v, want a positive one", last)
	}
	for range 100_000 {
		now := clock.Now()
		if now < last {
			t.Fatalf("went back from %d to %d", last, now)
		}
		last = now
	}
}

// The two clocks are read one inside the other, so that a pause of this process
// between the readings cannot fail the test.
func TestAdvancesWithTime(t *testing.T) {
	outer := time.Now()
	start := clock.Now()
	inner := time.Now()
	time.Sleep(50 * time.Millisecond)
	least := time.Since(inner)
	passed := clock.Now() - start
	most := time.Since(outer)
	if passed < least-least/10-20*time.Millisecond || passed > most+most/10+20*time.Millisecond {
		t.Errorf("%v passed by this clock, between %v and %v by package time", passed, least, most)
	}
}

func TestProcessesAgree(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), exe)
	other.Env = append(os.Environ(), printsClock+"=1")
	before := clock.Now()
	out, err := other.Output()
	after := clock.Now()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if reading := time.Duration(ns); reading < before || reading > after {
		t.Errorf("the other process read %v, not between %v and %v", reading, before, after)
	}
}

func TestSet(t *testing.T) {
	virtual := 3 * time.Hour
	restore := clock.Set(func() time.Duration { return virtual })
	if got := clock.Now(); got != virtual {
		t.Errorf("Now() = %v, want %v", got, virtual)
	}
	virtual += 8 * time.Hour // the machine slept
	if got := clock.Now(); got != virtual {
		t.Errorf("Now() = %v after a suspend, want %v", got, virtual)
	}
	inner := clock.Set(func() time.Duration { return 1 })
	inner()
	if got := clock.Now(); got != virtual {
		t.Errorf("Now() = %v after an inner Set was undone, want %v", got, virtual)
	}
	restore()
	a, b := clock.Now(), clock.Now()
	if a == virtual || b < a {
		t.Errorf("Now() = %v, then %v after restore, want the real clock", a, b)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		clock.Now()
	}
}
