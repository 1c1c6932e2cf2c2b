package queue

import "slices"

// Knows reports that an entry is of a caller that the Machine has not forgotten.
func (t *Machine) Knows(id string) bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return c.entry.ID == id })
}
