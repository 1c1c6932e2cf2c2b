package filestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/storetest"
)

// planter can put a file into the store's directory as any program can.
type planter struct {
	*filestore.Store
	dir string
}

func (p planter) Plant(_ context.Context, key string, body []byte) error {
	path := filepath.Join(p.dir, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o666)
}

func open(t *testing.T, dir string) *filestore.Store {
	t.Helper()
	st, err := filestore.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		dir := t.TempDir()
		return planter{open(t, dir), dir}
	})
}

func create(t *testing.T, st *filestore.Store, key, body string) *store.Object {
	t.Helper()
	o, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantBody(t *testing.T, st *filestore.Store, key, body string) {
	t.Helper()
	o, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	if string(o.Body) != body {
		t.Errorf("%q is %q, want %q", key, o.Body, body)
	}
}

func wantKind(t *testing.T, err, kind error) {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok || !errors.Is(e.Kind, kind) {
		t.Errorf("got %v, want the kind %v", err, kind)
	}
}

func keys(t *testing.T, st *filestore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for e, err := range st.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

func TestObjectIsTheFile(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "jobs/backup", `{"token": 1}`)
	body, err := os.ReadFile(filepath.Join(dir, "jobs", "backup"))
	if err != nil || string(body) != `{"token": 1}` {
		t.Errorf("the file holds %q, %v", body, err)
	}
}

func TestNothingStaysBehind(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "k", "body")
	_, err := st.Put(t.Context(), "k", []byte("more"), store.IfAbsent())
	wantKind(t, err, store.ErrPrecondition)
	_, err = st.Get(t.Context(), "absent", "")
	wantKind(t, err, store.ErrNotExist)
	if got, want := names(t, dir), []string{".leasehold.lock", "k"}; !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Two stores whose directories lie one in the other reach the same object under
// two keys.
func TestTwoRootsExcludeEachOther(t *testing.T) {
	const writers, increments = 8, 25
	dir := t.TempDir()
	outer, inner := open(t, dir), open(t, filepath.Join(dir, "b"))
	create(t, outer, "b/c", "0")
	var group sync.WaitGroup
	for w := range writers {
		st, key := outer, "b/c"
		if w%2 == 1 {
			st, key = inner, "c"
		}
		group.Go(func() {
			for range increments {
				if err := addOne(t.Context(), st, key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	wantBody(t, outer, "b/c", fmt.Sprint(writers*increments))
	wantBody(t, inner, "c", fmt.Sprint(writers*increments))
}

// addOne adds one to the number in the object.
func addOne(ctx context.Context, st *filestore.Store, key string) error {
	for {
		o, err := st.Get(ctx, key, "")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(o.Body))
		if err != nil {
			return err
		}
		_, err = st.Put(ctx, key, []byte(strconv.Itoa(n+1)), store.IfMatch(o.Version))
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
}

func TestObstacles(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "file", "body")
	create(t, st, "dir/file", "body")
	for _, key := range []string{"file/below", "file/far/below", "dir", ".leasehold", ".leasehold.lock", "a/.leasehold.tmp-x/b", ".LEASEHOLD.lock", ".leaſehold.lock"} {
		_, err := st.Get(t.Context(), key, "")
		wantKind(t, err, store.ErrInvalid)
		for _, only := range []store.Condition{store.IfAbsent(), store.IfMatch("v")} {
			_, err = st.Put(t.Context(), key, []byte("body"), only)
			wantKind(t, err, store.ErrInvalid)
		}
		wantKind(t, st.Delete(t.Context(), key), store.ErrInvalid)
	}
	wantBody(t, st, "file", "body")
	wantBody(t, st, "dir/file", "body")
	for _, prefix := range []string{"file/", "file/far/", "file/far/below/", ".leasehold.lock/", "/", "a//", "../", "dir/../"} {
		if got := keys(t, st, prefix); len(got) != 0 {
			t.Errorf("below %q there is %q", prefix, got)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	st := open(t, dir)
	create(t, open(t, outside), "k", "outside")
	for target, link := range map[string]string{outside: "dir", filepath.Join(outside, "k"): "file", dir: "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip("symbolic links cannot be made here: ", err)
		}
	}
	create(t, st, "k", "inside")
	for _, key := range []string{"dir/k", "file", "loop/k", "dir"} {
		_, err := st.Get(t.Context(), key, "")
		wantKind(t, err, store.ErrInvalid)
		_, err = st.Put(t.Context(), key, []byte("body"), store.IfAbsent())
		wantKind(t, err, store.ErrInvalid)
		wantKind(t, st.Delete(t.Context(), key), store.ErrInvalid)
	}
	for _, prefix := range []string{"", "dir", "dir/", "loop/"} {
		for _, key := range keys(t, st, prefix) {
			if key != "k" {
				t.Errorf("the listing of %q has %q", prefix, key)
			}
		}
	}
	wantBody(t, open(t, outside), "k", "outside")

	// The directory of the store itself may be reached as one likes.
	wantBody(t, open(t, filepath.Join(dir, "dir")), "k", "outside")
}

func TestListPassesOverWhatIsNoObject(t *testing.T) {
	dir := t.TempDir()
	st := planter{open(t, dir), dir}
	create(t, st.Store, "a/k", "body")
	for _, name := range []string{".leasehold.tmp-left", "a/.leasehold.tmp-left", ".leasehold.other"} {
		if err := st.Plant(t.Context(), name, []byte("body")); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Plant(t.Context(), "large", make([]byte, store.MaxBody+1)); err != nil {
		t.Fatal(err)
	}
	if got, want := keys(t, st.Store, ""), []string{"a/k", "large"}; !slices.Equal(got, want) {
		t.Errorf("the listing is %q, want %q", got, want)
	}
	for e, err := range st.List(t.Context(), "large", "") {
		if err != nil || e.Size != store.MaxBody+1 || e.Version != "" || e.LastModified.IsZero() {
			t.Errorf("a file over MaxBody is listed as %+v, %v", e, err)
		}
	}
	// It is there, so nothing is created over it, and of no version that anybody knows.
	for _, only := range []store.Condition{store.IfAbsent(), store.IfMatch("v")} {
		_, err := st.Put(t.Context(), "large", nil, only)
		wantKind(t, err, store.ErrPrecondition)
	}
}

// A listing must show what is there throughout, however often it is replaced.
func TestListWhileWriting(t *testing.T) {
	st := open(t, t.TempDir())
	o := create(t, st, "k/busy", "0")
	for i := range 50 {
		create(t, st, fmt.Sprint("k/", i), "body")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			var err error
			if o, err = st.Put(t.Context(), "k/busy", fmt.Append(nil, i+1), store.IfMatch(o.Version)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for listings := 0; ; listings++ {
		if got := keys(t, st, "k/"); len(got) != 51 || got[50] != "k/busy" {
			t.Fatalf("listing %d has %q", listings, got)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestDates(t *testing.T) {
	st := open(t, t.TempDir())
	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, err, store.ErrNotExist)
	before := store.DateOf(err)
	put := create(t, st, "k", "body")
	if before.IsZero() || before.After(put.Date) {
		t.Errorf("the object was absent at %v and written at %v", before, put.Date)
	}
	if !put.Date.Equal(put.LastModified) {
		t.Errorf("put: Date %v, LastModified %v", put.Date, put.LastModified)
	}
	got, err := st.Get(t.Context(), "k", "")
	if err != nil {
		t.Fatal(err)
	}
	if !got.Date.IsZero() || !got.LastModified.Equal(put.LastModified) {
		t.Errorf("get: Date %v, want none; LastModified %v, want %v", got.Date, got.LastModified, put.LastModified)
	}
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil || !e.LastModified.Equal(put.LastModified) {
			t.Errorf("list: LastModified %v, %v, want %v", e.LastModified, err, put.LastModified)
		}
	}
	_, err = st.Put(t.Context(), "k", nil, store.IfAbsent())
	if date := store.DateOf(err); date.Before(put.Date) {
		t.Errorf("a refused put has the Date %v, before that of the object, %v", date, put.Date)
	}
}

func TestDirectoryIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	st := open(t, dir)
	if !slices.Equal(keys(t, st, ""), nil) {
		t.Error("a new directory is not empty")
	}
	o := create(t, st, "k", "first")
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	_, err := st.Get(t.Context(), "k", "")
	wantKind(t, err, store.ErrNotExist)
	_, err = st.Put(t.Context(), "k", []byte("second"), store.IfMatch(o.Version))
	wantKind(t, err, store.ErrPrecondition)
	if err := st.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if got := keys(t, st, ""); len(got) != 0 {
		t.Errorf("a directory that is gone has %q", got)
	}
	create(t, st, "k", "second")
	wantBody(t, st, "k", "second")
}

func TestNewRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if st, err := filestore.New(dir, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("New(%q) gave %v, %v", dir, st, err)
		}
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	st, err := filestore.New(dir, &filestore.Options{FileMode: 0o600, DirMode: 0o700})
	if err != nil {
		t.Fatal(err)
	}
	create(t, st, "a/k", "body")
	for name, want := range map[string]os.FileMode{".": 0o700, "a": 0o700, "a/k": 0o600, "a/.leasehold.lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want the mode %v", name, info, err, want)
		}
	}
}

func TestString(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with space")
	u, err := url.Parse(open(t, dir).String())
	if err != nil {
		t.Fatal(err)
	}
	want := "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/") // also before C:
	if u.Scheme != "file" || u.Host != "" || u.Path != want {
		t.Errorf("the URL %v leads to %q, want %q", u, u.Path, want)
	}
}

// A listing whose context ends says so, and yields no more. No test noticed when it went on.
func TestListIsCancelled(t *testing.T) {
	st := open(t, t.TempDir())
	for _, key := range []string{"a", "b", "c/d"} {
		create(t, st, key, "body")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entries := 0
	var errs []error
	for _, err := range st.List(ctx, "", "") {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		entries++
		cancel()
	}
	if entries != 1 || len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("%d entries and then %v, want one and that it was cancelled", entries, errs)
	}
}

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
