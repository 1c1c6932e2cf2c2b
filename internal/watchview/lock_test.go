package watchview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
)

// began is when every view here begins.
var began = time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)

// at is so many seconds later.
func at(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

func held(holder string, token leasehold.Token, age time.Duration) leasehold.Info {
	return leasehold.Info{
		Key: "l", Layout: leasehold.LayoutObject, Exists: true, Held: true, Holder: holder,
		Token: token, TTL: 15 * time.Second, Age: age, Address: "10.0.0.1:80", RenewedAt: began,
	}
}

func freed(i leasehold.Info) leasehold.Info {
	i.Held = false
	return i
}

// A happening is an event and when it is.
type happening struct {
	at int
	ev watchview.Event
}

func change(at0 int, kind leasehold.ChangeKind, i leasehold.Info) happening {
	return happening{at0, watchview.Changed{Change: leasehold.Change{Kind: kind, Info: i, Time: at(at0)}}}
}

func trouble(at0 int, err error) happening {
	return happening{at0, watchview.Changed{
		Change:  leasehold.Change{Kind: leasehold.Unreadable, Info: held("a", 7, 0), Time: at(at0), Err: err},
		Trouble: err.Error(),
	}}
}

func text(lines []watchview.Line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l.Text(), " ") + "\n")
	}
	return b.String()
}

// A lock is shown as its changes say.
func TestLock(t *testing.T) {
	t.Parallel()
	foreign := fmt.Errorf("l: %w", leasehold.ErrForeignObject)
	session := held("a", 7, time.Hour)
	session.Session = "s/1"
	byClock := held("a", 7, -1)
	evil := held("a\x1b[2Jb", 7, 0)
	evil.Address = "x\u202ey"
	for _, tc := range []struct {
		name   string
		begin  leasehold.Info
		events []happening
		now    int
		want   []string
		not    []string
	}{
		{
			"nothing there",
			leasehold.Info{Age: -1},
			nil, 2,
			[]string{"state    absent\n", "store    answered 2s ago\n", "none since this began"},
			[]string{"holder", "lease", "age"},
		},
		{
			"free", freed(held("a", 7, 3*time.Second)), nil, 2,
			[]string{"state    free\n", "last     a\n", "token    7\n", "age      5s since"},
			[]string{"lease", "holder"},
		},
		{
			"held, and the time goes on", held("a", 7, 3*time.Second), nil, 2,
			[]string{"state    held\n", "holder   a\n", "lease    15s, 10s left\n", "age      5s since", "address  10.0.0.1:80\n", "layout   object\n"},
			[]string{"~"},
		},
		{
			"renewed", held("a", 7, 3*time.Second),
			[]happening{change(5, leasehold.Renewed, held("a", 7, time.Second))},
			6,
			[]string{"lease    15s, 13s left\n", "age      2s since", "none since this began"},
			nil,
		},
		{"by the holder's clock", byClock, nil, 4, []string{"lease    15s, ~11s left\n", "age      ~4s since"}, nil},
		{
			"not renewed in time", held("a", 7, 0), nil, 17,
			[]string{"state    held, and not renewed in time\n", "lease    15s, over for 2s\n"},
			nil,
		},
		{
			"expired", held("a", 7, 0),
			[]happening{change(17, leasehold.Expired, held("a", 7, 17*time.Second))},
			18,
			[]string{"state    expired:", "lease    15s, over for 3s\n", "last     a\n", "12:00:17  expired     a  token 7  10.0.0.1:80\n"},
			nil,
		},
		{
			"under a session, whose record tells nothing", session, nil, 5,
			[]string{"state    held\n", "lease    under the session s/1\n"},
			[]string{"left", "over for"},
		},
		{"elected, resigned, the last first", leasehold.Info{Age: -1}, []happening{
			change(1, leasehold.Elected, held("a", 7, 0)), change(4, leasehold.Resigned, freed(held("a", 7, 0))),
		}, 5, []string{"state    free\n", "last     a\n", "12:00:04  resigned    a  token 7  10.0.0.1:80\n12:00:01  elected     a"}, []string{"lease"}},
		{
			"vanished", held("a", 7, 0),
			[]happening{change(1, leasehold.Vanished, held("a", 7, 0))},
			2,
			[]string{"state    absent\n", "12:00:01  vanished    a"},
			[]string{"lease"},
		},
		{"the store does not answer", held("a", 7, 0), []happening{
			{1, watchview.Answered{}}, {2, watchview.Asked{}}, {3, watchview.Answered{Trouble: "store unavailable"}},
		}, 4, []string{"store    store unavailable\n         answered 3s ago\n", "state    held\n"}, nil},
		{
			"for a reason that is long", held("a", 7, 0),
			[]happening{{3, watchview.Answered{Trouble: strings.Repeat("some words ", 30)}}},
			4,
			[]string{"store    some words some words some words some words some words some words some\n         words some", "\n         answered 4s ago\nstate"},
			nil,
		},
		{"and answers again", held("a", 7, 0), []happening{
			{2, watchview.Answered{Trouble: "store unavailable"}}, {3, watchview.Asked{}}, {4, watchview.Answered{}},
		}, 4, []string{"store    answered 0s ago\n"}, []string{"unavailable"}},
		{
			"it takes long", held("a", 7, 0),
			[]happening{{1, watchview.Asked{}}},
			8,
			[]string{"store    no answer for 7s, answered 8s ago\n"},
			nil,
		},
		{"failed looks are one line", held("a", 7, 0), []happening{
			trouble(1, fmt.Errorf("gone away")), trouble(3, fmt.Errorf("gone away")),
		}, 4, []string{"12:00:03  unreadable  gone away  (2 times)\n"}, []string{"12:00:01"}},
		{
			"not a lock", held("a", 7, 0),
			[]happening{trouble(1, foreign), {2, watchview.Answered{}}},
			4,
			[]string{"state    not a lock: l: " + leasehold.ErrForeignObject.Error(), "before   held\n"},
			nil,
		},
		{
			"not a lock, and then put right", held("a", 7, 0),
			[]happening{trouble(1, foreign), {12, watchview.Answered{}}},
			12,
			[]string{"state    held\n", "12:00:01  unreadable"},
			[]string{"not a lock:", "before"},
		},
		{
			"a message of leasehold's own", held("a", 7, 0),
			[]happening{{1, watchview.Said{Text: "the clock\nis off"}}},
			2,
			[]string{`12:00:01  leasehold   "the clock\nis off"` + "\n"},
			nil,
		},
		{
			"a stranger's text", evil,
			[]happening{change(1, leasehold.TakenOver, evil)},
			1,
			[]string{`holder   "a\x1b[2Jb"` + "\n", `address  "x\u202ey"` + "\n", `taken over  "a\x1b[2Jb"`},
			[]string{"\x1b", "\u202e"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := watchview.NewLock("file:///d/l", tc.begin, began)
			for _, h := range tc.events {
				v.Take(h.ev, at(h.at))
			}
			lines := v.Lines(at(tc.now), 80, 24)
			got := text(lines)
			if len(lines) != 24 || !strings.HasPrefix(got, "file:///d/l\nstore ") || !strings.HasSuffix(got, "\nq ends\n") {
				t.Errorf("%d lines, want 24 from the name to the keys", len(lines))
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(got, not) {
					t.Errorf("shown: %q", not)
				}
			}
			if t.Failed() {
				t.Logf("\n%s", got)
			}
		})
	}
}

// Renewals are listed for the one who asked for them.
func TestRenewalsListed(t *testing.T) {
	t.Parallel()
	v := watchview.NewLock("l", held("a", 7, 0), began)
	v.Renewals = true
	v.Take(change(5, leasehold.Renewed, held("a", 7, 0)).ev, at(5))
	if got := text(v.Lines(at(5), 80, 24)); !strings.Contains(got, "12:00:05  renewed     a") {
		t.Errorf("no renewal:\n%s", got)
	}
}

// However small the screen is, nothing is drawn outside, and what is wrong is on its second
// line.
func TestLockOnSmallScreens(t *testing.T) {
	t.Parallel()
	v := watchview.NewLock("l", held("a", 7, 0), began)
	v.Take(watchview.Answered{Trouble: "store unavailable"}, at(1))
	for i := range 50 {
		v.Take(change(i, leasehold.Elected, held("a", leasehold.Token(i), 0)).ev, at(i))
	}
	for height := range 40 {
		lines := v.Lines(at(50), 80, height)
		if len(lines) > height {
			t.Errorf("%d lines on %d rows", len(lines), height)
		}
		if height >= 2 && !strings.Contains(lines[1].Text(), "store unavailable") {
			t.Errorf("on %d rows the second says %q", height, lines[1].Text())
		}
	}
}

// The list is scrolled, stays where it is while changes come, and is bounded.
func TestLockScrolls(t *testing.T) {
	t.Parallel()
	v := watchview.NewLock("l", held("a", 1, 0), began)
	for i := range 1500 {
		v.Take(change(i, leasehold.Elected, held("a", leasehold.Token(i+1), 0)).ev, at(i))
	}
	shows := func(want string) {
		t.Helper()
		if got := text(v.Lines(at(1500), 80, 15)); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	press := func(keys ...watchview.Key) {
		for _, k := range keys {
			v.Take(watchview.Pressed{Key: k}, at(1500))
		}
	}
	shows("1 to 3 of 1000\n") // the rest is not kept
	shows("changes\n12:24:59  elected     a  token 1500  ")
	press(watchview.Down, watchview.PageDown)
	shows("changes\n12:24:56  elected     a  token 1497  ")
	v.Take(change(1501, leasehold.Elected, held("a", 9999, 0)).ev, at(1501))
	shows("changes\n12:24:56  elected     a  token 1497  ")
	press(watchview.End)
	shows("998 to 1000 of 1000\n")
	press(watchview.PageUp, watchview.Up)
	shows("995 to 997 of 1000\n")
	press(watchview.Home, watchview.Up)
	shows("changes\n12:25:01  elected     a  token 9999  ")
}
