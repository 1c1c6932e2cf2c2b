package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store/filestore"
)

// withWrites is an S3 server whose writes are answered by a function, and what a process needs to use it.
func withWrites(t *testing.T, put func(w http.ResponseWriter, r *http.Request, s3 http.Handler)) (url string, env []string) {
	t.Helper()
	memory := s3mem.New()
	if err := memory.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(memory).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			put(w, r, s3)
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "s3://bucket/l?endpoint=" + server.URL, awsEnv()
}

// TestLeaseFileGone: if the file of a lease cannot be written any more once the store has taken a renewal, that is a failure,
// because the lease can no longer be used. After a release it is a warning, because the lock is free.
func TestLeaseFileGone(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	for _, tt := range []struct {
		command string
		code    int
		says    string
	}{
		{"renew", exitInternal, "leasehold: the lease was renewed, and could not be written: open FILE"},
		{"release", 0, "leasehold: the lease is over, and FILE"},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var armed atomic.Bool
		lock, env := withWrites(t, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			if armed.Load() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
			s3.ServeHTTP(w, r)
		})
		file := filepath.Join(dir, "lease.json")
		if code, says := outcome(t, env, "acquire", "--ttl", "10m", "--file", file, lock); code != 0 {
			t.Fatalf("acquire: %d, %s", code, says)
		}
		armed.Store(true)
		code, says := outcome(t, env, tt.command, file)
		if want := strings.ReplaceAll(tt.says, "FILE", dir); code != tt.code || !strings.HasPrefix(says, want) {
			t.Errorf("%s: exit code %d, and it says %q, want %d and %q", tt.command, code, says, tt.code, want)
		}
	}
}

// TestReleaseFails: a lease that the store has not released stays as it is in its file, to be released later.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	var armed atomic.Bool
	lock, env := withWrites(t, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
		if armed.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		s3.ServeHTTP(w, r)
	})
	file := filepath.Join(t.TempDir(), "lease.json")
	if code, says := outcome(t, env, "acquire", "--ttl", "10m", "--file", file, lock); code != 0 {
		t.Fatalf("acquire: %d, %s", code, says)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	if code, says := outcome(t, env, "release", file); code != exitDenied {
		t.Errorf("a release that is denied ends with %d and says %s", code, says)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the lease is %s, %v; want it as before: %s", after, err, before)
	}
	armed.Store(false)
	if code, says := outcome(t, env, "release", file); code != 0 {
		t.Errorf("the next release ends with %d and says %s", code, says)
	}
}

// TestUnsettledRenewal: what has become of a renewal that the store has failed at may be open. Of a lease on stdin it is then
// written to stdout, and can be used for another try. If the renewal is found to have landed, it is as good as any.
func TestUnsettledRenewal(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	for _, lands := range []bool{false, true} {
		var armed atomic.Bool
		lock, env := withWrites(t, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			if !armed.Load() {
				s3.ServeHTTP(w, r)
				return
			}
			if lands {
				s3.ServeHTTP(httptest.NewRecorder(), r)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		// use is what a command makes of a lease on stdin.
		use := func(stdin string, args ...string) (code int, out, says string) {
			t.Helper()
			cmd := clitest.Command(t, "", args...)
			cmd.Env = append(cmd.Env, env...)
			var stdout, stderr strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
			err := cmd.Run()
			if _, ended := errors.AsType[*osexec.ExitError](err); err != nil && !ended {
				t.Fatal(err)
			}
			return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
		}
		want := exitUnavailable
		if lands {
			want = 0
		}
		_, lease, _ := use("", "acquire", "--ttl", "10m", lock)
		file := filepath.Join(t.TempDir(), "lease.json")
		use("", "acquire", "--ttl", "10m", "--file", file, strings.Replace(lock, "/l?", "/in-a-file?", 1))
		armed.Store(true)
		if code, out, says := use("", "renew", file); code != want || out != "" { // the file has it
			t.Errorf("if it lands: %v: of a lease in a file: exit code %d, it writes %s and says %s", lands, code, out, says)
		}
		code, renewed, says := use(lease, "renew", "-")
		if code != want || strings.Contains(renewed, `"pending"`) == lands || (says == "") != lands {
			t.Fatalf("if it lands: %v: exit code %d, it writes %s and says %s", lands, code, renewed, says)
		}
		armed.Store(false)
		if code, again, says := use(renewed, "renew", "-"); code != 0 || strings.Contains(again, `"pending"`) {
			t.Errorf("if it lands: %v: the next renewal ends with %d, writes %s and says %s", lands, code, again, says)
		}
	}
}

const withoutLeases = "a marker has no token to prove a lease by"

// awsEnv is the environment of a command whose server takes any credentials.
func awsEnv() []string { return (&servers.Server{AccessKey: "a", SecretKey: "s"}).Env() }

// outcome runs leasehold, and returns its exit code and what it wrote to stderr.
func outcome(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := clitest.Command(t, "", args...)
	cmd.Env = append(cmd.Env, env...)
	var talk strings.Builder
	cmd.Stderr = &talk
	err := cmd.Run()
	if _, ended := errors.AsType[*osexec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), talk.String()
}

// TestLockOutlivesItsShell: a lock that a shell has acquired stays held when that shell is killed,
// whoever wants it, until another shell releases it; then one after the other gets it, each with a
// larger token.
func TestLockOutlivesItsShell(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "lease.json")
	st, err := filestore.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	self := clitest.Command(t, "")
	shell := osexec.CommandContext(t.Context(), "sh", "-c", `"$0" "$@" && echo held && exec sleep 1000`,
		self.Path, "acquire", "--ttl", "10m", "--file", file, clitest.UnderTest.URL("file://"+dir+"/l"))
	shell.Env = self.Env
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = shell.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := detached.Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	const contenders = 16
	var free, inside atomic.Bool
	tokens := make(chan leasehold.Token, contenders)
	waiting := make(chan struct{}, contenders)
	var all sync.WaitGroup
	for range contenders {
		lock, e := leasehold.NewLock(st, "l", &leasehold.LockOptions{
			Layout: clitest.UnderTest.Layout, NoIfMatch: clitest.UnderTest.NoIfMatch, Trace: leasetest.OnWait(func(leasehold.Info) {
				select {
				case waiting <- struct{}{}:
				default:
				}
			}),
		})
		if e != nil {
			t.Fatal(e)
		}
		all.Go(func() {
			e := lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
				if !free.Load() || !inside.CompareAndSwap(false, true) {
					t.Errorf("token %v: it is held by another", lease.Token())
				}
				tokens <- lease.Token()
				inside.Store(false)
				return nil
			})
			if e != nil {
				t.Error(e)
			}
		})
	}
	for range contenders {
		<-waiting
	}
	if err = shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = shell.Wait() // killed
	for range 3 {
		if code, talk := outcome(t, nil, "renew", file); code != 0 {
			t.Fatalf("renew: %d, %s", code, talk)
		}
	}
	free.Store(true)
	if code, talk := outcome(t, nil, "release", file); code != 0 {
		t.Fatalf("release: %d, %s", code, talk)
	}
	all.Wait()
	close(tokens)
	last, n := d.Token, 0
	for token := range tokens {
		if token <= last {
			t.Errorf("token %v after %v", token, last)
		}
		last, n = token, n+1
	}
	if n != contenders {
		t.Errorf("%d of %d got the lock", n, contenders)
	}
}

// TestOneOfTwoCopies: two processes that use copies of one lease, at the same time and one after the
// other: one ends with 0 and the other with 76, and the one that won can go on.
func TestOneOfTwoCopies(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	const rounds = 8
	first := 0
	for round := range rounds {
		// In two directories, since those that share one wait for each other.
		var files [2]string
		for i, name := range []string{"a", "b"} {
			at := filepath.Join(dir, name)
			if err := os.MkdirAll(at, 0o700); err != nil {
				t.Fatal(err)
			}
			files[i] = filepath.Join(at, "lease.json")
		}
		_ = os.Remove(files[0])
		if code, talk := outcome(t, nil, "acquire", "--ttl", "10m", "--file", files[0], "file://"+dir+"/locks/l"); code != 0 {
			t.Fatalf("round %d: acquire: %d, %s", round, code, talk)
		}
		text, err := os.ReadFile(files[0])
		if err == nil {
			err = os.WriteFile(files[1], text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var codes [2]int
		var talks [2]string
		var both sync.WaitGroup
		for i := range files {
			both.Go(func() { codes[i], talks[i] = outcome(t, nil, "renew", files[i]) })
		}
		both.Wait()
		winner := 0
		if codes[0] != 0 {
			winner = 1
		}
		first += 1 - winner
		if codes[winner] != 0 || codes[1-winner] != 76 || !strings.Contains(talks[1-winner], "another copy") {
			t.Fatalf("round %d: %v, %q", round, codes, talks)
		}
		if code, talk := outcome(t, nil, "release", files[1-winner]); code != 76 {
			t.Fatalf("round %d: the loser's release: %d, %s", round, code, talk)
		}
		if code, talk := outcome(t, nil, "release", files[winner]); code != 0 {
			t.Fatalf("round %d: the winner's release: %d, %s", round, code, talk)
		}
	}
	t.Logf("figures: %d rounds, the first won %d", rounds, first)
}

// TestTwoWithOneFile: processes that use the same lease file by its path, at the same time, take turns, and
// all go on.
func TestTwoWithOneFile(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "lease.json")
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, talk := outcome(t, nil, "acquire", "--ttl", "10m", "--file", file, "file://"+dir+"/locks/l"); code != 0 {
		t.Fatalf("acquire: %d, %s", code, talk)
	}
	for round := range 5 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if code, talk := outcome(t, nil, "renew", file); code != 0 {
					t.Errorf("round %d: %d, %s", round, code, talk)
				}
			})
		}
		both.Wait()
	}
	if code, talk := outcome(t, nil, "release", file); code != 0 {
		t.Fatalf("release: %d, %s", code, talk)
	}
}

// A stage is where a renewal is killed.
type stage struct {
	name   string
	method string // of the request that is under way then
	lands  bool   // it has landed by then
	late   bool   // it lands when the next renewal has begun
}

// TestRenewKilled: a renewal that is killed by SIGKILL, wherever it is, loses nothing: the next one goes on
// with the file as it is, and so does a release.
func TestRenewKilled(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasetest.Object {
		t.Skip("a stage is a request here, of which other layouts have more: the same in every layout")
	}
	for _, s := range []stage{
		{name: "before it has looked", method: http.MethodGet},
		{name: "before its write has landed", method: http.MethodPut},
		{name: "when its write has landed", method: http.MethodPut, lands: true},
		{name: "before its write lands late", method: http.MethodPut, late: true},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			renewKilled(t, s)
		})
	}
}

func renewKilled(t *testing.T, s stage) {
	t.Helper()
	memory := s3mem.New()
	if err := memory.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(memory).Server()
	var armed atomic.Bool
	reached := make(chan func(), 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != s.method || !armed.CompareAndSwap(true, false) {
			s3.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(strings.NewReader(string(body)))
		land := func() { s3.ServeHTTP(httptest.NewRecorder(), again) }
		if s.lands {
			land()
		}
		reached <- land
		<-r.Context().Done() // no answer comes
	}))
	defer server.Close()
	env := awsEnv()
	file := filepath.Join(t.TempDir(), "lease.json")
	lock := "s3://bucket/l?endpoint=" + server.URL
	if code, talk := outcome(t, env, "acquire", "--ttl", "10m", "--file", file, lock); code != 0 {
		t.Fatalf("acquire: %d, %s", code, talk)
	}
	for round := range 3 {
		killed := clitest.Command(t, "", "renew", file)
		killed.Env = append(killed.Env, env...)
		armed.Store(true)
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		land := <-reached
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = killed.Wait() // killed
		if s.late {
			go land()
		}
		if code, talk := outcome(t, env, "renew", file); code != 0 {
			t.Fatalf("round %d: the next renewal: %d, %s", round, code, talk)
		}
	}
	if code, talk := outcome(t, env, "release", file); code != 0 {
		t.Fatalf("release: %d, %s", code, talk)
	}
	if code, _ := outcome(t, env, "run", "--wait", "0", lock, "--", "true"); code != 0 {
		t.Error("the lock is not free")
	}
}

// TestRenewKilledAnywhere kills renewals after any time, also while they write their file.
func TestRenewKilledAnywhere(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "lease.json")
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, talk := outcome(t, nil, "acquire", "--ttl", "10m", "--file", file, "file://"+dir+"/locks/l"); code != 0 {
		t.Fatalf("acquire: %d, %s", code, talk)
	}
	const rounds = 15
	began := time.Now()
	if code, talk := outcome(t, nil, "renew", file); code != 0 {
		t.Fatalf("%d, %s", code, talk)
	}
	whole := time.Since(began)
	ended, pending := 0, 0
	for round := range rounds {
		killed := clitest.Command(t, "", "renew", file)
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(whole * time.Duration(round) / time.Duration(rounds) * 5 / 4)
		_ = killed.Process.Kill()
		if _ = killed.Wait(); killed.ProcessState.Success() {
			ended++
		}
		if text, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if strings.Contains(string(text), `"pending"`) {
			pending++
		}
		if round%3 == 0 { // else the next one is killed too
			if code, talk := outcome(t, nil, "renew", file); code != 0 {
				t.Fatalf("round %d: %d, %s", round, code, talk)
			}
		}
	}
	t.Logf("figures: %d renewals, of which %d had ended before they were killed and %d left it open what has become of them", rounds, ended, pending)
	if code, talk := outcome(t, nil, "release", file); code != 0 {
		t.Fatalf("release: %d, %s", code, talk)
	}
}

// TestLeaseInAPipe: to open a pipe without a writer used to hang, whatever signal came.
func TestLeaseInAPipe(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code int
		args []string
	}{
		{exitAbsent, []string{"renew", pipe}},
		{exitAbsent, []string{"release", pipe}},
		{exitUsage, []string{"acquire", "--ttl", "1m", "--file", pipe, "file://" + dir + "/l"}},
	} {
		if code, says := outcome(t, nil, tt.args...); code != tt.code || !strings.Contains(says, "not a regular file") {
			t.Errorf("%s: exit code %d, %s", tt.args[0], code, says)
		}
	}
}

// TestSignalEndsRenewal: after a signal it counts what became of the renewal. One that was done in spite of it is no failure.
func TestSignalEndsRenewal(t *testing.T) {
	for _, ends := range []error{nil, errors.New("the store did not answer")} {
		err := untilSignal(t.Context(), func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return ends
		})
		end, is := errors.AsType[*exit](err)
		if is != (ends != nil) || is && (end.code != exitSignal+15 || end.Error() != "exit code 143: terminated: the store did not answer") {
			t.Errorf("if it ends with %v: %v", ends, err)
		}
	}
}

// TestSecondSignalEndsAtOnce: what heeds no context, as the opening of a pipe, used to outlast all signals.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	began, hang := make(chan struct{}), make(chan struct{})
	defer close(hang)
	done := make(chan error, 1)
	go func() {
		done <- untilSignal(t.Context(), func(context.Context) error { close(began); <-hang; return nil })
	}()
	<-began
	for first := time.Now(); ; {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if e, ok := errors.AsType[*exit](err); !ok || e.code != exitSignal+int(syscall.SIGTERM) {
				t.Error(err)
			}
			if took := time.Since(first); took < sameStop { // timeout(1) sends two at once
				t.Errorf("the signals of %v end it at once", took)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestLeaseWithoutFile: a lease that is in no file waits for no lease file, whatever uses those in the working directory.
func TestLeaseWithoutFile(t *testing.T) {
	t.Parallel()
	if unlock, taken := lockDir("."); !taken { // else another test process has it locked
		defer unlock()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unlock, err := (&keptLease{text: []byte("{}"), name: "stdin"}).lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
