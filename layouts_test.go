package leasehold_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestEveryLayout runs over the other layouts what the rest of this package runs over
// one. See inside.DefaultLayout for how to run all of it over another.
func TestEveryLayout(t *testing.T) { leasetest.EveryLayout(t, essential) }

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
func renews() bool { return here() != leasehold.LayoutMarker }

// The reasons for which a test makes no sense over a layout.
const (
	withoutRenewals  = "the layout marker does not renew leases, so none lasts"
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
	case here() == leasehold.LayoutEpochs: // renewals and releases have numbers too
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

var budgets = map[leasehold.Layout]budget{
	leasehold.LayoutObject: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		renew: requests{put: 1}, release: requests{put: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 1, put: 1},
	},
	leasehold.LayoutEpochs: {
		make: requests{put: 1, list: 2}, acquire: requests{put: 1, list: 1}, unknown: requests{get: 1, put: 1, list: 2},
		renew: requests{put: 1, list: 1}, release: requests{put: 1, list: 1},
		look: requests{get: 1}, news: requests{get: 1, list: 1}, freed: requests{get: 1, list: 1}, jump: requests{get: 2, list: 1}, pass: requests{put: 1, list: 1},
		inspect: requests{get: 1, list: 1}, refused: requests{get: 1, put: 1, list: 1},
		takeover: requests{get: 1, put: 1, list: 1},
		hour:     requests{get: 7, put: 1, list: 23}, far: requests{list: 1},
	},
	leasehold.LayoutEpochsIfMatch: {
		make: requests{put: 1, list: 2}, acquire: requests{put: 1, list: 1}, unknown: requests{get: 1, put: 1, list: 2},
		renew: requests{put: 1}, release: requests{put: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1, list: 1}, jump: requests{get: 2, list: 1}, pass: requests{put: 2, list: 1},
		inspect: requests{get: 1, list: 1}, refused: requests{get: 1, put: 1, list: 1},
		takeover: requests{get: 1, put: 2, list: 1},
	},
	leasehold.LayoutMarker: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		release: requests{del: 1},
		look:    requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1, del: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 2, put: 1, del: 1},
	},
	leasehold.LayoutMarkerIfMatch: {
		make: requests{get: 1, put: 1}, acquire: requests{put: 1}, unknown: requests{get: 1, put: 1},
		renew: requests{put: 1}, release: requests{del: 1},
		look: requests{get: 1}, news: requests{get: 1}, freed: requests{get: 1}, jump: requests{get: 1}, pass: requests{put: 1},
		inspect: requests{get: 1}, refused: requests{get: 1, put: 1},
		takeover: requests{get: 1, put: 1},
	},
}

func init() {
	if !slices.Contains(leasehold.Layouts, here()) {
		panic(fmt.Sprintf("there is no layout %q", here()))
	}
}

// near compares times that are kept to the millisecond.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }
