package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/lockjson"
	"github.com/leasehold/leasehold/internal/watchview"
)

const (
	freshFor   = time.Second // how long all requests share one read; at most Options.Every
	keptLooks  = 1024        // of single keys
	maxLooked  = 8 << 20     // bytes of a snapshot
	keepAlive  = 15 * time.Second
	subscribed = 8 // reads that a subscriber may lag behind
)

// A watcher reads the store for all requests, within a budget.
type watcher struct {
	s      *Server
	looks  *counting
	budget *budget
	price  *cost.Price
	recall recall // of reads of all objects

	changed chan struct{} // has an element after a change by this server that no read has seen
	counted chan struct{} // has an element after the number of waiting callers has changed

	mu          sync.Mutex
	flight      *flight              // the read under way; nil: none
	last        *look                // the last successful read, as sent to the subscribers
	trouble     []byte               // the event of the last read; nil: it succeeded
	lastTouch   time.Time            // the last change by this server
	touches     map[string]time.Time // the last change by this server, by key
	cleared     time.Time            // the latest possible change of all other keys
	single      map[string]*single
	subscribers map[*subscriber]struct{}
	cancel      context.CancelFunc // ends the loop; nil: it does not run
	loops       sync.WaitGroup
}

// A look is one read of all objects.
type look struct {
	began, ended time.Time
	seen         watchview.Snapshot
	objects      []Object
	bodies       []json.RawMessage // of the objects
}

// A flight is a look under way, shared by all that wait for it.
type flight struct {
	began time.Time
	done  chan struct{} // closed when it has ended
	look  *look
	err   error
}

// A single is a read of one key, shared by all requests meanwhile.
type single struct {
	began  time.Time
	done   chan struct{} // closed when it has ended
	object Object
	err    error
}

type subscriber struct {
	// queue has the events to be sent: those of each read together. It is closed if the
	// subscriber is too slow.
	queue chan []byte
	begun bool // it was sent a snapshot
}

func newWatcher(s *Server, price *cost.Price) *watcher {
	w := &watcher{
		s: s, budget: newBudget(s.opts.Budget, s.opts.Limit), price: price, changed: make(chan struct{}, 1), counted: make(chan struct{}, 1),
		touches: map[string]time.Time{}, single: map[string]*single{}, subscribers: map[*subscriber]struct{}{},
	}
	w.looks = &counting{Store: s.st, all: w.budget.sent}
	return w
}

// touched notes a change of a key by this server, so earlier reads are out of date.
func (w *watcher) touched(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastTouch = time.Now()
	if len(w.touches) >= keptLooks { // then all of them count as changed now
		clear(w.touches)
		w.cleared = w.lastTouch
	}
	w.touches[key] = w.lastTouch
	delete(w.single, key)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// spent returns the budget with the current cost.
func (w *watcher) spent() Budget {
	b := Budget{Limit: w.budget.limit, Spent: int(sum(w.budget.sent.lastMinute())), Refused: w.budget.timesRefused()}
	sent := w.s.sent.lastMinute()
	b.Sent = int(sum(sent))
	if w.price != nil {
		d := dollars(w.price, sent)
		b.Dollars, b.Price = &d, w.price.Title
	}
	return b
}

func (w *watcher) errNoBudget(pause time.Duration) error {
	return refuse(wordTooMany, "looks at the store may send %d requests a minute, and have: ask again in %v", w.budget.limit, pause.Round(time.Second))
}

// counts notes a change in the number of waiting callers. Reporting it needs no read.
func (w *watcher) counts() {
	select {
	case w.counted <- struct{}{}:
	default:
	}
}

// everything returns the last look if it is fresh, and otherwise another one. All requests
// share one. A failed look fails all of them, because the next could only fail later.
func (w *watcher) everything(ctx context.Context) (rawSnapshot, error) {
	w.mu.Lock()
	touched := w.lastTouch
	for {
		if l := w.last; l != nil && time.Since(l.ended) < w.s.opts.Every && !touched.After(l.began) {
			w.recount()
			defer w.mu.Unlock()
			return w.snapshot(w.last), nil
		}
		f := w.flight
		if f == nil {
			if pause := w.budget.pause(); pause > 0 {
				w.mu.Unlock()
				return rawSnapshot{}, w.errNoBudget(pause)
			}
			f = w.begin() //nolint:contextcheck // a look is for all who ask
		}
		w.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return rawSnapshot{}, context.Cause(ctx)
		}
		if f.err != nil {
			return rawSnapshot{}, f.err
		}
		w.mu.Lock()
		if !touched.After(f.began) { // however long ago that was
			defer w.mu.Unlock()
			return w.snapshot(f.look), nil
		}
	}
}

// begin begins a look. It is shared, so no caller ends it by leaving. The mutex is locked, and
// no look is under way.
func (w *watcher) begin() *flight {
	f := &flight{began: time.Now(), done: make(chan struct{})}
	w.flight = f
	go func() {
		defer close(f.done)
		f.look, f.err = w.look()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flight = nil
		w.landed(f)
	}()
	return f
}

// landed sends the subscribers the events of a look. The mutex is locked.
func (w *watcher) landed(f *flight) {
	if f.err != nil {
		w.s.log.Info("a look at everything failed", "error", oneLine(f.err))
		w.trouble = event("trouble", Trouble{Time: at(time.Now()), Error: oneLine(f.err), Budget: w.spent()})
		for sub := range w.subscribers {
			sub.begun = false // a snapshot follows when reads succeed again
			w.tell(sub, w.trouble)
		}
		return
	}
	w.trouble = nil
	before, l := w.last, w.own(f.look)
	f.look, w.last = l, l
	var whole, changes []byte
	looked := event("looked", Looked{Time: at(l.ended), Requests: l.seen.Requests, Cut: l.seen.Cut, Budget: w.spent()})
	for sub := range w.subscribers {
		if sub.begun { // so there is an earlier look
			if changes == nil {
				changes = append(w.changes(before, l), looked...)
			}
			w.tell(sub, changes)
			continue
		}
		if whole == nil {
			whole = append(event("snapshot", w.snapshot(l)), looked...)
		}
		sub.begun = true
		w.tell(sub, whole)
	}
}

// own returns a look with what only this server knows about the objects, as of now.
func (w *watcher) own(l *look) *look {
	n := *l
	n.objects, n.bodies = slices.Clone(l.objects), slices.Clone(l.bodies)
	for i, o := range n.objects {
		if now := w.s.own(o); now.Here != o.Here || now.Waiting != o.Waiting || now.Kind != o.Kind {
			n.objects[i], n.bodies[i] = now, encoded(now)
		}
	}
	return &n
}

// recount sends the subscribers what has changed in who holds and waits at this server since
// the last look. The mutex is locked.
func (w *watcher) recount() {
	before := w.last
	if before == nil {
		return
	}
	w.last = w.own(before)
	if changes := w.changes(before, w.last); len(changes) > 0 {
		for sub := range w.subscribers {
			if sub.begun {
				w.tell(sub, changes)
			}
		}
	}
}

func (w *watcher) look() (*look, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lookWithin, fmt.Errorf("the store has not shown everything within %v", lookWithin))
	defer cancel()
	select {
	case <-w.changed: // this look will see it
	default:
	}
	l := &look{began: time.Now()}
	before, size := sum(w.budget.sent.totals()), 0
	for e, err := range admin.ListAll(ctx, w.recall.begin(w.looks), w.s.opts.Prefix) {
		if err != nil && !errors.Is(err, leasehold.ErrForeignObject) {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return nil, err
		}
		if len(l.objects) == w.s.opts.Limit || size > maxLooked {
			l.seen.Cut = true
			break
		}
		o := w.s.objectOf(e, err)
		body := encoded(o)
		size += len(body)
		l.objects, l.bodies = append(l.objects, o), append(l.bodies, body)
		l.seen.Rows = append(l.seen.Rows, rowOf(e, err))
	}
	w.recall.end()
	l.seen.Requests = int(sum(w.budget.sent.totals()) - before)
	l.ended = time.Now()
	return l, nil
}

// encoded returns data as JSON. No data here can fail.
func encoded(data any) json.RawMessage {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return text
}

type rawSnapshot struct {
	Seen
	Objects []json.RawMessage `json:"objects"`
}

func (w *watcher) snapshot(l *look) rawSnapshot {
	o := &w.s.opts
	s := rawSnapshot{Objects: l.bodies, Seen: Seen{
		Time: at(l.ended), Cut: l.seen.Cut, Budget: w.spent(),
		Store: w.s.st.String(), Prefix: o.Prefix, Every: o.Every.Milliseconds(), Break: o.AllowBreak,
	}}
	if s.Objects == nil {
		s.Objects = []json.RawMessage{} // [] in JSON instead of null
	}
	return s
}

func at(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// object returns the object under one key: from the last look if that is fresh, and otherwise
// by a read of this key, shared by all requests meanwhile.
func (w *watcher) object(ctx context.Context, key string) (Object, error) {
	w.mu.Lock()
	touched, is := w.touches[key]
	if !is {
		touched = w.cleared
	}
	if l := w.last; l != nil && time.Since(l.ended) < freshFor && l.began.After(touched) {
		for _, o := range l.objects {
			if o.Key == key {
				w.mu.Unlock()
				return w.s.own(o), nil
			}
		}
	}
	one := w.single[key]
	if one == nil || one.old() {
		if pause := w.budget.pause(); pause > 0 {
			w.mu.Unlock()
			return Object{}, w.errNoBudget(pause)
		}
		w.forgetOld()
		one = &single{began: time.Now(), done: make(chan struct{})}
		w.single[key] = one
		go w.lookAt(context.WithoutCancel(ctx), key, one)
	}
	w.mu.Unlock()
	select {
	case <-one.done:
		if one.err != nil {
			return Object{}, one.err
		}
		return w.s.own(one.object), nil
	case <-ctx.Done():
		return Object{}, context.Cause(ctx)
	}
}

// old reports whether a read has ended, and is no longer fresh.
func (o *single) old() bool {
	select {
	case <-o.done:
		return time.Since(o.began) >= freshFor
	default:
		return false
	}
}

// forgetOld limits the number of remembered single keys. The mutex is locked.
func (w *watcher) forgetOld() {
	if len(w.single) < keptLooks {
		return
	}
	for key, one := range w.single {
		if one.old() {
			delete(w.single, key)
		}
	}
}

// lookAt reads one key. The read is shared, so no caller ends it by leaving.
func (w *watcher) lookAt(ctx context.Context, key string, one *single) {
	defer close(one.done)
	ctx, cancel := context.WithTimeoutCause(ctx, lookWithin, fmt.Errorf("the store has not answered within %v", lookWithin))
	defer cancel()
	e, err := admin.Inspect(ctx, w.looks, w.s.inside(key))
	if err != nil && !errors.Is(err, leasehold.ErrForeignObject) {
		one.err = err
		return
	}
	e.Key = w.s.inside(key)
	one.object = w.s.objectOf(e, err)
}

// subscribe begins a stream. The watcher reads while there is one.
func (w *watcher) subscribe() (*subscriber, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.s.ctx.Err() != nil:
		return nil, errStopping
	case len(w.subscribers) >= w.s.opts.Subscribers:
		return nil, refuse(wordTooMany, "%d streams of events are open, and no more may be", w.s.opts.Subscribers)
	}
	sub := &subscriber{queue: make(chan []byte, subscribed)}
	w.subscribers[sub] = struct{}{}
	if w.cancel == nil {
		ctx, cancel := context.WithCancel(w.s.ctx)
		w.cancel, w.trouble = cancel, nil
		w.loops.Go(func() { w.loop(ctx) })
	} else if w.trouble != nil {
		w.tell(sub, w.trouble) // or it would learn nothing until the next read ends
	} else if l := w.last; l != nil && time.Since(l.ended) < 2*w.s.opts.Every {
		w.recount()
		w.tell(sub, event("snapshot", w.snapshot(w.last)))
		sub.begun = true
	}
	return sub, nil
}

func (w *watcher) unsubscribe(sub *subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subscribers, sub)
	if len(w.subscribers) == 0 && w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// stop waits for the loop. It has ended with the server's context, as all streams have.
func (w *watcher) stop() {
	w.mu.Lock()
	clear(w.subscribers)
	w.mu.Unlock()
	w.loops.Wait()
}

// tell sends events to a subscriber, and drops it if it is too slow. The mutex is locked.
func (w *watcher) tell(sub *subscriber, events []byte) {
	select {
	case sub.queue <- events:
	default:
		delete(w.subscribers, sub)
		close(sub.queue)
		w.s.stats.slow.Add(1)
	}
}

// loop reads until there are no subscribers. After a change by this server it reads at once,
// except for a pause after each read.
func (w *watcher) loop(ctx context.Context) {
	for ctx.Err() == nil {
		if pause := w.budget.pause(); pause > 0 {
			w.sleep(ctx, pause)
			continue
		}
		w.mu.Lock()
		f := w.flight
		if f == nil {
			f = w.begin() //nolint:contextcheck // a look is for all who ask
		}
		w.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return
		}
		next := time.After(w.s.opts.Every)
		w.sleep(ctx, freshFor)
		w.rest(ctx, next)
	}
}

// rest waits for the time of the next read, or for a change by this server. Meanwhile it
// reports changes in who waits here, though not at once, because most waits are short.
func (w *watcher) rest(ctx context.Context, next <-chan time.Time) {
	var settled <-chan time.Time
	counted := w.counted
	for {
		select {
		case <-next:
			return
		case <-w.changed:
			return
		case <-ctx.Done():
			return
		case <-counted:
			counted, settled = nil, time.After(freshFor)
		case <-settled:
			counted, settled = w.counted, nil
			w.mu.Lock()
			w.recount()
			w.mu.Unlock()
		}
	}
}

func (w *watcher) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// changes returns events for what differs between two looks, in the store or only at this
// server.
func (w *watcher) changes(before, l *look) (events []byte) {
	now := map[string]int{}
	for i, o := range l.objects {
		now[o.Key] = i
	}
	changed := func(i int, how string) {
		events = append(events, event("change", struct {
			Time   time.Time       `json:"time"`
			Change string          `json:"change"`
			Object json.RawMessage `json:"object"`
		}{at(l.ended), how, l.bodies[i]})...)
	}
	told := map[string]bool{}
	for _, c := range watchview.Diff(&before.seen, l.seen, true) {
		key := w.s.outside(c.Row.Info.Key)
		told[key] = true
		if i, is := now[key]; is {
			changed(i, changeName(c.Kind))
			continue
		}
		events = append(events, event("gone", Gone{Time: at(l.ended), Change: changeName(c.Kind), Key: key})...)
	}
	for _, was := range before.objects {
		i, is := now[was.Key]
		if !is || told[was.Key] {
			continue
		}
		if o := l.objects[i]; o.Here != was.Here || o.Waiting != was.Waiting || o.Kind != was.Kind {
			changed(i, "changed")
		}
	}
	return events
}

// event returns one server-sent event. JSON has no line breaks.
func event(name string, data any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, encoded(data))
}

func (w *watcher) history(ctx context.Context, key string) ([]Term, error) {
	if pause := w.budget.pause(); pause > 0 {
		return nil, w.errNoBudget(pause)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookWithin, fmt.Errorf("the store has not answered within %v", lookWithin))
	defer cancel()
	e, err := admin.Inspect(ctx, w.looks, w.s.inside(key))
	switch {
	case err != nil:
		return nil, err
	case !e.Exists:
		return nil, refuse(wordUnknown, "there is no such lock")
	case e.Size > 0:
		return nil, refuse(wordForeign, "it is a semaphore, which keeps no history")
	}
	lock, err := leasehold.NewLock(w.looks, w.s.inside(key), &leasehold.LockOptions{Layout: e.Layout, NoIfMatch: e.NoIfMatch})
	if err != nil {
		return nil, err
	}
	terms, url := []Term{}, w.s.opts.URL(w.s.inside(key))
	for t, err := range admin.History(ctx, lock) {
		if err != nil {
			return nil, err
		}
		if terms = append(terms, lockjson.DescribeTerm(url, t)); len(terms) == mostTerms {
			break
		}
	}
	return terms, nil
}

// mostTerms limits the answer: a lock with epochs can have a hundred more leases, each of which
// costs a read.
const mostTerms = 128
