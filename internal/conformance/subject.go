package conformance

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// A line is what one side has said, and when.
type line struct {
	text string
	at   time.Duration
	ours bool // the runner said it
}

// A subject is the process of the implementation.
type subject struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	errors  tail
	renews  bool // by itself
	answers chan line
	ended   chan struct{}

	mu     sync.Mutex
	lines  []line
	lost   map[string]time.Duration // when it said so last, by key
	killed bool
}

// maxLine bounds a line of a subject.
const maxLine = 64 << 10

// startSubject starts the command, and waits for the line that says that it is ready.
func startSubject(opts *Options, endpoint string, patience time.Duration) (*subject, error) {
	s := &subject{answers: make(chan line, 64), ended: make(chan struct{}), lost: map[string]time.Duration{}}
	s.cmd = exec.Command(opts.Command[0], opts.Command[1:]...) //nolint:noctx // end kills it, with all that it has started
	s.cmd.Env = append(append([]string{}, opts.Env...),
		"AWS_ENDPOINT_URL="+endpoint, "AWS_ENDPOINT_URL_S3="+endpoint,
		"CONFORMANCE_ENDPOINT="+endpoint, "CONFORMANCE_BUCKET="+opts.Bucket, "CONFORMANCE_PREFIX="+opts.Prefix)
	if opts.Region != "" {
		s.cmd.Env = append(s.cmd.Env, "AWS_REGION="+opts.Region)
	}
	s.cmd.Stderr = &s.errors
	ownGroup(s.cmd)
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err = s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the command cannot be started: %w", err)
	}
	go s.listen(out)
	hello, err := s.next(patience)
	if err != nil {
		s.end()
		return nil, err
	}
	switch hello.text {
	case "ready 1 renews-itself":
		s.renews = true
	case "ready 1 renews-when-asked":
	default:
		s.end()
		return nil, fmt.Errorf(`the first line is %q, and neither "ready 1 renews-itself" nor "ready 1 renews-when-asked"`, hello.text)
	}
	return s, nil
}

// listen reads lines until the process has closed its output.
func (s *subject) listen(out io.Reader) {
	defer close(s.ended)
	in := bufio.NewScanner(out)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		l := line{text: strings.TrimRight(in.Text(), "\r"), at: clock.Now()}
		s.mu.Lock()
		s.lines = append(s.lines, l)
		key, lost := strings.CutPrefix(l.text, "lost ")
		if lost {
			s.lost[key] = l.at
		}
		s.mu.Unlock()
		if lost {
			continue
		}
		select {
		case s.answers <- l:
		default: // nobody has asked so often: it is in the lines, and judged there
		}
	}
	_, _ = io.Copy(io.Discard, out) // of a line that is too long
}

// say sends a request, and does not wait.
func (s *subject) say(text string) error {
	s.mu.Lock()
	s.lines = append(s.lines, line{text: text, at: clock.Now(), ours: true})
	s.mu.Unlock()
	_, err := io.WriteString(s.stdin, text+"\n")
	return err
}

// next waits for the next answer.
func (s *subject) next(patience time.Duration) (line, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l := <-s.answers:
		return l, nil
	case <-late.C:
		return line{}, fmt.Errorf("no answer within %v", patience)
	case <-s.ended:
	}
	select {
	case l := <-s.answers: // its last word
		return l, nil
	default:
		return line{}, fmt.Errorf("the process has ended; on stderr it said: %s", s.errors.String())
	}
}

// lostAt is when it said that the lease was lost.
func (s *subject) lostAt(key string) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, told := s.lost[key]
	return at, told
}

// all are the lines of both sides so far.
func (s *subject) all() []line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]line{}, s.lines...)
}

// end kills the process and all that it has started.
func (s *subject) end() {
	s.mu.Lock()
	killed := s.killed
	s.killed = true
	s.mu.Unlock()
	if killed {
		return
	}
	killGroup(s.cmd)
	_ = s.stdin.Close()
	<-s.ended
	_ = s.cmd.Wait() // its output was read to the end
}

// A tail keeps the last bytes of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - 4096; over > 0 {
		t.text = t.text[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Environ is the environment of this process without what would lead a subject to another store.
func Environ() (env []string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "CONFORMANCE_") && !strings.HasPrefix(name, "AWS_ENDPOINT_URL") {
			env = append(env, v)
		}
	}
	return env
}
