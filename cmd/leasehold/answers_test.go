package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestAnswers runs the commands in testdata/answers, each file in a directory of its own, and compares everything they
// print, and their exit codes. So no field, column, warning or word can change, or vanish, unseen.
func TestAnswers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the answers name files as Unix does")
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "answers", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := os.MkdirTemp("", "answers") //nolint:usetesting // a short path: it is in answers
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { remove(t, dir) })
			s := &answers{t: t, dir: filepath.ToSlash(dir), host: fmt.Sprintf("%s/%d", host, os.Getpid()), seen: map[string]string{}}
			t.Chdir(s.dir)
			t.Setenv(storeVariable, "file://"+s.dir+"/locks")
			for _, name := range []string{"locks", "a", "b", "c", "d"} {
				if err = os.Mkdir(name, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			var got strings.Builder
			for block := range strings.SplitSeq(string(text), "\n\n") {
				got.WriteString(s.block(strings.TrimSuffix(block, "\n")) + "\n\n")
			}
			want := strings.TrimSuffix(string(text), "\n") + "\n\n"
			if *updateReference {
				if err = os.WriteFile(path, []byte(strings.TrimSuffix(got.String(), "\n")), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != want {
				gots, wants := strings.Split(got.String(), "\n"), strings.Split(want, "\n")
				at := 0
				for at < min(len(gots), len(wants))-1 && gots[at] == wants[at] {
					at++
				}
				t.Errorf("%s:%d:\n%s\nwant\n%s\nIf that is meant: go test -run TestAnswers -update", path, at+1, gots[at], wants[at])
			}
		})
	}
}

// remove removes a directory, to which the member of a quorum may still write when a majority has answered.
func remove(t *testing.T, dir string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			t.Error(err)
			return
		}
	}
}

// answers is a run of the commands of one file.
type answers struct {
	t    *testing.T
	dir  string
	host string            // whom leasehold takes for the holder if nobody is named
	seen map[string]string // what stands for a token
}

// block is a block of the file as it ought to be. It may begin with comments. Then there is a command after a dollar, and
// what it prints: stdout as it is, stderr after "! ", and the exit code after "= " if it is not 0.
//
// Other commands are: write FILE TEXT, age FILE DURATION, remove FILE, set NAME=VALUE, and stdin FILE.
func (s *answers) block(text string) string {
	var head []string
	for line := range strings.SplitSeq(text, "\n") {
		head = append(head, line)
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			if strings.HasPrefix(line, "#") {
				continue
			}
			s.t.Fatalf("%q is neither a comment nor a command", line)
		}
		command = strings.NewReplacer("DIR", s.dir, `\n`, "\n").Replace(command)
		if args, is := strings.CutPrefix(command, "leasehold "); is {
			return strings.Join(append(head, s.run(split(args))...), "\n")
		}
		s.prepare(command)
	}
	return strings.Join(head, "\n")
}

func (s *answers) prepare(command string) {
	name, rest, _ := strings.Cut(command, " ")
	first, second, _ := strings.Cut(rest, " ")
	var err error
	switch name {
	case "write":
		if err = os.MkdirAll(filepath.Dir(first), 0o700); err == nil {
			err = os.WriteFile(first, []byte(second), 0o600)
		}
	case "age":
		age, bad := time.ParseDuration(second)
		if bad != nil {
			s.t.Fatal(bad)
		}
		then := time.Now().Add(-age)
		err = os.Chtimes(first, then, then)
	case "remove":
		remove(s.t, first)
	case "set":
		variable, value, _ := strings.Cut(rest, "=")
		s.t.Setenv(variable, value)
	case "stdin":
		f, bad := os.Open(first)
		if bad != nil {
			s.t.Fatal(bad)
		}
		before := os.Stdin
		os.Stdin = f
		s.t.Cleanup(func() {
			os.Stdin = before
			_ = f.Close()
		})
	default:
		err = fmt.Errorf("there is no command %s", name)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *answers) run(args []string) (lines []string) {
	var stdout, stderr bytes.Buffer
	for i, arg := range args {
		for token, name := range s.seen {
			if arg == name {
				args[i] = token
			}
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute) // what goes on is a fault
	defer cancel()
	code := exec(ctx, args, &stdout, &stderr)
	for _, from := range []struct {
		text, mark string
	}{{stdout.String(), ""}, {stderr.String(), "! "}} {
		for text := range strings.Lines(s.constant(from.text)) {
			line, ended := strings.CutSuffix(text, "\n")
			if !ended {
				line += "…"
			}
			if line == "" {
				line = "." // an empty line would end the block
			}
			lines = append(lines, from.mark+line)
		}
	}
	if code != 0 {
		lines = append(lines, fmt.Sprintf("= %d", code))
	}
	return lines
}

var (
	tokens = regexp.MustCompile(`\b[0-9]{13}\b`)
	varies = []struct {
		pattern *regexp.Regexp
		by      string
	}{
		{regexp.MustCompile(`\b2[0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9:]{8}(\.[0-9]+)?(Z|[-+][0-9:]{5})?`), "TIME"},
		{regexp.MustCompile(`("(?:age|rest)_ms": ?)[0-9]+`), "${1}AGE"},
		{regexp.MustCompile(`("(?:version|write_id)": ?)"[^"]+"`), `${1}"RANDOM"`},
		{regexp.MustCompile(`\b(?:48|72)h[0-9]+m[0-9]+s\b|~[0-9hms]+`), "AGE"},
		{regexp.MustCompile(`(\.[0-9]{6})[0-9]{4,}`), "$1"},                                           // processors differ in the rest
		{regexp.MustCompile(`leasehold: \S+ has not answered for 5s: waiting for \S+ at most\n`), ""}, // the machine is busy
		{regexp.MustCompile(`([^ \n]) {2,}`), "$1  "},                                                 // columns are as wide as names of directories
	}
)

// constant is what was printed with names for what is different each time.
func (s *answers) constant(text string) string {
	text = strings.ReplaceAll(text, s.dir, "DIR")
	text = strings.ReplaceAll(text, s.host, "HOST/PID")
	for _, v := range varies {
		text = v.pattern.ReplaceAllString(text, v.by)
	}
	return tokens.ReplaceAllStringFunc(text, func(token string) string {
		if s.seen[token] == "" {
			s.seen[token] = fmt.Sprintf("T%d", len(s.seen)+1)
		}
		return s.seen[token]
	})
}

// split divides a command at its blanks, but for those within single quotes.
func split(text string) (args []string) {
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	return args
}
