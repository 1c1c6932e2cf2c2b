package leasehold

// Members is how many candidates have a part in a session.
func Members(s *Session) int { return len(s.inner.Members()) }

// Observers is how many consumers an election keeps its changes for.
func Observers(e *Election) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.observers)
}

// Blind keeps an election from taking in what it sees, until the function is called that it returns.
func Blind(e *Election) (see func()) {
	e.mu.Lock()
	return e.mu.Unlock
}

// Kept is how many keys locks know of, and how many their map has room for.
func Kept(l *Locks) (keys, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys), l.most
}
