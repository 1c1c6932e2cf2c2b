package leasehold

// Members is how many candidates have a part in a session.
func Members(s *Session) int { return len(s.inner.Members()) }

// Observers is how many consumers an election keeps its changes for.
func Observers(e *Election) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.observers)
}
