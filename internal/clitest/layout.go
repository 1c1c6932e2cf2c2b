package clitest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/record"
)

// UnderTest is the way that locks are stored in.
var UnderTest = leasetest.UnderTest()

// setWay has the commands of a script store locks in this way, and delete the markers of holders
// that died. QUERY is how the URL of a lock ends, and MORE if it has other parameters.
func (s *Scripts) setWay(env *testscript.Env) {
	env.Setenv("LEASEHOLD_LAYOUT", string(s.Way.Layout))
	env.Setenv("QUERY", s.Way.URL(""))
	env.Setenv("MORE", strings.Replace(s.Way.URL(""), "?", "&", 1))
	if s.Way == leasetest.MarkerNoIfMatch {
		env.Setenv("LEASEHOLD_SWEEP", "true")
	}
}

// condition is what a script can ask about its layout.
func (s *Scripts) condition(word string) (bool, error) {
	switch word {
	case "object":
		return s.Way == leasetest.Object, nil
	case "epochs":
		return s.epochs(), nil
	case "marker":
		return !s.Way.Tokens(), nil
	case "if-match":
		return !s.Way.NoIfMatch, nil
	case "root":
		return os.Getuid() == 0, nil // who reads all files
	case "renewals":
		return s.Way.Renews(), nil
	}
	return false, fmt.Errorf("unknown condition %q", word)
}

// epochs reports whether each lease has an object of its own.
func (s *Scripts) epochs() bool {
	return s.Way.Layout == leasehold.LayoutEpochs
}

// Weakness is what is said of markers where they are chosen, once in each process.
var Weakness = regexp.MustCompile(`(?m)^.*the layout marker has no tokens.*\n`)

// slow is what is said of an end that takes more than a moment, as any may on a machine that is busy.
var slow = regexp.MustCompile(`(?m)^leasehold: (releasing|settling|waiting for the answer to a claim)\b.*: for \S+ at most; a signal more ends that\n`)

// talkOf is what the last program wrote to stderr, but for these.
func (s *Scripts) talkOf(ts *testscript.TestScript) string {
	text := slow.ReplaceAllString(ts.ReadFile("stderr"), "")
	if !s.Way.Tokens() {
		text = Weakness.ReplaceAllString(text, "")
	}
	return text
}

// lies is where the lock lies in the scripts' directory store.
func lies(ts *testscript.TestScript, lock string) string {
	dir, _, _ := strings.Cut(strings.TrimPrefix(ts.Getenv("LEASEHOLD_STORE"), "file://"), "?")
	return filepath.Join(filepath.FromSlash(dir), filepath.FromSlash(lock))
}

// files are the objects of a lock, the one that counts last.
func (s *Scripts) files(ts *testscript.TestScript, lock string) []string {
	at := lies(ts, lock)
	if !s.epochs() {
		return []string{at}
	}
	entries, err := os.ReadDir(at)
	if !os.IsNotExist(err) {
		ts.Check(err)
	}
	var found []string
	for _, e := range entries { // in order of their names
		if _, _, ok := layout.Epoch(lock + "/" + e.Name()); ok {
			found = append(found, filepath.Join(at, e.Name()))
		}
	}
	return found
}

// plant FILE LOCK puts the file where the record of a lock lies, or its next one.
func (s *Scripts) plant(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plant FILE LOCK")
	}
	at := lies(ts, args[1])
	if s.epochs() {
		at = filepath.Join(at, fmt.Sprintf("%010d.json", s.highest(ts, args[1])+1))
	}
	write(ts, at, []byte(ts.ReadFile(args[0])))
}

// highest is the number of the last epoch of a lock.
func (s *Scripts) highest(ts *testscript.TestScript, lock string) int64 {
	all := s.files(ts, lock)
	if len(all) == 0 {
		return 0
	}
	_, n, _ := layout.Epoch(lock + "/" + filepath.Base(all[len(all)-1]))
	return n
}

// objects LOCK FILE keeps a copy of all objects of a lock in one file.
func (s *Scripts) objects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: objects LOCK FILE")
	}
	var all bytes.Buffer
	for _, path := range s.files(ts, args[0]) {
		body, err := os.ReadFile(path)
		ts.Check(err)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(path), body)
	}
	write(ts, ts.MkAbs(args[1]), all.Bytes())
}

// usurp LOCK takes a lock from its holder as another would, and frees it; of a marker,
// that is to delete it.
func (s *Scripts) usurp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: usurp LOCK")
	}
	all := s.files(ts, args[0])
	at := all[len(all)-1]
	if !s.Way.Tokens() {
		ts.Check(os.Remove(at))
		return
	}
	body, err := os.ReadFile(at)
	ts.Check(err)
	r, err := record.DecodeIn(record.AnyLayout, body)
	ts.Check(err)
	r.Held, r.Holder, r.WriteID = false, "usurper", "usurper.1"
	switch s.Way {
	case leasetest.Object:
		r.Token++
	case leasetest.EpochsNoIfMatch:
		r.Token = s.highest(ts, args[0]) + 1
		at = filepath.Join(filepath.Dir(at), fmt.Sprintf("%010d.json", r.Token))
	case leasetest.Epochs:
		r.Ended = record.EndedByTakeover // the first of its two writes
	}
	body, err = r.Encode()
	ts.Check(err)
	write(ts, at, body)
}

// write makes or replaces a file at once.
func write(ts *testscript.TestScript, path string, body []byte) {
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path+".new", body, 0o600))
	ts.Check(os.Rename(path+".new", path))
}

// silent checks that the last program wrote nothing to stderr.
func (s *Scripts) silent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: silent")
	}
	if text := s.talkOf(ts); text != "" {
		ts.Fatalf("stderr is not empty: %q", text)
	}
}
