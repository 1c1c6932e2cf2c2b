package s3lect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/locktrace"
)

// S3ElectorOptions are the options of [NewS3Elector].
type S3ElectorOptions struct {
	// Config is needed. Defaults are put into it; later changes of it do nothing.
	Config *ElectorConfig
	// Storage is where the lockfile lies. Default: S3; see ElectorConfig.LockfilePath.
	Storage Storage
	// Logger gets what happens. Default slog.Default().
	Logger *slog.Logger
}

// An S3Elector is an [Elector] whose lockfile is an object in a bucket. The guarantee
// and its limit are those of the package documentation. It is safe for concurrent use.
type S3Elector struct {
	lockfile *lockfile
	line     *line
	election *leasehold.Election
	logger   *slog.Logger
	connect  func(ElectorConfig) (asker, error) // makes the client of peer mode

	mu       sync.Mutex
	config   ElectorConfig
	campaign *campaign
	term     context.Context // ends with this instance's leadership; nil: it does not lead
	ready    bool            // OnAcquireLeadership has returned nil
	checked  time.Time       // when the last election cycle ended
	news     chan struct{}   // closed at the next end of one
	hooks    hooks
}

// A campaign is what goes on from Start to Stop.
type campaign struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing is left of it
}

// NewS3Elector makes an elector. It sends nothing. It fails if the configuration cannot
// be used, and says why.
func NewS3Elector(opts S3ElectorOptions) (*S3Elector, error) {
	if opts.Config == nil {
		return nil, errors.New("s3lect: the Config is missing")
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, fmt.Errorf("s3lect: %w", err)
	}
	e := &S3Elector{
		logger: opts.Logger, connect: ElectorConfig.client,
		config: opts.Config.clone(), news: make(chan struct{}),
	}
	if e.logger == nil {
		e.logger = slog.Default()
	}
	if err := e.open(opts.Storage); err != nil {
		return nil, fmt.Errorf("s3lect: %w", err)
	}
	if e.config.LeaderTimeout < leasehold.MinTTL {
		e.logger.Warn("the LeaderTimeout is too short, and taken as the shortest", "leaderTimeout", e.config.LeaderTimeout, "shortest", leasehold.MinTTL)
	}
	return e, nil
}

func (e *S3Elector) open(storage Storage) error {
	config := e.config
	if _, err := e.connect(config); err != nil {
		return err
	}
	at, key, name, err := locate(storage, config.LockfilePath)
	if err != nil {
		return err
	}
	e.lockfile = &lockfile{place: at, key: key, ttl: config.ttl()}
	e.line = newLine(e.lockfile.original, e.cycle)
	pace := config.pace()
	e.election, err = leasehold.NewElection(e.lockfile, name, &leasehold.ElectionOptions{
		LockOptions: leasehold.LockOptions{
			TTL:    pace.TTL,
			Holder: config.ServerID, Address: config.ServerAddr,
			Trace:  &locktrace.Trace{Renewed: func(context.Context, locktrace.Renewed) { e.cycle() }},
			Logger: e.logger,
		},
		Frequent: pace.Frequent, Infrequent: pace.Infrequent,
		Peers: e.line, Renewals: true,
	})
	return err
}

// Start begins to campaign and returns. The election goes on until ctx ends, which is
// like Stop, or until Stop. It fails if it has been started and not stopped.
func (e *S3Elector) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.campaign != nil && e.campaign.ctx.Err() != nil:
		return errors.New("s3lect: the elector is still stopping: Stop waits until it has")
	case e.campaign != nil:
		return errors.New("s3lect: the elector has been started already")
	}
	client, err := e.connect(e.config)
	if err != nil {
		return fmt.Errorf("s3lect: %w", err)
	}
	e.line.use(client)
	ctx, cancel := context.WithCancel(ctx)
	e.campaign = &campaign{ctx, cancel, make(chan struct{})}
	e.logger.Info("starting leader election", "lockfilePath", e.config.LockfilePath, "serverID", e.config.ServerID, "serverAddr", e.config.ServerAddr)
	go e.run(e.campaign)
	return nil
}

// run campaigns until the campaign is over. Even a trouble that makes campaigning
// pointless may pass: denied access, a missing bucket, an object that is no lockfile.
func (e *S3Elector) run(c *campaign) {
	var watching sync.WaitGroup
	watching.Go(func() {
		for change := range e.election.Observe(c.ctx) {
			e.saw(change)
		}
	})
	for failures := 1; c.ctx.Err() == nil; failures++ {
		err := e.election.Run(c.ctx, e.lead)
		if c.ctx.Err() != nil {
			break
		}
		config := e.GetConfig()
		e.logger.Error("cannot campaign, will try again", "lockfilePath", config.LockfilePath, "error", err)
		select {
		case <-time.After(max(config.FrequentInterval, protocol.Pause(failures, nil))):
		case <-c.ctx.Done():
		}
	}
	watching.Wait()
	e.line.use(nil)
	e.mu.Lock()
	e.campaign = nil
	e.mu.Unlock()
	c.cancel()
	close(c.done)
}

// lastWords is how long Stop waits for the storage, and for hooks on top of what they
// are given.
const lastWords = 5 * time.Second

// Stop ends the election and returns when nothing is left of it: the leader, if this
// instance is, has resigned and OnLoseLeadership has returned. It fails, and the rest
// goes on in the background, if that takes longer than the LeaderTimeout and 5 s. From
// within a hook it returns at once, because that hook is part of what is left. An
// elector that is not running is stopped already. After Stop it can be started again.
func (e *S3Elector) Stop() error {
	e.mu.Lock()
	c, patience := e.campaign, e.config.ttl()+lastWords
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	c.cancel()
	if e.hooks.calling() {
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-c.done:
		return nil
	case <-late.C:
		return fmt.Errorf("s3lect: still stopping after %v: a hook does not return", patience)
	}
}

// GetConfig returns a copy of the configuration.
func (e *S3Elector) GetConfig() *ElectorConfig {
	e.mu.Lock()
	defer e.mu.Unlock()
	config := e.config.clone()
	return &config
}

// UpdateConfig changes all but LockfilePath, ServerID and ServerAddr, also while the
// election goes on: from the next request, pause or call of a hook on. If anything
// cannot be used or changed it says what, and changes nothing.
func (e *S3Elector) UpdateConfig(newConfig ElectorConfig) error {
	return e.change(func(c *ElectorConfig) { *c = newConfig })
}

// EnablePeerMode switches peer mode on, with caCert as the new PeerCACert.
func (e *S3Elector) EnablePeerMode(caCert []byte) error {
	return e.change(func(c *ElectorConfig) { c.PeerMode, c.PeerCACert = true, caCert })
}

func (e *S3Elector) change(edit func(*ElectorConfig)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	config := e.config
	edit(&config)
	if err := e.accept(config); err != nil {
		return fmt.Errorf("s3lect: the configuration stays as it was: %w", err)
	}
	return nil
}

func (e *S3Elector) accept(config ElectorConfig) error {
	if err := config.Validate(); err != nil {
		return err
	}
	for _, fixed := range []struct{ name, is, new string }{
		{"LockfilePath", e.config.LockfilePath, config.LockfilePath},
		{"ServerID", e.config.ServerID, config.ServerID},
		{"ServerAddr", e.config.ServerAddr, config.ServerAddr},
	} {
		if fixed.is != fixed.new {
			return fmt.Errorf("the %s is %q and cannot become %q: stop this elector and make another", fixed.name, fixed.is, fixed.new)
		}
	}
	client, err := e.connect(config)
	if err != nil {
		return err
	}
	if err := leasehold.Internal.Update(e.election, config.pace()); err != nil {
		return err
	}
	e.lockfile.wait(config.ttl())
	if e.campaign != nil && !config.asksLike(e.config) {
		e.line.use(client)
	}
	e.config = config.clone()
	return nil
}

// asksLike reports that peer mode is the same in both.
func (c ElectorConfig) asksLike(other ElectorConfig) bool {
	return c.PeerMode == other.PeerMode && c.PeerHealthPath == other.PeerHealthPath &&
		c.PeerTimeout == other.PeerTimeout && bytes.Equal(c.PeerCACert, other.PeerCACert)
}
