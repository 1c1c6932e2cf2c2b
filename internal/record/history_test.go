package record_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/internal/record"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// lease is the n-th of a lock, each of a minute.
func lease(n int64, holder string) record.Past {
	from := noon.Add(time.Duration(n) * time.Minute)
	return record.Past{Token: 100 + n, Term: n, Holder: holder, From: from, To: from.Add(time.Minute - time.Millisecond), How: "released", First: 100 + n, Leases: 1}
}

// claimed is the record of the lease that follows on that one, over the record before.
func claimed(before record.Record, p record.Past) record.Record {
	return record.Record{Token: p.Token + 1, Term: p.Term + 1, TermToken: p.Token + 1, TTL: time.Second, WriteID: "w", History: before.Remember(p)}
}

// stored is what is read of a record that is written.
func stored(t *testing.T, r record.Record) record.Record {
	t.Helper()
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if r, err = record.Decode(body); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHistory: the last sixteen leases are remembered, the newest first, as they were.
func TestHistory(t *testing.T) {
	t.Parallel()
	var r record.Record
	var want []record.Past
	for n := int64(1); n <= 40; n++ {
		r = stored(t, claimed(r, lease(n, fmt.Sprintf("web-%d/4711", n%3))))
		want = append([]record.Past{lease(n, fmt.Sprintf("web-%d/4711", n%3))}, want...)
		if len(want) > 16 {
			want = want[:16]
		}
		if got := r.Past(); !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d leases it is\n%+v, want\n%+v", n, got, want)
		}
		if got := entries(t, r.History); got != len(want) {
			t.Fatalf("after %d leases there are %d entries", n, got)
		}
	}
	const newest = `,"history":[{"token":140,"term":40,"holder":"web-1/4711","from":"2026-11-20T12:40:00.000Z","to":"2026-11-20T12:40:59.999Z","how":"released"},{"token":139,`
	if body, err := r.Encode(); err != nil || !strings.Contains(string(body), newest) {
		t.Errorf("%s, %v", body, err)
	}
}

// TestHistoryOfOneCandidate: leases that are acquired again at once are one entry, and the one that
// comes after these is part of it too. Where the entry was not written by the claim of the record
// it is in, the lease that followed is another's.
func TestHistoryOfOneCandidate(t *testing.T) {
	t.Parallel()
	again := func(n int64, holder string) record.Past {
		p := lease(n, holder)
		p.How = record.EndedAgain
		return p
	}
	r := claimed(record.Record{}, lease(1, "a"))
	for n := int64(2); n <= 1000; n++ {
		r = stored(t, claimed(r, again(n, "b")))
	}
	run := lease(1000, "b")
	run.From, run.How, run.First, run.Leases = lease(2, "b").From, record.EndedAgain, 102, 999
	if got, want := r.Past(), []record.Past{run, lease(1, "a")}; !reflect.DeepEqual(got, want) {
		t.Fatalf("it is\n%+v, want\n%+v", got, want)
	}
	others := func(newest string) record.Record {
		return record.Record{Token: 1101, Term: 1001, TermToken: 1101, History: json.RawMessage(`[` + newest + `,{"token":100}]`)}
	}
	end := lease(1001, "b")
	for what, c := range map[string]struct {
		over record.Record
		one  bool
	}{
		"its last lease":                         {r, true},
		"a lease that was not counted":           {record.Record{Token: 1101, Term: 1001, TermToken: 1100, History: r.History}, false},
		"a lease of another name":                {record.Record{Token: 1101, Term: 1001, TermToken: 1101, History: claimed(record.Record{}, again(1000, "c")).History}, false},
		"a token that is no later":               {record.Record{Token: 1101, Term: 1001, TermToken: 1101, History: claimed(record.Record{}, again(1001, "b")).History}, false},
		"the last lease of a name that is long":  {claimed(record.Record{}, again(1000, strings.Repeat("b", 1000))), true},
		"a lease after one that ended otherwise": {claimed(record.Record{}, lease(1000, "b")), false},
		"a row of others":                        {others(`{"token":1100,"holder":"b","how":"acquired again","first":90,"leases":3}`), true},
		"a row with a token that is no later":    {others(`{"token":1101,"holder":"b","how":"acquired again","first":90,"leases":3}`), false},
		"what is no entry":                       {others(`{"token":0,"holder":"b","how":"acquired again"}`), false},
	} {
		p := end
		if strings.Contains(what, "long") {
			p.Holder = strings.Repeat("b", 1000)
		}
		next := claimed(c.over, p).History
		got := record.Record{History: next}.Past()[0]
		if one := got.Leases > 1; one != c.one || got.Token != 1101 || got.How != "released" || one && (got.First >= 1101 || !got.To.Equal(end.To)) {
			t.Errorf("%s: %+v", what, got)
		}
		if before, after := entries(t, c.over.History), entries(t, next); c.one && after != before || !c.one && after != before+1 {
			t.Errorf("%s: of %d entries there are %d", what, before, after)
		}
	}
}

// entries is how many a history has, of whatever kind.
func entries(t *testing.T, history json.RawMessage) int {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal(history, &all); err != nil {
		t.Fatalf("%s: %v", history, err)
	}
	return len(all)
}

// TestHistoryIsBounded: whatever the holders call themselves, a history has 4 KiB at most, and the
// newest entries are those that stay. Names are cut between two characters.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{
		strings.Repeat("x", 30<<10):        12,
		strings.Repeat("\x01", 30<<10):     4,
		strings.Repeat("\"\\", 15<<10):     8,
		strings.Repeat("<&>", 10<<10):      12,
		strings.Repeat("\u2028", 10<<10):   8,
		strings.Repeat("日本", 5<<10):        12,
		strings.Repeat("🙂", 7<<10) + "xyz": 12,
	} {
		var r record.Record
		for n := int64(1); n <= 40; n++ {
			p := lease(n, name)
			p.How = "by " + name
			if n%2 == 0 {
				p.How = "released"
			}
			r = claimed(r, p)
			if len(r.History) > record.MaxHistory {
				t.Fatalf("%.9q: %d bytes", name, len(r.History))
			}
			r = stored(t, r)
			past := r.Past()
			if len(past) < min(int(n), least) {
				t.Fatalf("%.9q: %d entries of %d in %d bytes", name, len(past), n, len(r.History))
			}
			for i, got := range past {
				head, cut := strings.CutSuffix(got.Holder, "…")
				if got.Token != 100+n-int64(i) || !cut || !strings.HasPrefix(name, head) || !utf8.ValidString(head) || len(head) < 88 || len(got.Holder) > 96 || len(got.How) > 96 {
					t.Fatalf("%.9q: %+v", name, got)
				}
			}
		}
	}
	short := strings.Repeat("x", 96)
	if got := claimed(record.Record{}, lease(1, short)).Past()[0].Holder; got != short {
		t.Errorf("what is not too long was cut: %q", got)
	}
}

// TestHistoryOfOthers: what somebody else has put there makes no lock unreadable, is no more work
// than its bytes, and is kept as it is until newer entries take its place.
func TestHistoryOfOthers(t *testing.T) {
	t.Parallel()
	const entry = `{"token":7,"holder":"a","from":"x","to":"","how":"b","later":[{"]":"}\"\\"}]}`
	for history, tokens := range map[string][]int64{
		`null`:                    nil,
		`7`:                       nil,
		`"]"`:                     nil,
		`{"a":[1,2]}`:             nil,
		`[]`:                      nil,
		`[ ]`:                     nil,
		`[1,"a,b",null,[],{}]`:    nil,
		`[` + entry + `]`:         {7},
		`[ 1 , ` + entry + " \t]": {7},
		`[{"token":0},{"token":-1},{"token":"7"},{"token":1e3},{"token":9,"holder":8},{"token":5}]`:    {5},
		`[{"token":9,"leases":5,"first":12},{"token":8,"leases":-1},{"token":3,"leases":2,"first":2}]`: {9, 8, 3},
		`[` + strings.Repeat(entry+",", 500) + `1]`:                                                    slicesOf(7, 16),
		`["` + strings.Repeat("x", 50<<10) + `",` + entry + `]`:                                        nil,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000):                                          nil,
	} {
		body := strings.TrimSuffix(plain, "}\n") + `,"history":` + history + "}\n"
		r, err := record.Decode([]byte(body))
		if err != nil {
			t.Errorf("%.60s: %v", history, err)
			continue
		}
		if again, err := r.Encode(); err != nil || string(again) != body {
			t.Errorf("%.60s: it is written as %.300s, %v", history, again, err)
		}
		var got []int64
		for _, p := range r.Past() {
			got = append(got, p.Token)
			if p.Leases < 1 || p.First < 1 || p.First > p.Token || p.Leases == 1 && p.First != p.Token {
				t.Errorf("%.60s: %+v", history, p)
			}
		}
		if !reflect.DeepEqual(got, tokens) {
			t.Errorf("%.60s: it tells of %v, want %v", history, got, tokens)
		}
		next := claimed(r, lease(1, "me"))
		if stored(t, next).Past()[0] != lease(1, "me") || len(next.History) > record.MaxHistory {
			t.Errorf("%.60s: the next one is %.300s", history, next.History)
		}
		if packed := record.Unpack(record.Pack(r.History)); string(packed) != string(r.History) {
			t.Errorf("%.60s: unpacked it is %.300s", history, packed)
		}
		if strings.HasPrefix(history, "["+entry) && !strings.Contains(string(next.History), entry) {
			t.Errorf("%.60s: a field of a later version is lost: %.300s", history, next.History)
		}
	}
}

func slicesOf(n int64, times int) (all []int64) {
	for range times {
		all = append(all, n)
	}
	return all
}

// TestHistoryGivesWay: a record that was not too long is not so because of its history.
func TestHistoryGivesWay(t *testing.T) {
	t.Parallel()
	r := claimed(record.Record{}, lease(1, "a"))
	short, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	room := record.MaxSize - len(short) - len(`,"x":""`)
	longest := len(`,"history":`) + len(r.History)
	for more, entries := range map[int]int{0: 1, 1: 0, longest: 0} {
		r.Unknown = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", room+more) + `"`)}
		if got := len(stored(t, r).Past()); got != entries {
			t.Errorf("with %d bytes more than fit there are %d entries", more, got)
		}
	}
	one := r
	one.History = json.RawMessage("7") // by somebody else
	one.Unknown = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", room+longest) + `"`)}
	if got := stored(t, one); got.History != nil {
		t.Errorf("it stays: %s", got.History)
	}
	r.Unknown = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", room+longest+1) + `"`)}
	if _, err := r.Encode(); err == nil {
		t.Error("a record that is too long without its history is written")
	}
}

// TestTerm: a number that was counted with another token is not this lease's, and one that cannot be
// one is none.
func TestTerm(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string][2]int64{
		`"term":1,"term_token":42`:                   {1, 2},
		`"term":7,"term_token":42`:                   {7, 8},
		`"term":7,"term_token":41`:                   {0, 8},
		`"term":7`:                                   {0, 8},
		`"term_token":42`:                            {0, 1},
		`"term":0,"term_token":42`:                   {0, 1},
		`"term":-7,"term_token":42`:                  {0, 1},
		`"term":"7","term_token":42`:                 {0, 1},
		`"term":7,"term_token":[42]`:                 {0, 8},
		`"term":4611686018427387903,"term_token":42`: {4611686018427387903, 1},
		`"term":4611686018427387904,"term_token":42`: {0, 1},
	} {
		r, err := record.Decode([]byte(strings.Replace(plain, `"token":42`, `"token":42,`+fields, 1)))
		if got := [2]int64{r.CountedTerm(), r.NextTerm()}; err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", fields, got, err, want)
		}
	}
}

// TestEnd: how a lease ended is told by its record, and by when the next one began.
func TestEnd(t *testing.T) {
	t.Parallel()
	renewed, expires, next := noon, noon.Add(time.Minute), noon.Add(time.Hour)
	for _, c := range []struct {
		title     string
		held      bool
		ended     string
		goesOn    string // how it ended while there is no next one
		at        time.Time
		how       string // how it ended when there is
		atTheNext time.Time
	}{
		{"held", true, "", "", time.Time{}, "taken over", next},
		{"released", false, "", "released", renewed, "released", renewed},
		{"broken", false, "broken", "broken", renewed, "broken", renewed},
		{"taken over", false, "taken over", "taken over", expires, "taken over", next},
	} {
		r := record.Record{Held: c.held, Ended: c.ended, RenewedAt: renewed, ExpiresAt: expires}
		if at, how := r.End(time.Time{}); !at.Equal(c.at) || how != c.goesOn {
			t.Errorf("%s, and the last: %q at %v", c.title, how, at)
		}
		if at, how := r.End(next); !at.Equal(c.atTheNext) || how != c.how {
			t.Errorf("%s, and there is another: %q at %v", c.title, how, at)
		}
	}
}

// TestPack: a history is packed to a tenth, and unpacked it is as it was.
func TestPack(t *testing.T) {
	t.Parallel()
	var r record.Record
	most := 0
	for n := int64(1); n <= 100; n++ {
		p := lease(n*n, fmt.Sprintf("worker-7d9f8b6c5d-%d/1", n/2%4)) // now and then two in a row are one's
		p.How = []string{"released", "released", "released", "taken over", record.EndedAgain}[n%5]
		if n%7 == 0 {
			p.Term = 0
		}
		r = claimed(r, p)
		packed := record.Pack(r.History)
		if got := record.Unpack(packed); string(got) != string(r.History) {
			t.Fatalf("%s became %s", r.History, got)
		}
		most = max(most, len(packed))
	}
	t.Logf("%d bytes of %d", most, len(r.History))
	if most > len(r.History)/6 {
		t.Errorf("%d bytes of %d", most, len(r.History))
	}
	if record.Pack(nil) != "" || record.Unpack("") != nil {
		t.Error("no history is one")
	}
}

// compareAsJSON compares what was read of a history with what encoding/json reads.
func compareAsJSON(t *testing.T, history []byte, got []record.Past) {
	t.Helper()
	type entry struct {
		Token, Term, First, Leases int64
		Holder, How                string
		From, To                   string
	}
	var all []json.RawMessage
	if len(history) > record.MaxHistory || json.Unmarshal(history, &all) != nil || len(all) > record.MaxPast {
		return // then it is cut
	}
	for _, raw := range all {
		var e entry
		if json.Unmarshal(raw, &e) != nil || e.Token < 1 {
			continue
		}
		if len(got) == 0 {
			t.Fatalf("%s is left out", raw)
		}
		p := got[0]
		got = got[1:]
		if p.Token != e.Token || p.Term != max(e.Term, 0) || len(e.Holder) <= 96 && p.Holder != e.Holder || len(e.How) <= 96 && p.How != e.How ||
			p.Leases > 1 && (p.Leases != e.Leases || p.First != e.First) || !p.From.Equal(timeOf(e.From)) || !p.To.Equal(timeOf(e.To)) {
			t.Fatalf("%s is read as %+v", raw, p)
		}
	}
	if len(got) > 0 {
		t.Fatalf("%+v stands nowhere", got)
	}
}

// timeOf is the time that a text is; the zero time if it is none.
func timeOf(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}

// FuzzHistory: whatever lies there, a claim takes it over within the bounds, tells first of the
// lease that it writes over, and packs it without a loss.
func FuzzHistory(f *testing.F) {
	f.Add([]byte(`[{"token":7,"term":3,"holder":"a","from":"2026-11-20T12:40:00.000Z","to":"2026-11-20T12:41:00.000Z","how":"acquired again"}]`), "a")
	f.Add([]byte(`[{"token":7,"holder":"\u2028","from":"","to":"","how":"","first":3,"leases":4},{"token":1}]`), "\u2028")
	f.Add([]byte(`[1,"]",{"a":["\\\"]"]},]`), "\x00")
	f.Add([]byte(`{}`), "<&>")
	f.Add([]byte(`[{"token":7,"holder":"a","from":"2026-11-20T12:40:00.000Ze","to":"20T12:41:00.000Z","how":""}]`), "a") // no times
	f.Fuzz(func(t *testing.T, history []byte, holder string) {
		body := append(append([]byte(strings.TrimSuffix(plain, "}\n")+`,"history":`), history...), '}')
		r, err := record.Decode(body)
		if err != nil {
			return // it was no JSON
		}
		r.TermToken = r.Token
		if packed := record.Unpack(record.Pack(r.History)); string(packed) != string(r.History) {
			t.Fatalf("%q was unpacked as %q", r.History, packed)
		}
		before := r.Past()
		if len(before) > record.MaxPast {
			t.Fatalf("%d entries", len(before))
		}
		compareAsJSON(t, r.History, before)
		p := record.Past{Token: r.Token, Term: 1, Holder: strings.ToValidUTF8(holder, "?"), From: noon, To: noon.Add(time.Hour), How: "released"}
		next := record.Record{Token: r.Token + 1, TTL: time.Second, WriteID: "x", History: r.Remember(p)}
		if len(next.History) > record.MaxHistory || !json.Valid(next.History) {
			t.Fatalf("%d bytes: %s", len(next.History), next.History)
		}
		after := stored(t, next).Past()
		if len(after) == 0 || len(after) > record.MaxPast || after[0].Token != r.Token || !after[0].To.Equal(p.To) {
			t.Fatalf("after %q it is %+v", history, after)
		}
		left := before
		if after[0].Leases > 1 {
			left = before[1:]
		}
		for i, p := range after[1:] {
			if !reflect.DeepEqual(p, left[i]) {
				t.Fatalf("%+v became %+v", left[i], p)
			}
		}
		if packed := record.Unpack(record.Pack(next.History)); string(packed) != string(next.History) {
			t.Fatalf("%q was unpacked as %q", next.History, packed)
		}
	})
}
