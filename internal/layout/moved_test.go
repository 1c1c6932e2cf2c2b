package layout_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store/memstore"
)

// seal writes a lock over that a mover holds, as candidate.Move does.
func seal(t *testing.T, l layout.Layout, over layout.Snapshot) layout.Snapshot {
	t.Helper()
	m := candidate.Move{From: "here", To: "there"}
	r := m.Sealed(candidate.Place{Exists: true, Record: over.Record, Version: over.Version}, "m.1", time.Now())
	s, err := l.Write(t.Context(), candidate.Write{Op: candidate.Free, Record: r, Expect: over.Version})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealed checks a look at what is sealed.
func sealed(t *testing.T, l layout.Layout, unless protocol.Version, want layout.Snapshot) {
	t.Helper()
	s, err := l.Look(t.Context(), unless)
	if !errors.Is(err, record.ErrMoved) || !errors.Is(err, record.ErrForeign) {
		t.Errorf("%s: a look unless it is %q: %v", l, unless, err)
	}
	if s.Record.Move.To != "there" || s.Version != want.Version || s.Record.Token != want.Record.Token {
		t.Errorf("%s: a look unless it is %q shows %+v, want %+v", l, unless, s, want)
	}
	if d := layout.ReadDone(s, err); d.Shown != protocol.Foreign || d.Version != "" {
		t.Errorf("%s: to a candidate it is %+v", l, d)
	}
}

// TestSealedEpochs: whoever knows an epoch, and guesses where the next one is, is told of the seal like
// one who comes.
func TestSealedEpochs(t *testing.T) {
	ways(t, func(t *testing.T, e layout.Epochs, _ *tapped) {
		free := write(t, e, candidate.Free, layout.Snapshot{})
		held := write(t, e, candidate.Claim, free)
		renewed := write(t, e, candidate.Renew, held)
		s := seal(t, e, renewed)
		for _, unless := range []protocol.Version{"", free.Version, held.Version, renewed.Version} {
			sealed(t, e, unless, s)
		}
		// A claim on what was there before does not land, be it late.
		for _, over := range []layout.Snapshot{held, renewed} {
			if got, err := e.Write(t.Context(), candidate.Write{Op: candidate.Claim, Record: newRecord(true), Expect: over.Version, Over: over.Record}); err == nil {
				t.Errorf("a claim over what was there landed: %+v", got)
			}
		}
	})
}

// TestSealedObjects: to candidates of all layouts, and to whoever looks for one, it is sealed.
func TestSealedObjects(t *testing.T) {
	st := memstore.New()
	o := layout.Object{Store: st, Key: "l"}
	s := seal(t, o, write(t, o, candidate.Claim, layout.Snapshot{}))
	sealed(t, o, "", s)
	for _, l := range []layout.Layout{layout.Marker{Store: st, Key: "l", TTL: time.Minute}, layout.Marker{Store: st, Key: "l", IfMatch: true, TTL: time.Minute}} {
		if s, err := l.Look(t.Context(), ""); !errors.Is(err, record.ErrMoved) || s.Exists {
			t.Errorf("a marker: %+v, %v", s, err)
		}
	}
	if s, err := layout.LookAny(t.Context(), st, "l"); !errors.Is(err, record.ErrMoved) || s.Exists {
		t.Errorf("of no layout: %+v, %v", s, err)
	}
	for f, err := range layout.Find(t.Context(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		if s, err := f.Look(t.Context()); !errors.Is(err, record.ErrMoved) || s.Exists {
			t.Errorf("found: %+v, %v", s, err)
		}
	}
}
