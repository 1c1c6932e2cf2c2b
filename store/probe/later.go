package probe

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A store may change its mind after its answer: it may carry out a write that it refused
// or did not answer, without the condition, or undo a write that it carried out. So some
// objects are left alone and read again in the end, all at once, when the youngest of them
// is settle old.
const (
	settle       = 3 * time.Second
	mostWatched  = 400 // objects whose end was clear
	mostDoubtful = 80  // objects of which a write had no answer
)

// A watch is an object that nobody touches any more, and its allowed states.
type watch struct {
	key     string
	allowed [][]byte // bodies; none: it must not exist
	maybe   bool     // it may also not exist
	told    string   // what its writers were told
}

type watched struct {
	all      []watch
	doubtful int
	last     time.Time // when the youngest came
}

// watch leaves the object to be read again in the end, and reports whether there is room
// for it. Bodies that are allowed must be those of no other object.
func (s *survey) watch(w watch, doubtful bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := &s.watched; {
	case doubtful && l.doubtful == mostDoubtful, !doubtful && len(l.all)-l.doubtful == mostWatched:
		return false
	case doubtful:
		l.doubtful++
	}
	s.watched.all = append(s.watched.all, w)
	s.watched.last = time.Now()
	return true
}

// seenLater reads what is watched again.
func (s *survey) seenLater() (Result, string, error) {
	all := s.watched.all
	if len(all) == 0 {
		return Note, "there is nothing to be read again", nil
	}
	select {
	case <-time.After(time.Until(s.watched.last.Add(settle))):
	case <-s.ctx.Done():
		return Unknown, "", s.ctx.Err()
	}
	var next, changed atomic.Int64
	var mu sync.Mutex
	var first string
	var failed error
	var lane sync.WaitGroup
	for range lanes {
		lane.Go(func() {
			for n := next.Add(1); n <= int64(len(all)) && s.ctx.Err() == nil; n = next.Add(1) {
				w := all[n-1]
				o, err := s.read(s.either(int(n)), w.key, "")
				mu.Lock()
				switch said := w.unlike(o, err); {
				case err != nil && !contradicts(err):
					failed = err
				case said != "":
					changed.Add(1)
					if first == "" {
						first = said
					}
				}
				mu.Unlock()
			}
		})
	}
	lane.Wait()
	switch n := changed.Load(); {
	case n > 0:
		return Bad, fmt.Sprintf("%d of %d objects that nobody wrote any more were changed: %s", n, len(all), first), nil
	case failed != nil:
		return Unknown, "", failed
	}
	return OK, fmt.Sprintf("%d objects, %d of them after a write without an answer, were as they had been left", len(all), s.watched.doubtful), nil
}

// unlike says in what the object is another than it may be.
func (w *watch) unlike(o *store.Object, err error) string {
	if err != nil {
		if !errors.Is(err, store.ErrNotExist) || w.maybe || len(w.allowed) == 0 {
			return ""
		}
		return "after " + w.told + ", there is no object"
	}
	for _, body := range w.allowed {
		if bytes.Equal(o.Body, body) {
			return ""
		}
	}
	if len(w.allowed) == 0 {
		return "after " + w.told + ", there is an object"
	}
	return "after " + w.told + ", there is another body"
}
