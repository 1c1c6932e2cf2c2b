package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A liar is a good store with one false answer: the n-th of those that are alike. Answers are alike if they are to
// the same operation, come out the same, and are about keys that differ in numbers only.
type liar struct {
	*inspected
	mu    sync.Mutex
	lie   string
	about string // which answers, or ""
	n     int
	seen  map[string]int
	dead  map[string]int           // how many more writes of the key get no answer
	past  map[string]*store.Object // what there was before the last write or delete
	plain string                   // the prefix of the probe, which is left out

	second map[string]int // how many of those seen came over the other connections
}

// second is the store over the other connections.
type second struct{ *liar }

func (o second) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	return o.liar.Get(context.WithValue(ctx, second{}, true), key, unless)
}

func (o second) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	return o.liar.Put(context.WithValue(ctx, second{}, true), key, body, only)
}

func (o second) Delete(ctx context.Context, key string) error {
	return o.liar.Delete(context.WithValue(ctx, second{}, true), key)
}

func (o second) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return o.liar.List(context.WithValue(ctx, second{}, true), prefix, after)
}

func (o second) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	return o.liar.GetLarge(context.WithValue(ctx, second{}, true), key)
}

// liarPrefix is the prefix of the probe of each liar.
const liarPrefix = scratch + "0123456789abcdef/"

func newLiar(lie, about string, n int) *liar {
	l := &liar{lie: lie, about: about, n: n, seen: map[string]int{}, dead: map[string]int{}, past: map[string]*store.Object{}, plain: liarPrefix, second: map[string]int{}}
	b := &brokenstore.Store{Store: memstore.New()}
	l.inspected = &inspected{Store: b}
	b.OnGet, b.OnPut, b.OnDelete, b.OnList = l.get, l.put, l.remove, l.list
	b.OnDeleteIf, b.OnPutLarge, b.OnGetLarge = l.deleteIf, l.upload, l.download
	return l
}

var (
	sizesOf  = regexp.MustCompile(`\b[0-9]{1,4} (bytes of [0-9]{1,4}|bytes were written, and [0-9]{1,4} others)`) // the sizes of bodies are drawn
	inQuotes = regexp.MustCompile(`"[^"]*"`)
	dressing = regexp.MustCompile(`(-ключ-锁-🔒)+`)
	digits   = regexp.MustCompile(`[0-9]+`)
	below    = regexp.MustCompile(`(list/|keys-#/).*`)
)

// alike is a key without what makes no difference here.
func (l *liar) alike(key string) string {
	key = strings.TrimPrefix(key, l.plain)
	if a, known := alikes.Load(key); known {
		return a.(string) //nolint:errcheck,forcetypeassert // all of them are
	}
	a := below.ReplaceAllString(digits.ReplaceAllString(key, "#"), "$1")
	alikes.Store(key, a)
	return a
}

var alikes sync.Map // what was found out of keys

// false reports that this is the answer to lie about.
func (l *liar) false(ctx context.Context, class, key string) bool {
	class += " of " + l.alike(key)
	l.seen[class]++
	if ctx.Value(second{}) != nil {
		l.second[class]++
	}
	return class == l.about && l.seen[class] == l.n
}

func says(op, key string, kind error) error { return &store.Error{Op: op, Key: key, Kind: kind} }

// failures are answers that say nothing of the object.
var failures = map[string]error{"refused": store.ErrRefused, "denied": store.ErrDenied, "no answer": store.ErrUnknownOutcome, "later": store.ErrThrottled}

func (l *liar) get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, err := l.Store.Store.Get(ctx, key, unless)
	class := "a read"
	switch {
	case errors.Is(err, store.ErrNotExist):
		class = "a read of nothing"
	case errors.Is(err, store.ErrNotModified):
		class = "a read of the same"
	}
	if !l.false(ctx, class, key) {
		return o, err
	}
	was := l.past[key]
	if was == nil {
		was = &store.Object{Key: key, Version: "made up", Body: []byte("made up")}
	}
	switch kind := failures[l.lie]; {
	case kind != nil:
		return nil, says("get", key, kind)
	case l.lie == "nothing":
		return nil, says("get", key, store.ErrNotExist)
	case l.lie == "unchanged":
		return nil, says("get", key, store.ErrNotModified)
	case l.lie == "what was before":
		return was, nil
	case l.lie == "another body":
		o.Body = append(bytes.Clone(o.Body), 'x')
	case l.lie == "another version":
		o.Version += "x"
	case l.lie == "sent again":
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified, Cause: store.ErrSentAgain}
	}
	return o, err
}

func (l *liar) put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[key] > 0 {
		l.dead[key]--
		return nil, says("put", key, store.ErrUnknownOutcome)
	}
	was, _ := l.Store.Store.Get(ctx, key, "")
	class, holds := "a create", was == nil
	if updates(only) {
		class, holds = "an update", was != nil && was.Version == only.Match()
	}
	if !holds {
		class += " that fails"
	}
	told := l.false(ctx, class, key)
	if !told && !holds {
		return nil, says("put", key, store.ErrPrecondition)
	}
	land := func(body []byte) (*store.Object, error) {
		l.past[key] = was
		return l.Force(ctx, key, body)
	}
	if !told {
		return land(body)
	}
	switch kind := failures[l.lie]; {
	case kind != nil:
		return nil, says("put", key, kind)
	case l.lie == "no answer, and done":
		_, _ = land(body)
		return nil, says("put", key, store.ErrUnknownOutcome)
	case l.lie == "no answer, again and again":
		l.dead[key] = tries - 1
		return nil, says("put", key, store.ErrUnknownOutcome)
	case l.lie == "fails":
		return nil, says("put", key, store.ErrPrecondition)
	case l.lie == "fails, and done":
		_, _ = land(body)
		return nil, says("put", key, store.ErrPrecondition)
	case l.lie == "there is nothing":
		return nil, says("put", key, store.ErrNotExist)
	case l.lie == "done, and is not":
		return &store.Object{Key: key, Version: "made up"}, nil
	case l.lie == "done, with another body":
		return land(append(bytes.Clone(body), 'x'))
	case l.lie == "done, with the version before":
		o, err := land(body)
		if was != nil {
			o.Version = was.Version
		}
		return o, err
	}
	return land(body) // "done"
}

func (l *liar) remove(ctx context.Context, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.false(ctx, "a delete", key)
	switch kind := failures[l.lie]; {
	case told && kind != nil:
		return says("delete", key, kind)
	case told && l.lie == "done, and is not":
		return nil
	}
	l.past[key], _ = l.Store.Store.Get(ctx, key, "")
	err := l.Store.Store.Delete(ctx, key)
	if told && l.lie == "no answer, and done" {
		return says("delete", key, store.ErrUnknownOutcome)
	}
	return err
}

func (l *liar) deleteIf(ctx context.Context, key string, v store.Version) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	class := "a delete on a condition"
	if now, there := l.Now(ctx, key); there && now != v {
		class += " that fails"
	}
	told := l.false(ctx, class, key)
	switch kind := failures[l.lie]; {
	case told && kind != nil:
		return says("delete", key, kind)
	case told && l.lie == "done":
		return l.Store.Store.Delete(ctx, key)
	case told && l.lie == "done, and is not":
		return nil
	case told && l.lie == "there is nothing":
		return says("delete", key, store.ErrNotExist)
	}
	return l.Store.Store.DeleteIf(ctx, key, v)
}

func (l *liar) list(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		l.mu.Lock()
		told := l.false(ctx, "a listing", prefix)
		var all []store.Entry
		for e := range l.Store.Store.List(ctx, prefix, after) { //nolint:errcheck // memory does not fail
			all = append(all, e)
		}
		l.mu.Unlock()
		if kind := failures[l.lie]; told && kind != nil {
			yield(store.Entry{}, says("list", prefix, kind))
			return
		}
		switch last := len(all) - 1; {
		case !told:
		case l.lie == "no order":
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrUnavailable, Cause: store.ErrUnordered})
			return
		case l.lie == "more":
			all = append(all, store.Entry{Key: prefix + "~", Version: "1"})
		case last < 0:
		case l.lie == "nothing":
			all = nil
		case l.lie == "but one":
			all = all[:last]
		case l.lie == "turned round":
			slices.Reverse(all)
		case l.lie == "another version":
			all[0].Version += "x"
		}
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (l *liar) upload(ctx context.Context, key string, r io.Reader) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.false(ctx, "an upload", key)
	if kind := failures[l.lie]; told && kind != nil {
		return 0, says("put", key, kind)
	}
	if told && l.lie == "done, and is not" {
		n, err := io.Copy(io.Discard, r)
		return n, err
	}
	n, err := l.Store.Store.PutLarge(ctx, key, r)
	if told && l.lie == "done but for a byte" {
		n--
	}
	return n, err
}

func (l *liar) download(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, size, err := l.Store.Store.GetLarge(ctx, key)
	if !l.false(ctx, "a download", key) {
		return r, size, err
	}
	if kind := failures[l.lie]; kind != nil {
		return nil, 0, says("get", key, kind)
	}
	switch l.lie {
	case "nothing":
		return nil, 0, says("get", key, store.ErrNotExist)
	case "more":
		size++
	case "another body":
		r = io.NopCloser(io.MultiReader(io.LimitReader(r, 40<<10), strings.NewReader("x"), r))
	case "but one":
		r = io.NopCloser(io.LimitReader(r, size-1))
	case "then no more":
		r = io.NopCloser(io.MultiReader(io.LimitReader(r, 40<<10), broken{}))
	}
	return r, size, err
}

// broken is a body whose connection breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

type aboutLies struct {
	about string
	lies  []string
}

// liesAbout are the false answers that there are, by the beginning of what they are about.
var liesAbout = []aboutLies{
	{"a read of nothing", []string{"refused", "denied", "what was before", "unchanged"}},
	{"a read of the same", []string{"refused", "denied", "nothing", "what was before", "sent again"}},
	{"a read", []string{"refused", "denied", "later", "nothing", "unchanged", "what was before", "another body", "another version"}},
	{"a create that fails", []string{"refused", "no answer", "there is nothing", "done", "fails, and done"}},
	{"an update that fails", []string{"refused", "no answer", "there is nothing", "done", "fails, and done"}},
	{"a create", []string{
		"refused", "denied", "no answer", "no answer, and done", "no answer, again and again", "fails", "fails, and done",
		"done, and is not", "done, with another body", "done, with the version before",
	}},
	{"an update", []string{
		"refused", "no answer", "no answer, and done", "no answer, again and again", "fails", "fails, and done", "there is nothing",
		"done, and is not", "done, with another body", "done, with the version before",
	}},
	{"a delete on a condition", []string{"refused", "done", "done, and is not", "there is nothing"}},
	{"a delete", []string{"refused", "denied", "no answer", "no answer, and done", "done, and is not"}},
	{"a listing", []string{"refused", "denied", "later", "no order", "more", "nothing", "but one", "turned round", "another version"}},
	{"an upload", []string{"refused", "denied", "no answer", "done, and is not", "done but for a byte"}},
	{"a download", []string{"refused", "nothing", "more", "another body", "but one", "then no more"}},
}

// A portion is an experiment, or what several of them do, as small as it can be.
type portion struct {
	name   string
	given  func(s *survey) error // what it goes on from
	run    func(s *survey) (Result, string, error)
	once   bool                    // its requests come in any order, so that only the first can be told
	about  func(about string) bool // nil: all
	unlike map[string]Result       // findings that are not OK
}

// portions are all of what an answer to one request can change.
func portions() (all []portion) {
	rested := func(s *survey) error { return errors.Join(s.leaveCreated(), s.leaveUpdated()) }
	given := map[string]func(s *survey) error{
		restCreate: rested, restUpdate: rested, deleteIf: rested,
		tellsTime: func(s *survey) error { return s.spells.begin(s) },
		tellsAge:  func(s *survey) error { return s.spells.begin(s) },
		seenLater: func(s *survey) error {
			_, _, err := s.creatingOver()
			s.watch(watch{key: "gone", told: "a delete"}, false)
			return err
		},
	}
	racing := []string{raceCreate, raceUpdate, raceAgain, seenLater, raceCreate + " of 2 KiB", raceUpdate + " of 2 KiB"}
	for _, e := range experiments {
		p := portion{name: e.name, given: given[e.name], run: e.run, once: slices.Contains(racing, e.name)}
		switch {
		case e.size > 2<<10 && e.name != largeBodies, strings.HasSuffix(e.name, "of all requests"):
			continue
		case slices.Contains([]string{"settings", oddKeys, oddUpdates, oddLists, crowdCreate, crowdUpdate, longLists, clockRate, bodiesWhole, trouble}, e.name):
			continue
		case e.name == deleteIf:
			p.about = func(about string) bool {
				return strings.HasSuffix(about, "doomed") || strings.HasSuffix(about, "rests-updated-#")
			}
		}
		all = append(all, p)
	}
	return append(all, portion{name: "keys that are much alike", run: numbers}, portion{name: "a crowd", once: true, run: func(s *survey) (Result, string, error) {
		creates, updates := new(races), new(races)
		left := s.race(creates, map[string]*store.Object{"crowd-1": nil, "crowd-2": nil}, 2)
		now := s.race(updates, left, 2)
		said := fmt.Sprintf("%d and then %d are there", len(left), len(now))
		for _, of := range []*races{creates, updates} {
			result, detail, err := of.result("races")
			said += fmt.Sprintf("; %s, %s, %v", result, detail, err)
		}
		return Note, said, nil
	}})
}

// numbers are keys that are much alike.
func numbers(s *survey) (Result, string, error) {
	s.family("keys-1", "numbers", []string{"7", "07", "+7"}, 0)
	var said []string
	for _, of := range []*trials{&s.keyed.creates, &s.keyed.updates, &s.keyed.listed} {
		result, detail, err := s.keyed.said(of)
		said = append(said, fmt.Sprintf("%s, %s, %v", result, detail, err))
	}
	return Note, strings.Join(said, "; "), nil
}

// alone makes a portion of the probe, as if all experiments had come out well.
func (p portion) alone(t *testing.T, l *liar) string {
	t.Helper()
	s, err := newSurvey(t.Context(), l, &Options{Races: 20, Open: func(context.Context) (store.Store, error) { return second{l}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.prefix = l.plain
	for _, e := range experiments {
		s.report.Findings = append(s.report.Findings, Finding{Name: e.name, Result: cmp.Or(p.unlike[e.name], OK)})
	}
	if p.given != nil {
		about := l.about
		l.about = ""
		if err := p.given(s); err != nil {
			t.Error(err)
		}
		clear(l.seen)
		clear(l.second)
		l.about = about
	}
	f, _ := s.try(experiment{name: p.name, run: p.run})
	detail := sizesOf.ReplaceAllString(strings.ReplaceAll(f.Detail, l.plain, ""), "some bytes")
	if p.once {
		detail = inQuotes.ReplaceAllStringFunc(detail, func(key string) string { return digits.ReplaceAllString(dressing.ReplaceAllString(key, ""), "#") })
	}
	said := fmt.Sprintf("%s: %s", f.Result, detail)
	if l.lie == "" && !p.once {
		for _, w := range s.watched.all {
			said += fmt.Sprintf("\n\tleft, after %s: %s, %d bodies, maybe nothing: %t", w.told, w.key, len(w.allowed), w.maybe)
		}
	}
	return said
}

// TestOneFalseAnswer: what is said of a store that gives one false answer in an experiment, for each answer and each way in which
// it can be false, is kept in testdata/told. Where two candidates could be harmed by it, it is bad; what fails, or has no
// answer, says nothing against a store.
func TestOneFalseAnswer(t *testing.T) {
	for _, p := range portions() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				kept(t, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(p.name), p.answers(t))
			})
		})
	}
}

// answers gives what is said of each.
func (p portion) answers(t *testing.T) (told []string) {
	t.Helper()
	good := newLiar("", "", 0)
	told = append(told, strings.Split(fmt.Sprintf("%s: %s", p.name, p.alone(t, good)), "\n")...)
	for _, about := range slices.Sorted(maps.Keys(good.seen)) {
		if p.about != nil && !p.about(about) {
			continue
		}
		times := good.seen[about]
		at := slices.Compact([]int{1, min(2, times), times})
		switch {
		case times >= reads:
			at = []int{1, times} // one that is neither the first nor the last is as good as another, and takes long
		case p.once:
			at = at[:1]
		case p.name == updateStale && times > 50:
			at = []int{1, 2, times - repeats - 1, times} // the version of another object, too
		}
		if p.once {
			told = append(told, "\t"+dressing.ReplaceAllString(about, "-…"))
		} else {
			told = append(told, fmt.Sprintf("\t%d times, %d of them over the second connections, %s", times, good.second[about], about))
		}
		of := slices.IndexFunc(liesAbout, func(l aboutLies) bool { return strings.HasPrefix(about, l.about) })
		for _, lie := range liesAbout[of].lies {
			var results []string
			for _, n := range at {
				if r := p.alone(t, newLiar(lie, about, n)); !slices.Contains(results, r) {
					results = append(results, r)
				}
			}
			for _, r := range results {
				told = append(told, fmt.Sprintf("\t\t%s: %s", lie, r))
			}
		}
	}
	return told
}

var update = flag.Bool("update", false, "write the files in testdata/told")

// kept compares what is told with a file in testdata/told.
func kept(t *testing.T, name string, got []string) {
	t.Helper()
	file := filepath.Join("testdata", "told", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	if at < max(len(got), len(want)) {
		some := func(lines []string) string { return strings.Join(lines[max(at-3, 0):min(at+3, len(lines))], "\n") }
		t.Errorf("from line %d on, it tells\n%s\nand not, as %s has it,\n%s\nwith -update the file is written", at+1, some(got), file, some(want))
	}
}
