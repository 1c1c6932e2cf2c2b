package s3lect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// frequent makes a follower look as often as the original package does.
func frequent(c *s3lect.ElectorConfig) { c.InfrequentInterval = originalInterval }

// recordIn is the record of leasehold in the lockfile.
func recordIn(t *testing.T, st *memstore.Store) record.Record {
	t.Helper()
	var file struct {
		Leasehold json.RawMessage `json:"leasehold"`
	}
	if err := json.Unmarshal([]byte(read(t, st)), &file); err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode(file.Leasehold)
	if err != nil {
		t.Fatalf("%v: %s", err, read(t, st))
	}
	return r
}

func TestTheLockfile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		for _, held := range []bool{true, false} {
			r, seen := recordIn(t, st), contentsOf(t, read(t, st))
			if r.Held != held || r.Holder != "a" || r.Address != "a:8443" || r.TTL != 15*time.Second || r.Token < 1 {
				t.Errorf("the record is %+v", r)
			}
			want := s3lect.LeaderRecord{LeaderID: "a", LeaderAddr: "a:8443", LastUpdated: r.RenewedAt}
			if !held {
				want = s3lect.LeaderRecord{}
			}
			if seen != want {
				t.Errorf("an instance of the original package sees %+v and not %+v", seen, want)
			}
			a.quit(t)
		}
	})
}

// While the leader of the original package renews, it is left alone, however long; its
// renewals are seen as such. When it is gone, we take over, after its LeaderTimeout.
func TestTheOriginalLeadsAndIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		o := beginOriginal(t, st, "old")
		o.lead(t)
		a := begin(t, st, "new", frequent)
		s, err := a.WaitForNextElection(t.Context(), time.Time{})
		if err != nil || s.IsLeader || s.LeaderID != "old" || s.LeaderAddr != "old:8443" {
			t.Fatalf("%+v, %v", s, err)
		}
		elected := s.LastElectionTime
		time.Sleep(time.Hour)
		if s := a.GetLeadershipStatus(); s.LeaderID != "old" || !s.LastElectionTime.Equal(elected) || time.Since(s.LeaderLastSeen) > 3*originalInterval {
			t.Errorf("after an hour its status is %+v", s)
		}
		if !o.IsLeader() || a.net.Counts().Put > 0 {
			t.Fatalf("the leader was disturbed: %+v", a.net.Counts())
		}
		o.crash()
		gone := contentsOf(t, read(t, st)).LastUpdated
		a.lead(t)
		if took := time.Since(gone); took < originalTimeout || took > 30*time.Second {
			t.Errorf("it took over %v after the last renewal", took)
		}
		if r := recordIn(t, st); r.Token < elected.UnixMilli() {
			t.Errorf("its token %d is below that of the time, %d", r.Token, elected.UnixMilli())
		}
	})
}

func TestTheOriginalResigns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		o := beginOriginal(t, st, "old")
		o.lead(t)
		a := begin(t, st, "new", frequent)
		time.Sleep(time.Minute)
		o.resign(t)
		resigned := time.Now()
		a.lead(t)
		if took := time.Since(resigned); took > 3*originalInterval {
			t.Errorf("it took over after %v", took)
		}
	})
}

// The followers of the original package see our leader fresh, for an hour, and never
// try to write.
func TestTheOriginalFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "new", nil)
		a.lead(t)
		old := []*original{beginOriginal(t, st, "old-1"), beginOriginal(t, st, "old-2")}
		time.Sleep(time.Hour)
		for _, o := range old {
			if o.IsLeader() || o.net.Counts().Put > 0 {
				t.Errorf("%s leads: %t, %+v", o.id, o.IsLeader(), o.net.Counts())
			}
		}
		if got := a.deeds(); len(got) != 1 || !a.IsLeader() {
			t.Errorf("the leader's hooks were called for %v", got)
		}
		// A free lockfile is taken at the next look of theirs.
		a.quit(t)
		time.Sleep(originalInterval)
		synctest.Wait()
		if old[0].IsLeader() == old[1].IsLeader() {
			t.Errorf("leading: %t, %t", old[0].IsLeader(), old[1].IsLeader())
		}
		if strings.Contains(read(t, st), "leasehold") {
			t.Errorf("the double is not like the original, which drops what it does not know: %s", read(t, st))
		}
	})
}

// The token is lost with each leader of the original package, and goes on growing all
// the same, also for a process that has seen none of it.
func TestTokensGrowAcrossTheOriginal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var last int64
		for n := range 10 {
			a := begin(t, st, fmt.Sprintf("new-%d", n), frequent)
			a.lead(t)
			r := recordIn(t, st)
			if r.Token <= last {
				t.Errorf("token %d after %d", r.Token, last)
			}
			last = r.Token
			a.quit(t)
			time.Sleep(time.Second) // tokens begin at the time, in milliseconds
			o := beginOriginal(t, st, "old")
			o.lead(t)
			if n%2 == 0 {
				o.resign(t)
			} else {
				o.crash()
			}
		}
	})
}

// A rolling upgrade of five instances and back, one at a time, by graceful stops and
// by crashes: there is always a leader again, nobody has to clean up, and between our
// own instances no two lead at once.
func TestARollingUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		const n = 5
		old, replaced := make([]*original, n), make([]*instance, n)
		for i := range n {
			old[i] = beginOriginal(t, st, fmt.Sprintf("server-%d", i))
		}
		settle := func() {
			t.Helper()
			time.Sleep(time.Minute)
			leaders := 0
			for i := range n {
				if old[i] != nil && old[i].IsLeader() {
					leaders++
				}
				if replaced[i] != nil && replaced[i].IsLeader() {
					leaders++
				}
			}
			if leaders != 1 {
				t.Errorf("%d leaders; the lockfile is %s", leaders, read(t, st))
			}
		}
		for i := range n { // the same ServerID, as in life
			if i%2 == 0 {
				old[i].resign(t)
			} else {
				old[i].crash()
			}
			old[i], replaced[i] = nil, begin(t, st, fmt.Sprintf("server-%d", i), frequent)
			settle()
		}
		for i := range n { // and back
			replaced[i].quit(t)
			replaced[i], old[i] = nil, beginOriginal(t, st, fmt.Sprintf("server-%d", i))
			settle()
		}
	})
}

// A lock of leasehold itself and other people's objects are never written over.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	for _, foreign := range []string{
		``, `null`, `[]`, `{}`, `{"lastUpdated": null}`, `{"leaderID": "a"}`, `{"leaderID": 7, "lastUpdated": "2026-01-01T00:00:00Z"}`,
		`{"lastUpdated": "yesterday"}`, `{"LASTUPDATED": "2026-01-01T00:00:00Z"}`,
		`{"lastUpdated": "2026-01-01T00:00:00Z", "version": 3}`,
		`{"leaderID": "a", "lastUpdated": "2026-01-01T00:00:00Z"} and more`,
		`{"leaderID": "a", "lastUpdated": "2026-01-01T00:00:00Z", "leasehold": {"format": 2}}`,
		`{"leaderID": "a", "lastUpdated": "2026-01-01T00:00:00Z", "leasehold": null}`,
		`{"format":1,"token":1,"state":"free","holder":"a","address":"","ttl_ms":1000,"write_id":"a.1","session":""}`,
	} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			if _, err := st.Put(t.Context(), lockfile, []byte(foreign), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			a := begin(t, st, "new", nil)
			time.Sleep(10 * time.Minute)
			if got := read(t, st); got != foreign || a.IsLeader() {
				t.Errorf("%s became %s", foreign, got)
			}
		})
	}
}

// If another puts his object over a leader's lockfile, the leader steps down and the
// object stays.
func TestAForeignObjectOverALockfile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "new", nil)
		a.lead(t)
		o, err := st.Get(t.Context(), lockfile, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Put(t.Context(), lockfile, []byte("a note"), store.IfMatch(o.Version)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := read(t, st); got != "a note" || a.IsLeader() || a.last().what != "lose" {
			t.Errorf("the object is %s", got)
		}
	})
}
