package serve

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/internal/promtext"
)

type stats struct {
	acquired, lost, silent, slow, sessionsLost, broken atomic.Int64

	mu      sync.Mutex
	answers map[int]int64
	reasons map[word]int64
}

func (t *stats) answered(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answers == nil {
		t.answers = map[int]int64{}
	}
	t.answers[status]++
}

func (t *stats) refused(w word) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reasons == nil {
		t.reasons = map[word]int64{}
	}
	t.reasons[w]++
}

// metrics returns the metrics of the server, its locks and the store, in the text format of
// Prometheus.
func (s *Server) metrics() []byte {
	one := func(name, help string, kind promtext.Kind, value float64) promtext.Family {
		return promtext.Family{Name: name, Help: help, Kind: kind, Samples: []promtext.Sample{{Value: value}}}
	}
	s.mu.Lock()
	leases, waiting, looking := len(s.leases), s.waiting, s.looking
	s.mu.Unlock()
	s.watch.mu.Lock()
	subscribers := len(s.watch.subscribers)
	s.watch.mu.Unlock()
	ready := 0.0
	if s.Ready() == nil {
		ready = 1
	}
	labelled := func(name, value string, n float64) promtext.Sample {
		return promtext.Sample{Labels: []promtext.Label{{Name: name, Value: value}}, Value: n}
	}
	answers := promtext.Family{Name: "leasehold_serve_answers_total", Help: "Requests that were answered, by status.", Kind: promtext.Counter}
	refusals := promtext.Family{Name: "leasehold_serve_refused_total", Help: "Requests that were refused or failed, by reason.", Kind: promtext.Counter}
	s.stats.mu.Lock()
	for _, status := range slices.Sorted(maps.Keys(s.stats.answers)) {
		answers.Samples = append(answers.Samples, labelled("status", strconv.Itoa(status), float64(s.stats.answers[status])))
	}
	for _, reason := range slices.Sorted(maps.Keys(s.stats.reasons)) {
		refusals.Samples = append(refusals.Samples, labelled("reason", string(reason), float64(s.stats.reasons[reason])))
	}
	s.stats.mu.Unlock()
	sent := promtext.Family{Name: "leasehold_serve_store_requests_total", Help: "Requests that were sent to the store.", Kind: promtext.Counter}
	looks := promtext.Family{Name: "leasehold_serve_look_requests_total", Help: "Requests among them that only look, for those who ask who holds what.", Kind: promtext.Counter}
	all, looked := s.sent.totals(), s.watch.budget.sent.totals()
	for o := range ops {
		sent.Samples = append(sent.Samples, labelled("op", opNames[o], float64(all[o])))
		looks.Samples = append(looks.Samples, labelled("op", opNames[o], float64(looked[o])))
	}
	waits := promtext.Family{Name: "leasehold_serve_waiting", Help: "Requests that wait: for a lock, or for the end of a lease.", Kind: promtext.Gauge, Samples: []promtext.Sample{
		labelled("for", "lock", float64(waiting)), labelled("for", "end", float64(looking)),
	}}
	return s.set.Append(promtext.Append(nil,
		one("leasehold_serve_ready", "Whether locks can be acquired (1) or not (0), as /readyz says.", promtext.Gauge, ready),
		one("leasehold_serve_leases", "Leases that callers hold.", promtext.Gauge, float64(leases)),
		waits,
		one("leasehold_serve_subscribers", "Streams of events that are open.", promtext.Gauge, float64(subscribers)),
		one("leasehold_serve_acquisitions_total", "Leases that callers acquired.", promtext.Counter, float64(s.stats.acquired.Load())),
		one("leasehold_serve_losses_total", "Leases that were lost with their session.", promtext.Counter, float64(s.stats.lost.Load())),
		one("leasehold_serve_silent_total", "Leases that were released because their callers were not heard of.", promtext.Counter, float64(s.stats.silent.Load())),
		one("leasehold_serve_breaks_total", "Locks that were broken by hand.", promtext.Counter, float64(s.stats.broken.Load())),
		one("leasehold_serve_sessions_lost_total", "Sessions that were lost.", promtext.Counter, float64(s.stats.sessionsLost.Load())),
		one("leasehold_serve_slow_subscribers_total", "Streams that were cut off because nobody read them.", promtext.Counter, float64(s.stats.slow.Load())),
		answers, refusals, sent, looks,
	))
}
