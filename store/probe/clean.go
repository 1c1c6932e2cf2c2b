package probe

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store"
)

// clean removes the probe's objects, whatever has ended it.
func (s *survey) clean() {
	s.ctx = context.WithoutCancel(s.ctx)
	s.reserve = 0
	var failed error
	for n := range 4 {
		s.removeAll(s.either(n))
		failed = s.purgeAll()
		// The other connections may lead to another copy.
		if !s.seekLeft(s.either(n + 1)) {
			break // else the server has lost count of what it deleted
		}
	}
	if failed != nil {
		s.found(Finding{Name: "past versions removed", Result: Unknown, Detail: "those of the probe's own objects stay: " + failed.Error()})
	}
	s.report.Left = len(s.keys)
}

// removeAll deletes the objects that are known.
func (s *survey) removeAll(c *counted) {
	s.inParallel(slices.Collect(maps.Keys(s.keys)), func(key string) {
		_ = s.again(func() error { return c.Delete(s.ctx, key) })
	})
}

// inParallel calls do with each key, several at a time.
func (s *survey) inParallel(all []string, do func(key string)) {
	var workers sync.WaitGroup
	keys := make(chan string)
	for range lanes {
		workers.Go(func() {
			for key := range keys {
				do(key)
			}
		})
	}
	for _, key := range all {
		keys <- key
	}
	close(keys)
	workers.Wait()
}

// purgeAll deletes what deletes leave.
func (s *survey) purgeAll() error {
	purger, ok := s.a.Store.(store.Purger)
	if s.purge {
		purger, ok = s.look, true
	}
	if !ok {
		return nil
	}
	n := &s.report.Requests.Inspect
	if s.purge && !s.purged {
		s.purged = true
		s.report.Limit += s.opts.Purges()
	}
	before := *n
	ctx, cancel := s.metered(s.ctx, n, 0, math.MaxInt)
	defer cancel()
	requests, err := purger.Purge(ctx, strings.TrimSuffix(s.prefix, "/"))
	*n = max(*n, before+requests) // those that do not go through net/http
	return err
}

// seekLeft looks, where it may, for objects that are there all the same.
func (s *survey) seekLeft(c *counted) (any bool) {
	if s.report.Finding(canDelete).Result == Bad || len(s.keys) > 0 {
		return false // what cannot be deleted is known already
	}
	left, err := s.list(c, "", "")
	for _, e := range left {
		s.expect(s.prefix+e.Key, nil)
	}
	return err == nil && len(left) > 0
}
