package conformance

import (
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// foreign are objects that are not records of this format, by the names of their cases.
func foreign() map[string]string {
	r := record.Record{Token: 7, Holder: "the other one", TTL: time.Second, WriteID: "runner.1"}
	good := encoded(r)
	sealed, closed, marker, beat := r, r, r, r
	sealed.Move.To, closed.Move.From = "s3://elsewhere/lock", "s3://elsewhere/lock"
	marker.Layout.Name, marker.Token, marker.Held = record.LayoutMarker, 0, true
	beat.Layout.Name, beat.Held = record.LayoutSession, true
	last := r
	last.Token = record.MaxToken
	table, err := record.Table{Size: 1, Token: 1, WriteID: "runner.1"}.Encode()
	if err != nil {
		panic(err) // it is one
	}
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			panic("no " + old + " in " + good)
		}
		return strings.Replace(good, old, new, 1)
	}
	return map[string]string{
		"text":          "notes of somebody\n",
		"empty":         "",
		"array":         "[" + good + "]",
		"cut":           good[:len(good)/2],
		"two-objects":   good + good,
		"newer-format":  with(`"format":1`, `"format":2`),
		"no-format":     with(`"format":1,`, ``),
		"format-zero":   with(`"format":1`, `"format":0`),
		"field-twice":   with(`"state":"free"`, `"state":"free","token":8`),
		"token-text":    with(`"token":7`, `"token":"7"`),
		"token-float":   with(`"token":7`, `"token":7e0`),
		"token-zero":    with(`"token":7`, `"token":0`),
		"token-large":   with(`"token":7`, `"token":9223372036854775808`),
		"token-none":    with(`"token":7,`, ``),
		"token-by-hand": encoded(last),
		"state":         with(`"state":"free"`, `"state":"leased"`),
		"ttl-zero":      with(`"ttl_ms":1000`, `"ttl_ms":0`),
		"ttl-large":     with(`"ttl_ms":1000`, `"ttl_ms":86400001`),
		"no-write-id":   with(`"write_id":"runner.1"`, `"write_id":""`),
		"holder-number": with(`"holder":"the other one"`, `"holder":7`),
		"not-utf-8":     with(`the other one`, "the other \xff"),
		"too-large":     good + strings.Repeat(" ", record.MaxSize+1-len(good)),
		"sealed":        encoded(sealed),
		"closed":        encoded(closed),
		"marker":        encoded(marker),
		"heartbeat":     encoded(beat),
		"table":         string(table),
	}
}

func encoded(r record.Record) string {
	body, err := r.Encode()
	if err != nil {
		panic(err) // all are ours
	}
	return string(body)
}

// foreignCases are those of objects that must be left alone.
func foreignCases() (all []Case) {
	for name, body := range foreign() {
		all = append(all, Case{"foreign-" + name, "It does not write over an object that is no record of this format (" + name + "), and says why.", func(t *trial) {
			t.foreign(body)
		}})
	}
	return all
}

func (t *trial) foreign(body string) {
	obj, err := t.opts.Store.Put(t.ctx, t.key, []byte(body), store.IfAbsent())
	t.must(err)
	t.start()
	asked := clock.Now()
	word, rest := t.tryAcquire(2 * slack)
	if word != "error" || rest == "" {
		t.note("F11", "the answer is %q", word+" "+rest)
	}
	if took := clock.Now() - asked; took > slack {
		t.note("F11", "the answer came after %v", took)
	}
	if n := t.writes(); n > 0 {
		t.note("F11", "it wrote %d times", n)
	}
	now, err := t.opts.Store.Get(t.ctx, t.key, "")
	t.must(err)
	if now.Version != obj.Version || string(now.Body) != body {
		t.note("F11", "what was there is gone, and now there is %.300s", now.Body)
	}
}
