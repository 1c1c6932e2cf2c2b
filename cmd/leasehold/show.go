package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
)

const (
	demoTTL  = 3 * time.Second
	demoLook = 2 * time.Second  // for the eye, between two scenes
	demoWait = 15 * time.Second // for a leader, on a machine that is busy
)

// A show is the election that the demo shows.
type show struct {
	out        io.Writer
	self       string // the program
	page       string // where it is to be shown; empty: nowhere
	server     *demoServer
	began      time.Time
	candidates []*player
	news       chan news
	signals    chan os.Signal

	leader *player
	token  leasehold.Token
	turns  int
	freed  time.Time // when the last leader was made to go
	how    string    // and what that is called
}

// A player is one candidate: a process, and what it starts.
type player struct {
	name   string
	cmd    *osexec.Cmd
	stdin  io.WriteCloser // of its command
	stdout io.Reader      // of all its processes
	stderr bytes.Buffer
	killed bool
}

// news is what a candidate's command says, or that nothing of it is left.
type news struct {
	from  *player
	token leasehold.Token // it leads, with this token
	two   bool            // and so does another
}

// show has self, which is this program, play the candidates.
func (a *app) show(ctx context.Context, self, dir, page string) error {
	server, err := startDemoServer(ctx)
	if err != nil {
		return &exit{exitInternal, fmt.Errorf("cannot start the S3 server: %w", err)}
	}
	s := &show{out: &a.printed, self: self, page: page, server: server, began: time.Now(), news: make(chan news, 64), signals: make(chan os.Signal, 8)}
	listen(s.signals)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	if s.page != "" {
		err = s.open(ctx, &all)
	}
	for i := range 5 {
		if err != nil {
			break
		}
		var p *player
		if p, err = s.enter(ctx, fmt.Sprintf("node-%d", i+1), dir); err != nil {
			break
		}
		all.Go(func() { s.hear(ctx, p) })
	}
	if err == nil {
		err = s.play()
	}
	cancel()
	all.Wait()
	return s.verdict(a, err)
}

// verdict returns the exit for the show's error. With -v, and after a failure that was no signal, it prints the candidates' output.
func (s *show) verdict(a *app, err error) error {
	end, ended := errors.AsType[*exit](err)
	if a.verbose || err != nil && !ended {
		for _, p := range s.candidates {
			a.console.warn("what %s said: %s", p.name, strings.TrimSpace(strings.ReplaceAll(p.stderr.String(), "leasehold: ", "\n")))
		}
	}
	switch {
	case ended:
		return end
	case err != nil:
		return &exit{exitInternal, err}
	}
	return nil
}

// enter starts a candidate.
func (s *show) enter(ctx context.Context, name, dir string) (*player, error) {
	p := &player{name: name}
	p.cmd = osexec.CommandContext(ctx, s.self, "elect", "--ttl", demoTTL.String(), "--holder", name,
		"s3://"+demoBucket+"/leader?endpoint="+s.server.endpoint, "--", s.self, "demo", "work", dir)
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	s.candidates = append(s.candidates, p)
	return p, nil
}

// open has the page shown of the locks in the demo's bucket, by a process "leasehold serve".
func (s *show) open(ctx context.Context, all *sync.WaitGroup) error {
	cmd := osexec.CommandContext(ctx, s.self, "serve", "--http", s.page, "--every", "1s", "s3://"+demoBucket+"?endpoint="+s.server.endpoint)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	at := make(chan string, 1) // where it answers
	var said []string          // instead
	all.Go(func() {
		defer close(at)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, url, found := strings.Cut(lines.Text(), " on http://"); found {
				select {
				case at <- "http://" + url:
				default: // it was told before
				}
			}
			said = append(said, strings.TrimPrefix(lines.Text(), "leasehold: "))
		}
		_ = cmd.Wait() // killed, in the end; else it has said why
	})
	select {
	case url, answers := <-at:
		if !answers {
			return fmt.Errorf("the page cannot be shown: %s", strings.Join(said, "; "))
		}
		fmt.Fprintf(s.out, "The page is at %s/ui/\n", url)
		return nil
	case sig := <-s.signals:
		return stopped(sig, nil)
	}
}

// stay leaves the candidates at work for whoever looks at the page.
func (s *show) stay() error {
	fmt.Fprintf(s.out, "\nThe candidates and the page go on until you press ^C.\n")
	_, err := s.follow(demoLimitOfPage, func() bool { return false })
	if _, ended := errors.AsType[*exit](err); ended { // by a signal
		return nil
	}
	return err
}

// hear passes on what a candidate's command says. Its processes share the other
// end of the pipe: when that is closed, none of them is left.
func (s *show) hear(ctx context.Context, p *player) {
	for lines := bufio.NewScanner(p.stdout); lines.Scan(); {
		n := news{from: p, two: lines.Text() == "two"}
		_, err := fmt.Sscanf(lines.Text(), "leads %d", &n.token)
		if err == nil || n.two {
			s.tell(ctx, n)
		}
	}
	_ = p.cmd.Wait() // killed, in the end
	s.tell(ctx, news{from: p})
}

// tell does not wait for the show when that is over.
func (s *show) tell(ctx context.Context, n news) {
	select {
	case s.news <- n:
	case <-ctx.Done():
	}
}

// play is the whole of what is shown.
func (s *show) play() error {
	fmt.Fprintf(s.out, "Five candidates for one lock, in a bucket on %s. TTL %v.\n\n", s.server.endpoint, demoTTL)
	s.say("five processes start: leasehold elect --ttl %v … -- CMD", demoTTL)
	if err := s.nextLeader(); err != nil {
		return err
	}
	if err := s.look(demoLook); err != nil {
		return err
	}
	victim := s.leader
	victim.killed = true
	s.free("the crash")
	s.say("kill -9 of %s, process %d: nobody releases the lock", victim.name, victim.cmd.Process.Pid)
	if err := victim.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("cannot kill %s: %w", victim.name, err)
	}
	if err := s.nextLeader(); err != nil {
		return err
	}
	if err := s.look(demoLook); err != nil {
		return err
	}
	s.free("that")
	s.say("the command of %s ends by itself, so %s resigns", s.leader.name, s.leader.name)
	if _, err := io.WriteString(s.leader.stdin, "\n"); err != nil {
		return fmt.Errorf("cannot tell %s to end: %w", s.leader.name, err)
	}
	if err := s.nextLeader(); err != nil {
		return err
	}
	if err := s.look(demoLook / 2); err != nil {
		return err
	}
	s.say("the end: %d leaders, each with a greater token, never two at once", s.turns)
	fmt.Fprintf(s.out, "\n%d GETs and %d PUTs in all. With a bucket of yours:\n  leasehold elect s3://BUCKET/KEY -- CMD\n",
		s.server.get.Load(), s.server.puts.Load())
	if s.page != "" {
		return s.stay()
	}
	return nil
}

func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// free notes that the lock loses its leader now.
func (s *show) free(how string) { s.freed, s.how = time.Now(), how }

// nextLeader waits for another leader.
func (s *show) nextLeader() error {
	turns := s.turns
	met, err := s.follow(demoWait, func() bool { return s.turns > turns })
	if err == nil && !met {
		err = fmt.Errorf("there was no leader for %v", demoWait)
	}
	return err
}

// look gives the user time to read.
func (s *show) look(d time.Duration) error {
	_, err := s.follow(d, func() bool { return false })
	return err
}

// follow takes what comes, until the condition is met or the time is over.
func (s *show) follow(d time.Duration, condition func() bool) (met bool, err error) {
	over := time.NewTimer(d)
	defer over.Stop()
	for !condition() {
		select {
		case n := <-s.news:
			if err := s.take(n); err != nil {
				return false, err
			}
		case sig := <-s.signals:
			return false, stopped(sig, nil)
		case <-over.C:
			return false, nil
		}
	}
	return true, nil
}

// take checks one piece of news, and shows it.
func (s *show) take(n news) error {
	switch {
	case n.two:
		return fmt.Errorf("the command of %s was started while another candidate's still ran", n.from.name)
	case n.token == 0 && !n.from.killed:
		select {
		case sig := <-s.signals: // which came to all of them, and to this one last
			return stopped(sig, nil)
		case <-time.After(time.Second):
			return fmt.Errorf("%s has ended by itself", n.from.name)
		}
	case n.token == 0:
		s.say("the command of %s is gone too: its guardian has ended it", n.from.name)
		return nil
	case n.token <= s.token:
		return fmt.Errorf("%s leads with token %d, after %s with token %d", n.from.name, n.token, s.leader.name, s.token)
	case n.from.killed:
		return errors.New("a candidate that was killed leads")
	}
	after := ""
	if !s.freed.IsZero() {
		after = fmt.Sprintf(", %.1f s after %s", time.Since(s.freed).Seconds(), s.how)
	}
	s.say("%s leads with token %d%s", n.from.name, n.token, after)
	s.leader, s.token, s.freed = n.from, n.token, time.Time{}
	s.turns++
	return nil
}
