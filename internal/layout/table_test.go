package layout_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// newTable is a table in which one holds a slot and one waits, under these sessions.
func newTable(writeID, holds, waits string) record.Table {
	return record.Table{
		Size: 1, Token: 7, WriteID: writeID,
		Holders: []record.Entry{{ID: "a.1", Session: holds, Weight: 1, Token: 7, Holder: "a"}},
		Waiters: []record.Entry{{ID: "b.1", Session: waits, Weight: 1, Holder: "b"}},
	}
}

// TestTableInAStore: a table is looked at by one read and written by one write, which lands only over
// what was seen.
func TestTableInAStore(t *testing.T) {
	stores(t, func(t *testing.T, st *tapped) {
		at := layout.Table{Store: st, Key: "jobs/slots"}
		var none layout.TableSnapshot
		var err error
		wants(t, "a look costs", st.cost(func() { none, err = at.Look(t.Context(), "") }), "1 GET, 0 PUT, 0 LIST, 0 DELETE")
		if read := layout.TableRead(none, err); read.Shown != protocol.Absent || read.Date.IsZero() || read.Err != nil {
			t.Errorf("at first there is %+v", read)
		}
		first := newTable("a.w1", "sessions/a", "sessions/b")
		var v1 protocol.Version
		wants(t, "a write costs", st.cost(func() { v1, err = at.Write(t.Context(), queue.Write{Table: first}) }), "0 GET, 1 PUT, 0 LIST, 0 DELETE")
		if written := layout.TableWritten(v1, err); err != nil || !reflect.DeepEqual(written, queue.WriteDone{Version: v1}) || v1 == "" {
			t.Errorf("it was written: %+v", written)
		}
		seen, err := at.Look(t.Context(), "")
		if read := layout.TableRead(seen, err); !reflect.DeepEqual(read, queue.ReadDone{Shown: protocol.Found, Version: v1, Table: first}) {
			t.Errorf("there is %+v", read)
		}
		seen, err = at.Look(t.Context(), v1)
		if read := layout.TableRead(seen, err); !reflect.DeepEqual(read, queue.ReadDone{Shown: protocol.Same}) {
			t.Errorf("what is known gives %+v", read)
		}
		for expect, next := range map[protocol.Version]string{"": "a.w2", "another": "a.w3"} {
			_, err = at.Write(t.Context(), queue.Write{Table: newTable(next, "s", "s"), Expect: expect})
			if written := layout.TableWritten("", err); !errors.Is(err, store.ErrPrecondition) || !written.Refused || written.Fatal || written.Err == nil {
				t.Errorf("over %q: %+v", expect, written)
			}
		}
		second := newTable("a.w4", "sessions/a", "sessions/c")
		v2, err := at.Write(t.Context(), queue.Write{Table: second, Expect: v1})
		if err != nil || v2 == v1 {
			t.Fatalf("it was written as %q: %v", v2, err)
		}
		if seen, err := at.Look(t.Context(), v1); err != nil || seen.Version != v2 || !reflect.DeepEqual(seen.Table, second) {
			t.Errorf("there is %+v, %v", seen, err)
		}
		wants(t, "where it is", at, st.String()+"/jobs/slots")
	})
}

// TestSessionsOfATable: in the object they are ways from it, so a process finds them that has opened the
// store elsewhere; and what is written is not what the caller has.
func TestSessionsOfATable(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	at := layout.Table{Store: st, Key: "p/jobs/slots"}
	mine := newTable("a.w1", "p/sessions/a", "q/sessions/b")
	if _, err := at.Write(t.Context(), queue.Write{Table: mine}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(mine, newTable("a.w1", "p/sessions/a", "q/sessions/b")) {
		t.Errorf("the caller's table became %+v", mine)
	}
	obj, err := st.Get(t.Context(), "p/jobs/slots", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{`"session":"../sessions/a"`, `"session":"../../q/sessions/b"`} {
		if !strings.Contains(string(obj.Body), way) {
			t.Errorf("%s does not have %s", obj.Body, way)
		}
	}
	for key, want := range map[string]string{
		"p/jobs/slots": "[p/sessions/a q/sessions/b]",
		"jobs/slots":   "[sessions/a ../q/sessions/b]",
		"slots":        "[../sessions/a ../../q/sessions/b]",
	} {
		from := memstore.New()
		plant(t, from, key, string(obj.Body))
		seen, err := layout.Table{Store: from, Key: key}.Look(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var sessions []string
		for _, s := range seen.Table.Entries() {
			sessions = append(sessions, s.Session)
		}
		wants(t, "seen from "+key, sessions, want)
	}
}

// TestTableThatIsNone: what is no table is foreign, and is named; a table that cannot be written is said to
// be so before anything is sent.
func TestTableThatIsNone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"garbage":   "garbage",
		"a lock":    `{"format":1,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`,
		"too large": strings.Repeat("x", store.MaxBody+1),
	} {
		st := memstore.New()
		if _, err := st.PutLarge(t.Context(), "slots", strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
		s, err := layout.Table{Store: st, Key: "slots"}.Look(t.Context(), "")
		read := layout.TableRead(s, err)
		if read.Shown != protocol.Foreign || !errors.Is(read.Err, record.ErrForeign) || !strings.Contains(fmt.Sprint(read.Err), "the object mem:///slots is ") || read.Fatal {
			t.Errorf("%s: %+v", name, read)
		}
	}
	st := &tapped{Store: memstore.New()}
	at := layout.Table{Store: st, Key: "slots"}
	broken := newTable("a.w1", "s\xff", "s")
	var err error
	wants(t, "it costs", st.cost(func() { _, err = at.Write(t.Context(), queue.Write{Table: broken}) }), "0 GET, 0 PUT, 0 LIST, 0 DELETE")
	if w := layout.TableWritten("", err); !w.Fatal || w.Refused || !errors.Is(err, store.ErrInvalid) ||
		!strings.HasPrefix(err.Error(), `put "slots": `) || !strings.Contains(err.Error(), "not valid UTF-8") {
		t.Errorf("it is written: %+v", w)
	}
}

// TestTableOverABadNetwork: what a store's failure means to a table.
func TestTableOverABadNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind           faultstore.Kind
		readFatal      bool
		refused, fatal bool
		landed         bool
	}{
		{kind: faultstore.Unavailable},
		{kind: faultstore.Throttled},
		{kind: faultstore.Denied, readFatal: true, fatal: true},
		{kind: faultstore.Conflict, refused: true},
		{kind: faultstore.LostRequest},
		{kind: faultstore.LostAnswer, landed: true},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			t.Parallel()
			st := faultstore.Wrap(memstore.New(), nil)
			at := layout.Table{Store: st, Key: "slots"}
			if c.kind != faultstore.Conflict { // which is for puts only
				st.Inject(faultstore.Fault{Kind: c.kind, Op: "get", Nth: 1})
				s, err := at.Look(t.Context(), "")
				read := layout.TableRead(s, err)
				if read.Shown != protocol.Unread || read.Err == nil || read.Fatal != c.readFatal {
					t.Errorf("read: %+v", read)
				}
			}
			st.Inject(faultstore.Fault{Kind: c.kind, Op: "put", Nth: 1})
			v, err := at.Write(t.Context(), queue.Write{Table: newTable("a.w1", "s", "s")})
			written := layout.TableWritten(v, err)
			if written.Err == nil || written.Refused != c.refused || written.Fatal != c.fatal || written.Version != "" {
				t.Errorf("written: %+v", written)
			}
			s, err := at.Look(t.Context(), "")
			if read := layout.TableRead(s, err); (read.Shown == protocol.Found) != c.landed {
				t.Errorf("it landed: %+v", read)
			}
		})
	}
	now := time.Now()
	absent := layout.TableRead(layout.TableSnapshot{}, &store.Error{Op: "get", Key: "slots", Kind: store.ErrNotExist, Date: now})
	if !reflect.DeepEqual(absent, queue.ReadDone{Shown: protocol.Absent, Date: now}) {
		t.Errorf("absent: %+v", absent)
	}
}
