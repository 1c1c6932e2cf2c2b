package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
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
				changes = append(changes, "gone "+as[serve.Gone](t, e).Key)
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
		if tr := as[serve.Trouble](t, events[len(events)-1]); !strings.Contains(tr.Error, "unavailable") {
			t.Errorf("%+v", tr)
		}
		wants(t, "everything, meanwhile", ask(t, s, "GET", "/v1/locks", ""), 503, "store")
		st.Clear()
		time.Sleep(6 * time.Second)
		if names, _ = v.take(); !slices.Contains(names, "snapshot") {
			t.Errorf("when it is back: %q", names)
		}
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
		plant(t, inner, 100)
		st := faultstore.Wrap(inner, nil)
		s := started(t, st, &serve.Options{Budget: 120, Limit: 400, Every: time.Second})
		var all []*stream
		for range 5 {
			all = append(all, subscribe(t, s))
		}
		refused := 0
		const minutes = 2
		before := st.Counts()
		for i := range minutes * 60 {
			for _, path := range []string{"/v1/locks", fmt.Sprintf("/v1/locks/k%03d", i%100), fmt.Sprintf("/v1/locks/none%d", i), "/v1/locks/k001/history", "/v1/elections/e"} {
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
		if n := after.Get + after.List - before.Get - before.List; n > (minutes+1)*120+400 || n < minutes*120/2 {
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
