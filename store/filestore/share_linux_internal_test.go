//go:build linux

package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
)

// The users of these tests; team is the group that shares a directory.
const anne, bert, team = 4001, 4002, 4242

// act makes the rest of the test, on its own thread, act as a user of a group.
func act(t *testing.T, uid, gid uintptr) {
	t.Helper()
	change := func(uid, gid uintptr) {
		t.Helper()
		user := func() (r1, r2 uintptr, errno syscall.Errno) {
			return syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, 0)
		}
		group := func() (r1, r2 uintptr, errno syscall.Errno) {
			return syscall.RawSyscall(syscall.SYS_SETRESGID, gid, gid, 0)
		}
		first, second := group, user
		if uid == 0 {
			first, second = user, group
		}
		_, _, one := first()
		_, _, two := second()
		if one != 0 || two != 0 {
			t.Fatal(one, two)
		}
	}
	runtime.LockOSThread()
	change(uid, gid)
	t.Cleanup(func() {
		change(0, 0)
		runtime.UnlockOSThread()
	})
}

// shared gives a directory that all users can reach, of an owner, a group and a mode.
func shared(t *testing.T, uid, gid int, mode fs.FileMode) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can act as another user")
	}
	dir := t.TempDir()
	OpenToAll(t, dir)
	give(t, dir, uid, gid, mode)
	return dir
}

// OpenToAll lets all users enter the directory that the testing package made around dir.
func OpenToAll(t *testing.T, dir string) {
	t.Helper()
	made := filepath.Dir(dir)
	if err := os.Chmod(made, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	for path := made; path != "/"; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&1 == 0 {
			t.Skipf("other users cannot enter %s: set TMPDIR to a directory that all may enter", path)
		}
	}
}

func give(t *testing.T, path string, uid, gid int, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// file makes a file of an owner, a group and a mode.
func file(t *testing.T, path string, uid, gid int, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	give(t, path, uid, gid, mode)
}

// A possession is whose a file is, and what others may do with it.
type possession struct {
	uid, gid int
	mode     fs.FileMode
}

func possessionOf(t *testing.T, path string) possession {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := owner(info)
	return possession{uid, gid, info.Mode()}
}

// givings are what becomes of a file that is made in a directory.
var givings = []struct {
	what         string
	uid, gid     uintptr // who makes it
	dir, made    possession
	object, lock possession
	below        possession // a directory
}{
	{
		"the superuser in its own", 0, 0,
		possession{0, 0, 0o755},
		possession{0, 0, 0o600},
		possession{0, 0, 0o600},
		possession{0, 0, 0o600},
		possession{0, 0, 0o600},
	},
	{
		"the superuser in its own, beside a group that looks", 0, 0,
		possession{0, team, 0o755},
		possession{0, 0, 0o640},
		possession{0, 0, 0o640},
		possession{0, team, 0o600},
		possession{0, 0, 0o640},
	},
	{
		"the superuser in its own, that it shares", 0, 0,
		possession{0, team, 0o770},
		possession{0, 0, 0o600},
		possession{0, team, 0o640},
		possession{0, team, 0o660},
		possession{0, team, 0o670},
	},
	{
		"the superuser in anne's", 0, 0,
		possession{anne, anne, 0o755},
		possession{0, 0, 0o600},
		possession{anne, anne, 0o600},
		possession{anne, anne, 0o600},
		possession{anne, anne, 0o600},
	},
	{
		"the superuser in anne's, with the group already", 0, 0,
		possession{anne, team, 0o770 | fs.ModeSetgid},
		possession{0, team, 0o600},
		possession{anne, team, 0o640},
		possession{anne, team, 0o660},
		possession{anne, team, 0o670 | fs.ModeSetgid},
	},
	{
		"anne in her own, beside a group that looks", anne, team,
		possession{anne, team, 0o755},
		possession{anne, anne, 0o640},
		possession{anne, anne, 0o640},
		possession{anne, team, 0o600},
		possession{anne, anne, 0o640},
	},
	{
		"bert of the team in anne's", bert, team,
		possession{anne, team, 0o770},
		possession{bert, bert, 0o600},
		possession{bert, team, 0o640},
		possession{bert, team, 0o660},
		possession{bert, team, 0o670},
	},
	{
		"bert of no team where all write", bert, bert,
		possession{anne, team, 0o777},
		possession{bert, bert, 0o600},
		possession{bert, bert, 0o644},
		possession{bert, bert, 0o666},
		possession{bert, bert, 0o677},
	},
	{
		"bert of the team, all of it open already", bert, team,
		possession{anne, team, 0o770},
		possession{bert, team, 0o775},
		possession{bert, team, 0o775},
		possession{bert, team, 0o660},
		possession{bert, team, 0o775},
	},
}

// A file that is made in a directory is given to its group if that may write there, and by the
// superuser also to its owner, with the rights that they need; in a directory of one writer the
// umask and the group are the writer's own. A file that is as it should be is left as it is.
func TestWhatIsMadeIsGiven(t *testing.T) {
	for _, c := range givings {
		t.Run(c.what, func(t *testing.T) {
			dir := shared(t, c.dir.uid, c.dir.gid, c.dir.mode)
			object, lock, below := filepath.Join(dir, "k"), filepath.Join(dir, lockName), filepath.Join(dir, "below")
			file(t, object, c.made.uid, c.made.gid, c.made.mode)
			file(t, lock, c.made.uid, c.made.gid, c.made.mode)
			if err := os.Mkdir(below, 0o700); err != nil {
				t.Fatal(err)
			}
			give(t, below, c.made.uid, c.made.gid, c.made.mode)
			if c.uid != 0 {
				act(t, c.uid, c.gid)
			}
			for path, do := range map[string]func(*os.File, string){object: shareObject, lock: shareLock} {
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				do(f, dir)
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			shareDir(below)
			c.below.mode |= fs.ModeDir
			for path, want := range map[string]possession{object: c.object, lock: c.lock, below: c.below} {
				if got := possessionOf(t, path); got != want {
					t.Errorf("%s is %+v, want %+v", filepath.Base(path), got, want)
				}
			}
		})
	}
}

// A file that is its directory's already is not given: a file system may not know how. A file
// that is closed cannot be given to anybody either.
func TestNothingIsGivenWithoutNeed(t *testing.T) {
	dir := shared(t, 0, 0, 0o755)
	for _, c := range []struct {
		uid, gid, dirUID, dirGID int
		want                     bool
	}{
		{0, 0, 0, 0, true},
		{0, anne, 0, team, false},
		{0, team, anne, team, false},
	} {
		path := filepath.Join(dir, "k")
		file(t, path, c.uid, c.gid, 0o600)
		give(t, dir, c.dirUID, c.dirGID, 0o755)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		info, d, ok := both(f, dir)
		if !ok {
			t.Fatal("there is no file")
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := adopt(f, info, d); got != c.want {
			t.Errorf("%+v: it is of the directory's group: %t", c, got)
		}
		if _, _, ok := both(f, dir); ok {
			t.Error("a file that is closed is there")
		}
		shareLock(f, dir)
		shareObject(f, dir)
		if f, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
		if _, _, ok := both(f, filepath.Join(dir, "none")); ok {
			t.Error("a directory that is not there is there")
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	shareDir(filepath.Join(dir, "none"))
}

// A lock file of one's own that is not as it should be is set right, and nothing else is
// touched: not one of another user's, nor one that is right, nor what is there instead by now.
func TestRestrict(t *testing.T) {
	for what, c := range map[string]struct {
		dir, lock, want possession
	}{
		"that all could read":               {possession{0, 0, 0o755}, possession{0, 0, 0o644}, possession{0, 0, 0o600}},
		"another user's":                    {possession{anne, team, 0o770}, possession{bert, team, 0o644}, possession{bert, team, 0o644}},
		"another user's, as it should be":   {possession{anne, team, 0o770}, possession{bert, team, 0o660}, possession{bert, team, 0o660}},
		"the directory is a group's now":    {possession{0, team, 0o770}, possession{0, 0, 0o600}, possession{0, team, 0o660}},
		"the group's, that does not write":  {possession{0, team, 0o755}, possession{0, 0, 0o600}, possession{0, 0, 0o600}},
		"the group's, and closed":           {possession{0, team, 0o770}, possession{0, team, 0o600}, possession{0, team, 0o660}},
		"the group's, that writes no more":  {possession{0, team, 0o755}, possession{0, team, 0o660}, possession{0, team, 0o600}},
		"the group's":                       {possession{0, team, 0o770}, possession{0, team, 0o660}, possession{0, team, 0o660}},
		"all write, and of another's group": {possession{0, team, 0o777}, possession{0, 0, 0o666}, possession{0, team, 0o666}},
	} {
		dir := shared(t, c.dir.uid, c.dir.gid, c.dir.mode)
		lock := filepath.Join(dir, lockName)
		file(t, lock, c.lock.uid, c.lock.gid, c.lock.mode)
		before := changed(t, lock)
		for tick := before; tick == before; { // till a change would show
			if err := os.Chmod(dir, c.dir.mode); err != nil {
				t.Fatal(err)
			}
			tick = changed(t, dir)
		}
		info, err := os.Lstat(lock)
		if err != nil {
			t.Fatal(err)
		}
		restrict(lock, info)
		if got := possessionOf(t, lock); got != c.want {
			t.Errorf("%s: it is %+v, want %+v", what, got, c.want)
		}
		if c.lock == c.want && changed(t, lock) != before {
			t.Errorf("%s: it was set anew", what)
		}
	}
	dir := shared(t, 0, 0, 0o755)
	old, now := filepath.Join(dir, "old"), filepath.Join(dir, lockName)
	file(t, old, 0, 0, 0o644)
	info, err := os.Lstat(old)
	if err != nil {
		t.Fatal(err)
	}
	restrict(now, info) // nothing is there
	file(t, now, 0, 0, 0o644)
	restrict(now, info)
	if got := possessionOf(t, now); got.mode != 0o644 {
		t.Errorf("what is there instead was given the mode %v", got.mode)
	}
	restrict(filepath.Join(dir, "none", lockName), info)
}

// changed tells when a file was last changed, its mode included.
func changed(t *testing.T, path string) syscall.Timespec {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ctim //nolint:errcheck // it is one on every Unix
}

// A lock file that may not be written is told of with those that may. A directory
// without one that may not be written is denied, and what was to be deleted in it is there.
func TestLockFileThatIsDenied(t *testing.T) {
	dir := shared(t, anne, team, 0o777)
	lock := filepath.Join(dir, lockName)
	shut := filepath.Join(dir, "shut")
	if err := os.Mkdir(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	file(t, filepath.Join(shut, "k"), anne, anne, 0o644)
	give(t, shut, anne, anne, 0o755)
	for mode, want := range map[fs.FileMode]string{
		0o600: "only the user 4001 may lock",
		0o660: "only the user 4001 and the group 4001 may lock",
		0o620: "only the user 4001 and the group 4001 may lock",
		0o640: "only the user 4001 and the group 4001 may lock",
		0o644: "may lock",
		0o601: "only the user 4001 may lock",
	} {
		file(t, lock, anne, anne, mode)
		t.Run(mode.String(), func(t *testing.T) {
			act(t, bert, bert)
			l, err := tryLock(lock)
			if l != nil || !errors.Is(kind(err), store.ErrDenied) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v, want that %s", l, err, want)
			}
		})
	}
	act(t, bert, bert)
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Delete(ctx, "shut/k"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a deletion where no lock can be taken: %v", err)
	}
}

// In a directory that a group may write, it may write in those that the store makes in it. The
// store's own directory is its maker's, as are those with a mode that is said, and one that is
// there already stays what it is. No test noticed when others were given away.
func TestDirectoriesThatAreGiven(t *testing.T) {
	mine, teams := possession{0, 0, fs.ModeDir | 0o700}, possession{0, team, fs.ModeDir | 0o770}
	for what, c := range map[string]struct {
		opts    *Options
		below   string // of the directory of the group
		there   bool   // the directory that is looked at
		looked  string
		special fs.FileMode
		want    possession
	}{
		"what the store makes":                               {looked: "a", want: teams},
		"what it makes below that":                           {looked: "a/b", want: teams},
		"what is there already":                              {looked: "a", there: true, want: mine},
		"with a mode that is said":                           {opts: &Options{DirMode: 0o700}, looked: "a", want: mine},
		"the store's own":                                    {below: "own", looked: "own", want: mine},
		"what it makes in its own":                           {below: "own", looked: "own/a", want: mine},
		"its own, where the directory gives it to the group": {below: "own/b", special: fs.ModeSetgid, looked: "own", want: possession{0, team, fs.ModeDir | fs.ModeSetgid | 0o770}},
		"the store's own, mode said":                         {opts: &Options{DirMode: 0o700}, below: "own", looked: "own", want: mine},
	} {
		dir := shared(t, 0, team, 0o770|c.special)
		looked := filepath.Join(dir, c.looked)
		if c.there {
			if err := os.Mkdir(looked, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(filepath.Join(dir, c.below), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a/b/k", "a/k"} {
			if _, err = s.Put(t.Context(), key, []byte("body"), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		got := possessionOf(t, looked)
		if got.mode &^= 0o055; got.gid == team { // these the umask may leave them
			got.mode |= 0o050
		}
		if got != c.want {
			t.Errorf("%s is %+v, want %+v", what, got, c.want)
		}
	}
}
