package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New], which copies them. The zero value and nil mean the
// defaults.
type Options struct {
	// Prefix comes before each caller's key in the store. Default: none.
	Prefix string
	// URL returns the name of a key of the store in answers. Default: the store's name and the
	// key.
	URL func(key string) string

	// TTL is the TTL of the session, which all leases share: how long a lock outlives this
	// process. Default 15 s.
	TTL time.Duration
	// Holder is the name of this server, and of callers that give none. Default "HOST/PID".
	Holder string
	// Address and Proof are as in [leasehold.LockOptions].
	Address string
	Proof   store.Proof

	// Limits at a time: leases (default 10,000), requests that wait for a lock or for the end
	// of a lease (default 1,000 each), and streams of events (default 64).
	Leases, Waiting, Subscribers int

	// Every is the interval between reads of all objects while there are subscribers; a change
	// by this server shortens it. Default 5 s, at least 1 s.
	Every time.Duration
	// Budget limits the average number of requests a minute for such reads and for reads of
	// single keys. Default 600.
	Budget int
	// Limit is the maximum number of objects in one read of all. Default 1000.
	Limit int
	// Price is the name of the list prices for the cost in [Budget]: see internal/cost.
	// Default: none.
	Price string

	// MetricKeys are path.Match patterns. Callers' keys that match get metrics of their own:
	// see metrics.Options.Keys. Default: none.
	MetricKeys []string
	// Trace receives events of the session, acquisitions and leases, as in
	// [leasehold.LockOptions]. Default: none.
	Trace *locktrace.Trace
	// AllowBreak lets callers force-release locks of others: see [admin.Break]. Default: no.
	AllowBreak bool
	// Logger receives what no answer says, but never the ID of a lease. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Defaults and fixed limits.
const (
	defaultTTL   = 15 * time.Second // of a caller's lease
	maxWait      = time.Hour
	maxBody      = 64 << 10
	maxHolder    = 256
	maxMeta      = 16 << 10
	keepEnded    = 10 * time.Minute // how long the end of a lease is remembered
	answerWithin = 10 * time.Second // for writing an answer
	lookWithin   = 30 * time.Second
)

// A Server holds locks for its HTTP callers. It is an [http.Handler] for the API in the package
// documentation. It does not check who is calling: the command puts it behind
// internal/localhttp.
//
// Start begins its session, and Stop ends it. A Server is safe for concurrent use.
type Server struct {
	opts     Options
	st       store.Store // counts requests
	sent     *meter
	log      *slog.Logger
	measured *locktrace.Trace // the option's, and that of the metrics
	trace    *locktrace.Trace // and that of the server
	set      *metrics.Set
	gate     chan struct{} // limits concurrent releases in the background
	brake    chan struct{} // limits concurrent force-releases
	watch    *watcher
	stats    stats

	ctx    context.Context // ends when Stop begins
	cancel context.CancelCauseFunc

	trouble atomic.Pointer[string] // why there is no session, or the last store error

	mu      sync.Mutex
	begun   bool
	current *generation   // nil while there is no session
	changed chan struct{} // closed when current changes
	leases  map[string]*lease
	claims  map[string]*claim // by the ID chosen by the caller
	empty   chan struct{}     // closed when the last lease has ended, while Stop waits
	ended   endings
	usages  map[string]*usage
	waiting int // for locks
	looking int // for the end of leases
	mounted map[string]http.Handler

	supervised chan struct{}  // closed when no more sessions begin
	background sync.WaitGroup // releases, and sessions that end
}

// usage is how much this server uses a key.
type usage struct {
	leases, waiting int
	election        bool
}

// errStopping is the cause of what ends because the server is stopping.
var errStopping = errors.New("the server stops")

// New returns a server for the locks in st. It sends nothing. It fails if an option is invalid,
// and says which.
func New(st store.Store, opts *Options) (*Server, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if st == nil {
		return nil, errors.New("the store of a server is nil")
	}
	standard := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	standard(&o.Leases, 10_000)
	standard(&o.Waiting, 1000)
	standard(&o.Subscribers, 64)
	standard(&o.Budget, 600)
	standard(&o.Limit, 1000)
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	if o.TTL == 0 {
		o.TTL = leasehold.DefaultTTL
	}
	if o.Holder == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "unknown"
		}
		o.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.URL == nil {
		o.URL = func(key string) string { return strings.TrimSuffix(st.String(), "/") + "/" + key }
	}
	if err := o.check(st); err != nil {
		return nil, err
	}
	price, err := priceOf(o.Price)
	if err != nil {
		return nil, err
	}
	set := metrics.NewSet()
	recorder, err := metrics.New(set, &metrics.Options{Keys: o.patterns()})
	if err != nil {
		return nil, fmt.Errorf("the option MetricKeys: %w", err)
	}
	s := &Server{
		opts: o, sent: new(meter), log: o.Logger, gate: make(chan struct{}, 32), brake: make(chan struct{}, maxBreaks),
		set: set, measured: locktrace.Join(recorder.Trace(), o.Trace),
		changed: make(chan struct{}), supervised: make(chan struct{}), leases: map[string]*lease{}, claims: map[string]*claim{}, usages: map[string]*usage{}, mounted: map[string]http.Handler{},
	}
	s.trace = locktrace.Join(s.measured, s.ownTrace())
	s.ended.most = o.Leases
	s.st = &counting{Store: metrics.Store(st, set), all: s.sent}
	s.watch = newWatcher(s, price)
	s.mounted["/ui/"] = http.HandlerFunc(s.servePage)
	s.mounted["/ui"], s.mounted["/"] = http.HandlerFunc(s.toPage), http.HandlerFunc(s.toPage)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

func (o *Options) check(st store.Store) error {
	for name, n := range map[string]int{"Leases": o.Leases, "Waiting": o.Waiting, "Subscribers": o.Subscribers, "Budget": o.Budget, "Limit": o.Limit} {
		if n < 1 {
			return fmt.Errorf("the option %s %d is less than 1", name, n)
		}
	}
	if o.Every < time.Second {
		return fmt.Errorf("the option Every %v is less than 1s", o.Every)
	}
	if len(o.Holder) > maxHolder {
		return fmt.Errorf("the option Holder has %d bytes, more than %d", len(o.Holder), maxHolder)
	}
	// NewLock checks the other options.
	_, err := leasehold.NewLock(st, o.Prefix+"key", o.lockOptions())
	return err
}

func (o *Options) lockOptions() *leasehold.LockOptions {
	return &leasehold.LockOptions{
		TTL: o.TTL, Holder: o.Holder, Address: o.Address, Proof: o.Proof, Layout: leasehold.LayoutObject, Logger: o.Logger,
	}
}

// patternless escapes text for path.Match.
var patternless = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// patterns returns MetricKeys as patterns for keys in the store.
func (o *Options) patterns() (patterns []string) {
	for _, p := range o.MetricKeys {
		patterns = append(patterns, patternless.Replace(o.Prefix)+p)
	}
	return patterns
}

// Handle serves a path with h: /state/ with everything below it, or /state alone. Call it
// before the server answers requests. It panics if the path is taken, or belongs to the API or
// the page. The rules for all requests apply to h too; for a longer answer, h sets deadlines by
// an [http.ResponseController].
func (s *Server) Handle(path string, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimSuffix(path, "/")
	switch {
	case !strings.HasPrefix(path, "/") || name == "" || name == "/v1" || strings.HasPrefix(name, "/v1/") || matchRoute(name) != nil:
		panic(fmt.Sprintf("serve: %q is not a path to mount a handler at", path))
	case s.mounted[path] != nil:
		panic(fmt.Sprintf("serve: there is a handler at %q", path))
	}
	s.mounted[path] = h
}

// Measure returns a store and a Trace for a handler passed to Handle: /metrics then counts its
// requests to the store and its locks.
func (s *Server) Measure(st store.Store) (store.Store, *locktrace.Trace) {
	return metrics.Store(st, s.set), s.measured
}

// mount returns the handler with the longest matching path, or nil.
func (s *Server) mount(path string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found http.Handler
	longest := -1
	for at, h := range s.mounted {
		if len(at) > longest && (path == at || at != "/" && strings.HasSuffix(at, "/") && strings.HasPrefix(path, at)) {
			found, longest = h, len(at)
		}
	}
	return found
}

func (s *Server) inside(key string) string { return s.opts.Prefix + key }

func (s *Server) outside(key string) string { return strings.TrimPrefix(key, s.opts.Prefix) }

// useLocked counts this server's use of a key. The mutex is locked.
func (s *Server) useLocked(key string, leases, waiting int, election bool) {
	u := s.usages[key]
	if u == nil {
		u = new(usage)
		s.usages[key] = u
	}
	u.leases += leases
	u.waiting += waiting
	if election && len(s.usages) <= 2*s.opts.Leases { // no more are remembered: this is only a name for people
		u.election = true
	}
	if u.leases == 0 && u.waiting == 0 && !u.election {
		delete(s.usages, key)
	}
}

// usage returns how much this server uses a key.
func (s *Server) usage(key string) (leases, waiting int, election bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.usages[key]; u != nil {
		return u.leases, u.waiting, u.election
	}
	return 0, 0, false
}
