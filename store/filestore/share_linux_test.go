package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// The users of these tests; team is the group that shares a directory.
const (
	anne, bert, carl, nobody = 4001, 4002, 4003, 65534
	team                     = 4242
)

type user struct{ uid, gid uint32 }

func (u user) String() string { return fmt.Sprintf("user %d of group %d", u.uid, u.gid) }

func init() {
	roles["seize"] = seize
	roles["look"] = look
	roles["fill"] = fill
	roles["probe"] = probe
}

// seize locks the lock file as a process does that can open it, and says whether it could.
func seize(_ context.Context, _ *filestore.Store, dir string, _ []string) error {
	ok, err := flock.New(filepath.Join(dir, ".leasehold.lock"), flock.SetFlag(os.O_RDONLY)).TryLock()
	switch {
	case errors.Is(err, fs.ErrPermission):
		fmt.Println("denied")
	case err != nil || !ok:
		return fmt.Errorf("%v, %w", ok, err)
	default:
		fmt.Println("seized")
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// look does what looks at a store, and writes nothing.
func look(ctx context.Context, st *filestore.Store, _ string, args []string) error {
	o, err := st.Get(ctx, args[0], "")
	if err != nil {
		return err
	}
	fmt.Println(string(o.Body))
	for e, err := range st.List(ctx, "", "") {
		if err != nil {
			return err
		}
		fmt.Println(e.Key)
	}
	if _, err = st.Get(ctx, "absent", ""); !errors.Is(err, store.ErrNotExist) {
		return err
	}
	_, err = st.Put(ctx, args[0], []byte("second"), store.IfMatch(o.Version))
	if !errors.Is(err, store.ErrDenied) {
		return fmt.Errorf("a user that may not write the directory put: %w", err)
	}
	return nil
}

// fill writes an object in each directory below dir, and says in which it could.
func fill(ctx context.Context, _ *filestore.Store, dir string, args []string) error {
	return each(dir, func(name, path string) error {
		st, err := filestore.New(path, nil)
		if err != nil {
			return nil //nolint:nilerr // it may not even be looked at
		}
		_, err = st.Put(ctx, args[0], []byte("x"), store.IfAbsent())
		if err == nil {
			fmt.Println(name)
		}
		// A directory that may be written and not read cannot be flushed.
		if err != nil && !errors.Is(err, store.ErrDenied) && !errors.Is(err, store.ErrUnknownOutcome) {
			return err
		}
		return nil
	})
}

// probe says of each directory below dir whether the lock file can be opened and a file
// be made.
func probe(_ context.Context, _ *filestore.Store, dir string, _ []string) error {
	return each(dir, func(name, path string) error {
		f, err := os.Open(filepath.Join(path, ".leasehold.lock"))
		opens := err == nil
		_ = f.Close()
		g, err := os.OpenFile(filepath.Join(path, "made"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			err = errors.Join(g.Close(), os.Remove(filepath.Join(path, "made")))
		}
		fmt.Printf("%s:%t:%t\n", name, opens, err == nil)
		return nil
	})
}

func each(dir string, do func(name, path string) error) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err = errors.Join(err, do(e.Name(), filepath.Join(dir, e.Name()))); err != nil {
			return err
		}
	}
	return err
}

// users gives a directory that all users can reach, and a way to start a process as one.
func users(t *testing.T) (dir string, as func(u user, umask int, role, dir string, args ...string) *process) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can start processes of other users")
	}
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "size=64m,mode=755"); err != nil {
		t.Skip("a file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(base, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filestore.OpenToAll(t, base)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "program")
	syscall.ForkLock.RLock()                 // a child forked now would keep the file open, and exec would fail with "text file busy"
	err = os.WriteFile(program, self, 0o755) //nolint:gosec // they are to run it
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "dir")
	if err = os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	return dir, func(u user, umask int, role, dir string, args ...string) *process {
		t.Helper()
		shell := fmt.Sprintf("umask %03o; exec \"$0\" \"$@\"", umask)
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", shell, program, dir}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid}}
		cmd.Dir = "/"
		return begin(t, cmd, role)
	}
}

func own(t *testing.T, path string, uid, gid int, mode fs.FileMode) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// TestStrangerCannotLock: a user that may read a directory and not write it looks at all
// that is there, and keeps nobody from writing. The lock file used to be readable by all:
// such a user could lock it, no holder could renew, and a live one lost its lease.
func TestStrangerCannotLock(t *testing.T) {
	dir, as := users(t)
	st := open(t, dir)
	was := create(t, st, "k", "first")
	stranger := as(user{nobody, nobody}, 0o022, "seize", dir)
	if said, err := stranger.out.ReadString('\n'); err != nil || said != "denied\n" {
		t.Errorf("the stranger said %q, %v: %s", said, err, stranger.stderr.Bytes())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := st.Put(ctx, "k", []byte("second"), store.IfMatch(was.Version)); err != nil {
		t.Errorf("while the stranger is there: %v", err)
	}
	_ = stranger.in.Close()
	stranger.rest(t)
	if got := as(user{nobody, nobody}, 0o022, "look", dir, "k").rest(t); !slices.Equal(got, []string{"second", "k"}) {
		t.Errorf("the stranger saw %q", got)
	}
}

// TestLockFileMode: a lock file that all users can read, as one made by hand, gets its mode when
// its owner next writes, and when the directory is given to a group.
func TestLockFileMode(t *testing.T) {
	dir, _ := users(t)
	st := open(t, dir)
	lock := filepath.Join(dir, ".leasehold.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil { //nolint:gosec // as it was
		t.Fatal(err)
	}
	o := create(t, st, "k", "first")
	if mode := modeOf(t, lock); mode != 0o600 {
		t.Errorf("after a write the lock file has the mode %v", mode)
	}
	own(t, dir, 0, team, 0o770|fs.ModeSetgid)
	if _, err := st.Put(t.Context(), "k", []byte("second"), store.IfMatch(o.Version)); err != nil {
		t.Fatal(err)
	}
	if mode := modeOf(t, lock); mode != 0o660 {
		t.Errorf("in a group's directory the lock file has the mode %v", mode)
	}
	// A second name may be the first name of any file of the owner's.
	elsewhere := filepath.Join(filepath.Dir(dir), "mine")
	if err := errors.Join(os.Remove(lock), os.WriteFile(elsewhere, nil, 0o644), os.Link(elsewhere, lock)); err != nil { //nolint:gosec // as it was
		t.Fatal(err)
	}
	create(t, st, "other", "body")
	if mode := modeOf(t, elsewhere); mode != 0o644 {
		t.Errorf("a file elsewhere was given the mode %v", mode)
	}
}

// TestUsersShare: two users of one group, or of none, count in one object, whatever their umask. Each
// directory and each file that one makes has to let the other go on.
func TestUsersShare(t *testing.T) {
	for _, mode := range []fs.FileMode{0o770 | fs.ModeSetgid, 0o770, 0o775 | fs.ModeSetgid, 0o777} {
		for _, umask := range []int{0o022, 0o077} {
			t.Run(fmt.Sprintf("%v, umask %03o", mode, umask), func(t *testing.T) {
				first, second := user{anne, team}, user{bert, team}
				if mode == 0o777 { // all users share it
					second.gid = bert
				}
				base, as := users(t)
				dir := filepath.Join(base, "shared")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				own(t, dir, anne, team, mode)
				as(first, umask, "put", dir, ledgerKey, string(ledger{}.encode())).rest(t)
				const increments = 20
				var counting []*process
				for _, u := range []user{first, second} {
					counting = append(counting, as(u, umask, "count", dir, fmt.Sprint(u.uid), fmt.Sprint(increments)))
				}
				for _, p := range counting {
					if got := len(p.rest(t)); got != increments {
						t.Errorf("%d increments landed, want %d", got, increments)
					}
				}
				if mode&0o001 == 0 || mode == 0o777 {
					return // nobody else gets that far, or all may write
				}
				stranger := as(user{nobody, nobody}, 0o022, "seize", filepath.Join(dir, "shared"))
				if said, _ := stranger.out.ReadString('\n'); said != "denied\n" {
					t.Errorf("the stranger said %q: %s", said, stranger.stderr.Bytes())
				}
				_ = stranger.in.Close()
				stranger.rest(t)
			})
		}
	}
}

// TestSuperuserLocksNobodyOut: an administrator's command may be the first to write in a
// user's directory, under any umask. The files that it makes there used to be the administrator's
// alone; and an object still was, under a umask that leaves others nothing.
func TestSuperuserLocksNobodyOut(t *testing.T) {
	base, as := users(t)
	for _, umask := range []int{0o022, 0o077} {
		dir := filepath.Join(base, fmt.Sprintf("annes-%03o", umask))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		own(t, dir, anne, anne, 0o755)
		as(user{}, umask, "put", dir, ledgerKey, string(ledger{}.encode())).rest(t)
		if got := len(as(user{anne, anne}, 0o022, "count", dir, "anne", "3").rest(t)); got != 3 {
			t.Errorf("after an administrator with the umask %03o %d increments landed, want 3", umask, got)
		}
	}
}

// TestWritersLock: over all permissions that a directory can give its group and the other
// users, and over all makers of its lock file: a user that can open the lock file may write
// over the object. And the users that share a directory as they are told to can all lock it.
func TestWritersLock(t *testing.T) {
	base, as := users(t)
	owner, member, other := user{anne, team}, user{bert, team}, user{nobody, nobody}
	for _, maker := range []user{owner, {anne, anne}, member, other} {
		root := filepath.Join(base, fmt.Sprint(maker.uid, "-", maker.gid))
		if err := os.Mkdir(root, 0o755); err != nil { //nolint:gosec // they are to reach what lies in it
			t.Fatal(err)
		}
		modes := make(map[string]fs.FileMode)
		for bits := range fs.FileMode(0o100) {
			for _, special := range []fs.FileMode{0, fs.ModeSetgid, fs.ModeSticky} {
				mode := 0o700 | bits | special
				name := fmt.Sprintf("%04o%v", bits, special != 0) + mode.String()[:1]
				modes[name] = mode
				dir := filepath.Join(root, name)
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				own(t, dir, anne, team, mode)
			}
		}
		wrote := as(maker, 0o022, "fill", root, "k").rest(t)
		if len(wrote) < 16 {
			t.Errorf("%v could write in %d directories only", maker, len(wrote))
		}
		for _, u := range []user{owner, member, other, {carl, anne}} {
			for _, line := range as(u, 0o022, "probe", root).rest(t) {
				fields := strings.Split(line, ":")
				name, opens, writes := fields[0], fields[1] == "true", fields[2] == "true"
				mode := modes[name]
				if mode&fs.ModeSticky != 0 && u.uid != anne && u.uid != maker.uid {
					writes = false // new files, but over nobody's
				}
				if opens && !writes {
					t.Errorf("%v, lock file made by %v: %v can open it and not write there", mode, maker, u)
				}
				shared := mode&fs.ModeSticky == 0 && maker.gid == team && u.gid == team
				if shared && writes && slices.Contains(wrote, name) && !opens {
					t.Errorf("%v, lock file made by %v: %v may write the directory and cannot open it", mode, maker, u)
				}
			}
		}
	}
}

// TestAccessList: under an access control list the group's permissions are a bound on those
// of anybody on the list, and not the group's.
func TestAccessList(t *testing.T) {
	dir, as := users(t)
	own(t, dir, 0, team, 0o775)
	// user::rwx, user:anne:rwx, group::r-x, mask::rwx, other::r-x
	list := []byte{2, 0, 0, 0}
	for _, e := range [][3]int{{1, 7, -1}, {2, 7, anne}, {4, 5, -1}, {16, 7, -1}, {32, 5, -1}} {
		list = append(list, byte(e[0]), 0, byte(e[1]), 0, byte(e[2]), byte(e[2]>>8), byte(e[2]>>16), byte(e[2]>>24))
	}
	if err := unix.Setxattr(dir, "system.posix_acl_access", list, 0); err != nil {
		t.Skip("there are no access control lists here: ", err)
	}
	create(t, open(t, dir), "k", "first")
	member := as(user{bert, team}, 0o022, "seize", dir)
	if said, _ := member.out.ReadString('\n'); said != "denied\n" {
		t.Errorf("a member of the group without the right to write said %q", said)
	}
	_ = member.in.Close()
	member.rest(t)
}
