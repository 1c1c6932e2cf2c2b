package filestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold/store"
)

// A process is one that a test has started.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func start(t *testing.T, role, dir string, args ...string) *process {
	t.Helper()
	return begin(t, exec.CommandContext(t.Context(), os.Args[0], append([]string{dir}, args...)...), role)
}

func begin(t *testing.T, cmd *exec.Cmd, role string) *process {
	t.Helper()
	p := &process{Cmd: cmd}
	p.Env = append(os.Environ(), roleVar+"="+role)
	p.Stderr = &p.stderr
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// rest reads what the process still has to say, in lines, and waits for its end.
func (p *process) rest(t *testing.T) []string {
	t.Helper()
	out, err := io.ReadAll(p.out)
	if err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.stderr.Bytes())
	}
	return strings.Fields(string(out))
}

// Eight processes count in one object while two read it and one after another
// is killed at random: every increment that was answered is there, once.
func TestProcesses(t *testing.T) {
	const writers, increments, readers, victims = 8, 25, 2, 5
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, ledgerKey, string(ledger{}.encode()))

	var counting, reading []*process
	for i := range readers {
		reading = append(reading, start(t, "read", dir, fmt.Sprint("reader", i)))
	}
	for i := range writers {
		counting = append(counting, start(t, "count", dir, fmt.Sprint("writer", i), fmt.Sprint(increments)))
	}
	// Of a victim, as many increments landed as it said, or one more.
	said := make(map[string]int)
	for i := range victims {
		name := fmt.Sprint("victim", i)
		said[name] = kill(t, start(t, "count", dir, name, "1000000"))
	}
	for i, p := range counting {
		if got := len(p.rest(t)); got != increments {
			t.Errorf("writer%d said %d times that an increment landed, not %d times", i, got, increments)
		}
		said[fmt.Sprint("writer", i)] = increments
	}
	for i, p := range reading {
		p.in.Close()
		if out := p.rest(t); len(out) != 1 || out[0] == "1" {
			t.Errorf("reader%d read %v times", i, out)
		}
	}

	o, err := st.Get(t.Context(), ledgerKey, "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := decode(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range said {
		got := l.By[name]
		if strings.HasPrefix(name, "victim") && got == n+1 {
			continue
		}
		if got != n {
			t.Errorf("%s said that %d increments landed; there are %d", name, n, got)
		}
	}
	t.Logf("%d increments; the victims landed %v", l.Count, l.By)
}

// kill lets the victim land a few increments, kills it in the midst of one that
// follows and gives the number of those that it said had landed.
func kill(t *testing.T, victim *process) int {
	t.Helper()
	said := 1 + rand.N(5)
	for range said {
		if _, err := victim.out.ReadString('\n'); err != nil {
			t.Fatalf("the victim ended by itself: %v: %s", err, victim.stderr.Bytes())
		}
	}
	// The wait only varies the moment: whatever it is, the outcome must hold.
	time.Sleep(rand.N(5 * time.Millisecond))
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(victim.out)
	if err != nil {
		t.Error(err)
	}
	_ = victim.Wait() // it was killed
	return said + bytes.Count(out, []byte("\n"))
}

// hold takes the lock of a directory as a process does that is stopped in the
// midst of a write.
func hold(t *testing.T, dir string) (release func()) {
	t.Helper()
	l := flock.New(filepath.Join(dir, ".leasehold.lock"))
	if err := l.Lock(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// awaitTemp waits for a writer to have written its temporary file, and gives
// its path.
func awaitTemp(t *testing.T, dir string) string {
	t.Helper()
	for t.Context().Err() == nil {
		for _, name := range names(t, dir) {
			if strings.HasPrefix(name, ".leasehold.tmp-") {
				return filepath.Join(dir, name)
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no writer came")
	return ""
}

func TestCrashBeforeRename(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	was := create(t, st, "other", "body")

	release := hold(t, dir)
	writer := start(t, "put", dir, "k", "of the crashed writer")
	temp := awaitTemp(t, dir)
	if err := writer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Wait() // it was killed
	release()

	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, err, store.ErrNotExist)
	if got, want := keys(t, st, ""), []string{"other"}; !slices.Equal(got, want) {
		t.Errorf("the listing is %q, want %q", got, want)
	}
	// It stays while its writer might be alive, and goes when it is old.
	if _, err := open(t, dir).Put(t.Context(), "other", []byte("more"), store.IfMatch(was.Version)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(temp); err != nil {
		t.Errorf("the fresh temporary file: %v", err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(temp, old, old); err != nil {
		t.Fatal(err)
	}
	create(t, open(t, dir), "k", "body")
	if got, want := names(t, dir), []string{".leasehold.lock", "k", "other"}; !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

func TestStoppedProcessMakesOthersWait(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	was := create(t, st, "k", "first")
	release := hold(t, dir)

	// A reader is not concerned, nor is a listing, which used to wait.
	wantBody(t, st, "k", "first")
	if got := keys(t, st, ""); !slices.Equal(got, []string{"k"}) {
		t.Errorf("the listing is %q", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, 2)
	go func() {
		_, err := st.Put(ctx, "k", []byte("second"), store.IfMatch(was.Version))
		answers <- err
	}()
	temp := awaitTemp(t, dir)
	go func() { answers <- st.Delete(ctx, "k") }() // queues up behind the Put, or before it
	cancel()
	for range 2 {
		err := <-answers
		wantKind(t, err, store.ErrUnavailable)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it to match %v", err, context.Canceled)
		}
	}
	if _, err := os.Stat(temp); err == nil {
		t.Errorf("a writer that gave up left %s", temp)
	}
	wantBody(t, st, "k", "first")

	go func() {
		_, err := st.Put(t.Context(), "k", []byte("second"), store.IfMatch(was.Version))
		answers <- err
	}()
	awaitTemp(t, dir)
	release()
	if err := <-answers; err != nil {
		t.Error(err)
	}
	wantBody(t, st, "k", "second")
}

func TestLockFileIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	was := create(t, st, "k", "first")
	lock := filepath.Join(dir, ".leasehold.lock")
	if err := os.Remove(lock); err != nil {
		t.Skip("the lock file cannot be removed here: ", err)
	}
	if _, err := st.Put(t.Context(), "k", []byte("second"), store.IfMatch(was.Version)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error(err)
	}
}
