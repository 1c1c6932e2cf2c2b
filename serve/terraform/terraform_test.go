package terraform_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestARun: what Terraform sends in one run, and what it gets.
func TestARun(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Prefix: "tf/", Path: "/terraform/"})
		const at = "/terraform/prod/network"
		s.want(http.StatusNotFound, "GET", at, "")
		s.want(http.StatusOK, "LOCK", at, lockBody("x"))
		s.want(http.StatusNotFound, "GET", at, "")
		text := stateOf(1, "x")
		s.want(http.StatusOK, "POST", at+"?ID=x", text)
		a := s.want(http.StatusOK, "GET", at, "")
		if a.body != text || a.header.Get("Content-Type") != "application/json" || a.header.Get("Leasehold-State-Version") != "1" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("GET: %+v", a)
		}
		if head := s.want(http.StatusOK, "HEAD", at, ""); head.body != "" || !reflect.DeepEqual(head.header, a.header) {
			t.Errorf("HEAD: %+v, and GET %+v", head, a.header)
		}
		s.want(http.StatusOK, "PUT", at+"?ID=x", stateOf(2, "y"))
		s.want(http.StatusOK, "UNLOCK", at, lockBody("x"))
		if a = s.want(http.StatusOK, "GET", at, ""); a.body != stateOf(2, "y") {
			t.Errorf("GET: %s", a.body)
		}
		for _, key := range leasetest.Objects(t, st) {
			if !strings.HasPrefix(key, "tf/locks/prod/network/_lock") && !strings.HasPrefix(key, "tf/states/prod/network/_state") {
				t.Errorf("there is an object %s", key)
			}
		}
		r := leasetest.RecordIn(t, st, "tf/locks/prod/network/_lock")
		if r.Held || r.Holder != "x@host" || r.Meta["ID"] != "x" || r.Meta["Operation"] != "OperationTypeApply" || r.Meta["Created"] != "2026-11-20T10:30:45.123456789Z" {
			t.Errorf("the record of the lock: %+v", r)
		}
	})
}

// TestLockIsHeld: another LOCK says who holds it, to this process and to others; the same one is answered again,
// since Terraform sends a request again whose answer was lost.
func TestLockIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, nil), start(t, st, nil)
		a.lock("s", "x")
		want := terraform.LockInfo{
			ID: "x", Operation: "OperationTypeApply", Who: "x@host", Version: "1.11.4",
			Created: time.Date(2026, 11, 20, 10, 30, 45, 123456789, time.UTC),
		}
		for _, s := range []*server{a, b} {
			if got := holder(t, s.want(http.StatusLocked, "LOCK", "/s", lockBody("y"))); got != want {
				t.Errorf("held by %+v, want %+v", got, want)
			}
			if got := holder(t, s.want(http.StatusConflict, "UNLOCK", "/s", `{"ID":"y"}`)); got != want {
				t.Errorf("held by %+v, want %+v", got, want)
			}
			s.unlock("s", "y") // a run that does not hold it, which changes nothing
			if got := holder(t, s.want(http.StatusConflict, "POST", "/s?ID=y", stateOf(1, "y"))); got != want {
				t.Errorf("held by %+v, want %+v", got, want)
			}
			s.lock("s", "x")
		}
		token := leasetest.RecordIn(t, st, "locks/s/_lock").Token
		time.Sleep(time.Hour) // it is renewed
		b.want(http.StatusLocked, "LOCK", "/s", lockBody("y"))
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Token != token || !r.Held {
			t.Errorf("after an hour: %+v", r)
		}
		b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x")) // whichever process a run's request comes to
		a.unlock("s", "x")
		a.unlock("s", "x")
		b.unlock("s", "x")
		b.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`)
		a.want(http.StatusConflict, "UNLOCK", "/s", "")
		if !strings.Contains(detail(t, a.want(http.StatusConflict, "UNLOCK", "/s", `{"ID":"y"}`)), "not locked") {
			t.Error("another UNLOCK of what is not locked")
		}
		a.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(2, "x")) // its lock is over
		b.lock("s", "y")
		b.unlock("s", "y")
	})
}

// TestDisplaced: a run whose lock was broken by force-unlock cannot store its state over its successor's, nor once it
// is broken, by whichever process. Its successor's lock stays.
func TestDisplaced(t *testing.T) {
	for name, body := range map[string]string{"force-unlock": `{"ID":"x"}`, "without an ID": ""} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, st *memstore.Store) {
					a := start(t, st, nil)
					b := a
					if elsewhere {
						b = start(t, st, nil)
					}
					a.lock("s", "x")
					a.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
					a.lock("other", "o")
					b.want(http.StatusOK, "UNLOCK", "/s", body)
					if d := detail(t, a.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(2, "x"))); !strings.Contains(d, "released or broken") {
						t.Errorf("it is told %s", d)
					}
					b.lock("s", "y")
					if got := holder(t, a.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(2, "x"))); got.ID != "y" {
						t.Errorf("it is told of %+v", got)
					}
					b.want(http.StatusOK, "POST", "/s?ID=y", stateOf(2, "y"))
					time.Sleep(10 * time.Minute) // its process notices
					a.unlock("s", "x")           // so that nobody is advised to break its successor's lock
					a.want(http.StatusLocked, "LOCK", "/s", lockBody("z"))
					if got := a.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(2, "y") {
						t.Errorf("the state is %s", got.body)
					}
					a.want(http.StatusOK, "POST", "/other?ID=o", stateOf(1, "o")) // nothing else was broken
					b.want(http.StatusLocked, "LOCK", "/other", lockBody("z"))
					b.unlock("s", "y")
					a.unlock("other", "o")
				})
			})
		}
	}
}

// TestLateState: the state of a displaced run is on its way when its lock is broken, and arrives after its successor
// has locked. Without the claim it would land: nothing has changed the object since it was read.
func TestLateState(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.DelayBefore, faultstore.LateLanding} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, st *memstore.Store) {
				a, b := start(t, st, nil), start(t, st, nil)
				a.lock("s", "x")
				a.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
				a.st.Inject(faultstore.Fault{Kind: kind, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
				late := make(chan answer, 1)
				go func() { late <- a.do("POST", "/s?ID=x", stateOf(2, "x")) }()
				time.Sleep(time.Second)
				b.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`)
				b.lock("s", "y")
				read := b.want(http.StatusOK, "GET", "/s", "").body
				want := stateOf(1, "x")
				if got := <-late; got.status == http.StatusOK { // it was sent again, before the lock was broken
					want = stateOf(2, "x")
				}
				time.Sleep(time.Minute)
				if now := b.want(http.StatusOK, "GET", "/s", "").body; now != read || now != want {
					t.Errorf("it was %s when it was locked, and is %s; want %s", read, now, want)
				}
				a.st.Wait()
				b.want(http.StatusOK, "POST", "/s?ID=y", stateOf(2, "y"))
				b.unlock("s", "y")
			})
		})
	}
}

// TestServingProcessDies: its lock can be had after the TTL, and the state of its run is refused from then on; before,
// another process takes it.
func TestServingProcessDies(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a := start(t, st, &terraform.Options{TTL: 30 * time.Second})
		a.lock("s", "x")
		a.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		a.st.Partition(true) // for others that is the same
		b := start(t, st, &terraform.Options{TTL: 30 * time.Second})
		b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(2, "x"))
		if took := b.until("y", 2*time.Minute); took < 32*time.Second || took > 50*time.Second {
			t.Errorf("it could be locked after %v", took)
		}
		if got := b.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(2, "x") {
			t.Errorf("the state is %s", got.body)
		}
		for _, s := range []*server{a, b} {
			s.st.Partition(false)
			if got := holder(t, s.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(3, "x"))); got.ID != "y" {
				t.Errorf("it is told of %+v", got)
			}
		}
		a.unlock("s", "x")
		b.want(http.StatusLocked, "LOCK", "/s", lockBody("z"))
		b.unlock("s", "y")
	})
}

// TestSameIDAfterTheKeeperDied: a LOCK that is sent again is answered as the first was only while somebody keeps the lock.
// After that the run must get a lock that is kept.
func TestSameIDAfterTheKeeperDied(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a := start(t, st, &terraform.Options{TTL: 30 * time.Second})
		b := start(t, st, &terraform.Options{TTL: 30 * time.Second})
		a.lock("s", "x")
		b.lock("s", "x") // the same request, sent again by way of another process
		a.st.Partition(true)
		time.Sleep(10 * time.Minute)
		if got := b.want(http.StatusLocked, "LOCK", "/s", lockBody("x")); holder(t, got).ID != "x" {
			t.Errorf("who holds it: %s", got.body)
		}
		b.until("x", 2*time.Minute)
		time.Sleep(10 * time.Minute)
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); !r.Held || r.Meta["ID"] != "x" {
			t.Errorf("nobody keeps the lock: %+v", r)
		}
		b.want(http.StatusLocked, "LOCK", "/s", lockBody("y"))
		b.unlock("s", "x")
	})
}

// TestStoreFailsForLong: the lock of a run is lost when it cannot be renewed, and its state is taken all the same while
// nobody else has locked: that it took long is no reason to lose it.
func TestStoreFailsForLong(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		var log leasetest.Log
		traced := 0
		s := start(t, st, &terraform.Options{
			Address: "host:1", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace: &locktrace.Trace{Lost: func(context.Context, locktrace.Lost) { traced++ }},
		})
		s.lock("s", "x")
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Address != "host:1" {
			t.Errorf("the address in the record is %q", r.Address)
		}
		s.st.Partition(true)
		time.Sleep(10 * time.Minute)
		if !strings.Contains(log.String(), `level=WARN msg="the lock of a state was lost; the run goes on, and its state is refused once another has locked" lock=locks/s/_lock token=`) || !strings.Contains(log.String(), `msg="lease lost"`) || traced != 1 {
			t.Errorf("%d losses are traced, and the log is %s", traced, log.String())
		}
		s.want(http.StatusServiceUnavailable, "GET", "/s", "")
		s.want(http.StatusServiceUnavailable, "LOCK", "/s", lockBody("y"))
		s.st.Partition(false)
		s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		s.unlock("s", "x")
		s.lock("s", "y") // and is not in its way
		s.unlock("s", "y")
	})
}

// TestLostLockIsLetGo: a lock that was lost, and whose run never comes back, keeps nobody out.
func TestLostLockIsLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Locks: 1})
		s.lock("s", "x")
		s.want(http.StatusServiceUnavailable, "LOCK", "/r", lockBody("z"))
		s.st.Partition(true)
		time.Sleep(10 * time.Minute)
		s.st.Partition(false)
		s.lock("r", "z") // which there is room for
		s.unlock("r", "z")
		s.lock("s", "y")
		s.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(1, "x"))
		s.unlock("s", "y")
	})
}

// TestWithoutALock: such a state is stored if nobody holds the lock and it follows the one that is there; of two that
// were made of one state, the second one is refused.
func TestWithoutALock(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "a"))
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "a")) // again, since the answer was lost
		if d := detail(t, s.want(http.StatusConflict, "POST", "/s", stateOf(1, "b"))); !strings.Contains(d, "its serial is 1, and the stored one has 1") {
			t.Error(d)
		}
		if d := detail(t, s.want(http.StatusConflict, "POST", "/s", `{"serial":7,"lineage":"another"}`)); !strings.Contains(d, "lineage") {
			t.Error(d)
		}
		if d := detail(t, s.want(http.StatusConflict, "POST", "/s", `{"lineage":"a-b-c"}`)); !strings.Contains(d, "no serial") {
			t.Error(d)
		}
		s.want(http.StatusOK, "POST", "/s", stateOf(2, "b"))
		s.lock("s", "x")
		if got := holder(t, s.want(http.StatusLocked, "POST", "/s", stateOf(3, "c"))); got.ID != "x" {
			t.Errorf("it is told of %+v", got)
		}
		s.want(http.StatusLocked, "DELETE", "/s", "")
		s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "forced")) // under a lock all is written
		s.unlock("s", "x")
		all, err := s.Versions(t.Context(), "s")
		if err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		if all[1].Who != "192.0.2.1:1234" || all[1].Operation != "POST without a lock" || all[0].Who != "x@host" || *all[0].Serial != 1 || all[0].Token <= all[1].Token {
			t.Errorf("the versions are %+v", all)
		}
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held {
			t.Errorf("it is locked: %+v", r)
		}
	})
}

// TestDelete: there is no state any more, and the earlier ones are kept.
func TestDelete(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.want(http.StatusOK, "DELETE", "/s", "")
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "a"))
		s.lock("s", "x")
		s.want(http.StatusConflict, "DELETE", "/s?ID=y", "")
		s.want(http.StatusOK, "DELETE", "/s?ID=x", "")
		s.want(http.StatusOK, "DELETE", "/s?ID=x", "")
		s.unlock("s", "x")
		s.want(http.StatusNotFound, "GET", "/s", "")
		s.want(http.StatusNotFound, "GET", "/s?version=2", "")
		if got := s.want(http.StatusOK, "GET", "/s?version=1", ""); got.body != stateOf(1, "a") {
			t.Errorf("state 1 is %s", got.body)
		}
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "anew"))
		all, err := s.Versions(t.Context(), "s")
		if err != nil || len(all) != 3 || all[0].Number != 3 || !all[1].Deleted || all[1].Who != "x@host" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestVersions: the last ones are kept, and no others lie in the store.
func TestVersions(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Versions: 3})
		if got := s.want(http.StatusOK, "GET", "/s?versions", ""); got.body != "[]\n" {
			t.Errorf("of no state: %s", got.body)
		}
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			s.lock("s", id)
			s.want(http.StatusOK, "POST", "/s?ID="+id, stateOf(i+1, id))
			s.unlock("s", id)
		}
		got := s.want(http.StatusOK, "GET", "/s?versions", "")
		all, err := s.Versions(t.Context(), "s")
		if err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		for i, id := range []string{"e", "d", "c"} {
			v := all[i]
			if v.Number != int64(5-i) || v.Who != id+"@host" || v.LockID != id || *v.Serial != int64(5-i) || v.Lineage != "a-b-c" || v.Terraform != "1.11.4" || v.StoredAt.IsZero() {
				t.Errorf("version %d is %+v", i, v)
			}
			if !strings.Contains(got.body, `"who":"`+id+`@host"`) {
				t.Errorf("the list is %s", got.body)
			}
			body, of, failed := s.Open(t.Context(), "s", v.Number)
			if failed != nil {
				t.Fatal(failed)
			}
			text, failed := io.ReadAll(body)
			if failed != nil || string(text) != stateOf(5-i, id) || of.Number != v.Number {
				t.Errorf("version %d: %s, %v", v.Number, text, failed)
			}
		}
		if all := data(t, st); len(all) != 3 {
			t.Errorf("in the store are %q", all)
		}
		s.want(http.StatusNotFound, "GET", "/s?version=2", "")
		s.want(http.StatusBadRequest, "GET", "/s?version=x", "")
		s.want(http.StatusBadRequest, "GET", "/s?version=0", "")
		if _, _, err = s.Open(t.Context(), "s", 2); !errors.Is(err, terraform.ErrNoState) {
			t.Errorf("version 2: %v", err)
		}
		if _, err = s.Versions(t.Context(), "../s"); err == nil {
			t.Error("that is no name")
		}
	})
}

// TestLeftovers: what was written of a state that did not come to count is deleted under a later lock.
func TestLeftovers(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, nil), start(t, st, nil)
		a.lock("s", "x")
		a.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		dies := make(chan answer)
		a.st.Inject(faultstore.Fault{Kind: faultstore.Hang, Op: "put", Key: "states/s/_state"})
		go func() { dies <- a.do("POST", "/s?ID=x", stateOf(2, "x")) }()
		time.Sleep(time.Second)
		if all := data(t, st); len(all) != 2 {
			t.Fatalf("in the store are %q", all)
		}
		a.st.Partition(true)
		<-dies
		b.until("y", 3*time.Minute)
		b.want(http.StatusOK, "POST", "/s?ID=y", stateOf(2, "y"))
		if all := data(t, st); len(all) != 2 || !strings.HasPrefix(all[1], "states/s/_states/0000000002-") {
			t.Errorf("in the store are %q", all)
		}
		if got := b.want(http.StatusOK, "GET", "/s?version=1", ""); got.body != stateOf(1, "x") {
			t.Errorf("state 1 is %s", got.body)
		}
		b.unlock("s", "y")
	})
}

// TestTwoProcessesOfOneRun: a run's request is late at one process, and it has sent it again to another and gone on. The
// late one changes nothing, whenever it arrives, and what it has written is not in the way.
func TestTwoProcessesOfOneRun(t *testing.T) {
	for _, delayed := range []string{"states/s/_state", "states/s/_states/*", "locks/s/_lock"} {
		t.Run(delayed, func(t *testing.T) {
			bubble(t, func(t *testing.T, st *memstore.Store) {
				a, b := start(t, st, nil), start(t, st, nil)
				a.lock("s", "x")
				op := "put"
				if delayed == "locks/s/_lock" {
					op = "get"
				}
				a.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: op, Key: delayed, Nth: 1, Delay: 5 * time.Second})
				late := waits(t, func() answer { return a.do("POST", "/s?ID=x", stateOf(1, "x")) })
				b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
				b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(2, "x"))
				if got := late(); got.status == http.StatusOK {
					t.Errorf("the late one: %+v", got)
				}
				for _, s := range []*server{a, b} {
					if got := s.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(2, "x") {
						t.Errorf("the state is %s", got.body)
					}
				}
				if all, err := a.Versions(t.Context(), "s"); err != nil || len(all) != 2 {
					t.Errorf("the versions are %+v, %v", all, err)
				}
				a.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(1, "x"))
				a.want(http.StatusOK, "POST", "/s?ID=x", stateOf(3, "x"))
				a.unlock("s", "x")
				b.lock("s", "y")
				b.want(http.StatusOK, "POST", "/s?ID=y", stateOf(1, "forced")) // of another run
				b.unlock("s", "y")
				if all := data(t, st); len(all) != 4 {
					t.Errorf("in the store are %q", all)
				}
			})
		})
	}
}

// TestAtWorkInAnotherProcess: a run's first state is on its way at one process while another stores one: what the first one
// has written already is not collected, since it may come to count.
func TestAtWorkInAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, nil), start(t, st, nil)
		a.lock("s", "x")
		a.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		b.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 4 * time.Second})
		first := waits(t, func() answer { return a.do("POST", "/s?ID=x", stateOf(1, "x")) })
		second := waits(t, func() answer { return b.do("POST", "/s?ID=x", stateOf(1, "y")) })
		time.Sleep(4500 * time.Millisecond)
		if all := data(t, st); len(all) != 2 {
			t.Errorf("in the store are %q", all)
		}
		if f, s := first(), second(); f.status != http.StatusServiceUnavailable || s.status != http.StatusOK {
			t.Errorf("%+v, %+v", f, s)
		}
		if all := data(t, st); len(all) != 1 {
			t.Errorf("in the store are %q", all)
		}
		a.unlock("s", "x")
	})
}

// TestUnknownOutcome: it is not known whether a state has come to count, and it has. It is there when the store is.
func TestUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		var reads atomic.Int32 // the first one is before the write
		s.st.Inject(
			faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Key: "states/s/_state", Nth: 1},
			faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: "states/s/_state", When: func(faultstore.Call) bool { return reads.Add(1) > 1 }},
		)
		s.want(http.StatusServiceUnavailable, "POST", "/s?ID=x", stateOf(1, "x"))
		s.st.Clear()
		if got := s.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(1, "x") {
			t.Errorf("the state is %s", got.body)
		}
		s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x")) // Terraform sends it again
		if all, err := s.Versions(t.Context(), "s"); err != nil || len(all) != 1 {
			t.Errorf("the versions are %+v, %v", all, err)
		}
		s.unlock("s", "x")
	})
}

// TestLargeState: one over 1 MiB is stored and read back byte for byte.
func TestLargeState(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		text := stateOf(1, strings.Repeat("long ", 1<<20))
		s.lock("s", "x")
		s.want(http.StatusOK, "POST", "/s?ID=x", text)
		s.unlock("s", "x")
		if got := s.want(http.StatusOK, "GET", "/s", ""); got.body != text {
			t.Errorf("%d bytes came back of %d", len(got.body), len(text))
		}
	})
}

// TestDamaged: a state that is not what was stored is not answered, and neither is its absence.
func TestDamaged(t *testing.T) {
	for name, text := range map[string]string{"small": stateOf(1, "x"), "large": stateOf(1, strings.Repeat("x", 2<<20))} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			s := start(t, st, nil)
			s.want(http.StatusOK, "POST", "/s", text)
			web := httptest.NewServer(s)
			defer web.Close()
			key := data(t, st)[0]
			if _, err := st.PutLarge(t.Context(), key, strings.NewReader(strings.Replace(text, "x", "y", 1))); err != nil {
				t.Fatal(err)
			}
			read := func() (int, error) {
				r, err := http.Get(web.URL + "/s") //nolint:noctx // a test
				if err != nil {
					return 0, err
				}
				defer r.Body.Close()
				_, err = io.ReadAll(r.Body)
				return r.StatusCode, err
			}
			if status, err := read(); err == nil && status == http.StatusOK {
				t.Error("it was answered")
			}
			if err := st.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if status, err := read(); err != nil || status != http.StatusInternalServerError {
				t.Errorf("what is missing is answered with %d, %v", status, err)
			}
		})
	}
}

// TestForeignObjects: what is no list of states, or not sealed, is left alone.
func TestForeignObjects(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		put := func(key, body string) {
			if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		put("states/a/_state", "a state of another tool")
		put("locks/b/_lock", "no lock")
		guarded, err := fence.NewObject(st, "states/c/_state", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = guarded.Put(t.Context(), fence.Token(1), strings.NewReader(`{"format":2}`)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "c"} {
			s.want(http.StatusUnprocessableEntity, "GET", "/"+name, "")
			s.want(http.StatusUnprocessableEntity, "POST", "/"+name, stateOf(1, "x"))
		}
		s.lock("c", "x") // which says nothing of the list
		if d := detail(t, s.want(http.StatusUnprocessableEntity, "POST", "/c?ID=x", stateOf(1, "x"))); !strings.HasPrefix(d, "the state that is stored: not a list of states that this version understands: ") {
			t.Error(d)
		}
		s.unlock("c", "x")
		s.want(http.StatusUnprocessableEntity, "LOCK", "/a", lockBody("x"))
		s.want(http.StatusUnprocessableEntity, "LOCK", "/b", lockBody("x"))
		if r := leasetest.RecordIn(t, st, "locks/a/_lock"); r.Held {
			t.Errorf("a lock that was refused is held: %+v", r)
		}
	})
}

// TestHeldByNoTerraform: somebody runs something else under the lock. Terraform is told who, and of an ID that
// force-unlock can name.
func TestHeldByNoTerraform(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		lock := newLock(t, st, "locks/s/_lock")
		leasetest.Acquire(t, lock)
		got := holder(t, s.want(http.StatusLocked, "LOCK", "/s", lockBody("x")))
		if got.Who != "somebody" || !strings.HasPrefix(got.ID, "leasehold-") || got.Created.IsZero() {
			t.Errorf("held by %+v", got)
		}
		s.want(http.StatusOK, "UNLOCK", "/s", lockBody(got.ID))
		s.lock("s", "x")
		s.unlock("s", "x")
		time.Sleep(time.Minute) // the other one notices
	})
}

// TestTools: what lists locks sees those of all names, and reads no state; what cleans up deletes nothing.
func TestTools(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Prefix: "tf"})
		for _, name := range []string{"prod", "prod/network"} {
			s.lock(name, "x")
			s.want(http.StatusOK, "POST", "/"+name+"?ID=x", stateOf(1, "x"))
		}
		s.unlock("prod", "x")
		held := map[string]bool{}
		for e, err := range admin.List(t.Context(), st, "tf/locks/") {
			if err != nil {
				t.Error(err)
			}
			held[e.Key] = e.Held
		}
		if want := map[string]bool{"tf/locks/prod/_lock": false, "tf/locks/prod/network/_lock": true}; !reflect.DeepEqual(held, want) {
			t.Errorf("the locks are %v", held)
		}
		time.Sleep(48 * time.Hour)
		before := leasetest.Objects(t, st)
		for c, err := range admin.Collect(t.Context(), st, "tf", nil) {
			if err == nil {
				t.Errorf("it collects %+v", c)
			}
		}
		if after := leasetest.Objects(t, st); !reflect.DeepEqual(after, before) {
			t.Errorf("there were %q, and are %q", before, after)
		}
		s.unlock("prod/network", "x")
	})
}

// TestClaimIsRefused: the state has been claimed with a larger token than the lock has, since the lock's object was
// deleted. Nothing is locked then, and Terraform is not told that somebody holds the lock.
func TestClaimIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		guarded, err := fence.NewObject(st, "states/s/_state", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = guarded.Claim(t.Context(), fence.Token(1<<60)); err != nil {
			t.Fatal(err)
		}
		if d := detail(t, s.want(http.StatusServiceUnavailable, "LOCK", "/s", lockBody("x"))); !strings.Contains(d, "1152921504606846976 has claimed it") {
			t.Error(d)
		}
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held {
			t.Errorf("it is locked: %+v", r)
		}
		detail(t, s.want(http.StatusConflict, "POST", "/s", stateOf(1, "x")))
	})
}

func newLock(t *testing.T, st store.Store, key string) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Holder: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// TestOptions: what cannot be used is refused, and says which.
func TestOptions(t *testing.T) {
	for says, o := range map[string]terraform.Options{
		"Versions":       {Versions: 501},
		"Requests":       {Requests: -1},
		"Locks":          {Locks: -1},
		"MaxState":       {MaxState: 1},
		"Path":           {Path: "/terraform"},
		"TTL":            {TTL: time.Millisecond},
		"Prefix":         {Prefix: "a//b"},
		"more than 300":  {Prefix: strings.Repeat("a", 301)},
		"an unproven st": {Proof: unproven{}},
	} {
		if _, err := terraform.New(memstore.New(), &o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := terraform.New(nil, nil); err == nil {
		t.Error("no store")
	}
}

type unproven struct{}

func (unproven) Proves(string, string) error { return errors.New("an unproven store") }

// TestNames: a name is a path of plain segments, and none lies in the place of another's objects.
func TestNames(t *testing.T) {
	s := start(t, memstore.New(), &terraform.Options{Path: "/tf/"})
	for _, name := range []string{"a", "prod", "Prod.eu-1_x", "a/b/c", "a/lock", "9", strings.Repeat("a", 100), strings.Repeat("a/", 99) + "a"} {
		s.want(http.StatusOK, "POST", "/tf/"+name, stateOf(1, name))
		s.want(http.StatusOK, "GET", "/tf/"+name, "")
	}
	for _, path := range []string{
		"/", "/tf", "/tf/", "/tf//a", "/tf/a/", "/tf/_lock", "/tf/a/_state", "/tf/.a", "/tf/a/..", "/tf/../a", "/tf/a%00b", "/tf/a%5Cb", "/tf/a%20b",
		"/tf/%C3%A4", "/x/a", "/tf/" + strings.Repeat("a", 101), "/tf/" + strings.Repeat("a/", 100) + "a",
	} {
		detail(t, s.want(http.StatusNotFound, "GET", path, ""))
		s.want(http.StatusNotFound, "POST", path, stateOf(1, "x"))
	}
}

// TestBadRequests: what is refused before anything is asked of the store.
func TestBadRequests(t *testing.T) {
	s := start(t, memstore.New(), &terraform.Options{MaxState: 4 << 10})
	request := func(method, target, body string, header ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	unknown := request("POST", "/s", stateOf(1, strings.Repeat("x", 4<<10)))
	unknown.ContentLength = -1
	for what, c := range map[string]struct {
		status int
		r      *http.Request
		want   string
	}{
		"a body over the bound":        {http.StatusRequestEntityTooLarge, request("POST", "/s?ID=x", stateOf(1, strings.Repeat("x", 4<<10))), `the body has 4258 bytes, more than 4096`},
		"one that does not say so":     {http.StatusRequestEntityTooLarge, unknown, `the body has more than 4096 bytes`},
		"another MD5":                  {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x"), "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="), `the body is not what was sent: its MD5 is YCK756I4amkFKnvqlOIQiQ==, and Content-MD5 says "1B2M2Y8AsgTpgAmY7PhCfg=="`},
		"no MD5":                       {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x"), "Content-MD5", "x"), `the body is not what was sent: its MD5 is YCK756I4amkFKnvqlOIQiQ==, and Content-MD5 says "x"`},
		"another MD5 of a lock":        {http.StatusBadRequest, request("LOCK", "/s", lockBody("x"), "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="), `the body is not what was sent: its MD5 is RNxLYfbIeVYgAyGLxtbm1A==, and Content-MD5 says "1B2M2Y8AsgTpgAmY7PhCfg=="`},
		"no JSON":                      {http.StatusBadRequest, request("POST", "/s?ID=x", "<html>"), `the body is not the JSON of a state: invalid character '<' looking for beginning of value`},
		"nothing":                      {http.StatusBadRequest, request("POST", "/s?ID=x", ""), `the body is not the JSON of a state: unexpected end of JSON input`},
		"null":                         {http.StatusBadRequest, request("POST", "/s?ID=x", " null"), `the body is not the JSON of a state: it is no object`},
		"a state that is a list":       {http.StatusBadRequest, request("POST", "/s?ID=x", "[]"), `the body is not the JSON of a state: it is no object, but: array`},
		"a serial that is none":        {http.StatusBadRequest, request("POST", "/s?ID=x", `{"serial":"7"}`), `the body is not the JSON of a state: "serial" cannot be: string`},
		"two states":                   {http.StatusBadRequest, request("POST", "/s?ID=x", stateOf(1, "x")+stateOf(1, "x")), `the body is not the JSON of a state: invalid character '{' after top-level value`},
		"a lock that is no JSON":       {http.StatusBadRequest, request("LOCK", "/s", "x"), `the body is not the JSON of a lock: invalid character 'x' looking for beginning of value`},
		"a lock that is a list":        {http.StatusBadRequest, request("LOCK", "/s", "[]"), `the body is not the JSON of a lock: it is no object, but: array`},
		"a lock with a number":         {http.StatusBadRequest, request("LOCK", "/s", `{"ID":7}`), `the body is not the JSON of a lock: "ID" cannot be: number`},
		"a lock that is too large":     {http.StatusRequestEntityTooLarge, request("LOCK", "/s", lockBody(strings.Repeat("x", 64<<10))), `the body has 131210 bytes, more than 65536`},
		"a lock without an ID":         {http.StatusBadRequest, request("LOCK", "/s", ""), `the body names no ID for the lock`},
		"a lock with a long ID":        {http.StatusBadRequest, request("LOCK", "/s", lockBody(strings.Repeat("x", 129))), `the ID of the lock has more than 128 bytes`},
		"a lock to break with such an": {http.StatusBadRequest, request("UNLOCK", "/s", lockBody(strings.Repeat("x", 129))), `the ID of the lock has more than 128 bytes`},
		"a version that is none":       {http.StatusBadRequest, request("GET", "/s?version=a", ""), `"a" is no number of a state: ?versions lists them`},
		"a version that is too large":  {http.StatusBadRequest, request("GET", "/s?version=9223372036854775808", ""), `"9223372036854775808" is no number of a state: ?versions lists them`},
		"a version that is long":       {http.StatusBadRequest, request("GET", "/s?version="+strings.Repeat("x", 41), ""), `"` + strings.Repeat("x", 40) + `" is no number of a state: ?versions lists them`},
		"another method":               {http.StatusMethodNotAllowed, request("PATCH", "/s", ""), `PATCH is not among the methods of a state: DELETE, GET, HEAD, LOCK, POST, PUT, UNLOCK`},
		"a page":                       {http.StatusForbidden, request("POST", "/s", stateOf(1, "x"), "Origin", "https://example.org"), `the request comes from a page at "https://example.org", and no page has anything to do here`},
		"a page that reads":            {http.StatusForbidden, request("GET", "/s", "", "Origin", "null"), `the request comes from a page at "null", and no page has anything to do here`},
	} {
		if a := s.send(c.r); a.status != c.status || detail(t, a) != c.want {
			t.Errorf("%s: %d, want %d %s: %s", what, a.status, c.status, c.want, a.body)
		}
	}
	if n := s.st.Counts(); n != (faultstore.Counts{}) {
		t.Errorf("the store was asked: %+v", n)
	}
	if a := s.do("PATCH", "/s", ""); a.header.Get("Allow") != "DELETE, GET, HEAD, LOCK, POST, PUT, UNLOCK" {
		t.Errorf("Allow: %s", a.header.Get("Allow"))
	}
}

// TestLongTexts: what a lock says of itself is cut, and is Terraform's own again when it is told.
func TestLongTexts(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		long := strings.Repeat("ä", 2000)
		s.want(http.StatusOK, "LOCK", "/s", fmt.Sprintf(`{"ID":"x","Operation":%q,"Info":%q,"Who":%q,"Version":%q,"Created":"2026-11-20T10:30:45Z","Path":%[1]q}`, long, long, long, long))
		got := holder(t, s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")))
		if got.ID != "x" || got.Who != strings.Repeat("ä", 128) || got.Info != strings.Repeat("ä", 256) {
			t.Errorf("held by %+v", got)
		}
		s.unlock("s", "x")
	})
}

// TestTooManyRequests: those over the bound are told so at once.
func TestTooManyRequests(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Requests: 2})
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Delay: 5 * time.Second})
		first := waits(t, func() answer { return s.do("GET", "/a", "") })
		second := waits(t, func() answer { return s.do("GET", "/b", "") })
		if a := s.want(http.StatusServiceUnavailable, "GET", "/c", ""); a.header.Get("Retry-After") != "1" || !strings.Contains(detail(t, a), "too many") {
			t.Errorf("%+v", a)
		}
		if a, b := first(), second(); a.status != http.StatusNotFound || b.status != http.StatusNotFound {
			t.Errorf("%+v, %+v", a, b)
		}
		s.want(http.StatusNotFound, "GET", "/c", "")
	})
}

// TestOneAtATime: of requests for one name one is at work, and others are not in its way.
func TestOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		first := waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(1, "x")) })
		second := waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(2, "x")) })
		s.want(http.StatusOK, "POST", "/other", stateOf(1, "o"))
		s.want(http.StatusNotFound, "GET", "/s", "") // nor does a look wait
		if a, b := first(), second(); a.status != http.StatusOK || b.status != http.StatusOK {
			t.Errorf("%+v, %+v", a, b)
		}
		if got := s.want(http.StatusOK, "GET", "/s", ""); got.body != stateOf(2, "x") {
			t.Errorf("the state is %s", got.body)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "states/s/_state", Nth: 1, Delay: 5 * time.Second})
		first = waits(t, func() answer { return s.do("POST", "/s?ID=x", stateOf(3, "x")) })
		r := httptest.NewRequestWithContext(ctx, "UNLOCK", "/s", strings.NewReader(lockBody("x")))
		if a := s.send(r); a.status != http.StatusServiceUnavailable {
			t.Errorf("a client that has gone: %+v", a)
		}
		if a := first(); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
		s.unlock("s", "x")
	})
}

// TestClose: the locks stay for their TTL, their runs can store their states elsewhere, and nobody else is served.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		a, b := start(t, st, nil), start(t, st, nil)
		a.lock("s", "x")
		a.lock("r", "z")
		a.close()
		a.want(http.StatusServiceUnavailable, "POST", "/s?ID=x", stateOf(1, "x"))
		b.want(http.StatusLocked, "LOCK", "/s", lockBody("y"))
		b.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		b.unlock("r", "z")
		b.lock("r", "y")
		if took := b.until("y", 3*time.Minute); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it could be locked after %v", took)
		}
		b.want(http.StatusConflict, "POST", "/s?ID=x", stateOf(2, "x"))
		b.unlock("s", "y")
		b.unlock("r", "y")
	})
}

// TestCosts: the requests that docs/terraform.md says each step takes.
func TestCosts(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, &terraform.Options{Versions: 2})
		cost := func(what string, want faultstore.Counts, f func()) {
			t.Helper()
			s.st.Reset()
			f()
			if got := s.st.Counts(); got != want {
				t.Errorf("%s costs %+v, want %+v", what, got, want)
			}
		}
		post := func(id string, serial int) func() {
			return func() { s.want(http.StatusOK, "POST", "/s?ID="+id, stateOf(serial, id)) }
		}
		get := func() { s.do("GET", "/s", "") }
		type n = faultstore.Counts
		cost("the first LOCK", n{Get: 2, Put: 2}, func() { s.lock("s", "x") })
		cost("GET of none", n{Get: 1}, get)
		cost("the first POST", n{Get: 2, Put: 2, List: 1}, post("x", 1))
		cost("a further POST", n{Get: 2, Put: 2}, post("x", 2))
		cost("a further POST, with as many states as are kept", n{Get: 2, Put: 2, Delete: 1}, post("x", 3))
		cost("the same again", n{Get: 2}, post("x", 3))
		cost("GET", n{Get: 2}, get)
		cost("a minute of a lock", n{Put: 3}, func() { time.Sleep(time.Minute + time.Second) })
		cost("LOCK of what is held", n{Get: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("UNLOCK", n{Put: 1}, func() { s.unlock("s", "x") })
		cost("LOCK", n{Get: 1, Put: 2}, func() { s.lock("s", "y") })
		cost("UNLOCK", n{Put: 1}, func() { s.unlock("s", "y") })
		cost("POST without a lock", n{Get: 1, Put: 5, Delete: 1, List: 1}, func() { s.want(http.StatusOK, "POST", "/s", stateOf(4, "z")) })
		o := start(t, st, nil)
		o.lock("s", "x")
		cost("LOCK of what another process holds, and was free when it was last seen", n{Get: 1, Put: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("LOCK of what another process holds", n{Get: 1}, func() { s.want(http.StatusLocked, "LOCK", "/s", lockBody("y")) })
		cost("force-unlock of that", n{Get: 2, Put: 1}, func() { s.want(http.StatusOK, "UNLOCK", "/s", `{"ID":"x"}`) })
		time.Sleep(time.Minute)
		if r := leasetest.RecordIn(t, st, "locks/s/_lock"); r.Held || r.Ended != "broken" {
			t.Errorf("it was not broken: %+v", r)
		}
	})
}

// A pipes is a listener whose connections are pipes, so that they keep virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error {
	close(p) // a server closes it once
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// TestSlowClient: a server that gives a request five seconds gives a state the minutes that it takes, and the next request
// on that connection is answered too.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		connections := make(pipes)
		web := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
		served := make(chan error, 1)
		go func() { served <- web.Serve(connections) }()
		client, server := net.Pipe()
		connections <- server
		answers := bufio.NewReader(client)
		ask := func(method string, body string, slowly time.Duration) (status int, answer string) {
			head := fmt.Sprintf("%s /s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", method, len(body))
			if _, err := io.WriteString(client, head); err != nil {
				t.Fatal(err)
			}
			for i := range len(body) {
				time.Sleep(slowly / time.Duration(len(body)))
				if _, err := io.WriteString(client, body[i:i+1]); err != nil {
					t.Fatalf("byte %d of the body: %v", i, err)
				}
			}
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			all, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(all)
		}
		if status, _ := ask("POST", stateOf(1, "x"), 2*time.Minute); status != http.StatusOK {
			t.Errorf("POST: %d", status)
		}
		if status, body := ask("GET", "", 0); status != http.StatusOK || body != stateOf(1, "x") {
			t.Errorf("GET: %d, %s", status, body)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestLog: what the log tells of locks and states, and how loud: what the client did wrong is no warning.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		var log leasetest.Log
		s := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Path: "/tf/"})
		s.want(http.StatusOK, "LOCK", "/tf/s", lockBody("x"))
		s.want(http.StatusLocked, "LOCK", "/tf/s", lockBody("y"))
		s.want(http.StatusOK, "POST", "/tf/s?ID=x", stateOf(1, "x"))
		s.want(http.StatusOK, "POST", "/tf/s?ID=x", stateOf(1, "x")) // again
		s.want(http.StatusOK, "UNLOCK", "/tf/s", lockBody("y"))
		s.want(http.StatusOK, "UNLOCK", "/tf/s", lockBody("x"))
		s.want(http.StatusOK, "DELETE", "/tf/s", "")
		for _, path := range []string{"/tf/", "/other/s", "/"} {
			if d := detail(t, s.want(http.StatusNotFound, "GET", path, "")); d != "the address names no state: it is /tf/NAME" {
				t.Errorf("%s: %s", path, d)
			}
		}
		s.want(http.StatusOK, "LOCK", "/tf/b", lockBody("b"))
		other := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		other.want(http.StatusOK, "UNLOCK", "/b", `{"ID":"b"}`)
		s.st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "locks/b/_lock"})
		s.want(http.StatusInternalServerError, "LOCK", "/tf/b", lockBody("c"))
		s.st.Clear()
		s.close()
		if a := s.want(http.StatusServiceUnavailable, "GET", "/tf/s", ""); a.header.Get("Retry-After") != "1" || detail(t, a) != "the server stops" {
			t.Errorf("a server that stops: %+v", a)
		}
		token := leasetest.RecordIn(t, st, "locks/s/_lock").Token - 1 // DELETE has taken one of its own
		text := regexp.MustCompile(`time=\S+ |[0-9a-f]{32}|behind faults of seed 0[^/]*`).ReplaceAllString(log.String(), "")
		want := fmt.Sprintf(`level=INFO msg=locked state=s id=x who=x@host operation=OperationTypeApply token=%[1]d
level=INFO msg=refused method=LOCK path=/tf/s status=423 reason="the state is locked by x@host, with the ID x"
level=INFO msg=stored state=s number=1 bytes=%[2]d deleted=false token=%[1]d id=x
level=WARN msg="a run unlocks that does not hold the lock any more" state=s id=y who=y@host
level=INFO msg=unlocked state=s id=x
level=INFO msg=stored state=s number=2 bytes=0 deleted=true token=%[3]d id=
level=INFO msg=refused method=GET path=/tf/ status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=refused method=GET path=/other/s status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=refused method=GET path=/ status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=locked state=b id=b who=b@host operation=OperationTypeApply token=%[1]d
level=WARN msg="a lock was broken" state=b id=b who=b@host token=%[1]d
level=WARN msg=refused method=LOCK path=/tf/b status=500 reason="the lock could not be read: `, token, len(stateOf(1, "x")), token+1)
		if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, `level=WARN msg=refused method=GET path=/tf/s status=503 reason="the server stops"`+"\n") {
			t.Errorf("the log is\n%s\nwant\n%s", text, want)
		}
	})
}

// A timed writer notes the deadlines of a connection.
type timed struct {
	*httptest.ResponseRecorder
	text string
}

func (w *timed) note(what string, t time.Time) error {
	if t.IsZero() {
		w.text += what + " none, "
	} else {
		w.text += fmt.Sprintf("%s %v, ", what, time.Until(t))
	}
	return nil
}

func (w *timed) SetReadDeadline(t time.Time) error  { return w.note("read", t) }
func (w *timed) SetWriteDeadline(t time.Time) error { return w.note("write", t) }
func (w *timed) FlushError() error                  { w.text += "sent, "; return nil }

// TestDeadlines: a request has five minutes and a moment, whatever the server before it gives, and the next one on the
// connection has what that gives.
func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/s", nil))
		if want := "read 5m5s, write 5m5s, sent, write none, "; w.text != want || w.Code != http.StatusNotFound || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s, want %s; %d %v", w.text, want, w.Code, w.Header())
		}
	})
}

// TestManyLargeStates: each gives its room back.
func TestManyLargeStates(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		for n := range 6 {
			s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(n+1, strings.Repeat("x", 1<<20)))
		}
		s.unlock("s", "x")
	})
}

// TestDamagedAnswer: the answer that a small state is not what was stored has none of its headers.
func TestDamagedAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "x"))
		key := data(t, st)[0]
		if _, err := st.PutLarge(t.Context(), key, strings.NewReader(stateOf(1, "y"))); err != nil {
			t.Fatal(err)
		}
		a := s.want(http.StatusInternalServerError, "GET", "/s", "")
		if d := detail(t, a); !strings.HasPrefix(d, "state 1 of s: ") || !strings.HasSuffix(d, "it is not what was stored") || a.header.Get("Content-Length") != "" || a.header.Get("Content-MD5") != "" {
			t.Errorf("%v %s", a.header, a.body)
		}
	})
}

// TestCollectsItsOwn: what a run that broke off has left goes when the next one stores; what has another name stays.
func TestCollectsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		for _, name := range []string{"0000000001-0000000000000000001-left", "notes", "0000000001-9000000000000000000-later"} {
			if _, err := st.Put(t.Context(), "states/s/_states/"+name, []byte("x"), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		s.lock("s", "x")
		s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		s.unlock("s", "x")
		var left []string
		for _, key := range data(t, st) {
			left = append(left, strings.TrimPrefix(key, "states/s/_states/"))
		}
		if len(left) != 3 || left[1] != "0000000001-9000000000000000000-later" || left[2] != "notes" {
			t.Errorf("in the store are %q", left)
		}
	})
}
