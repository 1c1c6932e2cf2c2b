package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

// leadingVariable makes a child a leader that others ask.
const leadingVariable = "LEASEHOLD_BENCH_LEADING"

// questionFor is how long a candidate lets the leader keep its question.
const questionFor = defaultTTL / 2

// An audience is what a leader says at first.
type audience struct {
	Address     string `json:"address"`
	Certificate string `json:"certificate"`
}

// lead is a leader that answers followers, says how it stands for each line that it reads,
// and resigns at the end of its input.
func lead(ctx context.Context) error {
	el, err := leasehold.NewElection(memstore.New(), "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "leader"}})
	if err != nil {
		return err
	}
	lease, err := el.Campaign(ctx)
	if err != nil {
		return err
	}
	server := httptest.NewTLSServer(peer.NewHandler(&peer.HandlerOptions{Token: "bench"}, el))
	out := json.NewEncoder(os.Stdout)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err = out.Encode(audience{server.Listener.Addr().String(), string(certificate)}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err = out.Encode(ownState()); err != nil {
			return err
		}
	}
	if err = lease.Release(ctx); err != nil {
		return err
	}
	time.Sleep(10 * time.Second) // its followers hear of that
	return nil
}

// served measures what it takes of a leader to answer its followers.
func served(ctx context.Context, b *bench) error {
	s := b.section("Followers that one leader serves")
	length := 2 * questionFor
	sizes := []int{1, 100, 1000, 4000}
	if b.short {
		length, sizes = questionFor, []int{1, 20}
	}
	s.say("A leader's process, and so many followers that ask it over HTTPS on loopback and let it keep their questions, as candidates do at a TTL of %v, for %v. The followers make no request to the store meanwhile. The leader keeps a question for %v, and the measurement lasts for a whole number of these, from a moment that is drawn evenly over one, so each follower asks equally often in it. Told: from the leader's resignation until all have heard of it.", defaultTTL, length, questionFor)
	rows := [][]string{{"followers", "leader's RSS, MB", "kB for a follower", "CPU, s a minute", "all told after, s"}}
	var base float64
	for _, n := range sizes {
		name := fmt.Sprintf("%d followers", n)
		rounds := min(b.rounds, 2)
		begin := draw(b.chance("followers", name), rounds, questionFor)
		for round := range rounds {
			if err := b.serve(ctx, name, n, round, begin[round], length); err != nil {
				return err
			}
		}
		rss := b.of("followers", "loopback", name, "RSS MB")
		each := "–"
		if n == 1 {
			base = rss.median
		} else {
			each = number((rss.median - base) * 1000 / float64(n))
		}
		rows = append(rows, []string{
			thousands(n), rss.String(), each, b.of("followers", "loopback", name, "CPU s").String(), b.of("followers", "loopback", name, "told s").String(),
		})
	}
	s.table(rows)
	return nil
}

func (b *bench) serve(ctx context.Context, name string, n, round int, begin, length time.Duration) error {
	var a audience
	leader, err := start(ctx, leadingVariable, "1", &a)
	if err != nil {
		return err
	}
	defer func() { _ = leader.cmd.Process.Kill(); _ = leader.cmd.Wait() }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.Certificate))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asking, all sync.WaitGroup
	var failed atomic.Value
	asking.Add(n)
	greeting := make(chan struct{}, 32) // so many connect at a time, as followers do that start one after the other
	for i := range n {
		client, err := peer.NewClient(&peer.ClientOptions{RootCAs: roots, Token: "bench"})
		if err != nil {
			return err
		}
		all.Go(func() {
			defer func() { _ = client.Close() }()
			greeting <- struct{}{}
			ready := func() { <-greeting; asking.Done() }
			if err := follow(ctx, client, a.Address, i, ready); err != nil && ctx.Err() == nil {
				failed.Store(err)
			}
		})
	}
	asking.Wait()
	time.Sleep(begin)
	before, err := leader.ask()
	if err != nil {
		return err
	}
	time.Sleep(length)
	after, err := leader.ask()
	if err != nil {
		return err
	}
	began := time.Now()
	_ = leader.stdin.Close()
	all.Wait()
	if err, is := failed.Load().(error); is {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.add("followers", "loopback", name, "RSS MB", round, float64(after.RSS)/1e6)
	b.add("followers", "loopback", name, "CPU s", round, (after.CPU-before.CPU)/length.Minutes())
	b.add("followers", "loopback", name, "told s", round, time.Since(began).Seconds())
	return nil
}

// follow asks the leader as a candidate does, until it has resigned. It calls ready when it
// knows the leader. A candidate that gets no answer three times in a row asks the store.
func follow(ctx context.Context, client *peer.Client, address string, i int, ready func()) error {
	q := peer.Question{Lock: "leader", Holder: fmt.Sprint("follower ", i), Waited: time.Second}
	first := sync.OnceFunc(ready)
	defer first()
	for silent := 0; ; {
		said, err := client.Ask(ctx, address, q)
		if silent++; err != nil && silent < 3 {
			continue
		}
		if err != nil {
			return err
		}
		silent = 0
		if !said.Leading {
			return nil
		}
		first()
		q.Known, q.Wait = said.Version, questionFor
	}
}
