package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold"
)

// closing is a command's stdin that keeps what it was told.
type closing struct{ bytes.Buffer }

func (*closing) Close() error { return nil }

// shut is a stdin that takes nothing.
type shut struct{}

func (shut) Write([]byte) (int, error) { return 0, errors.New("it is shut") }
func (shut) Close() error              { return nil }

// newShow is one of three candidates, each a process that only waits.
func newShow(t *testing.T) (*show, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	s := &show{
		out: out, server: &demoServer{endpoint: "http://127.0.0.1:9"}, began: time.Now(),
		news: make(chan news, 64), signals: make(chan os.Signal, 8),
	}
	for i := range 3 {
		p := &player{name: fmt.Sprintf("node-%d", i+1), cmd: osexec.Command("sleep", "1000"), stdin: &closing{}} //nolint:noctx // it is killed below
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		})
		s.candidates = append(s.candidates, p)
	}
	return s, out
}

// TestShow: the demo's output, with its times, about the crash and the resignation that it causes. With a page, the demo then
// continues.
func TestShow(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"", "127.0.0.1:9"} {
		synctest.Test(t, func(t *testing.T) {
			s, out := newShow(t)
			s.page = page
			first, second, third := s.candidates[0], s.candidates[1], s.candidates[2]
			go func() {
				time.Sleep(500 * time.Millisecond)
				s.news <- news{from: first, token: 5}
				time.Sleep(6 * time.Second)
				s.news <- news{from: first}
				time.Sleep(200 * time.Millisecond)
				s.news <- news{from: second, token: 6}
				time.Sleep(2100 * time.Millisecond)
				s.news <- news{from: third, token: 9}
				time.Sleep(time.Hour)
				s.signals <- syscall.SIGINT
			}()
			s.server.get.Store(41)
			s.server.puts.Store(7)
			if err := s.play(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := fmt.Sprintf(`Five candidates for one lock, in a bucket on http://127.0.0.1:9. TTL 3s.

  0.0 s  five processes start: leasehold elect --ttl 3s … -- CMD
  0.5 s  node-1 leads with token 5
  2.5 s  kill -9 of node-1, process %d: nobody releases the lock
  6.5 s  the command of node-1 is gone too: its guardian has ended it
  6.7 s  node-2 leads with token 6, 4.2 s after the crash
  8.7 s  the command of node-2 ends by itself, so node-2 resigns
  8.8 s  node-3 leads with token 9, 0.1 s after that
  9.8 s  the end: 3 leaders, each with a greater token, never two at once

41 GETs and 7 PUTs in all. With a bucket of yours:
  leasehold elect s3://BUCKET/KEY -- CMD
`, first.cmd.Process.Pid)
			if page != "" {
				want += "\nThe candidates and the page go on until you press ^C.\n"
			}
			if stays := time.Since(s.began) > time.Hour; stays != (page != "") {
				t.Errorf("with the page %q, it goes on: %v", page, stays)
			}
			time.Sleep(2 * time.Hour) // for the goroutine
			if out.String() != want {
				t.Errorf("it shows\n%s\nwant\n%s", out, want)
			}
			if err := first.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
				t.Errorf("node-1 has ended with %v", err)
			}
			for i, told := range []string{"", "\n", ""} {
				if got := s.candidates[i].stdin.(*closing).String(); got != told { //nolint:errcheck,forcetypeassert // newShow made it
					t.Errorf("the command of node-%d was told %q, want %q", i+1, got, told)
				}
			}
		})
	}
}

// TestShowFails: the demo fails if an election went wrong, and says how. It ends at once with a signal, also with one that
// came to a candidate first.
func TestShowFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do    func(s *show, p []*player)
		want  string
		after time.Duration
	}{
		"nobody leads":     {func(*show, []*player) {}, "there was no leader for 15s", 15 * time.Second},
		"two at once":      {func(s *show, p []*player) { s.news <- news{from: p[1], two: true} }, "the command of node-2 was started while another candidate's still ran", 0},
		"a candidate ends": {func(s *show, p []*player) { s.news <- news{from: p[2]} }, "node-3 has ended by itself", time.Second},
		"a signal":         {func(s *show, _ []*player) { s.signals <- syscall.SIGTERM }, "exit code 143: <nil>", 0},
		"a signal, heard later": {func(s *show, p []*player) {
			s.news <- news{from: p[2]}
			time.Sleep(900 * time.Millisecond)
			s.signals <- syscall.SIGINT
		}, "exit code 130: <nil>", 900 * time.Millisecond},
		"the token does not grow": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(time.Second)
			s.news <- news{from: p[1], token: 5}
		}, "node-2 leads with token 5, after node-1 with token 5", time.Second},
		"the dead leads": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[0], token: 6}
		}, "a candidate that was killed leads", 3 * time.Second},
		"a signal while it is looked at": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(time.Second)
			s.signals <- syscall.SIGINT
		}, "exit code 130: <nil>", time.Second},
		"a signal in the second look": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[1], token: 6}
			time.Sleep(time.Second)
			s.signals <- syscall.SIGINT
		}, "exit code 130: <nil>", 4 * time.Second},
		"a signal in the last look": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[1], token: 6}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[2], token: 7}
			time.Sleep(500 * time.Millisecond)
			s.signals <- syscall.SIGINT
		}, "exit code 130: <nil>", 6500 * time.Millisecond},
		"it cannot be killed": {func(s *show, p []*player) {
			_ = p[0].cmd.Process.Kill()
			_ = p[0].cmd.Wait()
			s.news <- news{from: p[0], token: 5}
		}, "cannot kill node-1: os: process already finished", 2 * time.Second},
		"it cannot be told to end": {func(s *show, p []*player) {
			p[1].stdin = shut{}
			s.news <- news{from: p[0], token: 5}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[1], token: 6}
		}, "cannot tell node-2 to end: it is shut", 5 * time.Second},
		"no second leader": {func(s *show, p []*player) { s.news <- news{from: p[0], token: 5} }, "there was no leader for 15s", 17 * time.Second},
		"no third leader": {func(s *show, p []*player) {
			s.news <- news{from: p[0], token: 5}
			time.Sleep(3 * time.Second)
			s.news <- news{from: p[1], token: 6}
		}, "there was no leader for 15s", 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, out := newShow(t)
			began := time.Now()
			go tt.do(s, s.candidates)
			err := s.play()
			if took := time.Since(began); err == nil || err.Error() != tt.want || took != tt.after {
				t.Errorf("%s: it ends with %v after %v, want %q after %v\n%s", name, err, took, tt.want, tt.after, out)
			}
		})
	}
}

// TestShowStays: with a page the candidates go on until a signal comes, which is no error.
func TestShowStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := newShow(t)
		go func() {
			time.Sleep(time.Hour)
			s.signals <- syscall.SIGINT
		}()
		if err := s.stay(); err != nil || time.Since(s.began) != time.Hour {
			t.Errorf("it ends with %v after %v", err, time.Since(s.began))
		}
		if want := "\nThe candidates and the page go on until you press ^C.\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out, want)
		}
		go func() { s.news <- news{from: s.candidates[1], two: true} }()
		if s.stay() == nil {
			t.Error("two leaders at once are no error")
		}
	})
}

// TestShowVerdict: a show that succeeded or was ended by a signal prints nothing more without -v. One that failed prints the
// candidates' output.
func TestShowVerdict(t *testing.T) {
	t.Parallel()
	const words = "leasehold: what node-1 said: it leads\n"
	for name, tt := range map[string]struct {
		err     error
		verbose bool
		ends    string
		says    string
	}{
		"well":         {nil, false, "<nil>", ""},
		"well, -v":     {nil, true, "<nil>", words},
		"a signal":     {stopped(syscall.SIGINT, nil), false, "exit code 130: <nil>", ""},
		"a signal, -v": {stopped(syscall.SIGINT, nil), true, "exit code 130: <nil>", words},
		"wrong":        {errors.New("two at once"), false, "exit code 70: two at once", words},
	} {
		var said bytes.Buffer
		a := &app{console: console{w: &said, least: levelNotice}}
		a.verbose = tt.verbose
		p := &player{name: "node-1"}
		p.stderr.WriteString("leasehold: it leads\n")
		err := (&show{candidates: []*player{p}}).verdict(a, tt.err)
		if fmt.Sprint(err) != tt.ends || said.String() != tt.says {
			t.Errorf("%s: it ends with %v and says %q, want %s and %q", name, err, &said, tt.ends, tt.says)
		}
	}
}

// TestShowTells: a change of leader that the demo has not brought about is told without a time.
func TestShowTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, out := newShow(t)
		s.free("the crash")
		time.Sleep(time.Second)
		for i, p := range s.candidates {
			if err := s.take(news{from: p, token: leasehold.Token(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if want := "  1.0 s  node-1 leads with token 1, 1.0 s after the crash\n  1.0 s  node-2 leads with token 2\n  1.0 s  node-3 leads with token 3\n"; out.String() != want {
			t.Errorf("it says\n%s\nwant\n%s", out, want)
		}
	})
}

// TestShowHears: what a candidate's command says, and the end of all its processes, which is told last.
func TestShowHears(t *testing.T) {
	t.Parallel()
	s := &show{news: make(chan news, 64)}
	p := &player{name: "node-1", stdout: strings.NewReader("leads\nleads 7\nsomething\ntwo\nleads 8\n"), cmd: osexec.CommandContext(t.Context(), "true")}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.hear(t.Context(), p)
	close(s.news)
	var heard []news
	for n := range s.news {
		heard = append(heard, n)
	}
	if want := []news{{from: p, token: 7}, {from: p, two: true}, {from: p, token: 8}, {from: p}}; !slices.Equal(heard, want) {
		t.Errorf("%+v, want %+v", heard, want)
	}
	if p.cmd.ProcessState == nil {
		t.Error("its process is not waited for")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	(&show{news: make(chan news)}).tell(over, news{from: p}) // returns though nobody listens
}

// TestDemoWork: the command of a candidate that leads says with which token, and fails if another's runs at the same time.
func TestDemoWork(t *testing.T) {
	stdin, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer func(was *os.File) { os.Stdin = was }(os.Stdin)
	os.Stdin = stdin
	if _, err = io.WriteString(told, "\n"); err != nil {
		t.Fatal(err)
	}
	t.Setenv(ownToken, "7")
	dir := t.TempDir()
	var out, said bytes.Buffer
	if code := exec(t.Context(), []string{"demo", "work", dir}, &out, &said); code != 0 || out.String() != "leads 7\n" || said.Len() > 0 {
		t.Errorf("alone it ends with %d, writes %q, and says %q", code, &out, &said)
	}
	_ = told.Close()
	if left, wrong := io.ReadAll(stdin); wrong != nil || len(left) > 0 {
		t.Errorf("it has not waited until it was told to end: %q, %v", left, wrong)
	}
	out.Reset()
	a := &app{stdout: &out}
	dir = t.TempDir() // that one stays locked as long as the process runs
	other := flock.New(filepath.Join(dir, "busy"))
	if locked, wrong := other.TryLock(); wrong != nil || !locked {
		t.Fatal(locked, wrong)
	}
	defer func() { _ = other.Unlock() }()
	if err = a.work(dir); err == nil || !strings.Contains(err.Error(), "another candidate's command is running") || out.String() != "two\n" {
		t.Errorf("beside another: %q, %v", &out, err)
	}
	out.Reset()
	if err = a.work(filepath.Join(dir, "none", "such")); err == nil || !strings.Contains(err.Error(), "no such file") || out.Len() > 0 {
		t.Errorf("in a directory that there is not it ends with %v, and writes %q", err, &out)
	}
}

// TestDemoAlone: the demo sees nothing of the user's store and credentials.
func TestDemoAlone(t *testing.T) {
	t.Setenv("AWS_PROFILE", "mine")
	t.Setenv("AWS_ACCESS_KEY_ID", "mine")
	t.Setenv("LEASEHOLD_STORE", "s3://mine")
	t.Setenv("PROBABLY_MINE", "too")
	env := demoEnv()
	for _, v := range []string{"AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "PROBABLY_MINE=too"} {
		if !slices.Contains(env, v) {
			t.Errorf("it lacks %s", v)
		}
	}
	ours := slices.DeleteFunc(env, func(v string) bool { return !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "LEASEHOLD_") })
	if len(ours) != 4 {
		t.Errorf("it has %q", ours)
	}
}

// TestDemoUsage: what cannot be shown is refused before anything is started.
func TestDemoUsage(t *testing.T) {
	for args, want := range map[string]string{
		"demo -o json":             "the demo is for people: there is no --output json",
		"demo --http=0.0.0.0:4041": "--http 0.0.0.0:4041: a browser on this machine is to reach it: give a port of 127.0.0.1",
		"demo --http=unix:/x":      "--http unix:/x: a browser on this machine is to reach it: give a port of 127.0.0.1",
		"demo --http=nonsense":     "--http: ",
		"demo x":                   "no argument is allowed, and there is 1: see leasehold demo --help",
	} {
		var said bytes.Buffer
		if code := exec(t.Context(), strings.Fields(args), io.Discard, &said); code != exitUsage || !strings.Contains(said.String(), want) {
			t.Errorf("leasehold %s ends with %d and says %q, want %q", args, code, &said, want)
		}
	}
}

// aProgram is what plays the demo's processes here: each says its arguments and goes on until it is killed. The second
// candidate's command says that it is not alone as soon as all are there.
const aProgram = `#!/bin/sh
if test "$1" = serve; then
	true; SERVE
fi
echo "leasehold: it is told $*" >&2
for last; do :; done
echo $$ >"$last/$5"
if test "$5" = node-2; then
	for i in 1 2 3 4 5; do
		until test -e "$last/node-$i"; do sleep 0.01; done
	done
	echo two
fi
exec sleep 1000
`

// TestShowEnters: the demo can end a candidate's command, and reads its output.
func TestShowEnters(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the program is a script")
	}
	self := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(self, []byte("#!/bin/sh\nread line && echo it is told $line\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	s := &show{self: self, server: &demoServer{endpoint: "http://127.0.0.1:9"}}
	p, err := s.enter(t.Context(), "node-1", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.WriteString(p.stdin, "to end\n"); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(p.stdout)
	if err = errors.Join(err, p.cmd.Wait()); err != nil || string(text) != "it is told to end\n" || len(s.candidates) != 1 {
		t.Errorf("it says %q, %v", text, err)
	}
}

// TestShowProcesses: the demo starts five candidates, and with a page the server that shows it; of each it tells what it has
// said if the show fails, or with -v. None of them is left.
func TestShowProcesses(t *testing.T) { //nolint:paralleltest // a signal comes to the whole process
	if runtime.GOOS == "windows" {
		t.Skip("the program is a script")
	}
	const two = "exit code 70: the command of node-2 was started while another candidate's still ran"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of one call
		none    bool            // there is no such program
		page    string
		serve   string
		signal  bool
		verbose bool
		ends    string
		shows   string // a pattern
		says    int    // how many candidates
	}{
		"without a page":     {ends: two, shows: `^Five candidates for one lock, in a bucket on http://127\.0\.0\.1:\d+\. TTL 3s\.\n\n +\d+\.\d s  five processes start: leasehold elect --ttl 3s … -- CMD\n$`, says: 5},
		"with a page":        {page: "127.0.0.1:9", serve: `echo "leasehold: few files" >&2; echo "leasehold: told $*: on http://127.0.0.1:9" >&2; echo on http://x >&2; echo on http://x >&2; exec sleep 1000`, ends: two, shows: `^The page is at http://127\.0\.0\.1:9/ui/\nFive candidates for `, says: 5},
		"a page that fails":  {page: "127.0.0.1:9", serve: `echo "leasehold: told $*" >&2; echo "leasehold: no" >&2; exit 1`, ends: `exit code 70: the page cannot be shown: told serve --http 127\.0\.0\.1:9 --every 1s s3://demo\?endpoint=http://127\.0\.0\.1:\d+; no`},
		"no program":         {none: true, ends: `exit code 70: fork/exec .*none: no such file or directory`},
		"no program, a page": {none: true, page: "127.0.0.1:9", ends: `exit code 70: fork/exec .*none: no such file or directory`},
		"over before":        {ctx: over, ends: "exit code 70: context canceled"},
		"a signal, and -v":   {page: "127.0.0.1:9", serve: `kill -INT $PPID; exec sleep 1000`, verbose: true, ends: "exit code 130: <nil>"},
	} {
		dir, at := t.TempDir(), t.TempDir()
		self := filepath.Join(dir, "program")
		if err := os.WriteFile(self, []byte(strings.ReplaceAll(aProgram, "SERVE", tt.serve)), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		if tt.none {
			self = filepath.Join(dir, "none")
		}
		var out, said bytes.Buffer
		a := &app{console: console{w: &said, least: levelNotice}, printed: printer{w: &out}}
		a.verbose = tt.verbose
		ctx := tt.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		err := a.show(ctx, self, at, tt.page)
		for i := range tt.says {
			text, wrong := os.ReadFile(filepath.Join(at, fmt.Sprintf("node-%d", i+1)))
			if wrong != nil {
				t.Fatal(wrong)
			}
			pid, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
			if wrong != nil { // it was ended meanwhile
				continue
			}
			if process, wrong := os.FindProcess(pid); wrong == nil && process.Signal(syscall.Signal(0)) == nil {
				t.Errorf("%s: node-%d is left", name, i+1)
			}
		}
		if err == nil || !regexp.MustCompile("^"+tt.ends+"$").MatchString(err.Error()) {
			t.Errorf("%s: it ends with %v, want %s", name, err, tt.ends)
		}
		if !regexp.MustCompile(tt.shows).Match(out.Bytes()) || tt.shows == "" && out.Len() > 0 {
			t.Errorf("%s: it shows\n%swant\n%s", name, &out, tt.shows)
		}
		var want strings.Builder
		for i := range tt.says {
			fmt.Fprintf(&want, "leasehold: what node-%d said: it is told elect --ttl 3s --holder node-%d s3://demo/leader?endpoint=URL -- %s demo work %s\n", i+1, i+1, self, at)
		}
		if got := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).ReplaceAllString(said.String(), "URL"); got != want.String() {
			t.Errorf("%s: it says\n%swant\n%s", name, got, &want)
		}
	}
}
