package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A stream is a subscriber in this process.
type stream struct {
	header http.Header
	code   int
	leave  context.CancelFunc
	done   chan struct{} // closed when the handler has returned

	mu     sync.Mutex
	text   strings.Builder
	events []streamed
	hung   chan struct{} // nil: it reads
}

type streamed struct {
	name string
	data json.RawMessage
}

func (s *stream) Header() http.Header  { return s.header }
func (s *stream) WriteHeader(code int) { s.code = code }
func (s *stream) Flush()               {}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung != nil {
		<-hung
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	for block := range strings.SplitSeq(string(p), "\n\n") {
		if name, data, is := strings.Cut(block, "\ndata: "); is {
			s.events = append(s.events, streamed{strings.TrimPrefix(name, "event: "), json.RawMessage(data)})
		}
	}
	return len(p), nil
}

// take are the events since it was asked last, without those that tell that a look has ended.
func (s *stream) take() (names []string, events []streamed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.name != "looked" {
			names, events = append(names, e.name), append(events, e)
		}
	}
	s.events = nil
	return names, events
}

// subscribe begins a stream, which the test must leave.
func subscribe(t *testing.T, h http.Handler) *stream {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	s := &stream{header: http.Header{}, leave: leave, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		h.ServeHTTP(s, httptest.NewRequestWithContext(ctx, "GET", "/v1/events", nil))
	}()
	synctest.Wait()
	return s
}

// as reads the data of an event, which must be as the document says.
func as[T any](t *testing.T, e streamed) (data T) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToUpper(e.name[:1]) + e.name[1:]
	if err := doc.check(&schema{Ref: "#/components/schemas/" + name}, e.data); err != nil {
		t.Errorf("the event %s: %v\n%s", e.name, err, e.data)
	}
	if err := json.Unmarshal(e.data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// A stream begins with everything, tells what changes, that the store fails, and everything again after that.
func TestEvents(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{Price: "s3"})
		a := acquired(t, s, "a", `{"ttl":"1h","holder":"me"}`)
		acquired(t, s, "sem", `{"ttl":"1h","slots":2}`)
		if _, err := inner.Put(t.Context(), "zz", []byte("hello"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		v := subscribe(t, s)
		if v.code != 200 || v.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %v", v.code, v.header)
		}
		names, events := v.take()
		if !slices.Equal(names, []string{"snapshot"}) {
			t.Fatalf("at first %q", names)
		}
		all := as[serve.Snapshot](t, events[0])
		var kinds []string
		for _, o := range all.Objects {
			kinds = append(kinds, string(o.Kind)+" "+o.State)
			if o.Kind == serve.KindLock && (o.Key != "a" || o.Holder != "me" || o.Here != 1 || o.Session == "" || o.Version == "") {
				t.Errorf("the lock: %+v", o)
			}
			if o.Kind == serve.KindForeign && (o.Error == "" || o.Key != "zz") {
				t.Errorf("what is no lock: %+v", o)
			}
		}
		if want := []string{"lock held", "semaphore held", "session held", "foreign not a lock"}; !slices.Equal(kinds, want) {
			t.Errorf("everything is %q, want %q", kinds, want)
		}
		if b := all.Budget; b.Limit != 600 || b.Spent == 0 || b.Sent <= b.Spent || b.Dollars == nil || *b.Dollars <= 0 {
			t.Errorf("the budget: %+v", b)
		}
		second := subscribe(t, s) // which needs no look
		if at, _ := second.take(); !slices.Equal(at, []string{"snapshot"}) {
			t.Errorf("the second gets %q", at)
		}

		if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
			t.Errorf("released: %d", d.code)
		}
		b := acquired(t, s, "b", `{"ttl":"1h"}`)
		if err := inner.Delete(t.Context(), "zz"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		names, events = v.take()
		var changes []string
		for _, e := range events {
			switch e.name {
			case "change":
				c := as[serve.Change](t, e)
				if c.Object.Kind == serve.KindSession {
					continue // it is renewed
				}
				changes = append(changes, c.Change+" "+c.Object.Key)
				if c.Object.Key == "a" && (len(c.Object.History) != 1 || c.Object.History[0].Holder != "me" || c.Object.LastHolder != "me") {
					t.Errorf("the past of a: %+v", c.Object)
				}
			case "gone":
				g := as[serve.Gone](t, e)
				if changes = append(changes, "gone "+g.Key); g.Change != "vanished" || time.Since(g.Time) > 6*time.Second {
					t.Errorf("what is gone: %+v", g)
				}
			default:
				t.Errorf("%s %s", e.name, e.data)
			}
		}
		if want := []string{"resigned a", "elected b", "gone zz"}; !slices.Equal(changes, want) {
			t.Errorf("the changes are %q of %q, want %q", changes, names, want)
		}

		// What this server does itself is told at once, and once.
		looked := st.Counts().List
		for st.Counts().List == looked {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		acquired(t, s, "c", `{"ttl":"1h"}`)
		time.Sleep(10 * time.Millisecond)
		names, events = v.take()
		if !slices.ContainsFunc(events, func(e streamed) bool { return e.name == "change" && as[serve.Change](t, e).Object.Key == "c" }) {
			t.Errorf("of what it has done itself %q", names)
		}
		looked = st.Counts().List
		for i := range 20 {
			acquired(t, s, fmt.Sprintf("d%d", i), `{"ttl":"100s"}`)
			time.Sleep(100 * time.Millisecond)
		}
		if n := st.Counts().List - looked; n < 1 || n > 3 {
			t.Errorf("%d looks within two seconds", n)
		}
		time.Sleep(2 * time.Second)
		v.take()

		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "list"})
		time.Sleep(6 * time.Second)
		names, events = v.take()
		if len(names) == 0 || names[len(names)-1] != "trouble" {
			t.Fatalf("without the store: %q", names)
		}
		if tr := as[serve.Trouble](t, events[len(events)-1]); !strings.Contains(tr.Error, "unavailable") || time.Since(tr.Time) > 6*time.Second || tr.Budget.Limit != 600 {
			t.Errorf("%+v", tr)
		}
		wants(t, "everything, meanwhile", ask(t, s, "GET", "/v1/locks", ""), 503, "store")
		st.Clear()
		time.Sleep(6 * time.Second)
		if names, _ = v.take(); !slices.Contains(names, "snapshot") {
			t.Errorf("when it is back: %q", names)
		}
		third := subscribe(t, s)
		if names, _ := third.take(); !slices.Equal(names, []string{"snapshot"}) {
			t.Errorf("one that begins then gets %q", names)
		}
		third.leave()
		<-third.done
		if text := v.text.String(); !strings.HasPrefix(text, "retry: ") || !strings.Contains(text, "\n\n:\n\n") {
			t.Errorf("no sign of life in %q", text)
		}

		v.leave()
		second.leave()
		<-v.done
		<-second.done
		time.Sleep(time.Minute)
		before := st.Counts()
		time.Sleep(time.Minute)
		if after := st.Counts(); after.List != before.List || after.Get != before.Get {
			t.Errorf("looks go on when nobody subscribes: %+v, %+v", before, after)
		}
		if d := ask(t, s, "DELETE", "/v1/leases/"+b.Lease, ""); d.code != 204 {
			t.Errorf("released: %d", d.code)
		}
		stopped(t, s)
	})
}

// However many subscribe and ask, and however many locks there are, looks cost no more than the budget.
func TestBudget(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		plant(t, inner, 30)
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{Budget: 120, Limit: 100, Every: time.Second})
		var all []*stream
		for range 5 {
			all = append(all, subscribe(t, s))
		}
		refused := 0
		const minutes = 2
		before := st.Counts()
		for i := range minutes * 60 {
			for _, path := range []string{"/v1/locks", fmt.Sprintf("/v1/locks/k%03d", i%30), fmt.Sprintf("/v1/locks/none%d", i), "/v1/locks/k001/history", "/v1/elections/e"} {
				switch a := ask(t, s, "GET", path, ""); a.code {
				case 429:
					if refused++; a.header.Get("Retry-After") == "" {
						t.Errorf("it is not told when to come again: %v", a.header)
					}
				case 200, 404:
				default:
					t.Fatalf("%s: %d %s", path, a.code, a.body)
				}
			}
			time.Sleep(time.Second)
		}
		after := st.Counts()
		if n := after.Get + after.List - before.Get - before.List; n > (minutes+1)*120+100 || n < minutes*120/2 {
			t.Errorf("%d requests in %d minutes with a budget of 120 each", n, minutes)
		}
		if refused == 0 {
			t.Error("nobody was refused")
		}
		for _, v := range all {
			if names, _ := v.take(); !slices.Contains(names, "snapshot") {
				t.Errorf("a stream got %q", names)
			}
			v.leave()
			<-v.done
		}
		if _, _, _, looks := s.Sizes(); looks > 1024+1 {
			t.Errorf("%d looks are remembered", looks)
		}
		stopped(t, s)
	})
}

// plant makes so many free locks.
func plant(t *testing.T, st store.Store, n int) {
	t.Helper()
	locks, err := leasehold.NewLocks(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		lease, err := locks.Acquire(t.Context(), fmt.Sprintf("k%03d", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A subscriber that does not read is cut off, and holds up nobody else.
func TestSlowSubscriber(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Every: time.Second})
		slow, quick := subscribe(t, s), subscribe(t, s)
		slow.take()
		slow.mu.Lock()
		slow.hung = make(chan struct{})
		slow.mu.Unlock()
		for i := range 20 {
			a := acquired(t, s, fmt.Sprintf("k%d", i), "")
			time.Sleep(time.Second)
			if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
				t.Errorf("released: %d", d.code)
			}
		}
		if names, _ := quick.take(); len(names) < 20 {
			t.Errorf("the quick one got %q", names)
		}
		close(slow.hung)
		<-slow.done
		scraped(t, s).wants(t, "when one is cut off", scrape{"leasehold_serve_slow_subscribers_total": 1, "leasehold_serve_subscribers": 1})
		quick.leave()
		<-quick.done
		stopped(t, s)
	})
}

// What is asked for of one lock and of everything shows what this server did a moment ago; without more looks than
// there were changes, where everybody asks.
func TestLooks(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{Prefix: "p/"})
		wants(t, "none", ask(t, s, "GET", "/v1/locks/k", ""), 404, "unknown")
		var tokens []int64
		for i := range 3 {
			a := acquired(t, s, "k", fmt.Sprintf(`{"holder":"h%d"}`, i))
			tokens = append(tokens, a.Token)
			for range 50 {
				if o := ask(t, s, "GET", "/v1/locks/k", ""); o.code != 200 || o.State != "held" || o.Holder != a.Holder || o.Key != "k" || o.Token != a.Token {
					t.Fatalf("held: %d %s", o.code, o.body)
				}
				all := ask(t, s, "GET", "/v1/locks", "")
				if all.code != 200 || len(all.Objects) != 1 || all.Objects[0].Key != "k" || all.Objects[0].Holder != a.Holder {
					t.Fatalf("everything: %d %s", all.code, all.body)
				}
			}
			time.Sleep(time.Second)
			if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
				t.Errorf("released: %d %s", d.code, d.body)
			}
			if o := ask(t, s, "GET", "/v1/locks/k", ""); o.code != 200 || o.State != "free" || len(o.History) != i+1 {
				t.Fatalf("free: %d %s", o.code, o.body)
			}
			time.Sleep(time.Second)
		}
		if n := st.Counts(); n.List > 20 {
			t.Errorf("%+v", n)
		}
		h := ask(t, s, "GET", "/v1/locks/k/history", "")
		if h.code != 200 || len(h.History) != 3 || h.History[0].Holder != "h2" || int64(h.History[2].Token) != tokens[0] || h.History[0].Why != "released" {
			t.Errorf("the history: %d %s", h.code, h.body)
		}
		wants(t, "the history of nothing", ask(t, s, "GET", "/v1/locks/none/history", ""), 404, "unknown")
		wants(t, "a lock of that name", ask(t, s, "GET", "/v1/locks/k%2Fhistory", ""), 404, "unknown")
		if o := ask(t, s, "HEAD", "/v1/locks/k", ""); o.code != 200 || o.body != "" {
			t.Errorf("HEAD: %d %q", o.code, o.body)
		}
		stopped(t, s)
	})
}

// While the store does not answer, one read answers all who wait for it, those that came while it was under way too, and a
// stream that begins then. They used to queue, for half a minute each.
func TestOneHungReadAnswersAll(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		acquired(t, s, "k", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "list"})
		before, began := st.Counts().List, time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				a := ask(t, s, "GET", "/v1/locks", "")
				wants(t, "everything", a, 503, "store")
				if took := time.Since(began); took > serve.LookWithin || !strings.Contains(a.Detail, "within 30s") {
					t.Errorf("it was answered after %v: %s", took, a.body)
				}
			})
			time.Sleep(2 * time.Second)
		}
		v := subscribe(t, s)
		all.Wait()
		synctest.Wait()
		if n := st.Counts().List - before; n > 1 {
			t.Errorf("%d listings", n)
		}
		if names, _ := v.take(); !slices.Equal(names, []string{"trouble"}) {
			t.Errorf("after %v the stream got %q", time.Since(began), names)
		}
		time.Sleep(2 * time.Second)
		late := subscribe(t, s) // while the next one is under way
		if names, _ := late.take(); !slices.Equal(names, []string{"trouble"}) {
			t.Errorf("a late stream got %q", names)
		}
		// Who leaves is not held up, and takes it from nobody else.
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		gone, left := time.Now(), make(chan time.Duration, 1)
		go func() {
			asking(t, ctx, s, "GET", "/v1/locks", "")
			left <- time.Since(gone)
		}()
		if took := <-left; took != time.Second {
			t.Errorf("who has left was held up for %v", took)
		}
		st.Clear()
		time.Sleep(serve.LookWithin + 6*time.Second)
		for _, stream := range []*stream{v, late} {
			if names, _ := stream.take(); !slices.Contains(names, "snapshot") {
				t.Errorf("when it answers again: %q", names)
			}
			stream.leave()
			<-stream.done
		}
		stopped(t, s)
	})
}

// A view is what a stream's client knows.
type view map[string]string

// take applies what a stream has told.
func (v view) take(t *testing.T, s *stream) {
	t.Helper()
	_, events := s.take()
	for _, e := range events {
		switch e.name {
		case "snapshot":
			clear(v)
			for _, o := range as[serve.Snapshot](t, e).Objects {
				v.put(o)
			}
		case "change":
			v.put(as[serve.Change](t, e).Object)
		case "gone":
			delete(v, as[serve.Gone](t, e).Key)
		}
	}
}

func (v view) put(o serve.Object) {
	v[o.Key] = fmt.Sprintf("%s %s %s %d, %d here, %d waiting", o.Kind, o.State, o.Holder, o.Token, o.Here, o.Waiting)
}

// A stream that begins with what another has looked at is told what has changed since that. It used to be told what had
// changed since the stream's own look before, and showed for good who waited then.
func TestStreamBeginsWithAnothersLook(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), nil)
		acquired(t, s, "k", `{"ttl":"1h"}`)
		first := subscribe(t, s)
		done := make(chan answer, 1)
		go func() { done <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"1500ms"}`) }()
		time.Sleep(time.Millisecond)
		acquired(t, s, "x", `{"ttl":"1h"}`)
		if a := ask(t, s, "GET", "/v1/locks", ""); len(a.Objects) == 0 || a.Objects[0].Waiting != 1 {
			t.Errorf("everything: %s", a.body)
		}
		second := subscribe(t, s)
		wants(t, "who waits", <-done, 409, "held")
		time.Sleep(10 * time.Second)
		for _, v := range []*stream{first, second} {
			is := view{}
			if is.take(t, v); !strings.HasSuffix(is["k"], "1 here, 0 waiting") {
				t.Errorf("it shows %s", is["k"])
			}
			v.leave()
			<-v.done
		}
		stopped(t, s)
	})
}

// A stream that begins with what another request has seen is told when that is gone, although it came and went between two
// looks of the streams.
func TestStreamMissesNoEnd(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		first := subscribe(t, s)
		time.Sleep(100 * time.Millisecond)
		acquired(t, s, "x", `{"ttl":"1h"}`) // so that the next request looks
		plant(t, st, 1)
		if a := ask(t, s, "GET", "/v1/locks", ""); !strings.Contains(a.body, `"k000"`) {
			t.Errorf("everything: %s", a.body)
		}
		second := subscribe(t, s)
		if err := st.Delete(t.Context(), "k000"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for i, v := range []*stream{first, second} {
			is := view{}
			if is.take(t, v); is["k000"] != "" || is["x"] == "" {
				t.Errorf("stream %d shows %v", i, is)
			}
			v.leave()
			<-v.done
		}
		stopped(t, s)
	})
}

// A stream that began at any moment shows in the end what is, whoever else has looked meanwhile.
func TestEventsMissNothing(t *testing.T) {
	for seed := range 5 {
		leasetest.Bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // a seed that is to be repeated
			st := memstore.New()
			s, other := started(t, st, nil), started(t, st, nil)
			var streams []*stream
			var views []view
			var waits sync.WaitGroup
			held := map[string]answer{}
			for range 120 {
				key, by := fmt.Sprintf("k%d", r.IntN(4)), []*serve.Server{s, s, other}[r.IntN(3)]
				switch n := r.IntN(10); {
				case n < 3:
					if a := ask(t, by, "POST", "/v1/elections/"+key+"/campaign", `{"ttl":"1h"}`); a.code == 200 {
						held[a.Lease] = a
					}
				case n < 5:
					wait := 1 + r.IntN(9)
					waits.Go(func() {
						if a := ask(t, s, "POST", "/v1/locks/"+key+"/acquire", fmt.Sprintf(`{"ttl":"1h","wait":"%ds"}`, wait)); a.code == 200 {
							ask(t, s, "DELETE", "/v1/leases/"+a.Lease, "")
						}
					})
				case n < 7:
					for id := range held {
						ask(t, s, "DELETE", "/v1/leases/"+id, "")
						ask(t, other, "DELETE", "/v1/leases/"+id, "")
						delete(held, id)
						break
					}
				case n < 9:
					ask(t, s, "GET", []string{"/v1/locks", "/v1/locks/" + key}[r.IntN(2)], "")
				case len(streams) < 10:
					streams, views = append(streams, subscribe(t, s)), append(views, view{})
				}
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
			waits.Wait()
			time.Sleep(30 * time.Second)
			is := view{}
			for _, o := range ask(t, s, "GET", "/v1/locks", "").Objects {
				is.put(o)
			}
			for i, v := range streams {
				views[i].take(t, v)
				v.leave()
				<-v.done
				if !maps.Equal(views[i], is) {
					t.Errorf("seed %d: stream %d of %d shows %v, and it is %v", seed, i, len(streams), views[i], is)
				}
			}
			stopped(t, s)
			stopped(t, other)
		})
	}
}

// Who begins or ends to wait is told within seconds, without a look.
func TestWaitersAreTold(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, &serve.Options{Every: time.Hour})
		acquired(t, s, "k", `{"ttl":"1h"}`)
		v, is := subscribe(t, s), view{}
		time.Sleep(5 * time.Second)
		is.take(t, v)
		before := st.Counts().List
		done := make(chan answer, 1)
		go func() { done <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"10s"}`) }()
		time.Sleep(2 * time.Second)
		if is.take(t, v); !strings.HasSuffix(is["k"], "1 here, 1 waiting") {
			t.Errorf("while one waits: %s", is["k"])
		}
		if a := ask(t, s, "GET", "/v1/locks", ""); len(a.Objects) == 0 || a.Objects[0].Waiting != 1 {
			t.Errorf("everything: %s", a.body)
		}
		wants(t, "who waits", <-done, 409, "held")
		time.Sleep(2 * time.Second)
		if is.take(t, v); !strings.HasSuffix(is["k"], "1 here, 0 waiting") {
			t.Errorf("when the wait is over: %s", is["k"])
		}
		wants(t, "a campaign", ask(t, s, "POST", "/v1/elections/k/campaign", ""), 409, "held")
		time.Sleep(2 * time.Second)
		if is.take(t, v); !strings.HasPrefix(is["k"], "election held") || !strings.HasSuffix(is["k"], "1 here, 0 waiting") {
			t.Errorf("when it was campaigned for: %s", is["k"])
		}
		if n := st.Counts().List - before; n > 0 {
			t.Errorf("%d looks", n)
		}
		v.leave()
		<-v.done
		stopped(t, s)
	})
}

// That a look reads no more than its limit is told in each snapshot, and after each look: it may change.
func TestCutIsTold(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		plant(t, st, 3)
		s := started(t, st, &serve.Options{Limit: 4})
		v := subscribe(t, s)
		cut := func() (told []bool) {
			time.Sleep(10 * time.Second)
			v.mu.Lock()
			defer v.mu.Unlock()
			for _, e := range v.events {
				if e.name == "looked" || e.name == "snapshot" {
					told = append(told, as[serve.Looked](t, streamed{"looked", lookedPart(t, e)}).Cut)
				}
			}
			v.events = nil
			return told
		}
		if told := cut(); len(told) < 2 || slices.Contains(told, true) {
			t.Errorf("of as many as it reads: %v", told)
		}
		acquired(t, s, "another", `{"ttl":"1h"}`)
		if told := cut(); len(told) < 2 || !told[len(told)-1] {
			t.Errorf("of one more: %v", told)
		}
		v.leave()
		<-v.done
		if a := ask(t, s, "GET", "/v1/locks", ""); len(a.Objects) != 4 || !strings.Contains(a.body, `"cut":true`) {
			t.Errorf("%s", a.body)
		}
		stopped(t, s)
	})
}

// lookedPart is what a snapshot has in common with the event looked.
func lookedPart(t *testing.T, e streamed) json.RawMessage {
	t.Helper()
	var part struct {
		Time     time.Time       `json:"time"`
		Requests int             `json:"requests"`
		Cut      bool            `json:"cut"`
		Budget   json.RawMessage `json:"budget"`
	}
	if err := json.Unmarshal(e.data, &part); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What is asked for of one lock shows what this server did since it last looked at everything; a lock that is wanted here,
// and is not there yet; and no leader where there is a semaphore.
func TestLooksAtOne(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s, other := started(t, st, nil), started(t, st, nil)
		a := acquired(t, s, "k", `{"ttl":"1h"}`)
		time.Sleep(10 * time.Millisecond)
		ask(t, s, "GET", "/v1/locks", "")
		time.Sleep(10 * time.Millisecond)
		if d := ask(t, s, "DELETE", "/v1/leases/"+a.Lease, ""); d.code != 204 {
			t.Fatal(d.body)
		}
		time.Sleep(10 * time.Millisecond)
		if o := ask(t, s, "GET", "/v1/locks/k", ""); o.State != "free" {
			t.Errorf("of what was released since: %s", o.body)
		}

		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "wanted", Delay: 5 * time.Second})
		done := make(chan answer, 1)
		go func() { done <- ask(t, s, "POST", "/v1/locks/wanted/acquire", `{"wait":"1m"}`) }()
		time.Sleep(time.Second)
		if o := ask(t, s, "GET", "/v1/locks/wanted", ""); o.code != 200 || o.State != "absent" || o.Waiting != 1 {
			t.Errorf("of what is wanted: %d %s", o.code, o.body)
		}
		wants(t, "of what nobody wants", ask(t, s, "GET", "/v1/locks/unwanted", ""), 404, "unknown")
		if a := <-done; a.code != 200 {
			t.Errorf("%d %s", a.code, a.body)
		}
		st.Clear()

		acquired(t, other, "sem", `{"slots":2,"ttl":"1h"}`)
		if l := ask(t, s, "GET", "/v1/elections/sem", ""); l.code != 200 || l.Name != "" || l.Token != 0 {
			t.Errorf("the leader of a semaphore: %d %s", l.code, l.body)
		}
		stopped(t, s)
		stopped(t, other)
	})
}

// A listing counts as a request for each thousand of its entries.
func TestPagesCount(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		for i := range 2500 {
			if _, err := st.Put(t.Context(), fmt.Sprintf("x%04d", i), []byte("x"), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		s := started(t, st, &serve.Options{Limit: 5000, Budget: 10_000})
		ask(t, s, "GET", "/v1/locks", "")
		if m := ask(t, s, "GET", "/metrics", ""); !strings.Contains(m.body, `leasehold_serve_look_requests_total{op="list"} 3`+"\n") {
			t.Errorf("three pages are not counted:\n%s", m.body)
		}
		stopped(t, s)
	})
}

// A stream that begins while others go on has what the last look showed, with who waits here now, unless that look is older than
// two intervals; and then the changes, and not everything once more.
func TestLateStreams(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := started(t, st, nil)
		acquired(t, s, "k", `{"ttl":"1h"}`)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Delay: 12 * time.Second})
		var all []*stream
		begins := func(when string, want ...string) {
			t.Helper()
			v := subscribe(t, s)
			if names, _ := v.take(); !slices.Equal(names, want) {
				t.Errorf("%s: %q, want %q", when, names, want)
			}
			all = append(all, v)
		}
		begins("the first")
		time.Sleep(11 * time.Second)
		begins("during the first look")
		time.Sleep(2 * time.Second) // 1 s after the look
		for _, v := range all {
			if names, _ := v.take(); !slices.Equal(names, []string{"snapshot"}) {
				t.Errorf("of the first look: %q", names)
			}
		}
		done := make(chan answer, 1)
		go func() { done <- ask(t, s, "POST", "/v1/locks/k/acquire", `{"wait":"500ms"}`) }()
		synctest.Wait()
		all = append(all, subscribe(t, s))
		for i, v := range all {
			is := view{}
			if is.take(t, v); !strings.HasSuffix(is["k"], "1 here, 1 waiting") {
				t.Errorf("stream %d, of which the last began while one waits, shows %s", i, is["k"])
			}
		}
		wants(t, "the wait", <-done, 409, "held")
		time.Sleep(8 * time.Second) // within the next look, which takes longer than two intervals
		begins("after less than two intervals", "snapshot")
		time.Sleep(time.Second)
		begins("after more")
		time.Sleep(8 * time.Second)
		for i, v := range all {
			names, _ := v.take()
			if snapshot := slices.Contains(names, "snapshot"); snapshot != (i == len(all)-1) {
				t.Errorf("stream %d, after the second look: %q", i, names)
			}
			v.leave()
			<-v.done
		}
		time.Sleep(time.Minute)
		stopped(t, s)
	})
}

// When the budget is spent whatever would look is refused, and told when to ask again; and then it is answered.
func TestLooksAreRefused(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		inner := memstore.New()
		plant(t, inner, 20)
		s := made(t, inner, &serve.Options{Budget: 1, Limit: 10, AllowBreak: true})
		if a := ask(t, s, "GET", "/v1/locks", ""); a.code != 200 || len(a.Objects) != 10 {
			t.Fatalf("%d %s", a.code, a.body)
		}
		time.Sleep(5 * time.Second)
		var wait time.Duration
		for _, r := range [][3]string{{"GET", "/v1/locks", ""}, {"GET", "/v1/locks/k001", ""}, {"GET", "/v1/locks/k001/history", ""}, {"GET", "/v1/elections/k001", ""}, {"POST", "/v1/locks/k001/break", `{"token":1}`}} {
			for range 2 {
				a := ask(t, s, r[0], r[1], r[2])
				text, is := strings.CutPrefix(a.Detail, "looks at the store may send 1 requests a minute, and have: ask again in ")
				d, err := time.ParseDuration(text)
				if wants(t, r[1], a, 429, "too-many"); !is || err != nil || d%time.Second != 0 || d < 55*time.Second || wait != 0 && d != wait || a.header.Get("Retry-After") != "1" {
					t.Errorf("%s: %v %s", r[1], a.header, a.body)
				}
				wait = d
			}
		}
		time.Sleep(wait + time.Second)
		if a := ask(t, s, "GET", "/v1/locks", ""); a.code != 200 || a.Budget.Refused != 10 || a.Budget.Limit != 1 || a.Budget.Dollars != nil || a.Budget.Price != "" {
			t.Errorf("later: %d %s", a.code, a.body)
		}
		stopped(t, s)
	})
}

// A history is of the last 128 leases at most, of whichever layout; and there is none of what is no lock.
func TestHistory(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := started(t, st, nil)
		acquired(t, s, "sem", `{"slots":2}`)
		lock, err := leasehold.NewLock(st, "epochs", &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 140 {
			leasetest.Release(t, leasetest.Acquire(t, lock))
		}
		h := ask(t, s, "GET", "/v1/locks/epochs/history", "")
		if h.code != 200 || len(h.History) != 128 || h.History[0].Term-h.History[127].Term != 127 || !strings.HasSuffix(h.History[0].Lock, "/epochs") {
			t.Errorf("%d terms: %d %.300s", len(h.History), h.code, h.body)
		}
		sem := ask(t, s, "GET", "/v1/locks/sem/history", "")
		if wants(t, "of a semaphore", sem, 422, "foreign"); sem.Detail != "it is a semaphore, which keeps no history" {
			t.Errorf("why: %s", sem.Detail)
		}
		stopped(t, s)
	})
}
