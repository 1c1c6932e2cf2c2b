package storeurl_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// quorumOf is the URL of a quorum with these members.
func quorumOf(members ...string) string {
	return "quorum:///?" + url.Values{"member": members}.Encode()
}

// fileOf is the URL of a directory.
func fileOf(dir string) string {
	return (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}).String()
}

// TestQuorumURLs: what is wrong with the URL of a quorum, or with the file of its name, is said.
func TestQuorumURLs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quorums")
	text := `
# a remark
main  file:///a file:///b	file:///c
none
twice file:///a
twice file:///b
four  file:///a file:///b file:///c file:///d
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ url, file, want string }{
		{quorumOf("file:///a", "file:///b", "file:///c"), "", ""},
		{"quorum://main", file, ""},
		{"quorum://main/locks", file, ""},
		{"quorum:///", "", "there are no members: write quorum:///KEY?member=URL&member=URL&member=URL"},
		{"quorum://main?member=mem%3A%2F%2Fa", file, "a quorum has a name, which is looked up in a file, or members"},
		{"quorum://main:1", file, "the name of a quorum has no port"},
		{quorumOf("file:///a") + "&members=x", file, `unknown parameter "members"; there are member`},
		{quorumOf("file:///a", "file:///b"), "", "2 members: a quorum has 3 or 5"},
		{quorumOf("file:///a", "file:///b", "file:///a"), "", "file:///a is a member twice"},
		{quorumOf("file:///a", "file:///b", quorumOf("file:///c")), "", "a member is a quorum itself"},
		{quorumOf("file:///a", "file:///b", "mem://c"), "", "a store in memory is no member"},
		{quorumOf("file:///a", "file:///b", "file:///c?if_match=false"), "", "a member has if_match=false, and a quorum needs If-Match"},
		{quorumOf("file:///a", "file:///b", "ftp://c"), "", "a member: bad store URL: unknown scheme ftp://"},
		{quorumOf("file:///a", "file:///b", "c"), "", "a member: bad store URL: it has no scheme"},
		{"quorum://main", "", "is looked up in the file that LEASEHOLD_QUORUM_FILE names, and it is not set"},
		{"quorum://main", file + "-not", "the file of quorums: open "},
		{"quorum://none", file, "line 4: there are no members: a line has a name, and then their URLs"},
		{"quorum://twice", file, "has that name twice, in lines 5 and 6"},
		{"quorum://four", file, "4 members: a quorum has 3 or 5"},
		{"quorum://other", file, "has no quorum of that name; it has main, none, twice, four"},
	} {
		t.Setenv(storeurl.QuorumFile, tc.file)
		_, err := storeurl.Open(t.Context(), tc.url)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.url, err)
		case tc.want != "" && (!errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s gives %v, want ErrURL that says %q", tc.url, err, tc.want)
		}
	}
	for content, want := range map[string]string{
		"# nothing\n":                     "has no quorum: a line has a name, and then the URLs of the members",
		"file:///a file:///b file:///c\n": "line 1: a URL stands where a name should",
		"# main\nmain\tfile:///a\n\n\n":   "1 members: a quorum has 3 or 5",
	} {
		t.Setenv(storeurl.QuorumFile, file)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := storeurl.Open(t.Context(), "quorum://main"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", content, err, want)
		}
	}
}

// TestMembers: they are told without being opened, and only those of a quorum.
func TestMembers(t *testing.T) {
	t.Parallel()
	want := []string{"s3://a?region=x", "gs://b", "ftp://c"}
	if got, err := storeurl.Members(quorumOf(want...)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := storeurl.Members("file:///dir"); err != nil || got != nil {
		t.Errorf("of a directory: %q, %v", got, err)
	}
	if _, err := storeurl.Members("quorum:///"); !errors.Is(err, storeurl.ErrURL) {
		t.Error(err)
	}
}

// lines is what a logger has said.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// TestDirectoryComesLater: a member whose directory is not there, or cannot be, keeps nobody from the others, and is
// used when it comes. The logger is told once each.
func TestDirectoryComesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var members []string
	for _, name := range []string{"a", "b", "c/d"} {
		members = append(members, fileOf(filepath.Join(dir, name)))
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(opts *storeurl.Options) *quorumstore.Store {
		st, err := storeurl.OpenWith(t.Context(), quorumOf(members...), opts)
		ok(err)
		quorum, is := st.(*quorumstore.Store)
		if !is {
			t.Fatalf("it is a %T", st)
		}
		return quorum
	}
	move := func(from, to string) { ok(os.Rename(filepath.Join(dir, from), filepath.Join(dir, to))) }
	ok(open(nil).Init(t.Context()))
	move("c", "away")
	ok(os.WriteFile(filepath.Join(dir, "c"), nil, 0o600))
	var log lines
	st := open(&storeurl.Options{MustExist: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	opened, err := st.Members(t.Context())
	if err != nil || opened[2].String() != members[2] {
		t.Fatalf("%v, %v, want %s", opened, err, members[2])
	}
	later := opened[2]
	if _, err = later.Get(t.Context(), "x", ""); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a path through a file: %v", err)
	}
	if _, err = st.Put(t.Context(), "x", []byte("1"), store.IfAbsent()); err != nil {
		t.Error(err)
	}
	ok(os.Remove(filepath.Join(dir, "c")))
	if _, err = later.Put(t.Context(), "x", nil, store.IfAbsent()); !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("without a directory: %v", err)
	}
	move("away", "c")
	// A status asks all members, and waits for each.
	_, standing, err := st.Status(t.Context())
	if err != nil || len(standing) != 3 || standing[2].Err != nil || !standing[2].Whole {
		t.Errorf("when it is back: %+v, %v", standing, err)
	}
	said := log.text()
	if strings.Count(said, "fails") != 1 || strings.Count(said, "answers again") != 1 || !strings.Contains(said, "c/d") {
		t.Errorf("it was said: %s", said)
	}
}
