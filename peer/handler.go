package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// DefaultPath is the path at which leaders answer by default.
const DefaultPath = "/health/leadership"

// HandlerOptions are the options of [NewHandler]. The zero value and nil mean the defaults.
type HandlerOptions struct {
	// Token is the bearer token that each question must carry. Default: none is required, and
	// anyone who can reach the handler gets answers.
	Token string

	// MaxWait bounds how long an answer may be held back, whatever the question asks for.
	// Default 1 min.
	MaxWait time.Duration

	// MaxWaiting bounds how many questions may wait for answers at once. Further ones get 503,
	// and their followers poll the store. Default 20,000.
	MaxWaiting int

	// Queues are notified when other processes change them. List the semaphores of this process
	// whose [semaphore.Options] have Peers and the Address of this handler. Default: none.
	Queues []Queue

	// Render returns what is sent as JSON, instead of [AnswerOf]. It must not block. A [Client]
	// understands it if it has at least the fields of [Answer].
	Render func(Leadership) any

	// Logger gets an error when an answer cannot be encoded, and a debug line for each rejected
	// question. Default: slog.Default().
	Logger *slog.Logger
}

// withDefaults returns o, which may be nil, with defaults. It fails if an option is invalid.
func (o *HandlerOptions) withDefaults() (HandlerOptions, error) {
	var opts HandlerOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxWait == 0 {
		opts.MaxWait = time.Minute
	}
	if opts.MaxWaiting == 0 {
		opts.MaxWaiting = 20_000
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.MaxWait < 0 || opts.MaxWaiting < 0 {
		return opts, fmt.Errorf("a limit is negative: MaxWait %v, MaxWaiting %d", opts.MaxWait, opts.MaxWaiting)
	}
	return opts, checkToken(opts.Token)
}

// checkToken returns an error if token cannot be a bearer token. A token read from a file may
// end with a newline.
func checkToken(token string) error {
	if i := strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return fmt.Errorf("the bearer token has a character at byte %d that is not visible ASCII: is that the end of a line?", i)
	}
	return nil
}

// A Handler answers followers' questions about this process's elections. It is safe for
// concurrent use.
//
// It takes GET and HEAD with these query parameters: lock (optional if there is one election),
// version (of the last answer), wait (how long the answer may be held back while it still has
// that version, such as 7.5s), holder (the follower's name) and waited (how long it has wanted
// to lead). It responds with 200 while the candidate leads and 404 while it does not, both with
// an [Answer]; with 404 and no Answer if it does not know the lock; and with 400, 401, 405 or
// 503 and a line of text.
//
// With Queues it also takes POST, with the parameters lock and version: a notification that the
// semaphore has changed to this version. It responds with 204, or 404 if it does not know the
// semaphore.
//
// Status and answer are current when they are written. While a question waits, the Handler
// extends the server's write deadline.
type Handler struct {
	opts      HandlerOptions
	token     [sha256.Size]byte
	elections map[string]*leasehold.Election
	queues    map[string][]Queue // by their keys
	waiting   atomic.Int64
	stopped   context.Context
	stop      context.CancelFunc
}

// NewHandler returns a handler for this process's elections, and for the Queues of the options.
// It panics if there are neither, if two have the same key, because questions could not tell
// them apart, or if an option is invalid.
func NewHandler(opts *HandlerOptions, elections ...*leasehold.Election) *Handler {
	h, err := newHandler(opts, elections)
	if err != nil {
		panic("peer: " + err.Error())
	}
	return h
}

func newHandler(opts *HandlerOptions, elections []*leasehold.Election) (*Handler, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(elections)+len(o.Queues) == 0 {
		return nil, errors.New("there is no election to answer for, and no semaphore to hear for")
	}
	h := &Handler{opts: o, token: sha256.Sum256([]byte(o.Token)), elections: map[string]*leasehold.Election{}}
	for _, e := range elections {
		key := e.Status().Key
		if h.elections[key] != nil {
			return nil, fmt.Errorf("two elections have the key %q, and a question names no more than that: give each a handler and a path of its own", key)
		}
		h.elections[key] = e
	}
	h.queues = map[string][]Queue{}
	for _, q := range o.Queues {
		h.queues[q.Key()] = append(h.queues[q.Key()], q)
	}
	h.stopped, h.stop = context.WithCancel(context.Background())
	return h, nil
}

// Stop answers all waiting questions, and from now on every question at once. Call it when the
// server of the handler shuts down, or the shutdown waits for the questions: see
// [http.Server.RegisterOnShutdown]. Further calls do nothing.
func (h *Handler) Stop() { h.stop() }

// Waiting returns how many questions are waiting for answers.
func (h *Handler) Waiting() int { return int(h.waiting.Load()) }

// A refusal is a response without a leadership.
type refusal struct {
	status int
	why    string
	header [2]string // to send with it; empty: none
}

// ServeHTTP answers one question.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	no := h.serve(w, r)
	if no != nil {
		h.refuse(w, r, no)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *refusal {
	if r.Method == http.MethodPost && len(h.queues) > 0 {
		return h.hear(w, r)
	}
	q, no := h.admit(r)
	if no == nil {
		no = h.wait(w, r, q)
	}
	if no == nil {
		no = h.answer(w, r, q.Lock)
	}
	return no
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	h.opts.Logger.Debug("question refused", "from", r.RemoteAddr, "status", no.status, "reason", no.why)
	if no.header[0] != "" {
		w.Header().Set(no.header[0], no.header[1])
	}
	send(w, r, no.status, "text/plain; charset=utf-8", []byte(no.why+"\n"))
}

// admit parses and authorizes a question.
func (h *Handler) admit(r *http.Request) (Question, *refusal) {
	if no := h.authorize(r); no != nil {
		return Question{}, no
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return Question{}, &refusal{http.StatusMethodNotAllowed, "use GET or HEAD", [2]string{"Allow", "GET, HEAD"}}
	}
	if r.ContentLength != 0 {
		return Question{}, &refusal{http.StatusBadRequest, "a question has no body", [2]string{"Connection", "close"}}
	}
	q, err := question(r.URL.RawQuery)
	if err != nil {
		return q, &refusal{status: http.StatusBadRequest, why: err.Error()}
	}
	q.Wait = min(q.Wait, h.opts.MaxWait)
	switch {
	case q.Lock != "" && h.elections[q.Lock] == nil:
		return q, &refusal{status: http.StatusNotFound, why: fmt.Sprintf("there is no election %q here", q.Lock)}
	case q.Lock == "" && len(h.elections) != 1:
		return q, &refusal{status: http.StatusBadRequest, why: fmt.Sprintf("there are %d elections here: say which, with lock=KEY", len(h.elections))}
	case q.Lock == "":
		for q.Lock = range h.elections {
		}
	}
	return q, nil
}

func (h *Handler) authorize(r *http.Request) *refusal {
	if h.opts.Token == "" {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return &refusal{http.StatusUnauthorized, "a bearer token is needed", [2]string{"WWW-Authenticate", "Bearer"}}
	}
	// Hashes have equal lengths, so the time does not depend on the token's length.
	if sum := sha256.Sum256([]byte(strings.TrimSpace(token))); subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
		return &refusal{http.StatusUnauthorized, "the bearer token is wrong", [2]string{"WWW-Authenticate", `Bearer error="invalid_token"`}}
	}
	return nil
}

// Bounds of a question. A holder's name may be written into the record as the successor.
const (
	maxQuery = 8 << 10
	maxName  = 1 << 10
)

// question parses a query. It ignores unknown parameters.
func question(query string) (Question, error) {
	var q Question
	if len(query) > maxQuery {
		return q, fmt.Errorf("the query has %d bytes, more than %d", len(query), maxQuery)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, fmt.Errorf("the query is broken: %w", err)
	}
	var wait, waited string
	for _, p := range []struct {
		name string
		to   *string
		most int
	}{
		{"lock", &q.Lock, store.MaxKey},
		{"holder", &q.Holder, maxName},
		{"version", &q.Known, maxVersion},
		{"wait", &wait, maxName},
		{"waited", &waited, maxName},
	} {
		given := values[p.name]
		switch {
		case len(given) == 0:
			continue
		case len(given) > 1:
			return q, fmt.Errorf("the parameter %s comes %d times", p.name, len(given))
		case len(given[0]) > p.most:
			return q, fmt.Errorf("the parameter %s has %d bytes, more than %d", p.name, len(given[0]), p.most)
		case !utf8.ValidString(given[0]):
			return q, fmt.Errorf("the parameter %s is not UTF-8 text", p.name)
		}
		*p.to = given[0]
	}
	if q.Wait, err = duration("wait", wait); err != nil {
		return q, err
	}
	if q.Waited, err = duration("waited", waited); err != nil {
		return q, err
	}
	if q.Waited > 0 && q.Holder == "" {
		return q, errors.New("who has waited to lead says who it is, with holder=NAME")
	}
	return q, nil
}

func duration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s=%.40q is not a duration such as 7.5s", name, text)
	}
	return d, nil
}

// patience is how long reading a question or writing an answer may take.
const patience = 5 * time.Second

// wait returns when it is time to answer.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, q Question) *refusal {
	if q.Wait <= 0 || q.Known == "" {
		return nil
	}
	defer h.waiting.Add(-1)
	if h.waiting.Add(1) > int64(h.opts.MaxWaiting) {
		return &refusal{http.StatusServiceUnavailable, "too many questions are waiting", [2]string{"Retry-After", "15"}}
	}
	extend(w, q.Wait+patience)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.stopped, cancel)() //nolint:contextcheck // two contexts may end it
	// The result may be outdated when ctx has ended, so answer gets a new one.
	_, _ = Attend(ctx, h.elections[q.Lock], q)
	return nil
}

// extend extends the server's write deadline, which is meant for requests that are answered at
// once. If the server does not support deadlines, there is none to extend.
func extend(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// answer writes the present state.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, lock string) *refusal {
	said, err := Attend(r.Context(), h.elections[lock], Question{Lock: lock})
	a := AnswerOf(said)
	var shown any = a
	if h.opts.Render != nil {
		shown = h.opts.Render(said)
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err = errors.Join(err, enc.Encode(shown)); err != nil {
		h.opts.Logger.Error("a follower gets no answer", "lock", lock, "error", err)
		return &refusal{status: http.StatusInternalServerError, why: "the answer cannot be made"}
	}
	status := http.StatusNotFound
	if a.State == StateHeld {
		status = http.StatusOK
	}
	send(w, r, status, "application/json", body.Bytes())
	return nil
}

func send(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, bytes.NewReader(body)) // a client that left needs no answer
	}
}
