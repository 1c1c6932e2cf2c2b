package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestPlan: what rests on each experiment, what it needs, and how many requests and bytes are announced for it are kept in
// testdata/told/plan.txt.
func TestPlan(t *testing.T) {
	t.Parallel()
	var told []string
	usual, brief, most := &Options{}, &Options{Races: 1}, &Options{Races: 3000, LargestBody: 64 << 10}
	for _, e := range experiments {
		told = append(told, fmt.Sprintf("%s: %d, %d and %d requests, %d and %d bytes, of bodies up to %d", e.name,
			e.requests(usual), e.requests(brief), e.requests(most), e.bytes(usual), e.bytes(brief), e.size))
		told = append(told, fmt.Sprintf("\tof %q, after %q, vital %t, anew %t", e.uses, e.after, e.vital, e.anew))
	}
	for _, opts := range []*Options{usual, brief, most} {
		told = append(told, fmt.Sprintf("%d requests, %d to clean up, %d to purge, %d bytes", opts.Requests(), opts.cleaning(), opts.Purges(), opts.Bytes()))
	}
	kept(t, "plan", told)
}

// TestAfter: an experiment is not tried, and says why, where one that it needs did not come out well.
func TestAfter(t *testing.T) {
	t.Parallel()
	for _, e := range experiments {
		for _, needed := range e.after {
			for _, result := range []Result{Bad, Unknown, Note} {
				for _, createOnly := range []bool{false, true} {
					s := surveyed(t, few)
					s.createOnly = createOnly
					for _, other := range e.after {
						s.report.Findings = append(s.report.Findings, Finding{Name: other, Result: OK})
					}
					s.report.Findings[slices.Index(e.after, needed)].Result = result
					tried := false
					e.run = func(*survey) (Result, string, error) { tried = true; return OK, "", nil }
					f, err := s.try(e)
					want := Finding{Name: e.name, Uses: e.uses, Result: Unknown, Detail: fmt.Sprintf("not tried, because of %q", needed), because: needed}
					allowed := createOnly && e.anew && needed == canUpdate
					if allowed {
						want.Result, want.Detail, want.because = OK, "", ""
					}
					if fmt.Sprintf("%+v", f) != fmt.Sprintf("%+v", want) || tried != allowed || err != nil {
						t.Errorf("%q after a %s %q: %+v, %v; tried: %t", e.name, result, needed, f, err, tried)
					}
				}
			}
		}
	}
}

// TestWithoutFindings: what an experiment leaves out where another did not come out well.
func TestWithoutFindings(t *testing.T) {
	t.Parallel()
	var told []string
	for _, c := range []struct {
		of      string
		without string
		p       portion
	}{
		{createOver, canDelete, portion{run: (*survey).creatingOver}},
		{updateStale, canDelete, portion{run: (*survey).updatingStale}},
		{afterRebirth, updateStale, portion{run: (*survey).afterRebirth}},
		{oddKeys, updateStale, portion{run: numbers}},
		{oddKeys, canList, portion{run: numbers}},
		{crowdCreate, updateStale, portion{run: (*survey).crowding}},
		{raceCreate, canList, portion{run: (*survey).racingAndListing}},
		{raceCreate, oddKeys, portion{run: (*survey).racingAndListing}},
	} {
		for _, result := range []Result{OK, Unknown, Bad} {
			l := newLiar("", "", 0)
			c.p.unlike = map[string]Result{c.without: result}
			said, _, _ := strings.Cut(c.p.alone(t, l), "\n")
			n := map[string]int{}
			for about, times := range l.seen {
				class, _, _ := strings.Cut(about, " of ")
				n[class] += times
			}
			told = append(told, fmt.Sprintf("%s, where %q is %s: %s; %v", c.of, c.without, result, said, n))
		}
	}
	kept(t, "without", told)
}

// TestCreateOnly: in a store that refuses every update, objects are deleted and created again instead.
func TestCreateOnly(t *testing.T) {
	t.Parallel()
	for _, e := range experiments {
		if !e.anew && e.name != readsDeleted {
			continue
		}
		l := newLiar("", "", 0)
		said := portion{run: func(s *survey) (Result, string, error) { s.createOnly = true; return e.run(s) }}.alone(t, l)
		for about := range l.seen {
			if strings.HasPrefix(about, "an update") || !strings.HasPrefix(said, "ok: ") {
				t.Errorf("%q: %s, by %q", e.name, said, about)
			}
		}
	}
	s, err := newSurvey(t.Context(), memstore.New(), few)
	if err != nil {
		t.Fatal(err)
	}
	s.createOnly = true
	s.doubt(s.path("a"), store.ErrUnknownOutcome)
	if _, err := s.over(s.a, "a", &store.Object{}); err != errMayVanish { //nolint:errorlint // this one
		t.Errorf("an object that may vanish is changed: %v", err)
	}
}
