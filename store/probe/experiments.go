package probe

import (
	"slices"

	"github.com/leasehold/leasehold/store"
)

// An experiment makes one finding.
type experiment struct {
	name  string
	uses  []string // that rest on it: if it is bad, or could not be made, they are not safe
	vital bool     // where it fails with an error, nothing can be found out
	// How many requests it makes if the store answers them: so many, and so many for
	// each race, of which it runs a share-th part and at least so many.
	fixed, each, share, least int
	size                      int      // of the bodies that it writes, if they are large
	sends                     int64    // in one body that is larger than all that a Put takes
	after                     []string // findings without which it makes no sense
	anew                      bool     // it changes objects by survey.over, and so needs no update
	run                       func(*survey) (Result, string, error)
}

// races is how many it runs.
func (e *experiment) races(o *Options) int {
	if e.each == 0 {
		return 0
	}
	return max(o.races()/max(e.share, 1), e.least)
}

func (e *experiment) requests(o *Options) int { return e.fixed + e.each*e.races(o) }

// bytes is how much it sends in large bodies: two in each race, and the first ones.
func (e *experiment) bytes(o *Options) int64 {
	if e.sends > 0 {
		return e.sends
	}
	return int64(e.size) * int64(sizedFirst+2*e.races(o))
}

// The names of the findings.
const (
	canRead      = "read"
	canCreate    = "create where nothing is"
	canDelete    = "delete"
	createOver   = "create over an object"
	canUpdate    = "update of the current version"
	updateStale  = "update of an older version"
	updateAbsent = "update where nothing is"
	newVersions  = "a new version for each body"
	oldVersions  = "an old version for an old body"
	quotes       = "versions without their quotes"
	afterDelete  = "create after a delete"
	afterRebirth = "what was created after a delete"
	updateGone   = "update after a delete"
	bareWrites   = "writes without a condition"
	deleteIf     = "delete on a condition"
	unchanged    = "read unless unchanged"
	restCreate   = "creates over objects at rest"
	restUpdate   = "updates of objects at rest"
	readsCurrent = "reads show what was just written"
	canList      = "list"
	listsCurrent = "listings show what was just written"
	raceCreate   = "racing creates"
	raceUpdate   = "racing updates"
	crowdCreate  = "many creates at once"
	crowdUpdate  = "many updates at once"
	oddKeys      = "keys of all shapes"
	oddUpdates   = "updates of keys of all shapes"
	oddLists     = "listings of keys of all shapes"
	largeBodies  = "values in parts"
	longLists    = "listings of more than 1000 objects"
	readsDeleted = "reads after a delete"
	allCreates   = "creates, of all requests"
	allUpdates   = "updates, of all requests"
	allReads     = "reads, of all requests"
	allLists     = "listings, of all requests"
	raceAgain    = "racing creates after a delete"
	seenLater    = "raced objects, seconds later"
	bodiesWhole  = "bodies come back as they were written"
	trouble      = "answers that were none"
	tellsTime    = "times in answers"
	tellsAge     = "age by the store's clock"
	clockRate    = "this machine's clock"
)

// repeats is how often what must be refused is tried, in sequence.
const repeats = 8

// experiments run in this order: cheap ones that rule out much come first. Each names the
// uses that rest on it: one that names none can never be bad.
var experiments = slices.Concat([]experiment{
	{name: canRead, uses: allUses, vital: true, fixed: 1, run: (*survey).reading},
	{name: canCreate, uses: allUses, vital: true, fixed: 3, run: (*survey).creating},
	{name: "settings", fixed: settings, run: (*survey).settings}, // early, to know how to clean up
	{name: canDelete, uses: byDelete, fixed: 5, after: []string{canCreate}, run: (*survey).deleting},
	{name: createOver, uses: allUses, fixed: 2*restKeys + 3 + 2 + 2*repeats, after: []string{canCreate}, run: (*survey).creatingOver},
	{name: canUpdate, uses: byUpdate, fixed: 4, after: []string{canCreate}, run: (*survey).updating},
	{name: newVersions, uses: byCreate, fixed: 2 + 2*(repeats+alike), after: []string{canUpdate}, anew: true, run: (*survey).changing},
	{name: updateStale, uses: byUpdate, fixed: 3*restKeys + 2 + 2 + 3*rewrites + 2*(2*fewRivals+repeats), after: []string{canUpdate}, run: (*survey).updatingStale},
	{name: updateAbsent, uses: byUpdate, fixed: 1 + 2*repeats, after: []string{canCreate}, run: (*survey).updatingAbsent},
	{name: oldVersions, fixed: 3, after: []string{canUpdate}, run: (*survey).returning},
	{name: quotes, fixed: 3, after: []string{canUpdate}, run: (*survey).unquoting},
	{name: unchanged, uses: byCreate, fixed: 2 + 3*looks + looks*mostAsked + 2 + mostAsked*(mostAsked+5), after: []string{canUpdate}, anew: true, run: (*survey).conditionalReads},
	{name: afterDelete, uses: byDelete, fixed: 4 * rebirths, after: []string{canDelete}, run: (*survey).afterDelete},
	{name: afterRebirth, uses: byCreate, fixed: 9 * rebirths, after: []string{canDelete, createOver}, run: (*survey).afterRebirth},
	{name: updateGone, uses: byUpdate, fixed: 4, after: []string{canDelete, canUpdate}, run: (*survey).updatingGone},
	{name: bareWrites, fixed: 2, after: []string{canCreate}, run: (*survey).bareWrites},
	{name: canList, uses: byList, fixed: 2*len(listed) + 5, after: []string{canDelete}, run: (*survey).listing},
	{name: listsCurrent, uses: byList, fixed: (4 + mostListed) * fresh, after: []string{canList}, run: (*survey).freshListings},
	{name: readsCurrent, uses: byCreate, fixed: 4*reads + 4*reads/10, after: []string{canUpdate, canDelete}, anew: true, run: (*survey).freshReads},
	{name: readsDeleted, uses: byCreate, fixed: 7 * ends, after: []string{canDelete}, run: (*survey).deletedReads},
	{name: oddKeys, uses: byCreate, fixed: keyAsks*familyKeys + familyAsks*len(families), after: []string{canCreate, createOver, canDelete}, run: (*survey).oddKeys},
	{name: oddUpdates, uses: byUpdate, after: []string{canUpdate, updateStale, oddKeys}, run: keysOf(func(k *keyed) *trials { return &k.updates })},
	{name: oddLists, uses: byList, after: []string{canList, oddKeys}, run: keysOf(func(k *keyed) *trials { return &k.listed })},
	{name: raceCreate, uses: byCreate, fixed: listPages, each: 4, after: []string{canCreate, createOver, canDelete}, run: (*survey).racingAndListing},
	{name: raceUpdate, uses: byUpdate, fixed: 2 * lanes * spread, each: 3, after: []string{canUpdate, updateStale, canDelete}, run: func(s *survey) (Result, string, error) {
		return s.racingUpdates("lane", smallBody, s.opts.Races, spread)
	}},
	{name: crowdCreate, uses: byCreate, each: crowdAsks, share: perCrowd, least: crowds, after: []string{raceCreate}, run: (*survey).crowding},
	{name: crowdUpdate, uses: byUpdate, after: []string{raceUpdate, crowdCreate}, run: func(s *survey) (Result, string, error) { return s.crowdUpdates.result(atATime) }},
	{name: raceAgain, uses: byDelete, fixed: 2 * lanes * spreadLess, each: 4, share: 10, least: 10, after: []string{afterDelete, raceCreate}, run: func(s *survey) (Result, string, error) {
		return s.racingAgain(max(s.opts.Races/10, 10))
	}},
}, withLargeBodies, []experiment{
	{name: longLists, uses: byList, after: []string{canList, raceCreate}, run: (*survey).longListing},
	{name: largeBodies, uses: byLarge, fixed: largeAsked, size: store.MaxBody, sends: largeValue, after: []string{canCreate, canDelete}, run: (*survey).largeValues},
	{name: "left by earlier probes", fixed: 1, after: []string{canList}, run: (*survey).leftovers},
	{name: seenLater, uses: byCreate, fixed: mostWatched + mostDoubtful, run: (*survey).seenLater},
	{name: restCreate, uses: byCreate, fixed: 2 * 2 * restKeys * restRefused, after: []string{canDelete, createOver}, run: (*survey).creatingOverRested},
	{name: restUpdate, uses: byUpdate, fixed: restKeys*(2*restRefused+4) + 2*restRefused, after: []string{canDelete, updateStale}, run: (*survey).updatingRested},
	{name: deleteIf, fixed: 5 + (2+2*rivals)*deletes, after: []string{canUpdate, canDelete}, run: (*survey).conditionalDeletes},
	{name: tellsTime, uses: byTimes, fixed: 1, after: []string{canCreate}, run: (*survey).times},
	{name: tellsAge, uses: byTimes, fixed: 1 + 2*ages, after: []string{tellsTime}, run: (*survey).ages},
	{name: clockRate, uses: byCreate, after: []string{canCreate}, run: (*survey).clock},
	{name: allCreates, uses: byCreate, run: judgement("creates", func(w *witness) *count { return &w.creates })},
	{name: allUpdates, uses: byUpdate, run: judgement("updates", func(w *witness) *count { return &w.updates })},
	{name: allReads, uses: byCreate, run: judgement("reads", func(w *witness) *count { return &w.reads })},
	{name: allLists, uses: byList, run: judgement("listed objects", func(w *witness) *count { return &w.lists })},
	{name: bodiesWhole, uses: byCreate, run: (*survey).wholeBodies},
	{name: trouble, run: (*survey).trouble},
})
