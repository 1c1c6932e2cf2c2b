package fence

// Rooms is how many resources the gate keeps something about.
func (g *Gate) Rooms() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.resources)
}
