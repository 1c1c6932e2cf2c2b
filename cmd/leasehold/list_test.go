package main

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestListAsTable: the table of all locks under a prefix has a layout column if any layout is not object.
func TestListAsTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const record = `{"format":1,"token":7,"state":"held","holder":"%s","address":"","ttl_ms":86400000,"write_id":"x.1","session":"","renewed_at":"2026-01-01T00:00:00Z"%s}`
		st := memstore.New()
		for key, body := range map[string]string{
			"a/<b>&":              fmt.Sprintf(record, "me", ""),
			"a/l":                 fmt.Sprintf(record, `a\u001b`, ""),
			"b/e/0000000001.json": fmt.Sprintf(record, "me", `,"layout":"epochs"`),
			"b/o":                 fmt.Sprintf(record, "me", ""),
			"c/garbage":           "garbage",
			"c/o":                 fmt.Sprintf(record, "me", ""),
		} {
			if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct{ prefix, name, table, says string }{
			{"a/", "a/", "NAME    STATE  HOLDER   TOKEN  AGE\na/<b>&  held   me       7      0s\na/l     held   \"a\\x1b\"  7      0s\n", ""},
			{"b/", "b/", "NAME  STATE  HOLDER  TOKEN  AGE  LAYOUT\nb/e   held   me      7      0s   epochs\nb/o   held   me      7      0s   object\n", ""},
			{"c/", "c/", "NAME       STATE       HOLDER  TOKEN  AGE\nc/garbage  not a lock  -       -      -\nc/o        held        me      7      0s\n", ""},
			{"d/", "d/\x1b", "", "leasehold: there are no locks under \"d/\\x1b\"\n"},
			{"d/", "", "", ""},
		} {
			var out, said bytes.Buffer
			a := &app{stdout: &out, console: console{w: &said, least: levelNotice}}
			if err := a.listAll(t.Context(), target{store: st, key: tt.prefix, name: tt.name}); err != nil || out.String() != tt.table || said.String() != tt.says {
				t.Errorf("%s: it writes\n%s%q, %v; want\n%s%q", tt.prefix, &out, &said, err, tt.table, tt.says)
			}
			a.stdout = brokenWriter{}
			if err := a.listAll(t.Context(), target{store: st, key: tt.prefix, name: tt.name}); (err != nil) != (tt.table != "") || err != nil && err.Error() != "exit code 70: cannot write to stdout: full" {
				t.Errorf("%s: with a full stdout it ends with %v", tt.prefix, err)
			}
		}
	})
}

// TestRowOfLock: the table's row for each state of a lock.
func TestRowOfLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := leasehold.Info{Key: "l", Exists: true, Holder: "me", Token: 7, Layout: leasehold.LayoutObject, Age: time.Second}
		as := func(change func(*leasehold.Info)) admin.Entry {
			i := free
			change(&i)
			return admin.Entry{Info: i}
		}
		slots := as(func(i *leasehold.Info) {
			i.Held, i.Holder, i.Layout = true, "", admin.LayoutTable
			i.Size, i.Holders = 2, []leasehold.Entry{{Holder: "s"}}
		})
		empty := as(func(i *leasehold.Info) { i.Holder, i.Layout, i.Size = "", admin.LayoutTable, 2 })
		for name, tt := range map[string]struct {
			entry   admin.Entry
			foreign error
			want    string
		}{
			"free":             {as(func(*leasehold.Info) {}), nil, "[l free - 7 1s object]"},
			"held":             {as(func(i *leasehold.Info) { i.Held = true }), nil, "[l held me 7 1s object]"},
			"held by nobody":   {as(func(i *leasehold.Info) { i.Held, i.Holder = true, "" }), nil, "[l held - 7 1s object]"},
			"abandoned":        {as(func(i *leasehold.Info) { i.Held, i.Abandoned = true, true }), nil, "[l abandoned me 7 1s object]"},
			"at rest":          {as(func(i *leasehold.Info) { i.Rest = 1 }), nil, "[l at rest - 7 1s object]"},
			"without a token":  {as(func(i *leasehold.Info) { i.Token = 0 }), nil, "[l free - - 1s object]"},
			"just written":     {as(func(i *leasehold.Info) { i.Age = 0 }), nil, "[l free - 7 0s object]"},
			"of unknown age":   {as(func(i *leasehold.Info) { i.Age = -1 }), nil, "[l free - 7 - object]"},
			"by a wall clock":  {as(func(i *leasehold.Info) { i.Age, i.RenewedAt = -1, time.Now().Add(-time.Hour) }), nil, "[l free - 7 ~1h0m0s object]"},
			"by a fast clock":  {as(func(i *leasehold.Info) { i.Age, i.RenewedAt = -1, time.Now().Add(time.Hour) }), nil, "[l free - 7 ~0s object]"},
			"slots":            {slots, nil, "[l held s 7 1s table]"},
			"slots of nobody":  {empty, nil, "[l free - 7 1s table]"},
			"something else":   {admin.Entry{Info: leasehold.Info{Key: "l", Age: -1}}, leasehold.ErrForeignObject, "[l not a lock - - - -]"},
			"a name of theirs": {as(func(i *leasehold.Info) { i.Key = "\x1b" }), nil, `["\x1b" free - 7 1s object]`},
		} {
			if got := fmt.Sprint(row(tt.entry, tt.foreign)); got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
		}
	})
}
