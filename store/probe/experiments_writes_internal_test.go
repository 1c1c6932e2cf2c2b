package probe

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A quoter has versions in quotes, and takes them in some forms.
type quoter struct {
	*inspected
	name         string
	quoted, bare bool // the forms that it takes
	other        store.Store
	fails        error // of what it does not take
}

func newQuoter(st *memstore.Store, name string, quoted, bare bool) *quoter {
	q := &quoter{inspected: &inspected{Store: &brokenstore.Store{Store: st}}, name: name, quoted: quoted, bare: bare}
	q.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		if v := string(only.Match()); !only.Absent() {
			bare := strings.Trim(v, `"`)
			if v == bare && !q.bare || v != bare && !q.quoted {
				kind := store.ErrPrecondition
				if q.fails != nil {
					kind = q.fails
				}
				return nil, &store.Error{Op: "put", Key: key, Kind: kind}
			}
			only = store.IfMatch(store.Version(bare))
		}
		return q.named(st.Put(ctx, key, body, only))
	}
	q.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
		return q.named(st.Get(ctx, key, store.Version(strings.Trim(string(unless), `"`))))
	}
	return q
}

func (q *quoter) named(o *store.Object, err error) (*store.Object, error) {
	if err == nil {
		o.Version = store.Version(fmt.Sprintf("%q", o.Version))
	}
	return o, err
}

func (q *quoter) String() string            { return q.name }
func (q *quoter) Inspect() store.Inspection { return q }
func (q *quoter) Unquoted() store.Store     { return q.other }

// TestQuotes: a store that takes versions without their quotes only is used so from then on, and the report says that it must be.
func TestQuotes(t *testing.T) {
	t.Parallel()
	const update = `put "leasehold-probe-0123456789abcdef/object": precondition failed`
	for _, c := range []struct {
		name         string
		quoted, bare bool
		unquoted     bool // what Unquoted gives takes an update
		none         bool // there is no such store
		plain        bool // nor does that of the other connections know one
		fails        error
		update       string
		quotes       string // of versions without their quotes
		store        string
	}{
		{"with quotes only", true, false, false, true, false, nil, "ok: ", "note: refused", "q"},
		{"with quotes and without", true, true, false, true, false, nil, "ok: ", "note: taken as well", "q"},
		{"what is bare fails", true, false, false, true, false, store.ErrRefused, "ok: ", `unknown: put "leasehold-probe-0123456789abcdef/object": refused by the store`, "q"},
		{"without quotes only", false, false, true, false, false, nil, "ok: only without the quotes of versions: see unquoted_etags", "note: the only ones that this store takes", "bare"},
		{"in no form", false, false, false, false, false, nil, `bad: refused, although the version is "1", with its quotes and without: ` + update, "note: refused", "q"},
		{"in no form, and there is no other", false, false, false, true, false, nil, `bad: refused, although the version is "1": ` + update, "note: refused", "q"},
		{"without quotes, over the first connections", false, false, true, false, true, nil, `bad: refused, although the version is "1", with its quotes and without: ` + update, "note: refused", "q"},
	} {
		shared := memstore.New()
		st := newQuoter(shared, "q", c.quoted, c.bare)
		st.fails = c.fails
		bare := newQuoter(shared, "bare", c.unquoted, c.unquoted)
		if !c.none {
			st.other = bare
		}
		s, err := newSurvey(t.Context(), st, &Options{Races: 20, Open: func(context.Context) (store.Store, error) {
			if c.plain {
				return named{brokenstore.Bare{Store: st.Store}, "q"}, nil
			}
			return st, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.prefix, s.wrote = scratch+"0123456789abcdef/", true
		var said []string
		for _, e := range []experiment{{run: (*survey).updating}, {run: (*survey).unquoting}} {
			f, _ := s.try(e)
			said = append(said, fmt.Sprintf("%s: %s", f.Result, f.Detail))
		}
		if said[0] != c.update || said[1] != c.quotes || s.report.Store != c.store || s.report.UnquotedETags != (c.store == "bare") {
			t.Errorf("%s: %q of %s, unquoted: %t", c.name, said, s.report.Store, s.report.UnquotedETags)
		}
		if s.a.String() != c.store || s.b.String() != c.store || s.look == nil || (s.look.(*quoter) == bare) != (c.store == "bare") { //nolint:errcheck,forcetypeassert // it is one
			t.Errorf("%s: it goes on with %v and %v", c.name, s.a, s.b)
		}
	}
}
