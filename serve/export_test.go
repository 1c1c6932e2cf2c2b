package serve

import "time"

// MatchRoute gives the path of the route, as the OpenAPI document has it, that answers a method and an escaped path.
func MatchRoute(method, path string) string {
	for _, m := range matchRoute(path) {
		if m.method == method || method == "HEAD" && m.method == "GET" {
			return m.path
		}
	}
	return ""
}

// Routes are all methods and paths.
func Routes() (all [][2]string) {
	for _, r := range routes {
		all = append(all, [2]string{r.method, r.path})
	}
	return all
}

// Words are those of all problems, with their status.
func Words() map[string]int {
	all := map[string]int{}
	for w, p := range problems {
		all[string(w)] = p.status
	}
	return all
}

// Margin is how much longer than its caller was told a lease is kept.
func Margin(d time.Duration) time.Duration { return margin(d) }

// Bounds that no option changes.
const (
	MaxBody       = maxBody
	KeepEnded     = keepEnded
	ReleaseWithin = releaseWithin
	LookWithin    = lookWithin
)

// Semaphores is how many are kept for callers, of the present session.
func (s *Server) Semaphores() int {
	s.mu.Lock()
	g := s.current
	s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.semaphores)
}

// Claims is how many acquisitions are under way whose callers have chosen the ID.
func (s *Server) Claims() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims)
}

// Sizes are how much is remembered: leases, endings, keys in use, looks at single keys.
func (s *Server) Sizes() (leases, endings, usages, looks int) {
	s.mu.Lock()
	leases, endings, usages = len(s.leases), len(s.ended.of), len(s.usages)
	s.mu.Unlock()
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return leases, endings, usages, len(s.watch.single)
}
