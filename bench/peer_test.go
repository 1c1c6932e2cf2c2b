package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// peerTTL is what a renewal has three chances in, also on a machine with much to do.
const peerTTL = 3 * time.Second

// One at a time holds a lock of each subject. A try while another holds it is refused,
// also when it is held for twice the TTL. A waiter gets the lock after the release, and so
// does a new try.
func TestExclusive(t *testing.T) {
	b := &bench{results: newResults(), short: true, rounds: 1, host: newHost(t.Context())}
	t.Cleanup(b.host.close)
	if err := b.host.protect(func() { b.places = openPlaces(b.host, []string{"gofakes3"}) }); err != nil {
		t.Fatal(err)
	}
	for _, s := range subjects {
		t.Run(strings.ReplaceAll(s.name, ", ", " "), func(t *testing.T) {
			t.Parallel()
			exclusive(t, openSubject(t, b, s), openSubject(t, b, s))
		})
	}
}

func openSubject(t *testing.T, b *bench, s subject) candidate {
	t.Helper()
	p := b.places[0]
	if s.ownServer {
		p = nil
	}
	c, err := s.open(t.Context(), b, p, peerTTL)
	if errors.Is(err, errMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func exclusive(t *testing.T, one, other candidate) {
	t.Helper()
	release, err := one.acquire(t.Context(), "shared")
	if err != nil {
		t.Fatal(err)
	}
	apart, err := other.try(t.Context(), "apart")
	if err != nil {
		t.Fatalf("another lock: %v", err)
	}
	for began := time.Now(); time.Since(began) < 2*peerTTL; time.Sleep(peerTTL / 10) {
		if _, err = other.try(t.Context(), "shared"); !errors.Is(err, errHeld) {
			t.Fatalf("%v after it was acquired, another's try says %v, not errHeld", time.Since(began), err)
		}
	}
	if err = errors.Join(apart(t.Context()), release(t.Context())); err != nil {
		t.Fatal(err)
	}
	if release, err = other.try(t.Context(), "shared"); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	acquired := make(chan error, 1)
	go func() {
		release, err := one.acquire(t.Context(), "shared")
		if err == nil {
			err = release(t.Context())
		}
		acquired <- err
	}()
	// It may be released before the other waits; then there is no wait, which is as good.
	if err = errors.Join(release(t.Context()), <-acquired); err != nil {
		t.Fatal(err)
	}
}

// A term decides to lead and to resign, for each of the elections that are compared.
func TestTerms(t *testing.T) {
	deciders, err := openDeciders()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deciders {
		for range 3 {
			before := d.decisions()
			if err := d.term(t.Context()); err != nil {
				t.Error(err)
			}
			if made := d.decisions() - before; made < 2 || made > 3 {
				t.Errorf("%s: %d decisions in a term, not 2, or 3 with a renewal", d.name, made)
			}
		}
	}
}

type counting struct{ renewed, released int }

func (c *counting) renew(context.Context) error   { c.renewed++; return errors.New("renewals go on") }
func (c *counting) release(context.Context) error { c.released++; return nil }

// A held lock is renewed until its release, or until its candidate ends.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(time.Second)
		var released, dropped counting
		release := k.keep(&released)
		k.keep(&dropped)
		time.Sleep(3500 * time.Millisecond)
		if err := release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		k.end()
		time.Sleep(10 * time.Second)
		if (released != counting{3, 1}) || (dropped != counting{5, 0}) {
			t.Errorf("renewed and released %v and %v, not {3 1} and {5 0}", released, dropped)
		}
	})
}
