package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A seen is a version of the object that the subject was shown.
type seen struct {
	record record.Record
	body   []byte
	bad    error         // it is no record
	at     time.Duration // the proxy began to pass on the answer that showed it first: not later than its receipt
	own    bool          // the subject has written it
}

// A judge goes through the exchanges of a case in the order in which the requests came.
type judged struct {
	t        *trial
	found    []Failure
	versions map[string]seen
	ids      map[string]int // how many writes had this ID
	top      int64          // the greatest token that was shown
	gone     time.Duration  // since when no object was seen; 0: one was, or nothing
	last     seen           // the record that was seen last before it was gone
}

// judge looks for broken sentences in all that the subject has sent and said, whatever the case was about.
func judge(t *trial) []Failure {
	j := &judged{t: t, versions: map[string]seen{}, ids: map[string]int{}}
	all := t.proxy.exchanges()
	if len(all) == maxLog {
		j.breaks("F17", "it sent %d requests and more", maxLog)
	}
	for i := range all {
		e := &all[i]
		if e.key != t.proxy.key {
			continue
		}
		j.showBefore(all[:i], e.arrived)
		switch e.method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPut:
			j.put(e)
		default:
			j.breaks("F1", "it sent %s", e.method)
		}
	}
	j.validity(all)
	return j.found
}

func (j *judged) breaks(rule, format string, args ...any) {
	if len(j.found) < 10 {
		j.found = append(j.found, Failure{Rule: rule, What: fmt.Sprintf(format, args...)})
	}
}

// showBefore takes in the answers that were passed on before an instant.
func (j *judged) showBefore(all []exchange, at time.Duration) {
	for i := range all {
		e := &all[i]
		if e.key != j.t.proxy.key || e.sent == 0 || e.sent > at || e.shown != e.status {
			continue
		}
		all[i].key = "" // it is taken in once
		body := []byte(e.answer)
		switch {
		case e.method == http.MethodGet && e.shown == http.StatusNotFound:
			if j.gone == 0 {
				j.gone = e.sent
			}
			continue
		case e.write() && e.shown == http.StatusOK:
			body = e.body
		case e.method != http.MethodGet || e.shown != http.StatusOK:
			continue
		}
		j.gone = 0
		s, known := j.versions[e.etag]
		if !known {
			s = seen{body: body, at: e.sent, own: e.write()}
			s.record, s.bad = record.Decode(body)
			j.versions[e.etag] = s
		}
		if s.bad == nil {
			j.last = s
			if s.record.Token <= record.LastToken {
				j.top = max(j.top, s.record.Token)
			}
		}
	}
}

// put judges a write.
func (j *judged) put(e *exchange) {
	over, known := j.versions[e.ifMatch]
	switch {
	case e.ifMatch != "" && e.ifNone != "", e.ifMatch == "" && e.ifNone != "*":
		j.breaks("F1", "a write has the conditions If-Match %q and If-None-Match %q", e.ifMatch, e.ifNone)
		return
	case e.ifMatch != "" && !known:
		j.breaks("F1", "a write is conditional on %s, which no answer has shown", e.ifMatch)
		return
	}
	r, err := record.Decode(e.body)
	if err != nil {
		j.breaks("F11", "what it writes is %v", err)
		return
	}
	if j.ids[r.WriteID]++; j.ids[r.WriteID] > 1 {
		j.breaks("F2", "two attempts have the write_id %q", r.WriteID)
	}
	if !strings.Contains(r.WriteID, ".") {
		j.breaks("F2", "the write_id %q has no dot and number", r.WriteID)
	}
	switch {
	case known && over.bad != nil:
		j.breaks("F11", "it writes over an object that is %v", over.bad)
	case known && r.Token == over.record.Token:
		j.again(r, over)
	case !r.Held:
		j.breaks("F7", "it writes a free record with the token %d over one with %d", r.Token, over.record.Token)
	default:
		j.claim(e, r, over, known)
	}
	if known && over.bad == nil {
		j.kept(r, over.body, e.body)
	}
}

// again judges a renewal or a release.
func (j *judged) again(r record.Record, over seen) {
	switch {
	case !j.wrote(over.record):
		j.breaks("F9", "it writes with the token %d over a record of %q that it has not written", r.Token, over.record.Holder)
	case r.Held && !over.record.Held:
		j.breaks("F3", "it takes a free lock without a new token")
	case r.Held && r.TTL != over.record.TTL:
		j.breaks("F4", "a renewal has the ttl_ms %d, and the lease has %d", r.TTL.Milliseconds(), over.record.TTL.Milliseconds())
	}
}

func (j *judged) wrote(r record.Record) bool { return j.ids[r.WriteID] > 0 }

// claim judges an acquisition.
func (j *judged) claim(e *exchange, r record.Record, over seen, known bool) {
	if r.Token <= j.top {
		j.breaks("F3", "an acquisition has the token %d, and %d was seen", r.Token, j.top)
	}
	if want := j.t.ttl; r.TTL != want {
		j.breaks("L1", "the record has the ttl_ms %d, and the lock was asked for with %d", r.TTL.Milliseconds(), want.Milliseconds())
	}
	if r.Ended != "" || r.Successor != "" || r.Session != "" || r.Freed != nil || r.Resting() != 0 || known && len(over.record.Meta) > 0 && reflect.DeepEqual(r.Meta, over.record.Meta) {
		j.breaks("F14", "an acquisition keeps what the record said of the lease before: %s", bytes.TrimSpace(e.body))
	}
	if !known {
		j.created(e, r)
		return
	}
	switch before := over.record; {
	case !before.Held || j.wrote(before):
	case before.Session != "":
		j.breaks("F12", "it takes a lock whose record names the session %q", before.Session)
	case e.arrived-over.at < protocol.Patience(before.TTL):
		j.breaks("F5", "it takes the lock %v after it saw this version first, and TTL and m of the record are %v", e.arrived-over.at, protocol.Patience(before.TTL))
	}
}

// created judges an acquisition where no object was seen.
func (j *judged) created(e *exchange, r record.Record) {
	if j.last.at != 0 {
		if wait := protocol.Patience(j.last.record.TTL); j.gone == 0 || e.arrived-j.gone < wait {
			j.breaks("F16", "it creates the object anew before %v have passed since it was seen to be gone", wait)
		}
		return
	}
	if off := time.Duration(r.Token-time.Now().UnixMilli()) * time.Millisecond; off.Abs() > 10*time.Minute {
		j.breaks("F15", "the first token is %d, which is not the time in milliseconds", r.Token)
	}
}

// kept judges what of one record is in the next.
func (j *judged) kept(r record.Record, before, after []byte) {
	old, _ := record.Members(before) // both were decoded
	now, _ := record.Members(after)
	of, err := record.Decode(before)
	if err != nil {
		return
	}
	names := maps.Clone(of.Unknown)
	if names == nil {
		names = map[string]json.RawMessage{}
	}
	if r.TermToken == of.TermToken { // else it counts, and adds to the history
		for _, name := range []string{"history", "term", "term_token"} {
			if raw, there := old[name]; there {
				names[name] = raw
			}
		}
	} else if of.TermToken > r.TermToken || len(r.Past()) < min(len(of.Past()), record.MaxPast-1) {
		j.breaks("F13", "the history went from %d entries to %d", len(of.Past()), len(r.Past()))
	}
	for name, raw := range names {
		if !same(raw, now[name]) {
			j.breaks("F13", "the field %q was %.100s, and is %.100s", name, raw, now[name])
		}
	}
}

// same reports that two values of JSON mean the same, with all digits of their numbers.
func same(a, b json.RawMessage) bool {
	read := func(raw json.RawMessage) (v any, ok bool) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		err := dec.Decode(&v)
		return exact(v), err == nil
	}
	x, first := read(a)
	y, second := read(b)
	return first && second && reflect.DeepEqual(x, y)
}

// exact makes all numbers of a value comparable.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, ok := new(big.Rat).SetString(v.String()); ok && len(v) < 100 {
			return n.RatString()
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// validity judges what the subject has said of its leases, by the writes that have landed.
func (j *judged) validity(all []exchange) {
	// until is when the lease ends of which a write has landed, at the latest.
	until := func(token int64, before time.Duration) (end time.Duration, landed bool) {
		for i := range all {
			e := &all[i]
			r, err := record.Decode(e.body)
			if !e.write() || !e.landed || e.arrived > before || err != nil || !r.Held || token != 0 && r.Token != token {
				continue
			}
			end, landed = max(end, e.arrived+protocol.Validity(r.TTL)), true
		}
		return end, landed
	}
	asked := map[string]time.Duration{} // the last question, by its word
	word, over := "", time.Duration(0)  // over: since when it has said that its lease is lost; 0: it has not
	for _, l := range j.t.lines() {
		first, rest, _ := strings.Cut(l.text, " ")
		switch {
		case l.ours:
			word, asked[first] = first, l.at
		case first == "lost":
			over = l.at
		case first == "acquired":
			over = 0
			var token int64
			_, _ = fmt.Sscan(rest, &token) // what is none was told of
			if _, landed := until(token, l.at); !landed {
				j.breaks("F6", "it said that it has the lock with the token %d, and no write with that has landed", token)
			}
		case first == "yes" && word == "valid":
			end, landed := until(0, l.at)
			switch {
			case over != 0 && asked["valid"] >= over: // an earlier question may have been answered before
				j.breaks("F10", "it said that its lease is valid after it had said that it is lost")
			case !landed || asked["valid"] >= end:
				j.breaks("F4", "it said that its lease is valid %v after TTL − m were over since its last write that has landed was sent", asked["valid"]-end)
			}
		}
	}
}
