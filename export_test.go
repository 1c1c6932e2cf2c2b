package leasehold

// DefaultLayout is the layout of locks that name none.
func DefaultLayout() Layout { return Layout(defaultLayout) }

// Members is how many candidates have a part in a session.
func Members(s *Session) int { return len(s.inner.Members()) }

// Observers is how many consumers an election keeps its changes for.
func Observers(e *Election) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.observers)
}

// SetDefaultLayout changes it, and returns what changes it back.
func SetDefaultLayout(l Layout) (undo func()) {
	before := defaultLayout
	defaultLayout = string(l)
	return func() { defaultLayout = before }
}
