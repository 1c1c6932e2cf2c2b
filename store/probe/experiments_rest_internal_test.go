package probe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
)

// TestWaits: objects are read again 3 s after the youngest came, and written to again after 10 s, and not when the probe has ended.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := surveyed(t, few)
		s.watch(watch{key: "a"}, false)
		if err := s.leaveCreated(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		s.watch(watch{key: "b"}, false)
		if err := s.leaveUpdated(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		result, detail, err := s.seenLater()
		if took := time.Since(begin); result != OK || detail != "2 objects, 0 of them after a write without an answer, were as they had been left" || err != nil || took != 2*time.Second {
			t.Errorf("%s, %s, %v after %v", result, detail, err, took)
		}
		result, detail, err = s.creatingOverRested()
		if took := time.Since(begin); result != OK || detail != "18 writes over 6 objects, refused after 10s" || err != nil || took != 9*time.Second {
			t.Errorf("%s, %s, %v after %v", result, detail, err, took)
		}
		// Those of which a write may yet arrive are left out.
		s.doubt(s.path("rests-0"), store.ErrUnknownOutcome)
		s.doubt(s.path("rests-1"), store.ErrUnknownOutcome)
		s.retire("rests-updated-0")
		if result, detail, err = s.creatingOverRested(); result != OK || detail != "9 writes over 3 objects, refused after 10s" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		if result, detail, err = s.updatingRested(); result != OK || detail != "2 objects after 10s: old versions were refused, the current one was not" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		s.doubt(s.path("rests-2"), store.ErrUnknownOutcome)
		if result, detail, err = s.creatingOverRested(); result != Unknown || detail != "too many writes had no answer" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		s.doubt(s.path("rests-updated-1"), store.ErrUnknownOutcome)
		if result, detail, err = s.updatingRested(); result != Unknown || detail != "too many writes had no answer" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}

		for _, leave := range []func(*survey) error{(*survey).leaveCreated, (*survey).leaveUpdated} {
			s = surveyed(t, few)
			if err = leave(s); err != nil {
				t.Error(err)
			}
			begin := time.Now()
			if result, detail, err = s.creatingOverRested(); result != OK || detail != "9 writes over 3 objects, refused after 10s" || err != nil || time.Since(begin) != 10*time.Second {
				t.Errorf("%s, %s, %v after %v", result, detail, err, time.Since(begin))
			}
		}
		s = surveyed(t, few)
		if err = errors.Join(s.leaveCreated(), s.leaveUpdated()); err != nil {
			t.Error(err)
		}
		s.doubt(s.path("rests-gone"), store.ErrUnknownOutcome)
		if _, err = s.write(s.a, "rests-gone", s.body(), store.IfAbsent()); err != nil { // it lands later
			t.Error(err)
		}
		if result, detail, err = s.updatingRested(); result != OK || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}

		ended, end := context.WithCancel(t.Context())
		end()
		s = surveyed(t, few)
		if result, detail, err = s.seenLater(); result != Note || detail != "there is nothing to be read again" || err != nil {
			t.Errorf("%s, %s, %v", result, detail, err)
		}
		if went, err := s.deletingRested(); went || err != nil {
			t.Errorf("%t, %v", went, err)
		}
		s.watch(watch{key: "a"}, false)
		s.resting.last, s.ctx = time.Now(), ended
		for _, run := range []func(*survey) (Result, string, error){(*survey).seenLater, (*survey).creatingOverRested, (*survey).updatingRested} {
			begin := time.Now()
			if result, detail, err := run(s); result != Unknown || detail != "" || !errors.Is(err, context.Canceled) || time.Since(begin) > 0 {
				t.Errorf("%s, %s, %v", result, detail, err)
			}
		}
	})
}
