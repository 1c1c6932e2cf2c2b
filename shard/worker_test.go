package shard_test

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// unproven is a proof that finds no store safe.
type unproven struct{}

var errUnproven = errors.New("not proven")

func (unproven) Proves(string, string) error { return errUnproven }

// TestAccepted: arguments just within the bounds are accepted, and those just beyond are not.
func TestAccepted(t *testing.T) {
	t.Parallel()
	// "[\n" and "\n]\n" around names of quotes and 64 bytes, with ",\n" between: a list of 15,420
	// has 1,048,561 bytes, and the last name brings it up to a MiB.
	full := names(15420)
	for i := range full {
		full[i] += strings.Repeat("x", 59)
	}
	full[0] += strings.Repeat("x", 1<<20-1_048_563)
	for _, c := range []struct {
		shards []string
		opts   *shard.Options
		says   string // why not; empty: it can be
	}{
		{nil, nil, ""},
		{[]string{"a", "ab", "b/a", "b/b", "b/a.c"}, &shard.Options{}, ""},
		{[]string{"b/a/c", "b/a"}, nil, `"b/a/c" lies below the shard "b/a"`},
		{[]string{"a"}, &shard.Options{Weight: 1}, ""},
		{[]string{"a"}, &shard.Options{Weight: 1000}, ""},
		{full, nil, ""},
		{append([]string{full[0] + "x"}, full[1:]...), nil, "have 1048577 bytes together, more than 1048576"},
		{[]string{"a"}, &shard.Options{Proof: unproven{}}, "not proven"},
		{[]string{"a"}, &shard.Options{Holder: strings.Repeat("x", 1<<17)}, "holder"},
		{[]string{"a"}, &shard.Options{Address: strings.Repeat("x", 1<<17)}, "bytes"},
	} {
		_, err := shard.NewWorker(memstore.New(), prefix, c.shards, c.opts)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d shards, the first %.20q, %+v: %v, want %q in it", len(c.shards), append(c.shards, "")[0], c.opts, err, c.says)
		}
	}
}

// TestWhoItIs: what the options say of a worker stands where others look for it: in its
// session, its membership, the locks of its shards and the election.
func TestWhoItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2)
		const long, address = 30 * time.Second, "https://a.example:1"
		a := f.start("a", &shard.Options{TTL: long, Address: address, Meta: map[string]string{"zone": "z"}, Weight: 7})
		f.settle()
		time.Sleep(time.Hour)
		session := prefix + "/sessions/" + a.worker.Status().Session
		for _, part := range []string{`"holder":"a"`, `"address":"` + address + `"`, `"zone":"z"`, `"ttl_ms":30000`} {
			if text := read(t, f.st, session); !strings.Contains(text, part) {
				t.Errorf("the session says %s, want %s in it", text, part)
			}
		}
		for key, want := range map[string]map[string]string{
			prefix + "/workers/" + a.worker.Status().Session: {"shard.weight": "7"},
			prefix + "/shards/00001":                         nil,
			prefix + "/coordinator":                          nil,
		} {
			lock, err := leasehold.NewLock(f.st, key, nil)
			if err != nil {
				t.Fatal(err)
			}
			i, err := lock.Inspect(t.Context())
			delete(i.Meta, "shard.list")
			if err != nil || !i.Held || i.Abandoned || i.Holder != "a" || i.Address != address || i.TTL != long || !maps.Equal(i.Meta, want) {
				t.Errorf("%s: %+v, %v, want %v", key, i, err, want)
			}
			if i.Session != session {
				t.Errorf("%s is held under %q", key, i.Session)
			}
		}
		f.end()
	})
}

// TestUncleanEnd: a worker that cannot release its shards says so, and does not try for
// ever; also where its session ends before the releases are confirmed, of which it used to say nothing.
func TestUncleanEnd(t *testing.T) {
	const long = time.Minute
	for _, c := range []struct {
		fault faultstore.Fault
		says  string // of what
		times int
		most  time.Duration
	}{
		{faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/sessions/*"}, "the session was not closed", 1, 10 * time.Second},
		{faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/shards/*"}, "a lease was not released", 3, long + 10*time.Second},
		{faultstore.Fault{Kind: faultstore.Unavailable}, "a lease was not released", 4, 2 * long},
	} {
		bubble(t, func(t *testing.T) {
			f, log := newFleet(t, 3), &logbook{}
			a := f.start("a", &shard.Options{TTL: long, Logger: log.logger()})
			f.settle()
			a.st.Inject(c.fault)
			begun := time.Now()
			f.stop(a)
			within(t, "its end", time.Since(begun), c.most)
			key, _, _ := strings.Cut(c.fault.Key, "*")
			if n := log.count("level=WARN", c.says, "="+key); n != c.times || log.count("was not") != n {
				t.Errorf("where %v it says: %s", c.fault, strings.Join(log.lines, ""))
			}
			if log.count("/sessions/") == 0 && c.fault.Op == "" {
				t.Errorf("where %v nothing is said of the session: %s", c.fault, strings.Join(log.lines, ""))
			}
			f.end()
		})
	}
}

// TestStoppedWhileItBegins: a worker that is stopped while its first write of a kind is under
// way leaves nothing under way when Run returns, and nothing that the next one has to wait
// out.
func TestStoppedWhileItBegins(t *testing.T) {
	for _, key := range []string{"/lists/*", "/workers/*", "/coordinator", "/plan", "/shards/00001"} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, log := newFleet(t, 3), &logbook{}
				st := faultstore.Wrap(f.st, nil)
				var a atomic.Pointer[node]
				begun := make(chan struct{})
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Key: prefix + key, Delay: time.Second, When: func(faultstore.Call) bool {
					<-begun
					n := a.Swap(nil) // the first time
					if n != nil {
						f.take(n)
					}
					return n != nil
				}})
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 10 * time.Millisecond})
				n := f.startOver(st, "a", f.shards, &shard.Options{Logger: log.logger()})
				a.Store(n)
				close(begun)
				<-n.done
				before, ended := len(st.Log()), time.Now()
				f.start("b", nil)
				f.settle()
				within(t, "the next worker", time.Since(ended), 4*(ttl/3)+time.Second)
				if sent := st.Log(); len(sent) != before {
					t.Errorf("it has sent this after Run had returned:\n%v", sent[before:])
				}
				if log.count("level=WARN") > 0 {
					t.Errorf("it has logged %s", strings.Join(log.lines, ""))
				}
				f.end()
			})
		})
	}
}

// TestDenied: a worker that may not do what it must ends with an error that says what.
func TestDenied(t *testing.T) {
	for key, says := range map[string]string{
		"/lists/*":     "the list of shards could not be published",
		"/workers/*":   "the worker cannot be made known to the others",
		"/coordinator": "the worker cannot take part in the election of a coordinator",
	} {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, 3)
			st := faultstore.Wrap(f.st, nil)
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: prefix + key})
			a := f.startOver(st, "a", f.shards, nil)
			<-a.done
			if !errors.Is(a.err, store.ErrDenied) || !strings.Contains(a.err.Error(), says) {
				t.Errorf("where %s cannot be written: %v, want %q in it", key, a.err, says)
			}
			time.Sleep(2 * ttl)
			a.st.Close()
		})
	}
}
