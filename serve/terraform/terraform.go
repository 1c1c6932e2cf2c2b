package terraform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New]. The zero value, like nil, gives the defaults. They are copied.
type Options struct {
	// Prefix is where the objects lie: PREFIX/locks/NAME/_lock, PREFIX/states/NAME/_state and
	// PREFIX/states/NAME/_states/. Default: none, so locks/NAME/_lock.
	Prefix string

	// Path is what comes before the name in the path of a request, for a handler that is not mounted at the
	// root: "/terraform/". Default "/".
	Path string

	// TTL is how long a lock outlives this process: see [leasehold.LockOptions.TTL]. A lock that is held
	// is renewed every third of it, by one write. Default 1 m.
	TTL time.Duration

	// Versions is how many states are kept of each name, the present one among them. From 1 to 500;
	// default 20.
	Versions int

	// MaxState is the size of the largest state, in bytes. From 1 KiB to 1 GiB; default 64 MiB. A state
	// that is written lies in memory, four at a time of those over 1 MiB.
	MaxState int64

	// Requests is how many requests are answered at a time. More are answered with 503, which Terraform
	// tries again. Default 64.
	Requests int

	// Locks is how many locks this process holds at a time. More are answered with 503. Default 1000.
	Locks int

	// Address and Proof are as in [leasehold.LockOptions].
	Address string
	Proof   leasehold.Proof

	// Trace is told of the locks, as in [leasehold.LockOptions]. Default: none.
	Trace *leasehold.Trace
	// Logger is told what becomes of locks, and what no answer tells. Default: slog.Default().
	Logger *slog.Logger
}

// Where the objects lie below [Options.Prefix].
const (
	LocksPrefix  = "locks/"
	StatesPrefix = "states/"
)

// The defaults, and what cannot be chosen.
const (
	defaultTTL      = time.Minute
	defaultVersions = 20
	maxVersions     = 500 // so that the list of them stays below 1 MiB
	defaultMaxState = 64 << 20
	smallState      = 1 << 20
	largeAtOnce     = 4
	maxLockBody     = 64 << 10
	lockWithin      = 30 * time.Second // for all that is asked of the store for LOCK and UNLOCK
	stateWithin     = 5 * time.Minute  // for a state to come or to go
)

// A Handler answers the requests of Terraform's http backend: see the package documentation. It must be
// behind something that knows who asks. It is safe for concurrent use.
//
// It holds the locks that it has given, and renews them in the background, until they are unlocked or it is
// closed.
type Handler struct {
	opts  Options
	st    store.Store
	locks *leasehold.Locks
	log   *slog.Logger
	gate  chan struct{} // has an element for each request
	large chan struct{} // and for each state over 1 MiB that is being written
	turns turns

	mu     sync.Mutex
	held   map[string]*holding // by name
	closed bool
}

// A holding is a lock that this process has given. Its lease may have been lost since.
type holding struct {
	id    string
	lease *leasehold.Lease
}

// New makes a handler for the states in st. It sends nothing. It fails if an option cannot be used.
func New(st store.Store, opts *Options) (*Handler, error) {
	if st == nil {
		return nil, errors.New("the store of the states is nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	h := &Handler{
		opts: o, st: st, log: o.Logger, held: map[string]*holding{},
		gate: make(chan struct{}, o.Requests), large: make(chan struct{}, largeAtOnce),
	}
	var err error
	if h.locks, err = leasehold.NewLocks(st, h.lockOptions()); err != nil {
		return nil, err
	}
	if err = store.CheckKey("terraform", h.place("x").states+"/x"); err != nil {
		return nil, fmt.Errorf("the option Prefix: %w", err)
	}
	return h, nil
}

func (o *Options) complete() error {
	if o.Path == "" {
		o.Path = "/"
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.MaxState == 0 {
		o.MaxState = defaultMaxState
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	for _, n := range []struct {
		name              string
		value             *int
		standard, at, max int
	}{
		{"Versions", &o.Versions, defaultVersions, 1, maxVersions},
		{"Requests", &o.Requests, 64, 1, 10_000},
		{"Locks", &o.Locks, 1000, 1, 1_000_000},
	} {
		if *n.value == 0 {
			*n.value = n.standard
		}
		if *n.value < n.at || *n.value > n.max {
			return fmt.Errorf("the option %s %d is not between %d and %d", n.name, *n.value, n.at, n.max)
		}
	}
	o.Prefix = strings.TrimSuffix(o.Prefix, "/")
	switch {
	case o.MaxState < 1<<10 || o.MaxState > 1<<30:
		return fmt.Errorf("the option MaxState %d is not between 1 KiB and 1 GiB", o.MaxState)
	case !strings.HasPrefix(o.Path, "/") || !strings.HasSuffix(o.Path, "/"):
		return fmt.Errorf("the option Path %q does not begin and end with a slash", o.Path)
	case len(o.Prefix) > 300:
		return fmt.Errorf("the option Prefix has %d bytes, more than 300", len(o.Prefix))
	}
	return nil
}

func (h *Handler) lockOptions() *leasehold.LockOptions {
	return &leasehold.LockOptions{
		TTL: h.opts.TTL, Address: h.opts.Address, Proof: h.opts.Proof, Layout: leasehold.LayoutObject,
		Trace: h.opts.Trace, Logger: h.opts.Logger,
		OnLost: func(lease *leasehold.Lease, err error) {
			h.log.Warn("the lock of a state was lost; the run goes on, and its state is refused once another has locked",
				"lock", lease.Key(), "token", int64(lease.Token()), "error", err)
		},
	}
}

// A place is where the objects of a name lie. No name can be so that one of its objects is in the way of
// another's. The locks are apart from the rest, so that a tool that lists them reads no state.
type place struct {
	name   string
	lock   string // the lock's record
	state  string // what is guarded: the list of the states
	states string // before the states themselves
}

func (h *Handler) place(name string) place {
	prefix := h.opts.Prefix
	if prefix != "" {
		prefix += "/"
	}
	states := prefix + StatesPrefix + name
	return place{name, prefix + LocksPrefix + name + "/_lock", states + "/_state", states + "/_states"}
}

// names is compiled by its first use: it takes longer than the start of most packages, and most commands serve nothing.
var names = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})*$`)
})

const maxName = 200

// nameIn is the name in the path of a request, or why there is none.
func (h *Handler) nameIn(path string) (string, error) {
	name, ok := strings.CutPrefix(path, h.opts.Path)
	switch {
	case !ok || name == "":
		return "", fmt.Errorf("the address names no state: it is %sNAME", h.opts.Path)
	case len(name) > maxName:
		return "", fmt.Errorf("the name of the state has %d bytes, more than %d", len(name), maxName)
	case !names().MatchString(name):
		return "", fmt.Errorf("%q is no name for a state: letters, digits, dots, dashes and underscores, in segments that begin with a letter or a digit", name)
	}
	return name, nil
}

// Close refuses all requests from now on, waits for those that are under way, and lets go of the locks: they
// stay locked, are not renewed any more, and others may lock after the TTL. The runs that hold them can store
// their states, by another process that serves them, until another has locked. If ctx ends first, Close
// returns its error, and the locks are not renewed either.
func (h *Handler) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	errs := []error{h.drain(ctx)}
	h.mu.Lock()
	held := h.held
	h.held = map[string]*holding{}
	h.mu.Unlock()
	for name, e := range held {
		// A release would free the lock under a run that goes on, and its state would be refused at once.
		_, err := e.lease.Detach(ctx)
		if errors.Is(err, leasehold.ErrLost) {
			err = nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the lock of %s: %w", name, err))
		}
		// What is left of a lease that was lost is freed; after Detach this sends nothing.
		if err = e.lease.Release(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
			errs = append(errs, fmt.Errorf("the lock of %s: %w", name, err))
		}
	}
	return errors.Join(append(errs, h.locks.Close(ctx))...)
}

// drain waits for the requests that are under way. Those that come later see that it is closed.
func (h *Handler) drain(ctx context.Context) error {
	for range cap(h.gate) {
		select {
		case h.gate <- struct{}{}:
			defer func() { <-h.gate }()
		case <-ctx.Done():
			return fmt.Errorf("requests are under way: %w", ctx.Err())
		}
	}
	return nil
}

// A call is one request.
type call struct {
	*http.Request
	ctx   context.Context
	w     http.ResponseWriter
	place place
	undo  []func() // what ends with the request
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// Whatever mounts the handler may give a request less time than a large state takes. Not every writer has
	// deadlines. That of a connection is not for the next request on it.
	control, until := http.NewResponseController(w), time.Now().Add(stateWithin+5*time.Second)
	_, _ = control.SetReadDeadline(until), control.SetWriteDeadline(until)
	defer func() {
		_, _ = control.Flush(), control.SetWriteDeadline(time.Time{})
	}()
	if f := h.admitted(w, r); f != nil {
		h.refuse(w, r, f)
	}
}

// admitted answers a request for which there is room.
func (h *Handler) admitted(w http.ResponseWriter, r *http.Request) *refusal {
	select {
	case h.gate <- struct{}{}:
		defer func() { <-h.gate }()
	default:
		return refuse(http.StatusServiceUnavailable, "there are too many requests at a time: the most is %d", cap(h.gate))
	}
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return refuse(http.StatusServiceUnavailable, "the server stops")
	}
	// A page could otherwise write a state that it cannot read: such a POST is sent without asking.
	if origin := r.Header.Get("Origin"); origin != "" {
		return refuse(http.StatusForbidden, "the request comes from a page at %q, and no page has anything to do here", clip(origin, maxWho))
	}
	name, err := h.nameIn(r.URL.Path)
	if err != nil {
		return refuse(http.StatusNotFound, "%v", err)
	}
	return h.dispatch(&call{Request: r, w: w, place: h.place(name)})
}

// methods are those of a name.
const methods = "DELETE, GET, HEAD, LOCK, POST, PUT, UNLOCK"

func (h *Handler) dispatch(c *call) *refusal {
	answer, within := h.get, stateWithin
	switch c.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost, http.MethodPut:
		answer = h.post
	case http.MethodDelete:
		answer = h.remove
	case "LOCK":
		answer, within = h.lock, lockWithin
	case "UNLOCK":
		answer, within = h.unlock, lockWithin
	default:
		c.w.Header().Set("Allow", methods)
		return refuse(http.StatusMethodNotAllowed, "%s is not among the methods of a state: %s", clip(c.Method, 20), methods)
	}
	ctx, cancel := context.WithTimeout(c.Context(), within)
	defer cancel()
	c.ctx = ctx
	defer func() {
		for _, undo := range c.undo {
			undo()
		}
	}()
	return answer(c)
}

// turn waits for the request's turn, which lasts as long as the request.
func (h *Handler) turn(c *call) *refusal {
	leave, err := h.turns.enter(c.ctx, c.place.name)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "other requests for %s are under way, and did not end in time: %v", c.place.name, err)
	}
	c.undo = append(c.undo, leave)
	return nil
}
