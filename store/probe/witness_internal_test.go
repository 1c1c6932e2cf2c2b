package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A hand tells a witness of one object.
type hand struct{ witness }

func (h *hand) send() sighting { return h.sends("a") }

func (h *hand) create(before sighting, v store.Version, body string) {
	h.wrote("a", before, store.IfAbsent(), v, []byte(body))
}

func (h *hand) update(before sighting, was, v store.Version, body string) {
	h.wrote("a", before, store.IfMatch(was), v, []byte(body))
}

// remove sends a delete, and gives what takes in its answer.
func (h *hand) remove(only store.Version) func(err error) {
	ends := h.removes("a", only)
	return func(err error) { h.removed("a", ends, err) }
}

func (h *hand) shows(before sighting, v store.Version) { h.read("a", before, v, nil) }
func (h *hand) none(before sighting)                   { h.readNothing("a", before) }
func (h *hand) lists(before sighting, v store.Version) {
	h.listed(store.Entry{Key: "a", Version: v}, before.moment)
}

// TestWitness: an answer is false if those before it say so, and not if a request that was under way may have changed what they say.
func TestWitness(t *testing.T) {
	t.Parallel()
	const (
		over    = "a create was told that it had landed, over an object that there was"
		twice   = "two updates of one version were told that they had landed"
		deleted = "an update of a deleted version was told that it had landed"
		again   = "the version 1 came again for another body"
		stale   = "version 1 was shown as the current one after a write over it was answered"
		ghost   = "version 1 was shown as the current one after its delete was answered"
		missing = "an object was said not to exist that was written and not deleted"
		listed  = "version 1 was listed after a write over it was answered"
		unlist  = "version 1 was listed after its delete was answered"
	)
	broken := errors.New("broken")
	for _, c := range []struct {
		name                          string
		do                            func(h *hand)
		creates, updates, reads, list string // all, wrong, and the first
	}{
		{"nothing", func(*hand) {}, "0 0 ", "0 0 ", "0 0 ", "0 0 "},
		{"a create over an object", func(h *hand) { h.create(h.send(), "1", "a"); h.create(h.send(), "2", "b") }, "2 1 " + over, "0 0 ", "0 0 ", "0 0 "},
		{"over one of which a write may yet arrive", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.of("a").doubted = true
			h.create(h.send(), "2", "b")
		}, "2 0 ", "0 0 ", "0 0 ", "0 0 "},
		{"with the largest record", func(h *hand) { h.create(h.send(), "1", "a"); h.create(h.send(), "2", strings.Repeat("b", 64<<10)) }, "2 1 " + over, "0 0 ", "0 0 ", "0 0 "},
		{"with a larger body", func(h *hand) { h.create(h.send(), "1", "a"); h.create(h.send(), "2", strings.Repeat("b", 64<<10+1)) }, "2 0 ", "0 0 ", "0 0 ", "0 0 "},
		{"while it was deleted", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			answer := h.remove("")
			h.create(sent, "2", "b")
			answer(nil)
			h.none(h.send()) // the delete may have come after it
		}, "2 0 ", "0 0 ", "1 0 ", "0 0 "},
		{"after a delete", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.remove("")(nil)
			h.create(h.send(), "2", "b")
			h.shows(h.send(), "2")
			h.none(h.send())
		}, "2 0 ", "0 0 ", "2 1 " + missing, "0 0 "},
		{"sent while a delete was under way", func(h *hand) {
			h.create(h.send(), "1", "a")
			answer := h.remove("")
			sent := h.send()
			answer(nil)
			h.create(sent, "2", "b")
			h.none(h.send())
		}, "2 0 ", "0 0 ", "1 0 ", "0 0 "},
		{"answered while a second delete is under way", func(h *hand) {
			h.create(h.send(), "1", "a")
			first, second := h.remove(""), h.remove("")
			first(nil)
			h.create(h.send(), "2", "b")
			h.none(h.send())
			second(nil)
		}, "2 0 ", "0 0 ", "1 0 ", "0 0 "},
		{"an update", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.update(h.send(), "1", "2", "b")
			h.update(h.send(), "2", "3", "c")
		}, "1 0 ", "2 0 ", "0 0 ", "0 0 "},
		{"of what nobody wrote", func(h *hand) { h.create(h.send(), "1", "a"); h.update(h.send(), "7", "2", "b") }, "1 0 ", "1 0 ", "0 0 ", "0 0 "},
		{"of one version twice", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.update(h.send(), "1", "2", "b")
			h.update(h.send(), "1", "3", "c")
		}, "1 0 ", "2 1 " + twice, "0 0 ", "0 0 "},
		{"of one version, twice at once", func(h *hand) {
			h.create(h.send(), "1", "a")
			one, two := h.send(), h.send()
			h.update(one, "1", "2", "b")
			h.update(two, "1", "3", "c")
			h.update(h.send(), "1", "4", "d")
		}, "1 0 ", "3 2 " + twice, "0 0 ", "0 0 "},
		{"of a deleted version", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.remove("")(nil)
			h.update(h.send(), "1", "2", "b")
		}, "1 0 ", "1 1 " + deleted, "0 0 ", "0 0 "},
		{"of one that is deleted meanwhile", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			h.remove("")(nil)
			h.update(sent, "1", "2", "b")
		}, "1 0 ", "1 0 ", "0 0 ", "0 0 "},
		{"of one whose delete failed", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.remove("")(broken)
			h.update(h.send(), "1", "2", "b")
		}, "1 0 ", "1 0 ", "0 0 ", "0 0 "},
		{"of one where another was deleted", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.remove("0")(nil)
			h.update(h.send(), "1", "2", "b")
			h.remove("2")(nil)
			h.update(h.send(), "2", "3", "c")
		}, "1 0 ", "2 1 " + deleted, "0 0 ", "0 0 "},
		{"a version again", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.update(h.send(), "1", "2", "b")
			h.update(h.send(), "2", "1", "c")
		}, "1 1 " + again, "2 0 ", "0 0 ", "0 0 "},
		{"a version again, of an object of which a write may yet arrive", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.of("a").doubted = true
			h.update(h.send(), "1", "1", "c")
		}, "1 0 ", "1 0 ", "0 0 ", "0 0 "},
		{"a version again, for the same body", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.update(h.send(), "1", "2", "b")
			h.shows(h.send(), "1")
			h.update(h.send(), "2", "1", "a")
			h.shows(h.send(), "1") // it is there now
		}, "1 0 ", "2 0 ", "2 1 " + stale, "0 0 "},
		{"a version again, before what ended it was answered", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			h.update(h.send(), "1", "2", "b")
			h.update(sent, "2", "1", "a")
			h.shows(h.send(), "1")
		}, "1 0 ", "2 0 ", "1 1 " + stale, "0 0 "},
		{"a read of what was written over", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			h.shows(sent, "1")
			h.update(h.send(), "1", "2", "b")
			h.shows(sent, "1")
			h.shows(h.send(), "2")
			h.shows(h.send(), "7")
			h.shows(h.send(), "1")
			h.of("a").doubted = true
			h.shows(h.send(), "1")
		}, "1 0 ", "1 0 ", "6 1 " + stale, "0 0 "},
		{"a read of what was deleted", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			answer := h.remove("")
			h.shows(h.send(), "1")
			answer(nil)
			h.shows(sent, "1")
			h.shows(h.send(), "1")
			h.none(h.send())
			h.none(sent)
		}, "1 0 ", "0 0 ", "5 1 " + ghost, "0 0 "},
		{"a read of what was written over and then deleted", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.update(h.send(), "1", "2", "b")
			h.remove("")(nil)
			h.shows(h.send(), "1")
		}, "1 0 ", "1 0 ", "1 1 " + stale, "0 0 "},
		{"a read of what was written over while its delete was under way", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			answer := h.remove("")
			h.update(sent, "1", "2", "b")
			answer(nil)
			h.shows(h.send(), "1")
		}, "1 0 ", "1 0 ", "1 1 " + stale, "0 0 "},
		{"a read of what was deleted and then written over", func(h *hand) {
			h.create(h.send(), "1", "a")
			sent := h.send()
			h.remove("")(nil)
			h.update(sent, "1", "2", "b")
			h.shows(h.send(), "1")
		}, "1 0 ", "1 0 ", "1 1 " + stale, "0 0 "},
		{"a read of nothing", func(h *hand) {
			h.none(h.send())
			sent := h.send()
			h.create(h.send(), "1", "a")
			h.none(sent)
			h.none(h.send())
			h.of("a").doubted = true
			h.none(h.send())
		}, "1 0 ", "0 0 ", "4 1 " + missing, "0 0 "},
		{"listings", func(h *hand) {
			h.lists(h.sends("b"), "1") // of what nobody asked for
			h.create(h.send(), "1", "a")
			sent := h.send()
			h.lists(sent, "1")
			h.update(h.send(), "1", "2", "b")
			h.lists(sent, "1")
			h.lists(h.send(), "2")
			h.lists(h.send(), "1")
			h.of("a").doubted = true
			h.lists(h.send(), "1")
		}, "1 0 ", "1 0 ", "0 0 ", "6 1 " + listed},
		{"a listing of what was deleted", func(h *hand) {
			h.create(h.send(), "1", "a")
			h.remove("")(nil)
			h.lists(h.send(), "1")
		}, "1 0 ", "0 0 ", "0 0 ", "1 1 " + unlist},
	} {
		h := new(hand)
		c.do(h)
		for n, of := range []count{h.creates, h.updates, h.reads, h.witness.lists} {
			want := []string{c.creates, c.updates, c.reads, c.list}[n]
			if got := fmt.Sprintf("%d %d %s", of.all, of.wrong, of.first); got != want {
				t.Errorf("%s: of %s it tells %q, not %q", c.name, []string{"creates", "updates", "reads", "listings"}[n], got, want)
			}
		}
	}
}

// TestWitnessOfAges: how much older than it can be an object looks is known of reads that were sent after its write.
func TestWitnessOfAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, c := range []struct {
			name  string
			late  bool // sent before the write
			doubt bool
			of    store.Version
			o     *store.Object
			older time.Duration
		}{
			{"as old as it is", false, false, "1", &store.Object{Date: now.Add(time.Second), LastModified: now}, 0},
			{"a minute older", false, false, "1", &store.Object{Date: now.Add(61 * time.Second), LastModified: now}, time.Minute},
			{"of another version", false, false, "2", &store.Object{Date: now.Add(61 * time.Second), LastModified: now}, 0},
			{"in doubt", false, true, "1", &store.Object{Date: now.Add(61 * time.Second), LastModified: now}, 0},
			{"asked for before", true, false, "1", &store.Object{Date: now.Add(61 * time.Second), LastModified: now}, 0},
			{"without a date", false, false, "1", &store.Object{LastModified: now.Add(-time.Hour)}, 0},
			{"without a time", false, false, "1", &store.Object{Date: now.Add(time.Hour)}, 0},
			{"unchanged", false, false, "1", nil, 0},
		} {
			h := new(hand)
			h.of("a").doubted = c.doubt
			sent := h.send()
			if c.late {
				sent.sent = sent.sent.Add(-1)
			}
			h.create(h.send(), "1", "a")
			time.Sleep(time.Second)
			h.read("a", sent, c.of, c.o)
			if h.older != c.older || h.reads.all != 1 {
				t.Errorf("%s: %v older", c.name, h.older)
			}
		}
	})
}
