package longtest_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/leasehold/leasehold/internal/longtest"
)

// skippable is a test that only learns why it is skipped.
type skippable struct {
	testing.TB
	why string
}

func (s *skippable) Helper()          {}
func (s *skippable) Skip(args ...any) { s.why = fmt.Sprint(args...) }

func TestWanted(t *testing.T) {
	named := flag.Lookup("test.run").Value
	defer func(was string) { _ = named.Set(was) }(named.String())
	for _, tc := range []struct {
		variable, run string
		want          bool
	}{
		{"", "", false},
		{"0", "", false},
		{"1", "", true},
		{"", "TestSoak", true},
	} {
		t.Setenv("LEASEHOLD_TEST_LONG", tc.variable)
		if err := named.Set(tc.run); err != nil {
			t.Fatal(err)
		}
		if got := longtest.Wanted(); got != tc.want {
			t.Errorf("LEASEHOLD_TEST_LONG=%s -run %q: wanted %t", tc.variable, tc.run, got)
		}
		test := &skippable{}
		longtest.Only(test)
		if (test.why == "") != tc.want {
			t.Errorf("LEASEHOLD_TEST_LONG=%s -run %q: skipped: %q", tc.variable, tc.run, test.why)
		}
	}
}

func TestWant(t *testing.T) {
	t.Setenv("LEASEHOLD_TEST_LONG", "")
	if err := longtest.Want(); err != nil || !longtest.Wanted() {
		t.Errorf("not wanted: %v", err)
	}
}
