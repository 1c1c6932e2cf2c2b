package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// A member is a store in memory under a URL of its own.
type memberStore struct {
	*memstore.Store
	url      string
	careless bool   // it ignores the conditions of writes
	denies   bool   // a trial
	asked    func() // is called before each trial's request; or nil
	split    bool   // it takes no trial of the whole
	keeps    bool   // what is to be deleted
}

func (s *memberStore) String() string { return s.url }

func (s *memberStore) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if strings.HasPrefix(key, quorumstore.Scratch) {
		switch {
		case s.denies:
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrDenied}
		case s.careless:
			only = store.IfAbsent()
			if now, err := s.Get(ctx, key, ""); err == nil {
				only = store.IfMatch(now.Version)
			}
		case s.asked != nil:
			s.asked()
		}
	}
	if s.split && strings.HasPrefix(key, "leasehold-doctor-") {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Put(ctx, key, body, only)
}

func (s *memberStore) Delete(ctx context.Context, key string) error {
	if s.keeps {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Delete(ctx, key)
}

func (s *memberStore) Purge(_ context.Context, directory string) (int, error) {
	if s.keeps && strings.HasPrefix(directory, "leasehold-doctor-") {
		return 1, &store.Error{Op: "purge", Key: directory, Kind: store.ErrDenied}
	}
	return 0, nil
}

// quorumDiagnosis is what the doctor found out about a quorum.
type quorumDiagnosis struct {
	out, said bytes.Buffer
	err       error
	left      int    // scratch objects, in all members
	full      string // stdout takes no text that has this; empty: it takes all
}

func (r *quorumDiagnosis) Write(text []byte) (int, error) {
	if r.full != "" && strings.Contains(string(text), r.full) {
		return 0, errors.New("it is full")
	}
	return r.out.Write(text)
}

// diagnoseMembers has the doctor look at a quorum of three, which the function may change first.
func diagnoseMembers(t *testing.T, output string, change func(members []*memberStore, interrupt func())) *quorumDiagnosis {
	t.Helper()
	r := &quorumDiagnosis{}
	r.diagnose(t, output, change)
	return r
}

func (r *quorumDiagnosis) diagnose(t *testing.T, output string, change func(members []*memberStore, interrupt func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var members []*memberStore
		var stores []store.Store
		where := "quorum:///"
		for i := range 3 {
			m := &memberStore{Store: memstore.New(), url: fmt.Sprintf("s3://%c", 'a'+i)}
			if members, stores = append(members, m), append(stores, m); i == 2 {
				stores[i] = struct{ store.Store }{m} // which has no directories
			}
			where += []string{"?", "&", "&"}[i] + "member=" + url.QueryEscape(m.url)
		}
		quorum, err := quorumstore.New(stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = quorum.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var sig os.Signal
		change(members, func() {
			sig = syscall.SIGINT
			cancel()
		})
		a := &app{stdout: r, console: console{w: &r.said}}
		a.output = output
		if err = a.console.begin(&a.flags); err != nil {
			t.Fatal(err)
		}
		d := &diagnosis{app: a, races: 1, largest: 1 << 16, use: string(leasehold.LayoutObject)}
		d.open = func(_ context.Context, url string) (store.Store, error) {
			for _, m := range members {
				if m.url == url {
					return m, nil
				}
			}
			if url == where {
				return quorum, nil
			}
			return nil, errors.New("there is no " + url)
		}
		r.err = d.diagnoseQuorum(ctx, target{name: where, storeURL: where}, quorum, func() os.Signal { return sig })
		for _, m := range members {
			for e, err := range m.List(context.WithoutCancel(ctx), "", "") {
				if err != nil || strings.Contains(e.Key, "leasehold-probe") || strings.Contains(e.Key, "leasehold-doctor") {
					r.left++
				}
			}
		}
	})
}

func (r *quorumDiagnosis) code() int {
	if end, is := errors.AsType[*exit](r.err); is {
		return end.code
	}
	return 0
}

// TestDoctorOfQuorum: each member is probed by itself, then the whole, and nothing is left in any of them.
func TestDoctorOfQuorum(t *testing.T) {
	t.Parallel()
	r := diagnoseMembers(t, "text", func([]*memberStore, func()) {})
	if r.err != nil || r.left > 0 {
		t.Errorf("it ends with %v, and leaves %d objects", r.err, r.left)
	}
	out := r.out.String()
	for _, want := range []string{
		"Member 1 of 3, s3://a\n\nok ", "\n\nMember 2 of 3, s3://b\n\nok ", "\n\nMember 3 of 3, s3://c\n\nok ",
		"\n\nThe quorum quorum:///?member=s3://a&member=s3://b&member=s3://c\n\nok ",
	} {
		begin, after, found := strings.Cut(out, want)
		if strings.HasPrefix(want, "Member 1") && begin != "" || !found {
			t.Fatalf("there is no %q at\n%s", want, out)
		}
		out = after
	}
	for _, where := range []string{"s3://a", "s3://b", "s3://c", "quorum:///?member=s3://a&member=s3://b&member=s3://c"} {
		if !strings.Contains(r.out.String(), "\nVerdict on "+where+"\n  object                  safe\n") {
			t.Errorf("there is no verdict on %s:\n%s", where, &r.out)
		}
	}
	// A member of a bucket has its price, and the whole none of its own.
	said := strings.Split(strings.TrimSpace(r.said.String()), "\n")
	if len(said) != 4 || !strings.HasPrefix(said[0], "leasehold: s3://a: at most ") || !strings.Contains(said[0], " at the list prices of S3 Standard") ||
		!strings.HasPrefix(said[3], "leasehold: quorum:///?") || !strings.Contains(said[3], " requests, each of which is several to its members, and ") || strings.Contains(said[3], "$") {
		t.Errorf("it says\n%s", &r.said)
	}
}

// TestDoctorOfQuorumWithUnsafeMembers: the whole is no safer than its members. One that is unsafe counts for more than one
// that could not be probed, whichever is the first; and the others are probed all the same. The JSON says so of each.
func TestDoctorOfQuorumWithUnsafeMembers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		careless, denies int
		code             int
		says             string
	}{
		"a careless one at last":  {2, 0, exitUnsafe, "the whole is no safer than its members, and 2 of 3 are not found safe: s3://a, s3://c"},
		"a careless one at first": {0, 2, exitUnsafe, "the whole is no safer than its members, and 2 of 3 are not found safe: s3://a, s3://c"},
		"none that is careless":   {-1, 1, exitDenied, "the whole is no safer than its members, and 1 of 3 are not found safe: s3://b"},
	} {
		r := diagnoseMembers(t, "text", func(members []*memberStore, _ func()) {
			for i, m := range members {
				m.careless, m.denies = i == tt.careless, i == tt.denies
			}
		})
		if r.code() != tt.code || !strings.Contains(r.err.Error(), tt.says) {
			t.Errorf("%s: it ends with %v, want %d and %q", name, r.err, tt.code, tt.says)
		}
		for i, m := range []string{"s3://a", "s3://b", "s3://c"} {
			verdict := "\nVerdict on " + m + "\n  object                  "
			switch _, of, found := strings.Cut(r.out.String(), verdict); {
			case i == tt.denies:
				warning := "leasehold: the member " + m + " could not be probed, and the others are: access denied\n"
				if found || !strings.Contains(r.out.String(), "BAD   access denied\n\n") || !strings.Contains(r.said.String(), warning) {
					t.Errorf("%s: of %s it says\n%s\n%s", name, m, &r.out, &r.said)
				}
			case !strings.HasPrefix(of, map[bool]string{true: "NO\n", false: "safe\n"}[i == tt.careless]):
				t.Errorf("%s: of %s it says\n%s", name, m, &r.out)
			}
		}
		if !strings.Contains(r.out.String(), "\nVerdict on quorum:///") {
			t.Errorf("%s: the whole is not probed:\n%s", name, &r.out)
		}
	}

	r := diagnoseMembers(t, "json", func(members []*memberStore, _ func()) { members[1].denies, members[2].careless = true, true })
	var report quorumReport
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s", err, &r.out)
	}
	if says := "the whole is no safer than its members, and 2 of 3 are not found safe: s3://b, s3://c"; r.code() != exitUnsafe || !strings.Contains(r.err.Error(), says) {
		t.Errorf("it ends with %v, want %d and %q", r.err, exitUnsafe, says)
	}
	if report.Report == nil || report.Proves("quorum:///?member=s3://a&member=s3://b&member=s3://c", "object") != nil || len(report.Members) != 3 {
		t.Fatalf("the report is\n%s", &r.out)
	}
	for i, why := range []string{"", "access denied", "not proven to be safe: s3://c, for object: "} {
		m, name := report.Members[i], fmt.Sprintf("s3://%c", 'a'+i)
		if m.Member != name || !strings.HasPrefix(m.Error, why) || (m.Error == "") != (why == "") || (m.Report == nil) != (i == 1) || m.Report != nil && m.Report.Store != name {
			t.Errorf("of member %d it has %+v", i+1, m)
		}
	}
}

// TestDoctorOfQuorumInterrupted: after a signal nothing is claimed of what was not tried, and the exit code is the signal's.
func TestDoctorOfQuorumInterrupted(t *testing.T) {
	t.Parallel()
	r := diagnoseMembers(t, "json", func(members []*memberStore, interrupt func()) { members[1].asked = interrupt })
	if r.code() != exitSignal+int(syscall.SIGINT) || !errors.Is(r.err, errInterrupted) || r.left > 0 {
		t.Errorf("it ends with %v, and leaves %d objects", r.err, r.left)
	}
	var report struct {
		Store    string
		Verdicts []probe.Verdict
		Members  []memberReport
	}
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil || report.Store != "" || report.Verdicts != nil || len(report.Members) != 2 ||
		report.Members[0].Error != "" || report.Members[1].Error != "" {
		t.Errorf("%v: the report is\n%s", err, &r.out)
	}
}

// TestDoctorOfQuorumThatFails: members that are safe, each by itself, may be no quorum all the same. What they were found to be
// is told. One that is unsafe by itself counts for more.
func TestDoctorOfQuorumThatFails(t *testing.T) {
	t.Parallel()
	worse := diagnoseMembers(t, "json", func(members []*memberStore, _ func()) {
		for i, m := range members {
			m.split, m.careless = true, i == 0
		}
	})
	if says := "the whole is no safer than its members, and 1 of 3 are not found safe: s3://a"; worse.code() != exitUnsafe || !strings.HasSuffix(worse.err.Error(), says) {
		t.Errorf("with an unsafe one it ends with %v", worse.err)
	}
	denied := diagnoseMembers(t, "json", func(members []*memberStore, _ func()) {
		for i, m := range members {
			m.split, m.denies = true, i == 0
		}
	})
	if denied.code() != exitUnavailable || !strings.Contains(denied.err.Error(), "no majority of the members; s3://") {
		t.Errorf("with one that denies access it ends with %v", denied.err)
	}
	r := diagnoseMembers(t, "json", func(members []*memberStore, _ func()) {
		for _, m := range members {
			m.split = true
		}
	})
	if r.code() != exitUnavailable || !strings.Contains(r.err.Error(), "no majority of the members; s3://") {
		t.Errorf("it ends with %v", r.err)
	}
	var report struct {
		Store   string
		Members []memberReport
	}
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil || report.Store != "" || len(report.Members) != 3 || report.Members[2].Report == nil {
		t.Errorf("%v: %s", err, &r.out)
	}
}

// TestDoctorOfQuorumTellsWhatIsLeft: what a member does not delete is told, of its own probe and of that of the whole.
func TestDoctorOfQuorumTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := diagnoseMembers(t, "text", func(members []*memberStore, _ func()) { members[1].keeps = true })
	random := regexp.MustCompile(`[a-z2-7]{26}|\b\d+ scratch`)
	var said []string
	for line := range strings.Lines(random.ReplaceAllString(r.said.String(), "N")) {
		if !strings.Contains(line, "at most") {
			said = append(said, line)
		}
	}
	const want = "leasehold: N objects under !leasehold-quorum-scratch-leasehold-probe-*/ could not be removed\n" +
		"leasehold: scratch objects under leasehold-doctor-N/*/ are left: s3://b: access denied\n" +
		"leasehold: directories under leasehold-doctor-N are left in s3://b: access denied\n"
	if got := strings.Join(said, ""); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

// TestDoctorOfQuorumUnheard: doctor fails if it cannot write a report to stdout, and probes no further members.
func TestDoctorOfQuorumUnheard(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"Member 1 of 3", "Verdict on s3://a\n", "The quorum", "Verdict on quorum:", `"members":`} {
		r, output := &quorumDiagnosis{full: full}, "text"
		if full == `"members":` {
			output = "json"
		}
		r.diagnose(t, output, func(members []*memberStore, _ func()) {
			for i, m := range members {
				m.asked = func() {
					if full == "Member 1 of 3" || full == "Verdict on s3://a\n" && i > 0 {
						t.Errorf("full at %q, and member %d is probed", full, i+1)
					}
				}
			}
		})
		if r.code() != exitInternal || !strings.Contains(r.err.Error(), "it is full") {
			t.Errorf("full at %q: it ends with %v", full, r.err)
		}
	}
}

// TestDoctorOpensMembersAsGiven: a member is opened once more by the URL in that of the quorum, with all its parameters, and
// only one that is not in it by its name.
func TestDoctorOpensMembersAsGiven(t *testing.T) {
	t.Parallel()
	where := "quorum:///?" + url.Values{"member": {"s3://a?region=x", "s3://denied?region=x", "s3://b?region=x"}}.Encode()
	for member, want := range map[string]string{
		"s3://b": "s3://a?region=x s3://denied?region=x s3://b?region=x",
		"s3://c": "s3://a?region=x s3://denied?region=x s3://b?region=x s3://c",
	} {
		var opened []string
		d := &diagnosis{open: func(_ context.Context, url string) (store.Store, error) {
			opened = append(opened, url)
			if strings.Contains(url, "denied") {
				return nil, store.ErrDenied
			}
			return &memberStore{url: strings.TrimSuffix(url, "?region=x")}, nil
		}}
		st, err := d.again(target{storeURL: where}, &memberStore{url: member})(t.Context())
		if got := strings.Join(opened, " "); err != nil || st.String() != member || got != want {
			t.Errorf("%s: %v, %v, by %s; want %s", member, st, err, got, want)
		}
	}
	if _, err := (&diagnosis{}).again(target{storeURL: "quorum:///?member=%"}, &memberStore{})(t.Context()); err == nil {
		t.Error("a URL that cannot be is opened")
	}
}
