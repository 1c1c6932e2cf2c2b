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
	"github.com/leasehold/leasehold/metrics"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New]. The zero value, like nil, gives the defaults. They are copied.
type Options struct {
	// Prefix is put before each key of a caller to make that of the store. Default: nothing.
	Prefix string
	// URL is what the object of a key of the store is called in answers. Default: the store's name and the key.
	URL func(key string) string

	// TTL is that of the session that all leases are under: how long a lock outlives this process. Default 15 s.
	TTL time.Duration
	// Holder names this server, and those of its callers that do not name themselves. Default "HOST/PID".
	Holder string
	// Address and Proof are as in [leasehold.LockOptions].
	Address string
	Proof   leasehold.Proof

	// What callers may have at a time: leases (default 10,000), requests that wait for a lock or for the end of a
	// lease (default 1,000 each), and streams of events (default 64).
	Leases, Waiting, Subscribers int

	// Every is the pause between two looks at everything while somebody subscribes to the events, unless this server
	// itself changes something. Default 5 s, 1 s at least.
	Every time.Duration
	// Budget is how many requests a minute looks may send on average. Default 600.
	Budget int
	// Limit is how many objects one look reads at most. Default 1000.
	Limit int
	// Price names the list prices that the budget is told in: see internal/cost. Default: none.
	Price string

	// MetricKeys are patterns, of path.Match, of the callers' keys that /metrics tells apart: see
	// metrics.Options.Keys. Default: none are.
	MetricKeys []string
	// Trace is told of the session and of all acquisitions and leases, as in [leasehold.LockOptions]. Default: none.
	Trace *leasehold.Trace
	// AllowBreak lets those who ask break the locks of others by hand: see [admin.Break]. Default: nobody may.
	AllowBreak bool
	// Logger gets what no answer tells. IDs of leases are never among it. Default: slog.Default().
	Logger *slog.Logger
}

// The defaults, and what cannot be chosen.
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

// A Server holds locks for callers that ask it over HTTP: it is an [http.Handler] for everything in the package
// documentation. It has no say in who may ask: the command puts it behind internal/localhttp.
//
// Start begins its session, and Stop ends it. It is safe for concurrent use.
type Server struct {
	opts  Options
	st    store.Store // counts what is sent
	sent  *meter
	log   *slog.Logger
	trace *leasehold.Trace // the option's, and what measures
	set   *metrics.Set
	gate  chan struct{} // bounds the releases that are under way in the background
	brake chan struct{} // bounds the breaks that are under way
	watch *watcher
	stats stats

	ctx    context.Context // ends when Stop begins
	cancel context.CancelCauseFunc

	trouble atomic.Pointer[string] // why there is no session, or why the store fails

	mu      sync.Mutex
	begun   bool
	current *generation   // nil while there is no session
	changed chan struct{} // closed when current changes
	leases  map[string]*lease
	claims  map[string]*claim // by the ID that their callers have chosen
	empty   chan struct{}     // closed when there are no leases any more, while Stop waits
	ended   endings
	usages  map[string]*usage
	waiting int // for locks
	looking int // for the end of leases
	mounted map[string]http.Handler

	supervised chan struct{}  // closed when nobody begins sessions any more
	background sync.WaitGroup // releases, and sessions that end
}

// usage is what this server has to do with a key.
type usage struct {
	leases, waiting int
	election        bool
}

// errStopping ends what is under way when the server stops.
var errStopping = errors.New("the server stops")

// New makes a server for the locks in st. It sends nothing. It fails if an option cannot be used, and says which.
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
		set: set, trace: leasehold.JoinTraces(recorder.Trace(), o.Trace),
		changed: make(chan struct{}), supervised: make(chan struct{}), leases: map[string]*lease{}, claims: map[string]*claim{}, usages: map[string]*usage{}, mounted: map[string]http.Handler{},
	}
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
	// The rest is said by a lock with these options.
	_, err := leasehold.NewLock(st, o.Prefix+"key", o.lockOptions())
	return err
}

func (o *Options) lockOptions() *leasehold.LockOptions {
	return &leasehold.LockOptions{
		TTL: o.TTL, Holder: o.Holder, Address: o.Address, Proof: o.Proof, Layout: leasehold.LayoutObject, Logger: o.Logger,
	}
}

// patternless has path.Match take a text as it is.
var patternless = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// patterns are MetricKeys as keys of the store match them.
func (o *Options) patterns() (patterns []string) {
	for _, p := range o.MetricKeys {
		patterns = append(patterns, patternless.Replace(o.Prefix)+p)
	}
	return patterns
}

// Handle has h answer what is asked for under a path, such as /state/ for all below it, or /state for that alone. Call it
// before the server answers. It panics if the path is one of the API's or of the page's, or taken. What holds for each request,
// whoever answers it, holds for h too; its answer may take longer than the usual if it says so by an
// [http.ResponseController].
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

// Measure gives a store whose calls /metrics tells of, and a Trace that has it tell of locks: for a handler that is
// mounted.
func (s *Server) Measure(st store.Store) (store.Store, *leasehold.Trace) {
	return metrics.Store(st, s.set), s.trace
}

// mount is the handler that was mounted for a path, or nil: the longest path wins.
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

// inside is the key of the store for a caller's.
func (s *Server) inside(key string) string { return s.opts.Prefix + key }

// outside is the caller's key for one of the store.
func (s *Server) outside(key string) string { return strings.TrimPrefix(key, s.opts.Prefix) }

// useLocked counts what this server has to do with a key. The mutex is locked.
func (s *Server) useLocked(key string, leases, waiting int, election bool) {
	u := s.usages[key]
	if u == nil {
		u = new(usage)
		s.usages[key] = u
	}
	u.leases += leases
	u.waiting += waiting
	if election && len(s.usages) <= 2*s.opts.Leases { // more are not remembered: it is a name for people
		u.election = true
	}
	if u.leases == 0 && u.waiting == 0 && !u.election {
		delete(s.usages, key)
	}
}

// usage is what this server has to do with a key.
func (s *Server) usage(key string) (leases, waiting int, election bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.usages[key]; u != nil {
		return u.leases, u.waiting, u.election
	}
	return 0, 0, false
}
