package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"strings"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdServer is one member with etcd's defaults, so each change is on its disk before it is
// answered. The go command builds it, from the version that go.mod pins.
var etcdServer = &daemon{
	command: func(ctx context.Context, at site) ([]string, error) {
		path, err := exec.CommandContext(ctx, "go", "tool", "-n", "go.etcd.io/etcd/server/v3").Output()
		if err != nil {
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				err = fmt.Errorf("%w: %.500s", err, failed.Stderr)
			}
			return nil, fmt.Errorf("%w: build etcd: %w", errMissing, err)
		}
		clients, peers := "http://127.0.0.1:"+at.port, "http://127.0.0.1:0" // there are no peers
		return []string{
			strings.TrimSpace(string(path)), "--log-level", "error", "--data-dir", at.dir + "/data",
			"--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
		}, nil
	},
	answers: func(ctx context.Context, addr string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status) // it has no leader yet
		}
		return nil
	},
}

// openEtcd gives what etcd's package concurrency has, under one session for each candidate.
// Its library renews that, and its waiters are told by a watch.
func openEtcd(election bool) func(context.Context, *bench, *place, time.Duration) (candidate, error) {
	return func(ctx context.Context, b *bench, _ *place, ttl time.Duration) (candidate, error) {
		addr, err := etcdServer.addr(b.host)
		if err != nil {
			return nil, err
		}
		client, err := etcd.New(etcd.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		lease, err := client.Grant(ctx, int64(math.Ceil(ttl.Seconds()))) // NewSession would wait for ever
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID))
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		if election {
			return &etcdElections{etcdSession{client, session}}, nil
		}
		return &etcdMutexes{etcdSession{client, session}}, nil
	}
}

type etcdSession struct {
	client  *etcd.Client
	session *concurrency.Session
}

// close does not use the session's own, which waits for a server that is gone as long as the
// TTL.
func (s *etcdSession) close() {
	s.session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.session.Lease())
	_ = s.client.Close()
}

type etcdMutexes struct{ etcdSession }

func (e *etcdMutexes) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(e.session, "mutexes/"+name)
	return m.Unlock, m.Lock(ctx)
}

func (e *etcdMutexes) try(ctx context.Context, name string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(e.session, "mutexes/"+name)
	err := m.TryLock(ctx)
	if errors.Is(err, concurrency.ErrLocked) {
		return nil, errHeld
	}
	return m.Unlock, err
}

type etcdElections struct{ etcdSession }

func (e *etcdElections) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	el := concurrency.NewElection(e.session, "elections/"+name)
	return el.Resign, el.Campaign(ctx, "candidate")
}

// try asks for the leader first, because a campaign waits.
func (e *etcdElections) try(ctx context.Context, name string) (func(context.Context) error, error) {
	el := concurrency.NewElection(e.session, "elections/"+name)
	_, err := el.Leader(ctx)
	if err == nil {
		return nil, errHeld
	}
	if !errors.Is(err, concurrency.ErrElectionNoLeader) {
		return nil, err
	}
	return el.Resign, el.Campaign(ctx, "candidate")
}
