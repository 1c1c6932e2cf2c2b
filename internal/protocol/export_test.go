package protocol

import "slices"

// Knows reports that an entry is of a caller that the Table has not forgotten.
func (t *Table) Knows(id string) bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return c.seat.ID == id })
}
