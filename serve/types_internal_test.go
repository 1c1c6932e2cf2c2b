package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/memstore"
)

// What a look has shown is described as what it is; for how long a lease lasts yet is told only where its record says so.
func TestObjectOf(t *testing.T) {
	t.Parallel()
	s, err := New(memstore.New(), &Options{Prefix: "p/", URL: func(key string) string { return "url:" + key }})
	if err != nil {
		t.Fatal(err)
	}
	s.useLocked("voted", 1, 0, true)
	s.useLocked("wanted", 2, 3, false)
	s.useLocked("slots", 1, 0, true)
	held := leasehold.Info{Key: "p/k", Layout: leasehold.LayoutObject, Exists: true, Held: true, Holder: "me", Token: 7, TTL: 15 * time.Second, Age: 5 * time.Second}
	with := func(change func(*leasehold.Info)) leasehold.Info {
		i := held
		change(&i)
		return i
	}
	slots := func(size int) admin.Entry {
		return admin.Entry{Info: with(func(i *leasehold.Info) { i.Key, i.TTL, i.Size = "p/slots", 0, size })}
	}
	layout := func(l leasehold.Layout) admin.Entry {
		return admin.Entry{Info: with(func(i *leasehold.Info) { i.Layout = l })}
	}
	for what, tc := range map[string]struct {
		e       admin.Entry
		foreign error
		want    string // key, kind, state, left, here, waiting, TTL, history, error
	}{
		"a lock":               {admin.Entry{Info: held}, nil, `k lock held 10000 0 0 15000 null ""`},
		"just renewed":         {admin.Entry{Info: with(func(i *leasehold.Info) { i.Age = 0 })}, nil, `k lock held 15000 0 0 15000 null ""`},
		"expired":              {admin.Entry{Info: with(func(i *leasehold.Info) { i.Age = 20 * time.Second })}, nil, `k lock held -5000 0 0 15000 null ""`},
		"of an unknown age":    {admin.Entry{Info: with(func(i *leasehold.Info) { i.Age = -1 })}, nil, `k lock held none 0 0 15000 null ""`},
		"without a TTL":        {admin.Entry{Info: with(func(i *leasehold.Info) { i.TTL = 0 })}, nil, `k lock held none 0 0 0 null ""`},
		"under a session":      {admin.Entry{Info: with(func(i *leasehold.Info) { i.Session = "x" })}, nil, `k lock held none 0 0 15000 null ""`},
		"free":                 {admin.Entry{Info: with(func(i *leasehold.Info) { i.Held = false })}, nil, `k lock free none 0 0 15000 null ""`},
		"campaigned for":       {admin.Entry{Info: with(func(i *leasehold.Info) { i.Key = "p/voted" })}, nil, `voted election held 10000 1 0 15000 null ""`},
		"waited for":           {admin.Entry{Info: with(func(i *leasehold.Info) { i.Key = "p/wanted" })}, nil, `wanted lock held 10000 2 3 15000 null ""`},
		"a semaphore":          {slots(3), nil, `slots semaphore held none 1 0 0 null ""`},
		"a fair lock":          {slots(1), nil, `slots fair_lock held none 1 0 0 null ""`},
		"a reader/writer lock": {slots(semaphore.RWSize), nil, `slots rw_lock held none 1 0 0 null ""`},
		"a session":            {layout(admin.LayoutSession), nil, `k session held 10000 0 0 15000 null ""`},
		"epochs":               {layout(leasehold.LayoutEpochs), nil, `k epochs held 10000 0 0 15000 null ""`},
		"a marker":             {layout(leasehold.LayoutMarker), nil, `k marker held 10000 0 0 15000 null ""`},
		"moved":                {admin.Entry{Info: with(func(i *leasehold.Info) { i.Held = false })}, fmt.Errorf("gone:\n%w", leasehold.ErrMoved), `k moved moved none 0 0 0 null "gone:; ` + oneLine(leasehold.ErrMoved) + `"`},
		"something else":       {admin.Entry{Info: leasehold.Info{Key: "p/k"}}, errors.New("no\r\n  record\rat all"), `k foreign not a lock none 0 0 0 null "no; record; at all"`},
		"with a past": {
			admin.Entry{Info: held, Past: []admin.Term{{Info: leasehold.Info{Holder: "b", Token: 6}, Why: "released", Leases: 1, First: 6}, {Info: leasehold.Info{Holder: "a", Token: 5}, Why: "broken", Leases: 2, First: 4}}},
			nil,
			`k lock held 10000 0 0 15000 [{"lock":"url:p/k","token":6,"holder":"b","why":"released","leases":1,"first_token":6},{"lock":"url:p/k","token":5,"holder":"a","why":"broken","leases":2,"first_token":4}] ""`,
		},
	} {
		o := s.own(s.objectOf(tc.e, tc.foreign))
		left := "none"
		if o.Left != nil {
			left = fmt.Sprint(*o.Left)
		}
		history, err := json.Marshal(o.History)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s %s %s %s %d %d %d %s %q", o.Key, o.Kind, o.State, left, o.Here, o.Waiting, o.TTL, history, o.Error)
		if got != tc.want || o.Lock != "url:"+tc.e.Key {
			t.Errorf("%s is %s at %s, want %s", what, got, o.Lock, tc.want)
		}
	}
}
