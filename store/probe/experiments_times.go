package probe

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/store"
)

// spells are objects of a known age.
type spells struct {
	sent   time.Time // when the first was, and when it had surely landed
	made   time.Time
	failed error // why there is none
}

// ages is how often the age of each of two objects is looked at.
const ages = 5

// begin writes the object that will be the oldest.
func (p *spells) begin(s *survey) error {
	p.sent = time.Now()
	_, p.failed = s.write(s.a, "age", s.body(), store.IfAbsent())
	p.made = time.Now()
	return p.failed
}

func (s *survey) times() (Result, string, error) {
	if s.spells.failed != nil {
		return Unknown, "", s.spells.failed
	}
	o, err := s.read(s.b, "age", "")
	switch {
	case err != nil:
		return Unknown, "", err
	case o.Date.IsZero() && o.LastModified.IsZero():
		return Bad, "none", nil
	case o.Date.IsZero():
		return Bad, "answers do not say when they were given, or passed a cache", nil
	case o.LastModified.IsZero():
		return Bad, "objects do not say when they were written", nil
	}
	return OK, fmt.Sprintf("in units of %v", resolutionOf([]dated{{date: o.Date}, {date: o.LastModified}})), nil
}

// trust is how much older than it is an object may look by the store's clock. A
// candidate that trusts that clock allows for 3 s.
const trust = 2 * time.Second

func (s *survey) ages() (Result, string, error) {
	sent := time.Now()
	if _, err := s.write(s.a, "young", s.body(), store.IfAbsent()); err != nil {
		return Unknown, "", err
	}
	older, younger := -time.Hour, -time.Hour
	look := func(key string, sent, made time.Time) error {
		asked := time.Now()
		o, err := s.read(s.b, key, "")
		if err != nil {
			return err
		}
		age := o.Date.Sub(o.LastModified)
		older = max(older, age-time.Since(sent))
		younger = max(younger, asked.Sub(made)-age)
		return nil
	}
	made := time.Now()
	for range ages {
		if err := look("young", sent, made); err != nil {
			return Unknown, "", err
		}
		if err := look("age", s.spells.sent, s.spells.made); err != nil {
			return Unknown, "", err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Every read of the probe counts, and every date: one in a thousand is enough to take a lease for ended.
	older = max(older, s.witness.older)
	detail := fmt.Sprintf("objects of up to %v looked at most %v older than they can have been, and %v younger",
		time.Since(s.spells.sent).Round(time.Second), max(older, 0).Round(10*time.Millisecond), max(younger, 0).Round(10*time.Millisecond))
	if c := s.samples.clock(); c.Contradiction.Duration() > trust {
		return Bad, fmt.Sprintf("the times in answers contradict each other by %v; %s", c.Contradiction.Duration().Round(time.Millisecond), detail), nil
	}
	if older > trust {
		return Bad, detail, nil
	}
	return OK, detail, nil
}

// drift is how far clocks may run apart: the rule that validity rests on.
const drift = 1.0 / 12

func (s *survey) clock() (Result, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.samples.clock()
	if c == nil {
		return Note, "cannot be compared with the store's", nil
	}
	s.report.Clock = c
	ahead := fmt.Sprintf("the store's is %v to %v ahead", c.OffsetFrom.Duration().Round(time.Millisecond), c.OffsetTo.Duration().Round(time.Millisecond))
	if c.Contradiction > 0 {
		ahead += fmt.Sprintf(", by times that contradict each other by %v", c.Contradiction.Duration().Round(time.Millisecond))
	}
	if c.RateFrom == 0 {
		return Note, ahead + "; too few answers to tell how fast it runs", nil
	}
	detail := fmt.Sprintf("in one second of it %.3f to %.3f pass at the store; %s", c.RateFrom, c.RateTo, ahead)
	if c.RateFrom > 1+drift || c.RateTo < 1-drift {
		return Bad, "one of the two clocks does not keep time: " + detail, nil
	}
	return OK, detail, nil
}
