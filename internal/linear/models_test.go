package linear_test

import (
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold/internal/linear"
)

// at makes an operation that took from begin to end.
func at(begin, end time.Duration, c linear.Command, o linear.Outcome) linear.Op {
	return linear.Op{Asked: c, Told: o, Begin: begin, End: end}
}

var done = linear.Outcome{Is: linear.Done}

func put(expect, value string) linear.Command {
	return linear.Command{Op: "put", Key: "k", Expect: expect, Value: value}
}

func with(op string, token int64) linear.Command { return linear.Command{Op: op, Token: token} }

func about(op, key string, token int64) linear.Command {
	return linear.Command{Op: op, Key: key, Token: token}
}

func weighing(weight int64) linear.Command { return linear.Command{Op: "acquire", Weight: weight} }

func gave(token int64) linear.Outcome { return linear.Outcome{Is: linear.Done, Token: token} }

func showed(value string) linear.Outcome { return linear.Outcome{Is: linear.Done, Value: value} }

// TestModels: each model allows what may be, and not what must not.
func TestModels(t *testing.T) {
	t.Parallel()
	get := linear.Command{Op: "get", Key: "k"}
	refused := linear.Outcome{Is: linear.Refused}
	for _, c := range []struct {
		title string
		model porcupine.Model
		ops   []linear.Op
		ok    bool
	}{
		{"one of two creates wins", linear.Register, []linear.Op{at(1, 4, put("", "a"), done), at(2, 3, put("", "b"), refused), at(5, 6, get, showed("a"))}, true},
		{"both creates win", linear.Register, []linear.Op{at(1, 4, put("", "a"), done), at(2, 3, put("", "b"), done)}, false},
		{"both updates win", linear.Register, []linear.Op{at(1, 2, put("", "a"), done), at(3, 5, put("a", "b"), done), at(4, 6, put("a", "c"), done)}, false},
		{"refused without a reason", linear.Register, []linear.Op{at(1, 2, put("", "a"), done), at(3, 4, put("a", "b"), refused)}, false},
		{"a read of the past", linear.Register, []linear.Op{at(1, 2, put("", "a"), done), at(3, 4, get, showed(""))}, false},
		{"a write without an answer, late", linear.Register, []linear.Op{at(1, 0, put("", "a"), linear.Outcome{}), at(2, 3, get, showed("")), at(4, 5, get, showed("a"))}, true},
		{"a write without an answer, and undone", linear.Register, []linear.Op{at(1, 0, put("", "a"), linear.Outcome{}), at(2, 3, get, showed("a")), at(4, 5, get, showed(""))}, false},
		{"two keys", linear.Register, []linear.Op{at(1, 2, put("", "a"), done), at(3, 4, linear.Command{Op: "get", Key: "l"}, showed(""))}, true},

		{"one after the other", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 6, with("release", 5), done), at(4, 5, with("acquire", 0), gave(6))}, true},
		{"both hold it", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("acquire", 0), gave(6)), at(5, 6, with("valid", 5), done)}, false},
		{"a former holder believes in its lease", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("valid", 5), done), at(5, 6, with("acquire", 0), gave(6)), at(7, 8, with("valid", 5), done)}, false},
		{"a holder that was killed", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("valid", 5), done), at(5, 6, with("acquire", 0), gave(6)), at(7, 8, with("valid", 6), done)}, true},
		{"a token twice", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("release", 5), done), at(5, 6, with("acquire", 0), gave(5))}, false},
		{"a token goes back", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("release", 5), done), at(5, 6, with("acquire", 0), gave(4))}, false},
		{"free while it is held", linear.Lock, []linear.Op{
			at(1, 2, with("acquire", 0), gave(5)),
			at(3, 4, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 5, Value: "free"}), at(5, 6, with("valid", 5), done),
		}, false},
		{"a look at the past", linear.Lock, []linear.Op{
			at(1, 2, with("acquire", 0), gave(5)), at(3, 4, with("release", 5), done), at(5, 6, with("acquire", 0), gave(6)),
			at(7, 8, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 5, Value: "free"}),
		}, false},
		{"a dead candidate's token is seen", linear.Lock, []linear.Op{at(1, 1, with("saw", 5), done), at(2, 3, with("acquire", 0), gave(6))}, true},
		{"a token whose user gave up is another's", linear.Lock, []linear.Op{at(1, 1, with("saw", 5), done), at(2, 3, with("acquire", 0), gave(5)), at(4, 5, with("valid", 5), done)}, true},
		{"that token, when it was free", linear.Lock, []linear.Op{
			at(1, 1, with("saw", 5), done), at(2, 3, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 5, Value: "free"}), at(4, 5, with("acquire", 0), gave(5)),
		}, false},
		{"that token, after another", linear.Lock, []linear.Op{at(1, 1, with("saw", 5), done), at(2, 3, with("acquire", 0), gave(6)), at(4, 5, with("release", 6), done), at(6, 7, with("acquire", 0), gave(5))}, false},
		{"a follower sees another while the lease is valid", linear.Lock, []linear.Op{at(1, 2, with("acquire", 0), gave(5)), at(3, 3, with("saw", 6), done), at(4, 5, with("valid", 5), done)}, false},
		{"leases of two keys", linear.Lock, []linear.Op{at(1, 2, about("acquire", "k", 0), gave(5)), at(3, 4, about("acquire", "l", 0), gave(5)), at(5, 6, about("valid", "k", 5), done), at(7, 8, about("valid", "l", 5), done)}, true},
		{"one of them is released", linear.Lock, []linear.Op{
			at(1, 2, about("acquire", "k", 0), gave(5)), at(1, 2, about("acquire", "l", 0), gave(5)), at(3, 4, about("release", "l", 5), done),
			at(5, 6, about("acquire", "k", 0), gave(6)), at(7, 8, about("valid", "k", 5), done),
		}, false},
		{"the holder of two was killed", linear.Lock, []linear.Op{
			at(1, 2, about("acquire", "k", 0), gave(5)), at(1, 2, about("acquire", "l", 0), gave(5)), at(3, 4, about("release", "l", 5), done),
			at(5, 6, about("acquire", "k", 0), gave(6)), at(7, 8, about("valid", "k", 6), done),
		}, true},

		{"as many as there are slots", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(1), gave(5)), at(1, 2, weighing(2), gave(6)), at(3, 4, with("valid", 5), done), at(3, 4, with("valid", 6), done),
		}, true},
		{"one more than there are slots", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(2), gave(5)), at(1, 2, weighing(2), gave(6)), at(3, 4, with("valid", 5), done), at(3, 4, with("valid", 6), done),
		}, false},
		{"one after the other has left", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(2), gave(5)), at(3, 6, with("release", 5), done), at(4, 5, weighing(3), gave(6)), at(7, 8, with("valid", 6), done),
		}, true},
		{"one that left believes in its slot", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(2), gave(5)), at(3, 4, with("release", 5), done), at(5, 6, with("valid", 5), done),
		}, false},
		{"a token of slots twice", linear.Semaphore(3), []linear.Op{at(1, 2, weighing(1), gave(5)), at(3, 4, weighing(1), gave(5))}, false},
		{"a token of slots goes back", linear.Semaphore(3), []linear.Op{at(1, 2, weighing(1), gave(5)), at(3, 4, weighing(1), gave(4))}, false},
		{"tokens of two that came at once", linear.Semaphore(3), []linear.Op{at(1, 4, weighing(1), gave(5)), at(2, 3, weighing(1), gave(4))}, true},
		{"a caller that may have got slots", linear.Semaphore(3), []linear.Op{at(1, 0, weighing(3), linear.Outcome{}), at(3, 4, weighing(3), gave(6))}, true},
		{"a holder of slots that was killed", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(3), gave(5)), at(3, 4, with("valid", 5), done), at(5, 6, weighing(1), gave(6)), at(7, 8, with("valid", 6), done),
		}, true},
		{"slots of a holder whose lease is valid", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(3), gave(5)), at(3, 4, weighing(1), gave(6)), at(5, 6, with("valid", 5), done),
		}, false},
		{"a holder that is not shown", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(1), gave(5)), at(3, 4, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 6, Value: "6 "}), at(5, 6, with("valid", 5), done),
		}, false},
		{"one that gave up is shown", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(1), gave(5)), at(3, 4, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 6, Value: "5 6 "}), at(5, 6, with("valid", 5), done),
		}, true},
		{"a look at slots of the past", linear.Semaphore(3), []linear.Op{
			at(1, 2, weighing(1), gave(5)), at(3, 4, weighing(1), gave(6)), at(5, 6, with("inspect", 0), linear.Outcome{Is: linear.Done, Token: 5, Value: "5 "}),
		}, false},

		{"a fenced write is refused", linear.Object, []linear.Op{at(1, 2, linear.Command{Op: "put", Token: 2, Value: "b"}, done), at(3, 4, linear.Command{Op: "put", Token: 1, Value: "a"}, refused), at(5, 6, get, showed("b"))}, true},
		{"a fenced write goes through", linear.Object, []linear.Op{at(1, 2, linear.Command{Op: "put", Token: 2, Value: "b"}, done), at(3, 4, linear.Command{Op: "put", Token: 1, Value: "a"}, done)}, false},
		{"the newest is refused", linear.Object, []linear.Op{at(1, 2, linear.Command{Op: "put", Token: 1, Value: "a"}, done), at(3, 4, linear.Command{Op: "put", Token: 2, Value: "b"}, refused)}, false},
		{"a claim that misses a write", linear.Object, []linear.Op{at(1, 2, linear.Command{Op: "put", Token: 1, Value: "a"}, done), at(3, 4, with("claim", 2), showed(""))}, false},

		{"the log of two terms", linear.Log, []linear.Op{
			at(1, 2, with("open", 1), done), at(3, 4, linear.Command{Op: "append", Token: 1, Value: "a"}, done), at(5, 6, with("open", 2), done),
			at(7, 8, linear.Command{Op: "append", Token: 1, Value: "b"}, refused), at(9, 10, with("read", 0), showed("a ")),
		}, true},
		{"a former appender appends", linear.Log, []linear.Op{
			at(1, 2, with("open", 1), done), at(3, 4, with("open", 2), done), at(5, 6, linear.Command{Op: "append", Token: 1, Value: "a"}, done),
		}, false},
		{"an entry is lost", linear.Log, []linear.Op{
			at(1, 2, with("open", 1), done), at(3, 4, linear.Command{Op: "append", Token: 1, Value: "a"}, done), at(5, 6, with("read", 0), showed("")),
		}, false},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := linear.Check(c.model, linear.Leases(c.ops), dir)
			if (err == nil) != c.ok {
				t.Errorf("allowed: %t, want %t; %v", err == nil, c.ok, err)
			}
			if page, err := os.ReadFile(dir + "/history.html"); (err != nil) != c.ok || len(page) == 0 != c.ok {
				t.Errorf("the page that shows the history has %d bytes: %v", len(page), err)
			}
		})
	}
}
