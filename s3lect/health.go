package s3lect

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/leasehold/leasehold/peer"
)

// NewLeadershipHandler makes the health endpoint of an elector, to be mounted at its
// PeerHealthPath. It answers 200 with a [LeaderRecord] while this instance is the
// leader, and 404 while it is not. For an [S3Elector] the answer has the fields of
// [peer.Answer] too, and is kept for followers that ask for that: see [peer.Handler].
// The time in it is that of the last renewal. A nil logger is slog.Default().
//
//	mux.HandleFunc(elector.GetConfig().PeerHealthPath, s3lect.NewLeadershipHandler(elector, logger))
func NewLeadershipHandler(elector Elector, logger *slog.Logger) http.HandlerFunc {
	if logger == nil {
		logger = slog.Default()
	}
	if e, ok := elector.(*S3Elector); ok {
		return peer.NewHandler(&peer.HandlerOptions{Render: render, Logger: logger}, e.election).ServeHTTP
	}
	return func(w http.ResponseWriter, r *http.Request) { answer(w, r, elector.GetLeadershipStatus()) }
}

// render makes an answer that followers of both packages understand.
func render(said peer.Leadership) any {
	both := struct {
		peer.Answer
		LeaderRecord
	}{Answer: peer.AnswerOf(said)}
	if both.State == peer.StateHeld {
		both.LeaderRecord = LeaderRecord{LeaderID: said.Holder, LeaderAddr: said.Address, LastUpdated: said.RenewedAt}
	}
	return both
}

// answer is the health endpoint of an Elector of the user's own.
func answer(w http.ResponseWriter, r *http.Request, s *LeadershipStatus) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	status, said := http.StatusNotFound, LeaderRecord{}
	if s != nil && s.IsLeader {
		status, said = http.StatusOK, LeaderRecord{LeaderID: s.LeaderID, LeaderAddr: s.LeaderAddr, LastUpdated: s.LeaderLastSeen}
	}
	header.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said) // who has gone does not want it
}

// HealthServerConfig is the configuration of a [HealthServer].
type HealthServerConfig struct {
	// BindAddress is the TCP address to listen on, such as "0.0.0.0:8993".
	BindAddress string
	// Certificate must name what the others find in this instance's ServerAddr.
	Certificate tls.Certificate
	// Elector is whose leadership it tells of, at the PeerHealthPath that the elector
	// has when the server is made.
	Elector Elector
	// Logger gets what happens. Default slog.Default().
	Logger *slog.Logger
}

// A HealthServer answers followers in peer mode, over HTTPS on a port of its own. It
// is safe for concurrent use.
type HealthServer struct {
	opts peer.ServerOptions

	mu     sync.Mutex
	server *peer.Server // nil: not started, or stopped
}

// NewHealthServer makes a server. It opens nothing. It fails if the configuration
// cannot be used, and says why.
func NewHealthServer(config HealthServerConfig) (*HealthServer, error) {
	switch {
	case config.BindAddress == "":
		return nil, errors.New("s3lect: health server: the BindAddress is missing")
	case config.Elector == nil:
		return nil, errors.New("s3lect: health server: the Elector is missing")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	hs := &HealthServer{opts: peer.ServerOptions{
		HandlerOptions: peer.HandlerOptions{Logger: config.Logger},
		Handler:        NewLeadershipHandler(config.Elector, config.Logger),
		Addr:           config.BindAddress, Certificate: config.Certificate,
		Path: config.Elector.GetConfig().PeerHealthPath,
	}}
	if _, err := peer.NewServer(&hs.opts); err != nil {
		return nil, fmt.Errorf("s3lect: health server: %w", err)
	}
	return hs, nil
}

// Start listens and returns; serving goes on until Stop, or until ctx ends. It fails
// if it cannot listen, or has been started and not stopped.
func (hs *HealthServer) Start(ctx context.Context) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.server != nil {
		return errors.New("s3lect: the health server has been started already")
	}
	server, err := peer.NewServer(&hs.opts) //nolint:contextcheck // what it answers ends with Stop
	if err == nil {
		err = server.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("s3lect: health server: %w", err)
	}
	hs.server = server
	return nil
}

// Stop ends the server: questions that are kept are answered, and connections closed.
// If ctx ends first it cuts them, and returns an error that matches ctx.Err(). A server
// that is not running is stopped already. After Stop it can be started again.
func (hs *HealthServer) Stop(ctx context.Context) error {
	hs.mu.Lock()
	server := hs.server
	hs.server = nil
	hs.mu.Unlock()
	if server == nil {
		return nil
	}
	if err := server.Stop(ctx); err != nil {
		return fmt.Errorf("s3lect: health server: %w", err)
	}
	return nil
}
