package probe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// surveyed is a survey of a store in memory that has not begun.
func surveyed(t *testing.T, opts *Options, settings ...store.Setting) *survey {
	t.Helper()
	s, err := newSurvey(t.Context(), &inspected{Store: &brokenstore.Store{Store: memstore.New()}, settings: settings}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSettings: each setting is a finding, with what it means for locks.
func TestSettings(t *testing.T) {
	t.Parallel()
	denied := &store.Error{Op: "get", Kind: store.ErrDenied}
	for _, c := range []struct {
		set    store.Setting
		result Result
		detail string
		purges bool
	}{
		{store.Setting{Name: "versioning", Value: "enabled"}, Note, "enabled: every renewal leaves a version that is paid for, until a lifecycle rule ends noncurrent versions", true},
		{store.Setting{Name: "versioning", Value: "suspended"}, Note, "suspended", true},
		{store.Setting{Name: "versioning"}, Note, "none", false},
		{store.Setting{Name: "versioning", Err: denied}, Unknown, "these credentials may not ask", false},
		{store.Setting{Name: "lifecycle", Err: errors.New("501")}, Unknown, "the server does not tell", false},
		{store.Setting{Name: "soft delete", Value: "7 days"}, Note, "7 days, and paid for: every renewal overwrites the lock's object, so turn it off where locks lie", false},
		{store.Setting{Name: "retention", Value: "1 day"}, Note, "1 day: no lock can be renewed, released or deleted", false},
		{store.Setting{Name: "holds", Value: "by default"}, Note, "by default: no lock can be renewed, released or deleted", false},
		{store.Setting{Name: "hierarchical namespace", Value: "enabled"}, Note, "enabled: no lock can lie below another (a/b below a), and listings may come in another order than that of bytes", false},
		{store.Setting{Name: "object lock", Value: "versions are kept for 1 day"}, Note, "versions are kept for 1 day: and so are all renewals of a lock, which cannot be deleted before", false},
		{store.Setting{Name: "object lock", Value: "enabled"}, Note, "enabled", false},
		{store.Setting{Name: "encryption", Value: "aws:kms"}, Note, "aws:kms: versions are no hashes, so peers ask the store once more at a hand-over; each request may cost one of the key service", false},
		{store.Setting{Name: "encryption", Value: "AES256"}, Note, "AES256", false},
		{store.Setting{Name: "lifecycle", Value: "objects under a/ expire"}, Note, "objects under a/ expire: a lock that expires is a lock that is deleted, and its tokens begin anew", false},
		{store.Setting{Name: "lifecycle", Value: "noncurrent versions expire"}, Note, "noncurrent versions expire", false},
		{store.Setting{Name: "noncurrent versions", Value: "aws:kms kept for objects under a/"}, Note, "aws:kms kept for objects under a/", false},
		{store.Setting{Name: "enabled", Value: "enabled"}, Note, "enabled", false},
	} {
		s := surveyed(t, few, c.set)
		result, detail, err := s.settings()
		if result != Note || detail != "asked for" || err != nil || s.report.Requests.Inspect != 5 {
			t.Errorf("%+v: %s, %s, %v, after %d requests", c.set, result, detail, err, s.report.Requests.Inspect)
		}
		want := []Finding{{Name: c.set.Name, Result: c.result, Detail: c.detail}}
		if !reflect.DeepEqual(s.report.Findings, want) || s.purge != c.purges {
			t.Errorf("%+v: %+v, not %+v; past versions are kept: %t", c.set, s.report.Findings, want, s.purge)
		}
	}
	s := surveyed(t, few)
	s.look = nil
	if result, detail, err := s.settings(); result != Note || detail != "the store has none" || err != nil {
		t.Errorf("of a store that has none: %s, %s, %v", result, detail, err)
	}
	s = surveyed(t, few)
	s.report.Limit = s.reserve + 4
	if result, _, err := s.settings(); result != Unknown || !errors.Is(err, errNoBudget) {
		t.Errorf("with 4 requests left: %s, %v", result, err)
	}
}

// TestLatencyAndTTL: the report tells how long half, 99 % and all of the requests took of each kind, but for those that
// raced, and suggests a TTL that leaves room for 30 of the slowest writes.
func TestLatencyAndTTL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op               string
		each             time.Duration // the n-th of 200 takes n times as long
		least, suggested time.Duration
	}{
		{"get", time.Second, time.Second, 15 * time.Second},
		{"create", time.Microsecond, time.Second, 15 * time.Second},
		{"create", time.Millisecond, 6 * time.Second, 15 * time.Second},          // 30 times 199 ms
		{"update", 10 * time.Millisecond, 60 * time.Second, 60 * time.Second},    // 59.7 s
		{"put, refused", 10 * time.Millisecond, time.Second, 15 * time.Second},   // it was no write
		{"get, unchanged", 10 * time.Millisecond, time.Second, 15 * time.Second}, // nor was this
		{"delete", 10 * time.Millisecond, time.Second, 15 * time.Second},         // no renewal deletes
		{"list", 10 * time.Millisecond, time.Second, 15 * time.Second},           // or lists
	} {
		s := surveyed(t, few)
		begin := s.began
		for n := 200; n > 0; n-- {
			s.samples.add(c.op, begin, begin.Add(time.Duration(n)*c.each), time.Time{})
		}
		s.samples.racing = true
		s.samples.add(c.op, begin, begin.Add(time.Hour), time.Time{})
		s.conclude()
		want := []Latency{{Op: c.op, Count: 200, P50: micros(101 * c.each), P99: micros(199 * c.each), Worst: micros(200 * c.each)}}
		if !reflect.DeepEqual(s.report.Latency, want) {
			t.Errorf("it took %+v, not %+v", s.report.Latency, want)
		}
		if ttl := s.report.TTL; ttl.Least.Duration() != c.least || ttl.Suggested.Duration() != c.suggested {
			t.Errorf("%s: the TTL may be %v, and should be %v", c.op, ttl.Least.Duration(), ttl.Suggested.Duration())
		}
		if string(s.report.Policy) != "{}" || s.report.Took < 0 || s.report.Clock != nil {
			t.Errorf("it reports %+v", s.report)
		}
	}
}

// TestSurveyOptions: what cannot be used is refused before anything is sent, with what it is.
func TestSurveyOptions(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	open := func(st store.Store, err error) func(context.Context) (store.Store, error) {
		return func(context.Context) (store.Store, error) { return st, err }
	}
	for want, opts := range map[string]*Options{
		"-1 races":                   {Races: -1},
		"a largest body of -1 bytes": {LargestBody: -1},
		"broken":                     {Open: open(nil, broken)},
		"the store is mem://, and Open opens other": {Open: open(named{memstore.New(), "other"}, nil)},
	} {
		if s, err := newSurvey(t.Context(), memstore.New(), opts); s != nil || err == nil || !strings.Contains(err.Error(), want) || want != "broken" && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, not %q", opts, err, want)
		}
	}
	s := surveyed(t, &Options{Prefix: "a/", Races: 1})
	if !strings.HasPrefix(s.prefix, "a/leasehold-probe-") || len(s.prefix) != len("a/leasehold-probe-")+16+1 || !strings.HasSuffix(s.prefix, "/") {
		t.Errorf("the objects are below %q", s.prefix)
	}
	if r := s.report; r.Format != format || r.Store != "mem://" || r.At.Location() != time.UTC || r.At.Nanosecond() != 0 || time.Since(r.At) > time.Hour {
		t.Errorf("the report begins with %+v", r)
	}
	if d := (&Options{}); d.races() != 1500 || d.largestBody() != store.MaxBody || (*Options)(nil).races() != 1500 || (*Options)(nil).largestBody() != store.MaxBody {
		t.Errorf("by default there are %d races, with bodies of up to %d", d.races(), d.largestBody())
	}
	if many := (&Options{Races: 5000}); many.kept() != 1100 || s.opts.kept() != 1 {
		t.Errorf("of 5000 races %d objects are kept, of one %d", many.kept(), s.opts.kept())
	}
}

// named is a store with another name.
type named struct {
	store.Store
	name string
}

func (n named) String() string { return n.name }

// TestWatched: an object that nobody writes any more is told to have changed only where it has, and how.
func TestWatched(t *testing.T) {
	t.Parallel()
	a, b := [][]byte{[]byte("a")}, [][]byte{[]byte("a"), []byte("b")}
	absent, failed := &store.Error{Op: "get", Kind: store.ErrNotExist}, &store.Error{Op: "get", Kind: store.ErrUnavailable}
	for _, c := range []struct {
		w    watch
		body string // there; "": nothing
		err  error
		want string
	}{
		{watch{allowed: a}, "a", nil, ""},
		{watch{allowed: b}, "b", nil, ""},
		{watch{allowed: b}, "c", nil, "after 200, there is another body"},
		{watch{}, "a", nil, "after 200, there is an object"},
		{watch{allowed: a}, "", absent, "after 200, there is no object"},
		{watch{allowed: a, maybe: true}, "", absent, ""},
		{watch{}, "", absent, ""},
		{watch{allowed: a}, "", failed, ""},
	} {
		c.w.told = "200"
		if got := c.w.unlike(&store.Object{Body: []byte(c.body)}, c.err); got != c.want {
			t.Errorf("of %q, %v it says %q, not %q", c.body, c.err, got, c.want)
		}
	}
	s := surveyed(t, few)
	for doubtful, most := range map[bool]int{false: 400, true: 80} {
		n := 0
		for range 1000 {
			if s.watch(watch{}, doubtful) {
				n++
			}
		}
		if n != most {
			t.Errorf("%d are watched, not %d", n, most)
		}
	}
	if len(s.watched.all) != 480 || s.watched.doubtful != 80 || s.watched.last.IsZero() {
		t.Errorf("%d are watched, %d of them in doubt", len(s.watched.all), s.watched.doubtful)
	}
}

// TestWhatReportsSay: the errors of a report name the store, the use and what was found.
func TestWhatReportsSay(t *testing.T) {
	t.Parallel()
	r := &Report{Store: "s3://b/p", Verdicts: []Verdict{{Use: "object", Why: []string{"one: 1", "two: 2"}}, {Use: "epochs", Safe: true}}}
	for _, c := range []struct{ name, use, says string }{
		{"s3://b/p", "epochs", ""},
		{"s3://b/p", "object", "not proven to be safe: s3://b/p, for object: one: 1; two: 2"},
		{"s3://b/p", "marker", "not proven to be safe: the report on s3://b/p says nothing of marker"},
		{"s3://b/q", "epochs", "not proven to be safe: the report is about s3://b/p, not s3://b/q"},
		{"%zz", "epochs", "not proven to be safe: the report is about s3://b/p, not %zz"},
	} {
		if err := r.Proves(c.name, c.use); (err == nil) != (c.says == "") || err != nil && err.Error() != c.says {
			t.Errorf("%s for %s: %v, not %q", c.name, c.use, err, c.says)
		}
	}
	r.Store = "%zz"
	if err := r.Proves("s3://b/p", "epochs"); !errors.Is(err, ErrUnproven) {
		t.Errorf("by a report on no URL: %v", err)
	}
	for text, says := range map[string]string{
		`{"format":`:                                 "no report of a probe: unexpected EOF",
		`{"format":2}`:                               "a report of a probe in format 2; this version knows 1",
		`{"format":1}{"format":1}`:                   "no report of a probe: something follows it",
		`{"format":1,"store":"mem://"}`:              "no report of a probe: it names no store, or has no verdicts",
		`{"format":1,"verdicts":[{"use":"object"}]}`: "no report of a probe: it names no store, or has no verdicts",
	} {
		if got, err := ReadReport(strings.NewReader(text)); got != nil || err == nil || err.Error() != says {
			t.Errorf("%s: %v, not %q", text, err, says)
		}
	}
	if n := (Requests{1, 20, 300, 4000, 50000}).Total(); n != 54321 {
		t.Errorf("in all there are %d requests", n)
	}
	plain, quoteless := memstore.New(), named{memstore.New(), "unquoted"}
	for _, c := range []struct {
		unquoted bool
		st, want store.Store
	}{
		{false, &quoted{other: quoteless}, nil},
		{true, &quoted{other: quoteless}, quoteless},
		{true, &quoted{}, nil},
		{true, plain, plain},
	} {
		if c.want == nil {
			c.want = c.st
		}
		if got := (&Report{UnquotedETags: c.unquoted}).Adapt(c.st); got != c.want {
			t.Errorf("where that is %t, %v is adapted to %v", c.unquoted, c.st, got)
		}
	}
}

// quoted is a store that has an unquoted one.
type quoted struct {
	inspected
	other store.Store
}

func (q *quoted) String() string            { return "quoted" }
func (q *quoted) Inspect() store.Inspection { return q }
func (q *quoted) Unquoted() store.Store     { return q.other }

// TestRetired: another object takes the place of one of which it is not known what is there, but not where objects race.
func TestRetired(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	s.retire("a")
	s.retire("b")
	s.retire("b")
	s.setRacing(true)
	s.retire("c")
	for key, want := range map[string]string{"a": "a.1", "b": "b.2", "c": "c", "d": "d"} {
		if got := s.path(key); got != s.prefix+want {
			t.Errorf("in the place of %s is %s", key, got)
		}
	}
}

// TestNotes: what a probe says of the bucket beside its verdicts.
func TestNotes(t *testing.T) {
	t.Parallel()
	refused := func(kind error) func(s *survey) {
		return func(s *survey) { s.look = refusing{s.look, &store.Error{Op: "put", Kind: kind}} }
	}
	left := func(names ...string) func(s *survey) {
		return func(s *survey) {
			for _, name := range append(names, s.prefix) {
				if _, err := s.a.Store.Put(t.Context(), name+"x", nil, store.IfAbsent()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	shows := func(date, modified time.Time) func(s *survey) {
		return func(s *survey) {
			b := &brokenstore.Store{Store: memstore.New()}
			shifted(func(o *store.Object) { o.Date, o.LastModified = date, modified })(b)
			s.connect(brokenstore.Bare{Store: b}, brokenstore.Bare{Store: b})
			if err := s.spells.begin(s); err != nil {
				t.Error(err)
			}
		}
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		run    func(*survey) (Result, string, error)
		given  func(*survey)
		result Result
		detail string
		failed error
	}{
		{(*survey).bareWrites, func(s *survey) { s.look = nil }, Note, "the store has none", nil},
		{(*survey).bareWrites, refused(store.ErrDenied), Note, "refused, by a policy", nil},
		{(*survey).bareWrites, refused(store.ErrRefused), Unknown, "", store.ErrRefused},
		{(*survey).bareWrites, func(s *survey) { s.report.Limit = s.reserve }, Unknown, "", errNoBudget},
		{(*survey).trouble, func(*survey) {}, OK, "none", nil},
		{
			(*survey).trouble, func(s *survey) { s.busy[store.ErrThrottled], s.busy[store.ErrConflict] = 2, 1 },
			Note, `1 times "` + store.ErrConflict.Error() + `", 2 times "` + store.ErrThrottled.Error() + `"`, nil,
		},
		{(*survey).leftovers, left(), OK, "none", nil},
		{
			(*survey).leftovers, left("leasehold-probe-1/a/", "leasehold-probe-1/b/", "leasehold-probe-2/", "other/"),
			Note, "objects under leasehold-probe-1, leasehold-probe-2: delete them, unless another probe is at work", nil,
		},
		{
			(*survey).leftovers, left("leasehold-probe-1/", "leasehold-probe-2/", "leasehold-probe-3/", "leasehold-probe-4/"),
			Note, "objects under leasehold-probe-1, leasehold-probe-2, leasehold-probe-3: delete them, unless another probe is at work", nil,
		},
		{(*survey).times, shows(time.Time{}, time.Time{}), Bad, "none", nil},
		{(*survey).times, shows(time.Time{}, now), Bad, "answers do not say when they were given, or passed a cache", nil},
		{(*survey).times, shows(now, time.Time{}), Bad, "objects do not say when they were written", nil},
		{(*survey).times, shows(now, now), OK, "in units of 1s", nil},
		{(*survey).times, func(s *survey) { s.spells.failed = errNoBudget }, Unknown, "", errNoBudget},
		{(*survey).clock, func(*survey) {}, Note, "cannot be compared with the store's", nil},
		{
			(*survey).clock, func(s *survey) { s.samples.add("get", now, now, now.Add(time.Minute)) },
			Note, "the store's is 1m0s to 1m1s ahead; too few answers to tell how fast it runs", nil,
		},
	} {
		s := surveyed(t, few)
		s.prefix = scratch + "0123456789abcdef/"
		c.given(s)
		if result, detail, err := c.run(s); result != c.result || detail != c.detail || !errors.Is(err, c.failed) {
			t.Errorf("%s, %q, %v, not %s, %q, %v", result, detail, err, c.result, c.detail, c.failed)
		}
	}
}

// refusing is an inspection that writes nothing.
type refusing struct {
	store.Inspection
	err error
}

func (r refusing) Overwrite(context.Context, string, []byte) error { return r.err }

// unpurged is a store that fails to delete past versions.
type unpurged struct {
	inspected
	err error
}

func (u *unpurged) Inspect() store.Inspection                  { return u }
func (u *unpurged) Purge(context.Context, string) (int, error) { return 1, u.err }

// TestTry: an answer that contradicts those before it is bad, unless nothing was written, or its object was replaced.
func TestTry(t *testing.T) {
	t.Parallel()
	gone := &store.Error{Op: "get", Kind: store.ErrNotExist}
	for _, c := range []struct {
		err    error
		wrote  bool
		retire bool
		want   Finding
		failed bool
	}{
		{nil, true, true, Finding{Result: Note, Detail: "done"}, false},
		{gone, true, false, Finding{Result: Bad, Detail: `an answer contradicts those before it: get "": object does not exist`}, false},
		{gone, false, false, Finding{Result: Unknown, Detail: `get "": object does not exist`}, true},
		{gone, true, true, Finding{Result: Unknown, Detail: "too many writes had no answer"}, false},
		{gone, false, true, Finding{Result: Unknown, Detail: "too many writes had no answer"}, false},
		{errNoBudget, true, true, Finding{Result: Unknown, Detail: errNoBudget.Error()}, true},
	} {
		s := surveyed(t, few)
		s.wrote = c.wrote
		s.retire("before")
		f, err := s.try(experiment{name: "this", uses: byList, run: func(s *survey) (Result, string, error) {
			if c.retire {
				s.retire("a")
			}
			return Note, "done", c.err
		}})
		c.want.Name, c.want.Uses = "this", byList
		if fmt.Sprintf("%+v", f) != fmt.Sprintf("%+v", c.want) || (err != nil) != c.failed {
			t.Errorf("%v: %+v, %v", c.err, f, err)
		}
	}
}

// TestFaultsCountWhateverEnds: a fault that an experiment has seen counts if the probe ends meanwhile; what else it says does not.
func TestFaultsCountWhateverEnds(t *testing.T) {
	t.Parallel()
	for _, result := range []Result{OK, Note, Unknown, Bad} {
		s := surveyed(t, few)
		ctx, end := context.WithCancel(t.Context())
		s.ctx = ctx //nolint:fatcontext // of this survey alone
		s.experiments = []experiment{{name: "this", run: func(*survey) (Result, string, error) { end(); return result, "seen", nil }}, {name: "next"}}
		err := s.run()
		if told := len(s.report.Findings) > 0; told != (result == Bad) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %+v, %v", result, s.report.Findings, err)
		}
	}
}
