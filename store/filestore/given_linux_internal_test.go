//go:build linux

package filestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasehold/leasehold/store"
)

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
