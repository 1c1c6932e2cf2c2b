// Subject speaks the line protocol of "leasehold conformance" over this library: the smallest program that can be put
// through its cases. docs/format-testing.md says what the words mean.
//
//	leasehold conformance --store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000' -- go run ./examples/subject
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "subject:", err)
		os.Exit(1)
	}
}

// A subject is the leases of this process.
type subject struct {
	st    store.Store
	locks map[string]*leasehold.Lock // by key and TTL

	mu     sync.Mutex // a line at a time
	leases map[string]*leasehold.Lease
	lost   map[*leasehold.Lease]bool // it was said
}

func serve(ctx context.Context) error {
	at := url.URL{Scheme: "s3", Host: os.Getenv("CONFORMANCE_BUCKET"), Path: "/" + strings.TrimSuffix(os.Getenv("CONFORMANCE_PREFIX"), "/")}
	at.RawQuery = url.Values{"endpoint": {os.Getenv("CONFORMANCE_ENDPOINT")}, "path_style": {"true"}}.Encode()
	st, err := storeurl.Open(ctx, at.String())
	if err != nil {
		return err
	}
	s := &subject{st: st, locks: map[string]*leasehold.Lock{}, leases: map[string]*leasehold.Lease{}, lost: map[*leasehold.Lease]bool{}}
	fmt.Println("ready 1 renews-itself")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() && in.Text() != "quit" {
		words := strings.Fields(in.Text())
		if len(words) < 2 {
			s.say("error a request has a word and a key")
			continue
		}
		s.say(s.answer(ctx, words[0], words[1], words[2:]))
	}
	return in.Err()
}

// say writes a line, and before it which leases are over.
func (s *subject) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, lease := range s.leases {
		if !lease.Valid() && !s.lost[lease] {
			s.lost[lease] = true
			fmt.Println("lost", key)
		}
	}
	if line != "" {
		fmt.Println(strings.ReplaceAll(line, "\n", " "))
	}
}

// lease is that of a key, nil if there is none.
func (s *subject) lease(key string) *leasehold.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[key]
}

func (s *subject) set(key string, lease *leasehold.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[key] = lease
	if lease == nil {
		delete(s.leases, key)
	}
}

func (s *subject) answer(ctx context.Context, word, key string, rest []string) string {
	lease := s.lease(key)
	switch {
	case word == "acquire" && len(rest) == 2 && lease == nil:
		return s.acquire(ctx, key, rest[0], rest[1])
	case word == "valid":
		if lease != nil && lease.Valid() {
			return "yes"
		}
		return "no"
	case word == "release" && lease != nil:
		s.say("") // if it is over, that comes first
		s.set(key, nil)
		if err := lease.Release(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
			return "error " + err.Error()
		}
		return "released"
	}
	return "error this cannot be done now: " + word
}

func (s *subject) acquire(ctx context.Context, key, ttlMS, waitMS string) string {
	ttl, err := strconv.Atoi(ttlMS)
	if err != nil {
		return "error " + err.Error()
	}
	wait, err := strconv.Atoi(waitMS)
	if err != nil {
		return "error " + err.Error()
	}
	lock := s.locks[key+" "+ttlMS]
	if lock == nil {
		opts := &leasehold.LockOptions{TTL: time.Duration(ttl) * time.Millisecond, Trace: &locktrace.Trace{Lost: func(context.Context, locktrace.Lost) { s.say("") }}}
		if lock, err = leasehold.NewLock(s.st, key, opts); err != nil {
			return "error " + err.Error()
		}
		s.locks[key+" "+ttlMS] = lock
	}
	take := lock.TryAcquire
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond)
		defer cancel()
		take = lock.Acquire
	}
	lease, err := take(ctx)
	held, isHeld := errors.AsType[*leasehold.HeldError](err)
	switch {
	case isHeld:
		return "held " + held.Info.Holder
	case errors.Is(err, context.DeadlineExceeded):
		if info, look := lock.Inspect(context.WithoutCancel(ctx)); look == nil && info.Held {
			return "held " + info.Holder
		}
		return "error " + err.Error()
	case err != nil:
		return "error " + err.Error()
	}
	s.set(key, lease)
	return fmt.Sprintf("acquired %d", lease.Token())
}
