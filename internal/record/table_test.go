package record_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// tableText is a table as any version must be able to read it.
const tableText = `{"format":1,"layout":"table","size":4,"token":42,"write_id":"0f9c.w7","turn_ms":1500,
"holders":[
 {"id":"0f9c.1","session":"sessions/0f9c","weight":2,"token":41,"holder":"web-1","since":"2026-11-20T10:30:45.000Z"},
 {"id":"77aa.3","session":"sessions/77aa","weight":1,"token":42,"holder":"<web-2>","since":"2026-11-20T10:30:50.000Z"}],
"waiters":[
 {"id":"0f9c.2","session":"sessions/0f9c","weight":4,"holder":"web-1","address":"10.0.1.42:8443","since":"2026-11-20T10:31:05.000Z"},
 {"id":"5bd1.9","session":"sessions/5bd1","weight":1,"holder":""}]}
`

// table is what tableText says.
func table() record.Table {
	at := time.Date(2026, 11, 20, 10, 30, 45, 0, time.UTC)
	return record.Table{
		Size: 4, Token: 42, WriteID: "0f9c.w7", Turn: 1500 * time.Millisecond,
		Holders: []record.Entry{
			{ID: "0f9c.1", Session: "sessions/0f9c", Weight: 2, Token: 41, Holder: "web-1", Since: at},
			{ID: "77aa.3", Session: "sessions/77aa", Weight: 1, Token: 42, Holder: "<web-2>", Since: at.Add(5 * time.Second)},
		},
		Waiters: []record.Entry{
			{ID: "0f9c.2", Session: "sessions/0f9c", Weight: 4, Holder: "web-1", Address: "10.0.1.42:8443", Since: at.Add(20 * time.Second)},
			{ID: "5bd1.9", Session: "sessions/5bd1", Weight: 1},
		},
	}
}

func TestTableIsReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	got, err := record.DecodeTable([]byte(tableText))
	if err != nil || !reflect.DeepEqual(got, table()) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, table())
	}
	if body, err := table().Encode(); err != nil || string(body) != tableText {
		t.Errorf("encoded %s, %v; want %s", body, err, tableText)
	}
	if got.Taken() != 3 {
		t.Errorf("%d slots are taken", got.Taken())
	}
	var order []string
	for _, s := range got.Entries() {
		order = append(order, s.ID)
	}
	if fmt.Sprint(order) != "[0f9c.1 77aa.3 0f9c.2 5bd1.9]" {
		t.Errorf("the entries are %v", order)
	}
}

// TestEmptyTable: a table that nobody uses any more keeps its size and its token, and the lists may be
// missing.
func TestEmptyTable(t *testing.T) {
	t.Parallel()
	const empty = `{"format":1,"layout":"table","size":1,"token":0,"write_id":"x",` + "\n" + `"holders":[],` + "\n" + `"waiters":[]}` + "\n"
	want := record.Table{Size: 1, WriteID: "x"}
	if body, err := want.Encode(); err != nil || string(body) != empty {
		t.Errorf("encoded %s, %v", body, err)
	}
	for _, body := range []string{empty, `{"format":1,"layout":"table","size":1,"token":0,"write_id":"x"}`} {
		if got, err := record.DecodeTable([]byte(body)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
}

// TestUnknownFieldsOfATable: another version's fields are kept, those of the table and those of each
// entry.
func TestUnknownFieldsOfATable(t *testing.T) {
	t.Parallel()
	text := strings.Replace(tableText, `"holder":"web-1"`, `"holder":"web-1","Zone":"a"`, 1)
	text = strings.Replace(text, `"holder":""}]}`, `"holder":"","\"<":{"deep": [1,2.50,"<&>"]},"b":null}],"colour":[ 1 ],"size2":3}`, 1)
	text = strings.Replace(text, `,"Zone":"a","since":"2026-11-20T10:30:45.000Z"`, `,"since":"2026-11-20T10:30:45.000Z","Zone":"a"`, 1)
	got, err := record.DecodeTable([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Unknown["colour"]) != "[ 1 ]" || string(got.Holders[0].Unknown["Zone"]) != `"a"` || got.Holders[1].Unknown != nil {
		t.Errorf("decoded %+v", got)
	}
	for range 10 { // in the same order each time
		if body, err := got.Encode(); err != nil || string(body) != text {
			t.Fatalf("encoded %s, %v; want %s", body, err, text)
		}
	}
}

func TestForeignTables(t *testing.T) {
	t.Parallel()
	replace := func(from, to string) string {
		if !strings.Contains(tableText, from) {
			t.Fatalf("no %s", from)
		}
		return strings.Replace(tableText, from, to, 1)
	}
	for name, c := range map[string]struct{ body, says string }{
		"garbage":              {"\x00\x01garbage", "not a JSON object"},
		"cut short":            {tableText[:60], "broken"},
		"a lock":               {plain, `it belongs to the layout "object", not "table"`},
		"a heartbeat":          {replace(`"table"`, `"session"`), `it belongs to the layout "session", not "table"`},
		"layout a number":      {replace(`"table"`, `7`), "its layout is not what it should be"},
		"higher format":        {replace(`"format":1`, `"format":2`), "upgrade leasehold"},
		"no size":              {replace(`"size":4,`, ``), "it has no size"},
		"size zero":            {replace(`"size":4`, `"size":0`), "its size 0 is not between 1 and 1073741824"},
		"size too large":       {replace(`"size":4`, `"size":1073741825`), "its size 1073741825"},
		"no token":             {replace(`"token":42,"write_id"`, `"write_id"`), "it has no token"},
		"negative token":       {replace(`"token":42,"write_id"`, `"token":-1,"write_id"`), "its token -1 is negative"},
		"no write ID":          {replace(`"0f9c.w7"`, `""`), "it has no write_id"},
		"write ID a number":    {replace(`"0f9c.w7"`, `7`), "its write_id"},
		"size twice":           {replace(`"size":4`, `"size":4,"size":5`), "twice"},
		"holders no list":      {replace("\"holders\":[\n", `"holders":7,"others":[`), "its holders is not what it should be"},
		"waiters no list":      {replace("\"waiters\":[\n", `"waiters":7,"others":[`), "its waiters is not what it should be"},
		"an entry a text":      {replace(`{"id":"77aa.3"`, `"x",{"id":"77aa.3"`), "of its holders number 2: it is not a JSON object"},
		"a waiter a text":      {replace(`{"id":"0f9c.2"`, `"x",{"id":"0f9c.2"`), "of its waiters number 1: it is not a JSON object"},
		"no id":                {replace(`"id":"0f9c.1",`, ``), "of its holders number 1: it has no id, or no session"},
		"no session":           {replace(`"session":"sessions/5bd1",`, ``), "of its waiters number 2: it has no id, or no session"},
		"id a number":          {replace(`"0f9c.1"`, `7`), "its id"},
		"session a number":     {replace(`"sessions/0f9c"`, `7`), "its session"},
		"holder a number":      {replace(`"web-1"`, `7`), "its holder"},
		"since a number":       {replace(`"2026-11-20T10:30:45.000Z"`, `7`), "its since"},
		"no weight":            {replace(`"weight":2,`, ``), "it has no weight"},
		"weight a text":        {replace(`"weight":2`, `"weight":"2"`), "its weight is not an integer"},
		"weight zero":          {replace(`"weight":2`, `"weight":0`), "the weight 0 of 0f9c.1 is not between 1 and its size 4"},
		"weight too large":     {replace(`"weight":4`, `"weight":5`), "the weight 5 of 0f9c.2 is not between 1 and its size 4"},
		"a token a text":       {replace(`"token":41`, `"token":"41"`), "its token is not an integer"},
		"a token zero":         {replace(`"token":41`, `"token":0`), "the token 0 of 0f9c.1"},
		"a token not granted":  {replace(`"token":42,"holder"`, `"token":43,"holder"`), "the token 43 of 77aa.3"},
		"a token twice":        {replace(`"token":41`, `"token":42`), "the token 42 of 77aa.3"},
		"no token of an entry": {replace(`"token":41,`, ``), "the token 0 of 0f9c.1"},
		"a waiter's token":     {replace(`"weight":4`, `"weight":4,"token":7`), "0f9c.2 waits, and has a token"},
		"a holder twice":       {replace(`"77aa.3"`, `"0f9c.1"`), "the entry 0f9c.1 is there twice"},
		"a waiter twice":       {replace(`"5bd1.9"`, `"0f9c.2"`), "the entry 0f9c.2 is there twice"},
		"both":                 {replace(`"5bd1.9"`, `"0f9c.1"`), "the entry 0f9c.1 is there twice"},
		"more than there is":   {replace(`"weight":2`, `"weight":4`), "its holders have the weight 5, and its size is 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := record.DecodeTable([]byte(c.body))
			if !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), c.says) || !reflect.DeepEqual(got, record.Table{}) {
				t.Errorf("got %+v, %v; want ErrForeign that says %q", got, err, c.says)
			}
		})
	}
}

// TestTableBounds: the first and the last of each range are in it.
func TestTableBounds(t *testing.T) {
	t.Parallel()
	at := func(size, token, weight, granted int64) string {
		return fmt.Sprintf(`{"format":1,"layout":"table","size":%d,"token":%d,"write_id":"x","holders":[{"id":"a","session":"s","weight":%d,"token":%d}]}`,
			size, token, weight, granted)
	}
	for _, body := range []string{
		at(1, 1, 1, 1),
		at(1<<30, math.MaxInt64, 1<<30, math.MaxInt64),
		at(2, 7, 2, 1),
	} {
		if _, err := record.DecodeTable([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	if record.MaxSlots != 1<<30 || record.MaxTable != 512<<10 {
		t.Error(record.MaxSlots, record.MaxTable)
	}
}

// TestTableSize: a table may have 512 KiB, and not one byte more; a thousand who wait leave room in half of it.
func TestTableSize(t *testing.T) {
	t.Parallel()
	full := table()
	full.Waiters = nil
	for i := range 1000 {
		full.Waiters = append(full.Waiters, record.Entry{
			ID: fmt.Sprintf("%032x.%d", i, i), Session: fmt.Sprintf("sessions/%032x", i), Weight: 1, Holder: "worker-7f9c8d-x2x4p/1", Since: full.Holders[0].Since,
		})
	}
	short, err := full.Encode()
	if err != nil || full.Room(record.MaxJoined) <= 0 {
		t.Fatal(full.Room(record.MaxJoined), err)
	}
	full.WriteID += strings.Repeat("x", record.MaxTable-len(short))
	body, err := full.Encode()
	if err != nil || len(body) != record.MaxTable {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if _, err := record.DecodeTable(body); err != nil {
		t.Error(err)
	}
	if _, err := record.DecodeTable(append(body, ' ')); !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), "it has 524289 bytes, more than 524288") {
		t.Errorf("one byte more: %v", err)
	}
	full.WriteID += "x"
	if body, err := full.Encode(); !errors.Is(err, record.ErrTableFull) || !strings.Contains(err.Error(), "524289 bytes, more than 524288") || body != nil {
		t.Errorf("one byte more: %d bytes, %v", len(body), err)
	}
}

// TestRoom: what those who join have is half of a table, less what its entries take in it.
func TestRoom(t *testing.T) {
	t.Parallel()
	last := record.Entry{ID: "a.1", Session: "s", Weight: 1, Holder: "é"}
	if n := len(",\n " + `{"id":"a.1","session":"s","weight":1,"holder":"é"}`); last.Len() != n {
		t.Errorf("an entry has %d bytes, and not %d", last.Len(), n)
	}
	some := table()
	if got := (record.Table{Size: 1}).Room(record.MaxJoined); got != 256<<10 {
		t.Errorf("an empty table has room for %d bytes", got)
	}
	before, _ := some.Encode()
	room := some.Room(record.MaxJoined)
	some.Waiters = append(some.Waiters, last)
	after, _ := some.Encode()
	if room-some.Room(record.MaxJoined) != len(after)-len(before) || 256<<10-room != len(before)-len(`{"format":1,"layout":"table","size":4,"token":42,"write_id":"0f9c.w7","turn_ms":1500,`+"\n"+`"holders":[],`+"\n"+`"waiters":[]}`+"\n")+2 {
		t.Errorf("it has room for %d bytes, then %d, and has %d bytes, then %d", room, some.Room(record.MaxJoined), len(before), len(after))
	}
}

// TestTextsOfATable: a text that is no UTF-8 is refused, and a long name of a holder is cut, since it is
// for people; so is a time that cannot be read.
func TestTextsOfATable(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]record.Entry{
		"id": {ID: "a\xff", Session: "s", Weight: 1}, "session": {ID: "a", Session: "s\xff", Weight: 1}, "holder": {ID: "a", Session: "s", Weight: 1, Holder: "h\xff"},
	} {
		for _, full := range []record.Table{{Size: 1, WriteID: "x", Holders: []record.Entry{broken}}, {Size: 1, WriteID: "x", Waiters: []record.Entry{broken}}} {
			if body, err := full.Encode(); err == nil || !strings.Contains(err.Error(), "is not valid UTF-8") {
				t.Errorf("%s: %s, %v", name, body, err)
			}
		}
	}
	long := table()
	long.Waiters[0].Holder = strings.Repeat("h", 4000)
	body, err := long.Encode()
	if err != nil || len(body) > len(tableText)+300 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	got, err := record.DecodeTable([]byte(strings.Replace(string(body), "2026-11-20T10:30:45.000Z", "yesterday", 1)))
	if err != nil || !strings.HasSuffix(got.Waiters[0].Holder, "h…") || !got.Holders[0].Since.IsZero() || got.Holders[1].Since.IsZero() {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

// TestTurnOfATable: a turn that cannot be is none, and none is longer than a day: it only says when to look.
func TestTurnOfATable(t *testing.T) {
	t.Parallel()
	const day = 24 * 60 * 60 * 1000
	for text, want := range map[string]time.Duration{
		"1": time.Millisecond, "0": 0, "-1": 0, `"7"`: 0, "1.5": 0, "86399999": (day - 1) * time.Millisecond,
		"86400000": day * time.Millisecond, "86400001": day * time.Millisecond, "4611686018427387903": day * time.Millisecond,
	} {
		got, err := record.DecodeTable([]byte(strings.Replace(tableText, `"turn_ms":1500`, `"turn_ms":`+text, 1)))
		if err != nil || got.Turn != want {
			t.Errorf("%s: %v, %v", text, got.Turn, err)
		}
	}
}

// FuzzDecodeTable: whatever lies in the store, it is either refused or read. What is read breaks no
// promise, and says what was there, also when it is written back.
func FuzzDecodeTable(f *testing.F) {
	f.Add([]byte(tableText))
	f.Add([]byte(strings.Replace(tableText, `"holder":""}]}`, `"holder":"","colour":[null,{"a":1e9}],"":0}],"zone":{"b": 1}}`, 1)))
	f.Add([]byte(`{"format":1,"layout":"table","size":1,"token":0,"write_id":"x"}`))
	f.Add([]byte(`{"format":1,"layout":"table","size":1073741824,"token":9223372036854775807,"write_id":"x","holders":null,"waiters":[]}`))
	f.Add([]byte(`{"format":1,"layout":"table","size":2,"token":7,"write_id":"x","holders":[{"id":"a","session":"s","weight":2,"token":7}],"waiters":[{"id":"b","session":"s","weight":1,"token":0,"since":"x"}]}`))
	f.Add([]byte(`{"format":1,"layout":"table","size":2,"token":7,"write_id":"x","holders":[{"id":"a","session":"s","weight":1,"token":7},{"id":"b","session":"s","weight":1,"token":7}]}`))
	f.Add([]byte(`{"format":1,"layout":"table","size":1,"token":-0,"write_id":"x","waiters":[{"id":"a","session":"s","weight":1,"token":-0}]}`))
	f.Add([]byte(plain))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := record.DecodeTable(body)
		if err != nil {
			if !errors.Is(err, record.ErrForeign) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if broken := brokenPromise(got); broken != "" {
			t.Fatalf("accepted %+v: %s", got, broken)
		}
		again, err := got.Encode()
		if err != nil {
			if len(body) < record.MaxTable/8 {
				t.Fatalf("cannot write back what was read: %v", err)
			}
			return
		}
		back, err := record.DecodeTable(again)
		if err != nil {
			t.Fatalf("cannot read back %s: %v", again, err)
		}
		if before, after := tableMembers(t, body), tableMembers(t, again); !reflect.DeepEqual(before, after) {
			t.Fatalf("read %v\nand wrote %v", before, after)
		}
		if third, err := back.Encode(); err != nil || string(third) != string(again) {
			t.Fatalf("wrote %s, then %s, %v", again, third, err)
		}
	})
}

// brokenPromise says what in a table would break a promise if it was believed.
func brokenPromise(t record.Table) string {
	ids, tokens := map[string]bool{}, map[int64]bool{}
	taken := int64(0)
	for _, h := range t.Holders {
		if h.Token < 1 || h.Token > t.Token || tokens[h.Token] {
			return "a holder's token"
		}
		tokens[h.Token] = true
		taken += h.Weight
	}
	for _, w := range t.Waiters {
		if w.Token != 0 {
			return "a waiter's token"
		}
	}
	for _, s := range append(append([]record.Entry{}, t.Holders...), t.Waiters...) {
		if s.ID == "" || s.Session == "" || ids[s.ID] || s.Weight < 1 || s.Weight > t.Size {
			return "the entry " + s.ID
		}
		ids[s.ID] = true
	}
	switch {
	case taken > t.Size:
		return "the weight of all"
	case t.Size < 1 || t.Size > record.MaxSlots || t.Token < 0 || t.WriteID == "":
		return "its head"
	}
	return ""
}

// tableMembers are those of a table and of its entries, as encoding/json reads them. Left out are
// texts for people, which need not be readable, and what means the same as if it was not there.
func tableMembers(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var all map[string]any
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"holders", "waiters"} {
		list, _ := all[name].([]any)
		if len(list) == 0 {
			delete(all, name)
		}
		for _, s := range list {
			entry, ok := s.(map[string]any)
			if !ok {
				t.Fatalf("the entry %v was accepted", s)
			}
			delete(entry, "holder")
			delete(entry, "since")
			dropZero(entry)
		}
	}
	dropZero(all)
	delete(all, "turn_ms") // for the pace alone: one that cannot be read is none
	return all
}

// dropZero leaves out a token that is none: it may be written as -0 too.
func dropZero(members map[string]any) {
	if n, is := members["token"].(json.Number); is && (n == "0" || n == "-0") {
		delete(members, "token")
	}
}
