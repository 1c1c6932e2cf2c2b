// Package s3lect_test has electors of package s3lect that ask each other over real connections, in real time.
package s3lect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A storage is what a user's Storage may be. It counts its requests.
type storage struct{ net *faultstore.Store }

func (s storage) Get(ctx context.Context, key string) ([]byte, string, error) {
	o, err := s.net.Get(ctx, key, "")
	if err != nil {
		return nil, "", plain(err)
	}
	return o.Body, string(o.Version), nil
}

func (s storage) PutIfMatch(ctx context.Context, key string, data []byte, etag string) error {
	only := store.IfAbsent()
	if etag != "" {
		only = store.IfMatch(store.Version(etag))
	}
	_, err := s.net.Put(ctx, key, data, only)
	return plain(err)
}

func plain(err error) error {
	switch {
	case errors.Is(err, store.ErrNotExist):
		return s3lect.ErrStorageNotFound
	case errors.Is(err, store.ErrPrecondition):
		return fmt.Errorf("put: %w", s3lect.ErrStoragePrecondition)
	}
	return err
}

// An instance is an elector in peer mode with its health server.
type instance struct {
	*s3lect.S3Elector
	net *faultstore.Store
}

var quiet = slog.New(slog.DiscardHandler)

// begin begins one, at a port of this machine that nobody has taken in between.
func begin(t *testing.T, st store.Store, id string, authority *servers.Authority) *instance {
	t.Helper()
	var err error
	for range 5 {
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		i := &instance{net: faultstore.Wrap(st, nil)}
		i.S3Elector, err = s3lect.NewS3Elector(s3lect.S3ElectorOptions{Storage: storage{i.net}, Logger: quiet, Config: &s3lect.ElectorConfig{
			LockfilePath: "leader/my-group.json", ServerID: id, ServerAddr: address,
			LeaderTimeout: 3 * time.Second, FrequentInterval: 100 * time.Millisecond, PeerMode: true, PeerCACert: authority.PEM(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		hs, failed := s3lect.NewHealthServer(s3lect.HealthServerConfig{BindAddress: address, Certificate: authority.Issue(t, "127.0.0.1"), Elector: i.S3Elector, Logger: quiet})
		if failed != nil {
			t.Fatal(failed)
		}
		if err = hs.Start(t.Context()); err != nil {
			continue
		}
		t.Cleanup(func() {
			if stopped := hs.Stop(context.Background()); stopped != nil {
				t.Error(stopped)
			}
		})
		if err = i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { i.quit(t) })
		return i
	}
	t.Fatal(err)
	return nil
}

func (i *instance) quit(t *testing.T) {
	t.Helper()
	if err := i.Stop(); err != nil {
		t.Error(err)
	}
}

// While the leader answers, for whole leases, its follower asks the store nothing; and it leads when the leader stops.
func TestPeerMode(t *testing.T) {
	t.Parallel()
	authority, st := servers.NewAuthority(t), memstore.New()
	a := begin(t, st, "a", authority)
	if err := a.WaitForLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := begin(t, st, "b", authority)
	heard := func() { // each answer ends an election cycle
		t.Helper()
		if s, err := b.WaitForNextElection(t.Context(), time.Now()); err != nil || s.LeaderID != "a" {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	for range 3 { // it has looked, asked who is there, and asked for longer
		heard()
	}
	b.net.Reset()
	for renewals := a.net.Counts().Put; a.net.Counts().Put < renewals+3; { // a whole lease
		heard()
	}
	if got := b.net.Counts(); got.Get+got.Put > 0 {
		t.Errorf("while the leader answered, the follower made %+v", got)
	}
	a.quit(t)
	if err := b.WaitForLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
}
