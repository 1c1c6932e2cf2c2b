//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// skew is how far the clocks of three machines differ, which run the same line of a crontab.
var skew = [...]time.Duration{0, time.Second, 3 * time.Second}

// A crontab is one job, under one lock, on all the machines.
type crontab struct {
	t    *testing.T
	url  string
	env  []string
	rest time.Duration
	log  string
}

// newCrontab is for the lock of a site, or, with a number, for another one beside it.
func newCrontab(t *testing.T, at site, n int, rest time.Duration) *crontab {
	t.Helper()
	head, query, found := strings.Cut(at.url, "?")
	if head += fmt.Sprintf("-%02d", n); found {
		head += "?" + query
	}
	return &crontab{t, head, at.env, rest, filepath.Join(t.TempDir(), fmt.Sprintf("log-%02d", n))}
}

// round lets the machines begin a run, each when its clock says so, counts those that had the
// lock, and says when the last of them was done. Each of the others must have found it held or at rest.
func (c *crontab) round() (ran int, done time.Time) {
	job := fmt.Sprintf("echo ran >>%q; sleep 0.2", c.log)
	began := time.Now()
	runs := make([]*run, len(skew))
	for i, late := range skew {
		time.Sleep(time.Until(began.Add(late)))
		runs[i] = start(c.t, c.env, "run", "--wait", "0", "--hold-at-least", c.rest.String(), c.url, "--", "sh", "-c", job)
	}
	for i, r := range runs {
		switch code := r.code(c.t); code {
		case 0:
			ran++
			if info, err := os.Stat(c.log); err == nil {
				done = info.ModTime() // it is written as the job begins
			}
		case 75:
		default:
			c.t.Errorf("machine %d: exit code %d: %s", i, code, r.stderr.String())
		}
	}
	return ran, done
}

// lines is how often the job has run.
func (c *crontab) lines() int {
	text, err := os.ReadFile(c.log)
	if err != nil {
		c.t.Error(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// twice lets two rounds begin, so far apart or a little more, of which each must run once. The second
// begins when the rest is over for certain, on a clock that shows whole seconds.
func (c *crontab) twice(apart time.Duration) {
	began := time.Now()
	ran, done := c.round()
	if ran != 1 || c.lines() != 1 {
		c.t.Errorf("%s: the first round ran %d times, and its job %d times", c.url, ran, c.lines())
	}
	over := done.Add(c.rest + 2*time.Second)
	time.Sleep(max(time.Until(began.Add(apart)), time.Until(over)))
	if ran, _ = c.round(); ran != 1 || c.lines() != 2 {
		c.t.Errorf("%s: the second round ran %d times, and the job %d times in all", c.url, ran, c.lines())
	}
}

// TestCronOnThreeMachines: a job of a moment, which three machines start within three seconds, runs
// once a round. Without --hold-at-least it ran on each.
func TestCronOnThreeMachines(t *testing.T) {
	t.Parallel()
	if !underTest.Tokens() {
		t.Skip("a marker that is released is gone, and cannot rest")
	}
	if _, err := command(); err != nil { // which takes longer than the machines' clocks differ
		t.Fatal(err)
	}
	sites(t, func(t *testing.T, at site) {
		var all sync.WaitGroup
		for n := range 2 {
			all.Go(func() { newCrontab(t, at, n, 4500*time.Millisecond).twice(0) })
		}
		all.Wait()
	})
}

// TestCronFortyRounds: the same with the figures of docs/scheduled.md, forty rounds on twenty locks.
func TestCronFortyRounds(t *testing.T) {
	t.Parallel()
	if !underTest.Tokens() {
		t.Skip("a marker that is released is gone, and cannot rest")
	}
	if _, err := command(); err != nil { // which takes longer than the machines' clocks differ
		t.Fatal(err)
	}
	sites(t, func(t *testing.T, at site) {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 500 * time.Millisecond)
				newCrontab(t, at, n, 50*time.Second).twice(time.Minute)
			})
		}
		all.Wait()
	})
}
