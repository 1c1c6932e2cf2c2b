package serve

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"

	"github.com/leasehold/leasehold/internal/promtext"
)

func (s *Server) getLocks(c *call) (int, any, error) {
	c.patient()
	all, err := s.watch.everything(c.r.Context())
	if err != nil {
		return 0, nil, s.refusalOf("", err)
	}
	return http.StatusOK, all, nil
}

func (s *Server) getLock(c *call) (int, any, error) {
	if err := s.checkKey(c.param); err != nil {
		return 0, nil, err
	}
	c.patient()
	o, err := s.watch.object(c.r.Context(), c.param)
	switch {
	case err != nil:
		return 0, nil, s.refusalOf(c.param, err)
	case o.State == "absent" && o.Here+o.Waiting == 0:
		return 0, nil, refuse(wordUnknown, "there is no such lock")
	}
	return http.StatusOK, o, nil
}

func (s *Server) getHistory(c *call) (int, any, error) {
	if err := s.checkKey(c.param); err != nil {
		return 0, nil, err
	}
	c.patient()
	terms, err := s.watch.history(c.r.Context(), c.param)
	if err != nil {
		return 0, nil, s.refusalOf(c.param, err)
	}
	return http.StatusOK, struct {
		History []Term `json:"history"`
	}{terms}, nil
}

// getElection answers as `leasehold elect --http` does. If this server has the leader, it reads
// nothing.
func (s *Server) getElection(c *call) (int, any, error) {
	if err := s.checkKey(c.param); err != nil {
		return 0, nil, err
	}
	leader := Leader{Lock: s.opts.URL(s.inside(c.param))}
	if l := s.leads(c.param); l != nil {
		leader.Name, leader.Token, leader.Leading, leader.Address = l.held.Holder(), l.held.Token(), true, s.opts.Address
		return http.StatusOK, leader, nil
	}
	c.patient()
	o, err := s.watch.object(c.r.Context(), c.param)
	if err != nil {
		return 0, nil, s.refusalOf(c.param, err)
	}
	if o.Error != "" {
		return 0, nil, refuse(wordForeign, "%s", o.Error)
	}
	if o.State == "held" && !o.Abandoned && o.Semaphore == nil && s.leads(c.param) == nil && !s.released(c.param, o) {
		leader.Name, leader.Token, leader.Address = o.Holder, o.Token, o.Address
	}
	return http.StatusOK, leader, nil
}

// leads returns this server's valid lease of an election, or nil.
func (s *Server) leads(key string) *lease {
	return s.holds(key, func(l *lease) bool { return l.election && l.held.Valid() })
}

// holds returns a lease of a key that has not ended and satisfies so, or nil.
func (s *Server) holds(key string, so func(*lease) bool) *lease {
	s.mu.Lock()
	var all []*lease
	for _, l := range s.leases {
		if l.key == key {
			all = append(all, l)
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		l.mu.Lock()
		over := l.why != ""
		l.mu.Unlock()
		if !over && so(l) {
			return l
		}
	}
	return nil
}

// released reports whether the holder in o is this server's session, though none of its leases
// holds the key: the release is then under way.
func (s *Server) released(key string, o Object) bool {
	s.mu.Lock()
	ours := s.current != nil && o.Session == s.current.session.Key()
	s.mu.Unlock()
	return ours && s.holds(key, func(*lease) bool { return true }) == nil
}

func (s *Server) getEvents(c *call) (int, any, error) {
	sub, err := s.watch.subscribe()
	if err != nil {
		return 0, nil, s.refusalOf("", err)
	}
	defer s.watch.unsubscribe(sub)
	c.patient()
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	s.stats.answered(http.StatusOK)
	c.done = true
	if c.r.Method == http.MethodHead {
		return 0, nil, nil
	}
	control := http.NewResponseController(c.w)
	send := func(text []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(answerWithin))
		_, err := c.w.Write(text)
		return err == nil && control.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return 0, nil, nil
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		var text []byte
		select {
		case events, more := <-sub.queue:
			if !more {
				return 0, nil, nil
			}
			text = events
		case <-alive.C:
			text = []byte(":\n\n")
		case <-c.r.Context().Done():
			return 0, nil, nil
		case <-s.ctx.Done():
			return 0, nil, nil
		}
		if !send(text) {
			return 0, nil, nil
		}
	}
}

// Ready returns why the server cannot acquire locks now, or nil if it can.
func (s *Server) Ready() error {
	_, err := s.generation(s.ctx, nil, false)
	return err
}

const plain = "text/plain; charset=utf-8"

// getHealthz says only that the server answers, because a restart would not repair the store.
func (s *Server) getHealthz(c *call) (int, any, error) {
	_ = s.writeRaw(c.w, c.r, http.StatusOK, plain, []byte("ok\n"))
	c.done = true
	return 0, nil, nil
}

func (s *Server) getReadyz(c *call) (int, any, error) {
	if err := s.Ready(); err != nil {
		return 0, nil, refuse(wordStopping, "%s", oneLine(err))
	}
	_ = s.writeRaw(c.w, c.r, http.StatusOK, plain, []byte("ok\n"))
	c.done = true
	return 0, nil, nil
}

func (s *Server) getMetrics(c *call) (int, any, error) {
	_ = s.writeRaw(c.w, c.r, http.StatusOK, promtext.ContentType, s.metrics())
	c.done = true
	return 0, nil, nil
}

//go:embed openapi.json
var openAPI []byte

func (s *Server) getOpenAPI(c *call) (int, any, error) {
	_ = s.writeRaw(c.w, c.r, http.StatusOK, "application/json", bytes.Clone(openAPI))
	c.done = true
	return 0, nil, nil
}
