package s3store

// Parts sets the size of the parts of a large body.
func (s *Store) Parts(size int64) { s.partSize = func(int) int64 { return size } }
