package quorumstore

// Race sets how often a write and a delete race in each trial of a member.
func (s *Store) Race(times int) { s.raced = times }
