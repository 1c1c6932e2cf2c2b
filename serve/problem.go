package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

// A word is the last part of a problem's type.
type word string

// The words of all problems. The package documentation explains them.
const (
	wordHeld      word = "held"
	wordOver      word = "over"
	wordUnknown   word = "unknown"
	wordMethod    word = "method"
	wordBody      word = "body"
	wordKey       word = "key"
	wordQuery     word = "query"
	wordSlow      word = "slow"
	wordLeft      word = "left"
	wordMediaType word = "media-type"
	wordTooLarge  word = "too-large"
	wordValue     word = "value"
	wordForeign   word = "foreign"
	wordOrigin    word = "origin"
	wordBreak     word = "break"
	wordHost      word = "host"
	wordToken     word = "token"
	wordTooMany   word = "too-many"
	wordStore     word = "store"
	wordStopping  word = "stopping"
)

// problems has the status and title of each word.
var problems = map[word]struct {
	status int
	title  string
}{
	wordHeld:      {http.StatusConflict, "The lock is held"},
	wordOver:      {http.StatusGone, "The lease is over"},
	wordUnknown:   {http.StatusNotFound, "There is no such thing"},
	wordMethod:    {http.StatusMethodNotAllowed, "The path has other methods"},
	wordBody:      {http.StatusBadRequest, "The body is not what is expected"},
	wordKey:       {http.StatusBadRequest, "That is not a key"},
	wordQuery:     {http.StatusBadRequest, "The query is not what is expected"},
	wordLeft:      {http.StatusBadRequest, "The connection was closed before the answer"},
	wordSlow:      {http.StatusRequestTimeout, "The body did not come in time"},
	wordMediaType: {http.StatusUnsupportedMediaType, "The body is not JSON"},
	wordTooLarge:  {http.StatusRequestEntityTooLarge, "The body is too large"},
	wordValue:     {http.StatusUnprocessableEntity, "A value cannot be"},
	wordForeign:   {http.StatusUnprocessableEntity, "The key is of something else"},
	wordOrigin:    {http.StatusForbidden, "The request comes from another origin"},
	wordBreak:     {http.StatusForbidden, "Locks are not broken here"},
	wordHost:      {http.StatusMisdirectedRequest, "The request is for another host"},
	wordToken:     {http.StatusUnauthorized, "The token is missing or wrong"},
	wordTooMany:   {http.StatusTooManyRequests, "There are too many"},
	wordStore:     {http.StatusServiceUnavailable, "The store fails"},
	wordStopping:  {http.StatusServiceUnavailable, "The server has no session, or stops"},
}

// A refusal is an error with the word for it: why a request was refused.
type refusal struct {
	word   word
	detail string
	report *Report // who holds the lock
}

func (r *refusal) Error() string { return string(r.word) + ": " + r.detail }

func refuse(w word, format string, args ...any) *refusal {
	return &refusal{word: w, detail: fmt.Sprintf(format, args...)}
}

// left refuses a request whose caller has closed its connection, or its sending half, which
// looks the same to a server. The request no longer waits, and nothing is kept for it.
func left() *refusal {
	return refuse(wordLeft, "its caller closed the connection, or the sending half of it: keep both open until the answer")
}

const (
	problemType = "application/problem+json"
	problemURN  = "urn:leasehold:problem:"
)

// Refuse answers a request that was refused before it reached the server: for another host,
// from another origin, or without the token. It is for the code in front of the server: see
// localhttp.Options.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	reason := map[int]word{http.StatusMisdirectedRequest: wordHost, http.StatusForbidden: wordOrigin, http.StatusUnauthorized: wordToken}[status]
	s.answerRefusal(w, r, refuse(reason, "%s", why))
}

func (s *Server) answerRefusal(w http.ResponseWriter, r *http.Request, f *refusal) {
	kind := problems[f.word]
	p := Problem{
		Type: problemURN + string(f.word), Title: kind.title, Status: kind.status, Detail: f.detail,
		Instance: "urn:leasehold:answer:" + randomHex(), Report: f.report,
	}
	s.stats.refused(f.word)
	s.log.Debug("refused", "answer", p.Instance, "method", r.Method, "status", p.Status, "reason", string(f.word))
	if kind.status == http.StatusTooManyRequests || kind.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	_ = s.write(w, r, kind.status, problemType, p)
}

// write writes an answer as JSON, within a limited time. It fails if the client is known to
// have left, which matters only for answers about leases.
func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, contentType string, data any) error {
	var body []byte
	if data != nil {
		text, err := json.Marshal(data)
		if err != nil {
			panic(err) // no answer can fail
		}
		body = append(text, '\n')
	}
	return s.writeRaw(w, r, status, contentType, body)
}

func (s *Server) writeRaw(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) error {
	s.stats.answered(status)
	// After a wait, the answer may be late, and must not be cut off for that. Some writers have
	// no deadline.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerWithin))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	if len(body) > 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// refusalOf returns why an acquisition or a read has failed. The key is the caller's.
func (s *Server) refusalOf(key string, err error) *refusal {
	if f, is := errors.AsType[*refusal](err); is {
		return f
	}
	switch {
	case errors.Is(err, errStopping), errors.Is(err, errNoSession), errors.Is(err, leasehold.ErrClosed):
		return refuse(wordStopping, "%s", oneLine(err))
	case errors.Is(err, semaphore.ErrFull):
		return refuse(wordTooMany, "%s", oneLine(err))
	}
	if held := s.heldBy(key, err); held != nil {
		return &refusal{wordHeld, oneLine(err), held}
	}
	is := func(kinds ...error) bool {
		return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
	}
	switch {
	case is(leasehold.ErrForeignObject, leasehold.ErrTokenTooLarge, semaphore.ErrSize, admin.ErrAmbiguous, admin.ErrNoHistory):
		return refuse(wordForeign, "%s", oneLine(err))
	case is(store.ErrInvalid):
		return refuse(wordKey, "%s", oneLine(err))
	case is(leasehold.ErrSessionOver, leasehold.ErrLost):
		return refuse(wordStopping, "%s", oneLine(err))
	case key != "" && is(context.DeadlineExceeded):
		return refuse(wordStore, "the store has not said whether the lock is free: %s", oneLine(err))
	}
	return refuse(wordStore, "%s", oneLine(err))
}

// heldBy returns a report about a lock that another caller holds, or nil if the error is
// another one.
func (s *Server) heldBy(key string, err error) *Report {
	url := s.opts.URL(s.inside(key))
	if e, is := errors.AsType[*leasehold.HeldError](err); is {
		r := lockjson.Describe(url, "", e.Info)
		return &r
	}
	if errors.Is(err, leasehold.ErrHeld) {
		return &Report{Lock: url, State: "held"}
	}
	return nil
}
