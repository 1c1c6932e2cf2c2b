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
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New], which copies them. The zero value and nil mean the
// defaults.
type Options struct {
	// Prefix is the prefix of the objects: PREFIX/locks/NAME/_lock, PREFIX/states/NAME/_state
	// and PREFIX/states/NAME/_states/. Default: none, so locks/NAME/_lock.
	Prefix string

	// Path precedes the name in the path of a request, such as "/terraform/" for a handler not
	// mounted at the root. Default "/".
	Path string

	// TTL is how long a lock outlives this process: see [leasehold.LockOptions.TTL]. A held
	// lock costs one write every third of it. Default 1 m.
	TTL time.Duration

	// Versions is the number of states kept for each name, including the current one. From 1 to
	// 500; default 20.
	Versions int

	// MaxState is the maximum size of a state in bytes. From 1 KiB to 1 GiB; default 64 MiB.
	// Writes hold the state in memory; at most four states over 1 MiB are written at a time.
	MaxState int64

	// Requests is the maximum number of concurrent requests. Others are answered with 503,
	// which Terraform retries. Default 64.
	Requests int

	// Locks is the maximum number of locks held by this process. Further ones are answered with
	// 503. Default 1000.
	Locks int

	// Address and Proof are as in [leasehold.LockOptions].
	Address string
	Proof   store.Proof

	// Trace receives the events of the locks, as in [leasehold.LockOptions]. Default: none.
	Trace *locktrace.Trace
	// Logger receives changes of locks, and what no answer says. Default: slog.Default().
	Logger *slog.Logger
}

// Locations of the objects below [Options.Prefix].
const (
	LocksPrefix  = "locks/"
	StatesPrefix = "states/"
)

// Defaults and fixed limits.
const (
	defaultTTL      = time.Minute
	defaultVersions = 20
	maxVersions     = 500 // so that the manifest stays below 1 MiB
	defaultMaxState = 64 << 20
	smallState      = 1 << 20
	largeAtOnce     = 4
	maxLockBody     = 64 << 10
	lockWithin      = 30 * time.Second // for all requests to the store by LOCK and UNLOCK
	stateWithin     = 5 * time.Minute  // for reading or writing a state
)

// A Handler serves Terraform's http backend: see the package documentation. It must be behind
// code that authenticates clients. A Handler is safe for concurrent use.
//
// It holds the locks it has granted, renewing them in the background, until they are unlocked
// or the Handler is closed.
type Handler struct {
	opts  Options
	st    store.Store
	locks *leasehold.Locks
	log   *slog.Logger
	gate  chan struct{} // has an element for each request
	large chan struct{} // has an element for each state over 1 MiB being written
	turns turns

	mu     sync.Mutex
	held   map[string]*holding // by name
	closed bool
}

// A holding is a lock granted by this process. Its lease may have been lost since.
type holding struct {
	id    string
	lease *leasehold.Lease
}

// New returns a handler for the states in st. It sends nothing. It fails if an option is
// invalid.
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
		Trace: locktrace.Join(h.opts.Trace, &locktrace.Trace{Lost: h.lost}), Logger: h.opts.Logger,
	}
}

func (h *Handler) lost(_ context.Context, e locktrace.Lost) {
	h.log.Warn("the lock of a state was lost; the run goes on, and its state is refused once another has locked",
		"lock", e.Key, "token", e.Token, "error", e.Cause)
}

// A place is the locations of a name's objects. No name's objects collide with another's. Locks
// have a prefix of their own, so that tools that list them read no states.
type place struct {
	name   string
	lock   string // the lock's record
	state  string // the guarded object, which has the manifest
	states string // prefix of the states' objects
}

func (h *Handler) place(name string) place {
	prefix := h.opts.Prefix
	if prefix != "" {
		prefix += "/"
	}
	states := prefix + StatesPrefix + name
	return place{name, prefix + LocksPrefix + name + "/_lock", states + "/_state", states + "/_states"}
}

// names is compiled at first use, because compiling is slow, and most commands never serve.
var names = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})*$`)
})

const maxName = 200

// nameIn returns the name in the path of a request, or an error if there is none.
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

// Close refuses new requests, waits for those under way, and stops renewing the locks. They
// stay locked, and others may lock after the TTL. Until another run has locked, their runs can
// store states through another serving process. If ctx ends first, Close returns its error, and
// does not renew the locks either.
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
		// A release would free the lock while its run continues, and the run's state would be
		// refused at once.
		_, err := detached.From(ctx, e.lease)
		if errors.Is(err, leasehold.ErrLost) {
			err = nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the lock of %s: %w", name, err))
		}
		// This frees what a lost lease has left. After Detach it sends nothing.
		if err = e.lease.Release(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) {
			errs = append(errs, fmt.Errorf("the lock of %s: %w", name, err))
		}
	}
	return errors.Join(append(errs, h.locks.Close(ctx))...)
}

// drain waits for the requests under way. Later ones see that the handler is closed.
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

type call struct {
	*http.Request
	ctx   context.Context
	w     http.ResponseWriter
	place place
	undo  []func() // called when the request ends
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// The code that mounts the handler may set deadlines too short for a large state. Some
	// writers have no deadlines. The write deadline must not apply to the next request on the
	// connection.
	control, until := http.NewResponseController(w), time.Now().Add(stateWithin+5*time.Second)
	_, _ = control.SetReadDeadline(until), control.SetWriteDeadline(until)
	defer func() {
		_, _ = control.Flush(), control.SetWriteDeadline(time.Time{})
	}()
	if f := h.admitted(w, r); f != nil {
		h.refuse(w, r, f)
	}
}

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
	// Otherwise a web page could write a state it cannot read, because browsers send such a
	// POST without asking.
	if origin := r.Header.Get("Origin"); origin != "" {
		return refuse(http.StatusForbidden, "the request comes from a page at %q, and no page has anything to do here", clip(origin, maxWho))
	}
	name, err := h.nameIn(r.URL.Path)
	if err != nil {
		return refuse(http.StatusNotFound, "%v", err)
	}
	return h.dispatch(&call{Request: r, w: w, place: h.place(name)})
}

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

// turn waits for the request's turn, which lasts until the request ends.
func (h *Handler) turn(c *call) *refusal {
	leave, err := h.turns.enter(c.ctx, c.place.name)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "other requests for %s are under way, and did not end in time: %v", c.place.name, err)
	}
	c.undo = append(c.undo, leave)
	return nil
}
