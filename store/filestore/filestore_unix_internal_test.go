//go:build unix

package filestore

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold/store"
)

// A file system without locks is of no use, now and later; any other trouble with a lock may
// pass. No test noticed when they were one.
func TestFileSystemWithoutLocks(t *testing.T) {
	for err, useless := range map[error]bool{
		syscall.ENOLCK: true, syscall.ENOSYS: true, syscall.EOPNOTSUPP: true, errors.ErrUnsupported: true,
		syscall.EIO: false, syscall.EINTR: false, syscall.EMFILE: false,
	} {
		got := lockless("/dir/.leasehold.lock", &fs.PathError{Op: "flock", Path: "k", Err: err})
		if errors.Is(kind(got), store.ErrRefused) != useless || !errors.Is(got, err) {
			t.Errorf("%v is %v of the kind %v, want that the directory is of no use: %t", err, got, kind(got), useless)
		}
	}
}

// Where there are no hard links the lock file is made in its place, for one user, and one that
// is there already is left alone. No test came by it.
func TestLockFileWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, lockName)
	if err := makeLockUnlinked(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if m := before.Mode(); m != 0o600 || before.Size() != 0 {
		t.Errorf("the lock file has the mode %v and %d bytes", m, before.Size())
	}
	if err := makeLockUnlinked(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another time: %v", err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(before, now) {
		t.Errorf("it is another file now: %v", err)
	}
	if err := makeLock(path); err != nil {
		t.Errorf("where there is one: %v", err)
	}
}

// The store looks for leftovers of crashed writers when it first writes to a directory, and then
// once an hour, and removes those that are over an hour old. Nothing else goes. No test noticed
// when it looked at each write.
func TestSweepIsRare(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(1_700_000_000, 0)
	file := func(name string, at time.Time) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	object, old, young := file("k", begin.Add(-2*tempLife)), file(tempName(), begin.Add(-tempLife-1)), file(tempName(), begin.Add(-tempLife))
	s.sweep(dir, begin)
	if there(old) || !there(young) || !there(object) {
		t.Errorf("at first: what is over an hour old is there: %t; what is an hour old: %t; an object: %t", there(old), there(young), there(object))
	}
	s.sweep(dir, begin.Add(tempLife-1))
	if !there(young) {
		t.Error("it was looked for again within the hour")
	}
	s.sweep(dir, begin.Add(tempLife))
	if there(young) || !there(object) {
		t.Errorf("an hour later: what is old is there: %t; an object: %t", there(young), there(object))
	}
	s.sweep(filepath.Join(dir, "none"), begin) // there is nothing to look at
}

// A listing enters the directories that may hold what it was asked for, and no others. No test
// noticed when it entered all.
func TestDirectoriesThatAreListed(t *testing.T) {
	for _, c := range []struct {
		prefix, after, dir string
		want               bool
	}{
		{"", "", "a/", true},
		{"a/", "", "a/", true},
		{"a/b", "", "a/", true},
		{"a/b", "", "a/b/", true},
		{"a/b", "", "a/bc/", true},
		{"a/b", "", "a/c/", false},
		{"a/b", "a/b/k", "a/c/", false},
		{"", "b", "a/", false},
		{"", "b", "b/", true},
		{"", "b/k", "b/", true},
		{"", "b/", "b/", true},
		{"", "b0", "b/", false},
		{"", "a", "b/", true},
		{"b", "c", "b/", false},
	} {
		w := walk{prefix: c.prefix, after: c.after}
		if got := w.mayHold(c.dir); got != c.want {
			t.Errorf("a listing of %q after %q enters %q: %t, want %t", c.prefix, c.after, c.dir, got, c.want)
		}
	}
}

// Modes that are said are kept, whatever the directory's say: also if it is only one of them.
// Those that are not said are the widest that the umask may narrow. No test noticed when one
// was not enough.
func TestModesThatAreSaid(t *testing.T) {
	for _, c := range []struct {
		opts      *Options
		shares    bool
		file, dir fs.FileMode
	}{
		{nil, true, 0o666, 0o777},
		{&Options{MustExist: true}, true, 0o666, 0o777},
		{&Options{FileMode: 0o600}, false, 0o600, 0o777},
		{&Options{Private: true}, true, 0o600, 0o700},
		{&Options{FileMode: 0o640, Private: true}, false, 0o640, 0o700},
		{&Options{DirMode: 0o700}, false, 0o666, 0o700},
		{&Options{FileMode: 0o600, DirMode: 0o700}, false, 0o600, 0o700},
	} {
		s, err := New(t.TempDir(), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if s.shares != c.shares || s.fileMode != c.file || s.dirMode != c.dir {
			t.Errorf("with %+v it gives the group what it needs: %t, and the modes are %v and %v; want %t, %v, %v",
				c.opts, s.shares, s.fileMode, s.dirMode, c.shares, c.file, c.dir)
		}
	}
}

// A directory that goes while it is listed has no names.
func TestNamesOfNoDirectory(t *testing.T) {
	w := walk{ctx: t.Context()}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), filepath.Join(os.Args[0], "below a file")} {
		if names, err := w.names(path); len(names) > 0 || err != nil {
			t.Errorf("%s: %v, %v", path, names, err)
		}
	}
}

// A reading tells whether its directory has changed while it was read, since then a name may
// have been missed. A directory that is gone has no names, and is not looked for again; of one
// that cannot be read nobody knows the names. No test noticed when no change was seen.
func TestReadingSeesChanges(t *testing.T) {
	names := map[string]bool{"a": true}
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		path    string // or a directory that there is
		during  func(dir string) error
		changed bool
		names   map[string]bool
		err     error
	}{
		"nothing":              {names: names},
		"a name changes":       {during: func(dir string) error { return os.Chtimes(dir, time.Time{}, time.Unix(1, 0)) }, changed: true, names: names},
		"it goes at the end":   {during: os.Remove, changed: true, names: names},
		"it goes when read":    {during: func(string) error { return fs.ErrNotExist }},
		"a file is there now":  {during: func(string) error { return syscall.ENOTDIR }},
		"it cannot be read":    {during: func(string) error { return syscall.EIO }, err: syscall.EIO},
		"there is none":        {path: filepath.Join(filepath.Dir(loop), "none")},
		"it cannot be reached": {path: loop, err: syscall.ELOOP},
	} {
		dir := c.path
		if dir == "" {
			dir = t.TempDir()
		}
		got, changed, err := reading(dir, func(string) (map[string]bool, error) {
			if c.during == nil {
				return names, nil
			}
			return names, c.during(dir)
		})
		if !maps.Equal(got, c.names) || changed != c.changed || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, changed: %t, %v; want %v, %t, %v", what, got, changed, err, c.names, c.changed, c.err)
		}
	}
}

// A lock counts only if it is on the file that lies in its place: while it was taken, the file
// may have been removed, or something else put there. Else it is let go. No test noticed when
// each lock counted.
func TestLockOnWhatIsNotThere(t *testing.T) {
	remake := func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) }
	for what, c := range map[string]struct {
		before, after func(path string) error
		counts        bool
		err           error
	}{
		"it is there":         {before: makeLock, counts: true},
		"it is gone":          {before: makeLock, after: os.Remove},
		"it is another":       {before: makeLock, after: remake},
		"it is a FIFO":        {before: func(path string) error { return syscall.Mkfifo(path, 0o600) }, err: store.ErrRefused},
		"it was never locked": {err: fs.ErrNotExist},
	} {
		path := filepath.Join(t.TempDir(), lockName)
		taken := flock.New(path, flock.SetFlag(os.O_RDWR|openFlags))
		if c.before != nil {
			if err := c.before(path); err != nil {
				t.Fatal(err)
			}
			if ok, err := taken.TryLock(); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if c.after != nil {
			if err := c.after(path); err != nil {
				t.Fatal(err)
			}
		}
		l, err := confirmed(path, taken)
		if (l == taken) != c.counts || (l != nil) != c.counts || taken.Locked() != c.counts || !errors.Is(err, c.err) {
			t.Errorf("%s: the lock counts: %t, is held: %t, %v; want %t, %v", what, l != nil, taken.Locked(), err, c.counts, c.err)
		}
		_ = taken.Unlock() // if it is held
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := tryLock(filepath.Join(file, lockName)); l != nil || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a lock below a file: %v, %v", l, err)
	}
}

// A directory that takes the place of an object between the look and the opening is no object either,
// and does not stay open. No test noticed when it was read.
func TestOpenedIsNoFile(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if f, _, err := regular("k", dir); f != nil || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a directory is the object %v, %v", f, err)
	}
	if f, _, err := regular("k", dir); f != nil || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("what was closed is the object %v, %v", f, err)
	}
}

// TestSlowWriterKeepsItsFile: a writer may be stopped for most of an hour, or its disk slow, and its write still lands.
func TestSlowWriterKeepsItsFile(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	slow := filepath.Join(dir, tempName())
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(slow, now, now.Add(-59*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if s.sweep(dir, now); !exists(slow) {
		t.Error("the file of a writer that began 59 minutes ago is removed")
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// A file that cannot be flushed to the disk was not written. A pipe takes all bytes and cannot
// be flushed. No test noticed when a file was not.
func TestFileIsFlushed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := fill(w, strings.NewReader("x")); err == nil {
		t.Error("a file that was not flushed was said to be written")
	}
}

// An error of a rename or an unlink says that nothing has happened only where the local system
// itself has refused it. No test noticed when any other was believed.
func TestErrorsOfARename(t *testing.T) {
	for err, unknown := range map[error]bool{
		nil:            false,
		syscall.EIO:    true,
		syscall.ESTALE: true,
		syscall.ENOENT: true, // on NFS the first request has happened, and the second says this
		syscall.EACCES: false,
		syscall.EPERM:  false,
		syscall.ENOSPC: false,
		syscall.EROFS:  false,
	} {
		var is error
		if err != nil {
			is = &fs.PathError{Op: "rename", Path: "k", Err: err}
		}
		if got := renamed(is); errors.Is(got, store.ErrUnknownOutcome) != unknown || !errors.Is(got, err) {
			t.Errorf("%v is %v, want that the outcome is unknown: %v", err, got, unknown)
		}
	}
}
