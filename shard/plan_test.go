package shard_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
)

// wire is a plan in the store.
type wire struct {
	Format, Token, Serial int64
	Coordinator           string
	Written               time.Time `json:"written_at"`
	Lists                 []string
	Workers               []shard.Member
	Owners                []int
}

// TestPlanObject: the form of a plan in the store, for other versions and for people: first
// one of nobody, and then one that counts on, with its writer, its time, and lists in place
// of nothing.
func TestPlanObject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 3)
		object := func() (string, wire) {
			t.Helper()
			var p wire
			text := read(t, f.st, prefix+"/plan")
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			return text, p
		}
		a := f.start("a", &shard.Options{Weight: 7})
		time.Sleep(time.Second)
		text, first := object()
		if want := fmt.Sprintf(`{"format":1,"token":%d,"serial":1,"coordinator":"a","written_at":%q,"lists":[],"workers":[],"owners":[]}`+"\n",
			first.Token, first.Written.Format(time.RFC3339Nano)); text != want {
			t.Errorf("the first plan is\n%s, want\n%s", text, want)
		}
		f.settle()
		session := a.worker.Status().Session
		text, p := object()
		if want := fmt.Sprintf(`{"format":1,"token":%d,"serial":2,"coordinator":"a","written_at":%q,"lists":["%s"],"workers":[{"session":%q,"holder":"a","weight":7}],"owners":[0,0,0]}`+"\n",
			first.Token, p.Written.Format(time.RFC3339Nano), p.Lists[0], session); text != want {
			t.Errorf("the next one is\n%s, want\n%s", text, want)
		}
		if zone, off := p.Written.Zone(); zone != "UTC" || off != 0 || time.Since(p.Written) > ttl || !p.Written.After(first.Written) {
			t.Errorf("it was written at %v, after one at %v", p.Written, first.Written)
		}
		s := a.worker.Status()
		if s.Token != leasehold.Token(p.Token) || s.Serial != p.Serial || !s.Coordinating || len(s.Shards) != 3 {
			t.Errorf("the worker says %+v", s)
		}
		for i, each := range s.Shards {
			if each.Name != f.shards[i] || each.Token != f.token(each.Name) || each.Lease.Token() != each.Token {
				t.Errorf("shard %d is %+v", i, each)
			}
		}
		if last, n := f.last(); n != 2 || last.Token != s.Token || last.Serial != 2 || last.Coordinator != "a" || len(last.Workers) != 1 || last.Owners["00001"] != session {
			t.Errorf("plan %d is %+v", n, last)
		}
		if n := sent(a)["get lists"]; n > 0 {
			t.Errorf("it has read its own list %d times", n)
		}
		f.end()
	})
}
