package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// room is the longest text for which a candidate with it is not refused.
func room(refused func(text string) bool) string {
	text := strings.Repeat("x", record.MaxSize)
	return text[:sort.Search(len(text), func(n int) bool { return refused(text[:n]) })-1]
}

// Options that were accepted gave a lock that could not be acquired, since its record was a few
// bytes too long, and a session whose heartbeats failed when it had to tell of many releases.
func TestWhatIsAcceptedFitsTheRecord(t *testing.T) {
	for what, opts := range map[string]func(text string) *leasehold.LockOptions{
		"holder": func(text string) *leasehold.LockOptions {
			return &leasehold.LockOptions{Holder: text, TTL: leasehold.MaxTTL}
		},
		"address": func(text string) *leasehold.LockOptions { return &leasehold.LockOptions{Address: text} },
		"meta data": func(text string) *leasehold.LockOptions {
			return &leasehold.LockOptions{Meta: map[string]string{"k": text}}
		},
	} {
		bubble(t, func(t *testing.T) {
			text := room(func(text string) bool {
				_, err := leasehold.NewLock(memstore.New(), "jobs/backup", opts(text))
				return err != nil
			})
			st := newStore()
			if here() == leasetest.Object { // the longest token of all
				plant(t, st, "jobs/backup", tokenRecord(here(), int64(record.LastToken)-1, "free"))
			}
			lock := newLock(t, st, opts(text))
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", what, len(text), err)
			}
			time.Sleep(lasting(time.Minute))
			release(t, lease)
		})
	}
}

// TestWhatIsAcceptedHasAHistory: there is room for the leases of others, whatever they call themselves,
// in the longest record that is accepted.
func TestWhatIsAcceptedHasAHistory(t *testing.T) {
	needs(t, here() == leasetest.Object, "the same in every layout")
	bubble(t, func(t *testing.T) {
		st := newStore()
		for n := range 20 {
			name := fmt.Sprint(n) + strings.Repeat("\x01", 100)
			release(t, acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: name})))
		}
		look := func() record.Record {
			o, err := st.Get(t.Context(), "jobs/backup", "")
			if err != nil {
				t.Fatal(err)
			}
			r, err := record.Decode(o.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		least := len(look().Past())
		text := room(func(text string) bool {
			_, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Address: text})
			return err != nil
		})
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Address: text}))
		if r := look(); len(r.Past()) < least || least < 4 || r.CountedTerm() != 21 {
			t.Errorf("it remembers %d leases where there were %d, and is the %d.", len(r.Past()), least, r.Term)
		}
		release(t, lease)
	})
}

func TestWhatIsAcceptedFitsTheHeartbeat(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		opts := &leasehold.SessionOptions{Prefix: strings.Repeat("s/", (store.MaxKey-32)/2-1) + "s"}
		st := memstore.New()
		opts.Holder = room(func(text string) bool {
			_, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Holder: text})
			return err != nil
		})
		session, err := leasehold.NewSession(t.Context(), st, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 70 {
			lock, err := leasehold.NewLock(st, fmt.Sprint("shards/", i), &leasehold.LockOptions{Holder: opts.Holder, Session: session})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
		}
		time.Sleep(time.Minute)
		if err := session.Err(); err != nil {
			t.Errorf("a minute after 70 releases: %v", err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDefaults: what is left out is as the options say.
func TestDefaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := acquire(t, newLock(t, newStore(), nil))
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s/%d", host, os.Getpid()); lease.Holder() != want {
			t.Errorf("the holder is %q, not %q", lease.Holder(), want)
		}
		if left := time.Until(lease.Deadline()); left != protocol.Validity(15*time.Second) {
			t.Errorf("the lease is valid for %v", left)
		}
		release(t, lease)
		for _, ttl := range []time.Duration{leasehold.MinTTL, leasehold.MaxTTL} {
			if _, err := leasehold.NewLock(newStore(), "k", &leasehold.LockOptions{TTL: ttl}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSessionOptions: a session is what its options say, in whatever layout locks are by default, and
// nothing is sent for one that cannot be.
func TestSessionOptions(t *testing.T) {
	defer setHere(leasetest.EpochsNoIfMatch)()
	bubble(t, func(t *testing.T) {
		st := newStore()
		var log leasetest.Log
		proof := &asks{}
		var told []error
		s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{
			TTL: 6 * time.Second, Holder: "h", Address: "a:1", Meta: map[string]string{"k": "v"}, Proof: proof,
			Trace:  leasetest.OnTrouble(func(err error) { told = append(told, err) }),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := recordIn(t, st, s.Key())
		if !r.Held || r.TTL != 6*time.Second || r.Holder != "h" || r.Address != "a:1" || r.Meta["k"] != "v" {
			t.Errorf("the heartbeat says %+v", r)
		}
		if want := []string{st.String() + " object"}; !slices.Equal(proof.uses, want) {
			t.Errorf("the proof was asked for %q", proof.uses)
		}
		st.Partition(true)
		<-s.Done()
		synctest.Wait()
		if !strings.Contains(log.String(), "lease lost") {
			t.Errorf("the log says %q", &log)
		}
		if len(told) != 1 || !errors.Is(told[0], store.ErrUnavailable) {
			t.Errorf("of a store that is away it told %v", told)
		}
		_ = s.Close(t.Context())

		st = newStore()
		for says, opts := range map[string]leasehold.SessionOptions{
			"nobody has shown": {Proof: &asks{no: []string{"object"}}},
			"UTF-8":            {Holder: "a\xff"},
			"session":          {Prefix: "a//b"},
			"TTL":              {TTL: time.Millisecond},
		} {
			if _, err := leasehold.NewSession(t.Context(), st, &opts); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("want %q, got %v", says, err)
			}
		}
		if c := st.Counts(); c != (faultstore.Counts{}) {
			t.Errorf("%+v requests were made", c)
		}
	})
}

// TestSessionsOfLateConfirmation: a session that is confirmed too late to begin with is given up for another
// of a new name, twice.
func TestSessionsOfLateConfirmation(t *testing.T) {
	for late, works := range map[int]bool{1: true, 2: true, 3: false} {
		bubble(t, func(t *testing.T) {
			began := map[string]time.Time{}
			isLate := func(c faultstore.Call) bool {
				if began[c.Key].IsZero() && c.Op == "put" {
					began[c.Key] = time.Now()
				}
				return len(began) > 0 && len(began) <= late && time.Since(began[c.Key]) < 20*time.Second
			}
			st := newStore()
			st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: isLate})
			s, err := leasehold.NewSession(t.Context(), st, nil)
			if len(began) != min(late+1, 3) || works != (err == nil) {
				t.Errorf("%d sessions were confirmed late, %d tried: %v", late, len(began), err)
			}
			if err == nil {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestFinal: what a person has to mend is final, and what may pass is not.
func TestFinal(t *testing.T) {
	for err, want := range map[error]bool{
		&store.Error{Kind: store.ErrDenied}:         true,
		&store.Error{Kind: store.ErrNoBucket}:       true,
		&store.Error{Kind: store.ErrNotExist}:       true,
		leasehold.ErrForeignObject:                  true,
		leasehold.ErrTokenTooLarge:                  true,
		leasehold.ErrSessionOver:                    true,
		leasehold.ErrLost:                           false,
		leasehold.ErrHeld:                           false,
		context.Canceled:                            false,
		&store.Error{Kind: store.ErrUnavailable}:    false,
		&store.Error{Kind: store.ErrThrottled}:      false,
		&store.Error{Kind: store.ErrUnknownOutcome}: false,
	} {
		if leasehold.Final(fmt.Errorf("acquire: %w", err)) != want {
			t.Errorf("%v is final: %v, want %v", err, !want, want)
		}
	}
}

// TestEveryLayout runs over the other layouts what the rest of this package runs over
// one. See layout.Default for how to run all of it over another.
func TestEveryLayout(t *testing.T) { leasetest.EveryWay(t, essential) }

// essential are the tests that a break of some layout would show in.
var essential = []func(*testing.T){
	TestCostInRequests, TestWaitingBacksOff, TestHandsOverInMoments, TestCrashIsWaitedOut,
	TestLeaseEndsBeforeAnybodyElseCanHoldIt, TestOneProcessQueuesInOrderOfArrival,
	TestAcquireThatWasGivenUpIsUndone, TestLostAnswersAreNotRivals, TestStoreComesBackInTime,
	TestReleaseWhileTheStoreIsAway, TestExistingNeverCreates,
	TestFirstTokens, TestForeignObjectsAreLeftAlone, TestAnotherToolsMarkerIsWaitedFor, TestOtherLayoutsAreForeign,
	TestElectionBudget, TestLeaderCrashes, TestLeaderIsCutOff, TestTryCampaign, TestResign, TestResignToASuccessor,
	TestWorkThatDoesNotStop, TestObserve,
	TestPeersBudget, TestPeersHandOver, TestAttend,
	TestTroubleIsBounded, TestFinalRefusals, TestTroubleIsTold, TestTryAcquireEnds, TestBackInSeconds,
	TestOwnLostLease, TestNewLocksTakeOver, TestInspectIsALook, TestLocksTakeOver, TestLocksCost, TestEverydayIsDocumented, TestObserversAreDocumented, TestRestInADirectory, TestLocksClose,
	TestDetachedIsDocumented, TestDetach, TestDetachedAlone, TestDetachedOnce, TestRenewDetachedCutShort, TestDetachRefused, TestDetachLost,
	TestSetMeta, TestSetMetaMerged, TestSetMetaUnderASession, TestSetMetaLostAnswer, TestSetMetaLastsNoLonger, TestSetMetaOfALeaseThatEnds, TestSetMetaPassedOn,
	TestSetMetaGivenUp, TestSetMetaRefused, TestSetMetaDetached, TestSetMetaOfALeader,
}

// renews reports whether leases are renewed.
func renews() bool { return here().Renews() }

// The reasons for which a test makes no sense over a layout.
const (
	withoutRenewals  = "the layout marker without If-Match does not renew leases, so none lasts"
	withoutSuccessor = "a marker that is released is gone, and can name no successor"
	withoutSessions  = "a marker has no record that can name a session"
	withoutProof     = "a marker has no token to prove a lease by"
	withoutMarkers   = "only markers are shared with other tools"
	withoutSafety    = "candidates that sweep markers may delete each other's"
)

func needsRenewals(t *testing.T) { t.Helper(); needs(t, renews(), withoutRenewals) }

func needsSuccessors(t *testing.T) { t.Helper(); needs(t, here().Tokens(), withoutSuccessor) }

// lasting is a time for which a lease of 15 s is held without a doubt: for ever, where it
// is renewed.
func lasting(d time.Duration) time.Duration {
	if renews() {
		return d
	}
	return min(d, 9*time.Second)
}

// takeover is the longest time from the last renewal until a waiter has the lock.
func takeover(ttl time.Duration) time.Duration {
	if renews() {
		return protocol.Patience(ttl) + ttl/10 + time.Second
	}
	return protocol.Stale(ttl) + ttl/6 + time.Second
}

// triedTakeover is the longest time until a caller has it that tries at that interval.
func triedTakeover(ttl, every time.Duration) time.Duration {
	if renews() {
		return protocol.Patience(ttl) + every
	}
	return takeover(ttl) + every
}

// follows checks the token of an acquisition against the one before.
func follows(t *testing.T, before, after leasehold.Token) {
	t.Helper()
	switch {
	case !here().Tokens():
		if before != leasehold.NoToken || after != leasehold.NoToken || after.String() != "none" {
			t.Errorf("tokens %v and %v where there are none", before, after)
		}
	case here() == leasetest.EpochsNoIfMatch: // renewals and releases have numbers too
		if after <= before {
			t.Errorf("token %v after %v", after, before)
		}
	case after != before+1:
		t.Errorf("token %v after %v", after, before)
	}
}

// erase deletes all that there is.
func erase(t *testing.T, st store.Store) {
	t.Helper()
	for _, key := range objects(t, st) {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// objectKey is the key of an object of a lock: that of the n-th epoch, where there are many.
func objectKey(lock string, n int) string {
	if hasEpochs() {
		return fmt.Sprintf("%s/%010d.json", lock, n)
	}
	return lock
}

// requests are what something cost.
type requests struct{ get, put, list, del int }

func (r requests) String() string {
	return fmt.Sprintf("%d GET, %d PUT, %d LIST, %d DELETE", r.get, r.put, r.list, r.del)
}

func (r requests) times(n int) requests {
	return requests{r.get * n, r.put * n, r.list * n, r.del * n}
}

func (r requests) plus(o requests) requests {
	return requests{r.get + o.get, r.put + o.put, r.list + o.list, r.del + o.del}
}

// within reports that no kind of request is outside of the bounds.
func (r requests) within(low, high requests) bool {
	return low.get <= r.get && r.get <= high.get && low.put <= r.put && r.put <= high.put &&
		low.list <= r.list && r.list <= high.list && low.del <= r.del && r.del <= high.del
}

// cost runs f and returns the requests that it made.
func cost(st *faultstore.Store, f func()) requests {
	before := st.Counts()
	f()
	return since(st, before)
}

func since(st *faultstore.Store, before faultstore.Counts) requests {
	c := st.Counts()
	return requests{c.Get - before.Get, c.Put - before.Put, c.List - before.List, c.Delete - before.Delete}
}

// A budget is what a layout may cost in requests. docs/requests.md has it as a table.
type budget struct {
	make     requests // acquire a lock that does not exist
	acquire  requests // whose last version is known
	unknown  requests // by a candidate that knows nothing
	renew    requests
	release  requests
	look     requests // at a lock whose last version is known and has not changed
	news     requests // at one that has been renewed
	freed    requests // at one that was held, and is free
	jump     requests // at one that was renewed, released or acquired many times since
	pass     requests // a release and the acquisition of the next goroutine in the queue
	inspect  requests // by a candidate that knows nothing
	refused  requests // what was free when it was last seen is held now
	takeover requests // from a holder that is gone, at the end of the wait
	hour     requests // of 720 renewals, besides these: what is done about the past
	far      requests // what a candidate that knows nothing pays more where there have been very many epochs
}

var budgets = map[leasetest.Way]budget{
	leasetest.Object: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		renew: requests{put: 1}, release: requests{put: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 1, put: 1},
	},
	leasetest.EpochsNoIfMatch: {
		make: requests{put: 1, list: 2}, acquire: requests{put: 1, list: 1}, unknown: requests{get: 1, put: 1, list: 2},
		renew: requests{put: 1, list: 1}, release: requests{put: 1, list: 1},
		look: requests{get: 1}, news: requests{get: 1, list: 1}, freed: requests{get: 1, list: 1}, jump: requests{get: 2, list: 1}, pass: requests{put: 1, list: 1},
		inspect: requests{get: 1, list: 1}, refused: requests{get: 1, put: 1, list: 1},
		takeover: requests{get: 1, put: 1, list: 1},
		hour:     requests{get: 7, put: 1, list: 23}, far: requests{list: 1},
	},
	leasetest.Epochs: {
		make: requests{put: 1, list: 2}, acquire: requests{put: 1, list: 1}, unknown: requests{get: 1, put: 1, list: 2},
		renew: requests{put: 1}, release: requests{put: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1, list: 1}, jump: requests{get: 2, list: 1}, pass: requests{put: 2, list: 1},
		inspect: requests{get: 1, list: 1}, refused: requests{get: 1, put: 1, list: 1},
		takeover: requests{get: 1, put: 2, list: 1},
	},
	leasetest.MarkerNoIfMatch: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		release: requests{del: 1},
		look:    requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1, del: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 2, put: 1, del: 1},
	},
	leasetest.Marker: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		renew: requests{put: 1}, release: requests{del: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 1, put: 1},
	},
}

func init() {
	if !slices.Contains(leasetest.Ways, here()) {
		panic(fmt.Sprintf("there is no way %q", here()))
	}
}

// near compares times that are kept to the millisecond.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }
