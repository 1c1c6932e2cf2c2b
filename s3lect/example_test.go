package s3lect_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

// A service that works while it leads, written as for the original package.
func Example() {
	storage := s3lect.NewMock() // in earnest: none, or your own
	defer storage.Cleanup()

	config := &s3lect.ElectorConfig{
		LockfilePath:       "leader/my-group.json",
		ServerID:           "server-001",
		ServerAddr:         "10.0.1.42:8443",
		FrequentInterval:   5 * time.Second,
		InfrequentInterval: 30 * time.Second,
		LeaderTimeout:      15 * time.Second,
		OnAcquireLeadership: func(ctx context.Context) error {
			fmt.Println("attach the network interface")
			return nil
		},
		OnLoseLeadership: func(ctx context.Context) error {
			fmt.Println("detach the network interface")
			return nil
		},
	}
	elector, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{
		Config:  config,
		Storage: storage,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err = elector.Start(ctx); err != nil {
		log.Fatal(err)
	}
	if err = elector.WaitForLeadership(ctx); err != nil {
		log.Fatal(err)
	}
	status, err := elector.WaitForNextElection(ctx, time.Time{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.LeaderID, status.LeaderAddr, status.IsLeader, elector.IsLeader(), elector.LeaderID())

	if err := elector.Stop(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(elector.IsLeader())
	// Output:
	// attach the network interface
	// server-001 10.0.1.42:8443 true true server-001
	// detach the network interface
	// false
}

// The health endpoint in a server that there is.
func ExampleNewLeadershipHandler() {
	var elector s3lect.Elector = newElector()
	mux := http.NewServeMux()
	mux.HandleFunc(elector.GetConfig().PeerHealthPath, s3lect.NewLeadershipHandler(elector, nil))

	request, _ := http.NewRequest(http.MethodGet, "/health/leadership", http.NoBody) //nolint:noctx // it is not sent
	_, pattern := mux.Handler(request)
	fmt.Println(pattern)
	// Output: /health/leadership
}

// The health endpoint in a server of its own.
func ExampleNewHealthServer() {
	server, err := s3lect.NewHealthServer(s3lect.HealthServerConfig{
		BindAddress: "0.0.0.0:8993",
		Certificate: tls.Certificate{}, // in earnest: of tls.LoadX509KeyPair
		Elector:     newElector(),
	})
	fmt.Println(server == nil, err != nil)
	// Output: true true
}

// A Storage may be anything that writes on a condition.
func ExampleStorage() {
	mock := s3lect.NewMock()
	defer mock.Cleanup()
	var storage s3lect.Storage = mock
	ctx := context.Background()
	_, _, err := storage.Get(ctx, "leader/my-group.json")
	fmt.Println(errors.Is(err, s3lect.ErrStorageNotFound))
	err = storage.PutIfMatch(ctx, "leader/my-group.json", []byte("{}"), "an ETag")
	fmt.Println(errors.Is(err, s3lect.ErrStoragePrecondition))
	// Output:
	// true
	// true
}

func newElector() *s3lect.S3Elector {
	elector, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{
		Config:  &s3lect.ElectorConfig{LockfilePath: "leader/my-group.json", ServerID: "server-001", ServerAddr: "10.0.1.42:8443"},
		Storage: newStorage(memstore.New()),
	})
	if err != nil {
		log.Fatal(err)
	}
	return elector
}
