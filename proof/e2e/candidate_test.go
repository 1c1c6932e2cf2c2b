package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// candidateVariable makes this binary a candidate in place of the tests.
const candidateVariable = "LEASEHOLD_TEST_CANDIDATE"

// A member is what a candidate that is a process of its own has to know.
type member struct {
	URL, Holder string
	Certs       string // directory with me.pem, me.key, ca.pem
	TTL         time.Duration
}

// told is what a candidate says, one line of JSON for each.
type told struct {
	Leads   bool            // it has begun to lead
	Leading leasehold.Token // with this token
	Asked   bool            // it is about to resign, as it was told to
	Put     time.Duration   // how long a conditional PUT took, as it was told to make one
	Status  *leasehold.Status
	At      time.Time
}

// candidate is a process that campaigns, with peers, and does what its stdin says.
func candidate(config string) error {
	var m member
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	ctx := context.Background()
	st, key, err := storeurl.OpenLock(ctx, m.URL)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(m.Certs, "me.pem"), filepath.Join(m.Certs, "me.key"))
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(filepath.Join(m.Certs, "ca.pem"))
	if err != nil {
		return err
	}
	cas, err := peer.ParseCAs(pem)
	if err != nil {
		return err
	}
	client, err := peer.NewClient(&peer.ClientOptions{RootCAs: cas, Certificate: cert})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(line told) {
		mu.Lock()
		defer mu.Unlock()
		line.At = time.Now()
		_ = out.Encode(line)
	}
	e, err := leasehold.NewElection(st, key, &leasehold.ElectionOptions{
		LockOptions: leasehold.LockOptions{
			TTL: m.TTL, Holder: m.Holder, Address: l.Addr().String(),
			Layout: underTest.Layout, NoIfMatch: underTest.NoIfMatch, Sweep: !renewals(),
		},
		Peers: client,
	})
	if err != nil {
		return err
	}
	server, err := peer.NewServer(&peer.ServerOptions{Certificate: cert, ClientCAs: cas}, e)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(l) }()
	go func() {
		_ = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			say(told{Leads: true, Leading: lease.Token()})
			<-ctx.Done()
			return nil
		})
	}()
	return obey(ctx, e, st, key, say)
}

// obey does what stdin says until its end.
func obey(ctx context.Context, e *leasehold.Election, st store.Store, key string, say func(told)) error {
	lines := bufio.NewScanner(os.Stdin)
	for n := 0; lines.Scan(); n++ {
		switch lines.Text() {
		case "resign":
			say(told{Asked: true})
			if err := e.Resign(ctx); err != nil {
				return err
			}
		case "put": // as large as a release, on a condition
			began := time.Now()
			body := strings.Repeat("x", 400)
			if _, err := st.Put(ctx, fmt.Sprintf("%s-probe/%d-%d", key, os.Getpid(), n), []byte(body), store.IfAbsent()); err != nil {
				return err
			}
			say(told{Put: time.Since(began)})
		case "status":
			s := e.Status()
			say(told{Status: &s})
		}
	}
	return lines.Err()
}
