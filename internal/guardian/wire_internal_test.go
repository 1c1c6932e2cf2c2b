//go:build linux

package guardian

import (
	"bytes"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestObey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		orders []order
		open   bool
		ended  bool
		after  limit
	}{
		{"nothing", nil, true, false, limit{Deadline: 100, Grace: 30}},
		{"extensions that overtook one another", []order{{Deadline: 130}, {Deadline: 120}}, true, false, limit{Deadline: 130, Grace: 30}},
		{"stop", []order{{Stop: true}}, true, true, limit{40, 30, true}},
		{"stop, twice", []order{{Stop: true}, {Stop: true}}, true, true, limit{40, 30, true}},
		{"stop, and an extension that came too late", []order{{Stop: true}, {Deadline: 200}}, true, true, limit{40, 30, true}},
		{"an extension, and the parent is gone", []order{{Deadline: 200}}, false, true, limit{40, 30, true}},
		{"stop, and the parent is gone", []order{{Stop: true}}, false, true, limit{40, 30, true}},
		{"the parent is gone", nil, false, true, limit{40, 30, true}},
	} {
		l := limit{Deadline: 100, Grace: 30}
		if ended := l.obey(c.orders, c.open, 10); ended != c.ended || l != c.after {
			t.Errorf("%s: %v, %+v; want %v, %+v", c.what, ended, l, c.ended, c.after)
		}
		if l.ending && l.obey(c.orders, c.open, 11) {
			t.Errorf("%s: it began to end twice", c.what)
		}
	}
}

// A plan goes through its file as it is, bytes that are no text too.
func TestPlan(t *testing.T) {
	t.Parallel()
	f, err := nameless()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	long := strings.Repeat("\xff \"x\n", 50_000)
	want := plan{limit: limit{Deadline: 1 << 60, Grace: 7}, Argv: [][]byte{[]byte("a"), {}, []byte(long)}, Foreground: true, WatcherFD: 3, GuardianFD: 4, ReportFD: 5, LifeFD: 6}
	if err := want.write(f); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the watcher, then the guardian
		var got plan
		fd, err := got.read(strconv.Itoa(int(f.Fd())))
		if err != nil || fd != int(f.Fd()) || !reflect.DeepEqual(got, want) {
			t.Errorf("read %d, %v, a plan of %d arguments, want the one that was written", fd, err, len(got.Argv))
		}
	}
	for _, arg := range []string{"", "x", "-1", "99999"} {
		if _, err := new(plan).read(arg); err == nil {
			t.Errorf("%q was read as a plan", arg)
		}
	}
}

func newPipe(t *testing.T) (r, w int) {
	t.Helper()
	var ends [2]int
	if err := pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	for _, fd := range ends {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a pipe that children inherit: %v", err)
		}
	}
	return ends[0], ends[1]
}

// An inbox gives what there is and no more: whole messages, in their order,
// however they were cut, without waiting, and what came before the end of the
// pipe together with the end.
func TestInbox(t *testing.T) {
	t.Parallel()
	r, w := newPipe(t)
	var before unix.Stat_t
	if err := unix.Fstat(r, &before); err != nil {
		t.Fatal(err)
	}
	b := newInbox[order](r)
	take := func(open bool, want ...order) {
		t.Helper()
		got, isOpen := b.take()
		if isOpen != open || !reflect.DeepEqual(got, want) {
			t.Errorf("took %v, open %v; want %v, %v", got, isOpen, want, open)
		}
	}
	write := func(text string) {
		t.Helper()
		if _, err := unix.Write(w, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	take(true)
	write(`{"Deadline":1}` + "\n" + `{"Deadline":2}` + "\n" + `{"Dead`)
	take(true, order{Deadline: 1}, order{Deadline: 2})
	take(true)
	write(`line":3}`)
	take(true)
	write("\nthis is none\n" + `{"Stop":true}` + "\n")
	take(true, order{Deadline: 3}, order{Stop: true})
	write(strings.Repeat(`{"Deadline":5}`+"\n", 1000)) // more than it reads at once
	many := make([]order, 1000)
	for i := range many {
		many[i].Deadline = 5
	}
	take(true, many...)
	write(`{"Deadline":4}` + "\n")
	if err := unix.Close(w); err != nil {
		t.Fatal(err)
	}
	// A process that another test starts may hold the pipe open for a moment.
	got, open := b.take()
	for end := time.Now().Add(hang); open && time.Now().Before(end); time.Sleep(ms) {
		var more []order
		more, open = b.take()
		got = append(got, more...)
	}
	if want := []order{{Deadline: 4}}; open || !reflect.DeepEqual(got, want) {
		t.Errorf("took %v, open %v; want %v and the end", got, open, want)
	}
	take(false)
	if b.fd >= 0 {
		t.Error("the end of the pipe is still waited for")
	}
	var after unix.Stat_t // of another file, where another test has opened one
	if err := unix.Fstat(r, &after); err == nil && after.Ino == before.Ino && after.Dev == before.Dev {
		t.Error("the descriptor was left open")
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	r, w := newPipe(t)
	for _, nap := range []time.Duration{0, 1, 100 * time.Microsecond, 1500 * time.Microsecond, 20 * ms} {
		longest := time.Duration(0)
		for range 10 { // a signal can cut one short
			began := time.Now()
			await(nap, r, -1)
			longest = max(longest, time.Since(began))
		}
		if longest < nap {
			t.Errorf("a nap of %v was over after %v: it would be taken again and again", nap, longest)
		}
	}
	go func() {
		time.Sleep(10 * ms)
		_, _ = unix.Write(w, []byte("x"))
	}()
	for n := 0; n == 0; n, _ = unix.IoctlGetInt(r, unix.TIOCINQ) {
		await(-1, -1, r)
	}
	await(time.Hour, r)
	_ = unix.Close(w)
	_ = unix.Close(r)
}

// To a reader that does not read, send drops messages, and never a part of one.
func TestSend(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	filler := bytes.Repeat([]byte("x\n"), 1<<15)
	_, _ = w.Write(filler)
	began := time.Now()
	if send(w, order{Deadline: 1}) {
		t.Error("a message that does not fit is settled")
	}
	if took := time.Since(began); took < patience || took > hang {
		t.Errorf("a message to a stopped reader took %v", took)
	}
	b := newInbox[order](int(r.Fd()))
	if got, _ := b.take(); len(got) > 0 || len(b.part) > 0 {
		t.Errorf("took %v and %q of a message that did not fit", got, b.part)
	}
	// However late it is: a process that was not running for a while tries all the same.
	if !sendWithin(-time.Hour, w, order{Deadline: 2}) {
		t.Error("a message that fits is not settled")
	}
	if got, open := b.take(); !open || len(got) != 1 || got[0].Deadline != 2 {
		t.Errorf("took %v, %v, want the one that fits again", got, open)
	}
	r.Close()
	if !send(w, order{Deadline: 3}) {
		t.Error("a message that nobody can read is not settled")
	}
	w.Close()
	if !send(w, order{Deadline: 4}) {
		t.Error("a message for a pipe that is closed is not settled")
	}
}

// TestInboxOfSingleBytes: a message may come byte by byte, and one byte is no end.
func TestInboxOfSingleBytes(t *testing.T) {
	t.Parallel()
	r, w := newPipe(t)
	b := newInbox[order](r)
	var all []order
	for _, c := range []byte("{\"Stop\":true}\n") {
		if _, err := unix.Write(w, []byte{c}); err != nil {
			t.Fatal(err)
		}
		got, open := b.take()
		if all = append(all, got...); !open {
			t.Fatalf("it ends at %q", c)
		}
	}
	if len(all) != 1 || !all[0].Stop {
		t.Errorf("it has %+v", all)
	}
}
