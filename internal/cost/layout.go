package cost

import "github.com/leasehold/leasehold"

// A budget is what a layout may cost: docs/requests.md has it as a table, and tests of the
// root package count it.
type budget struct {
	acquire, refused            Requests // it is free; it was free when last seen
	renew, release              Requests
	look, news, freed, jump     Requests // unchanged; renewed; released; much has happened since
	claims, renewals, releasing float64  // how many epochs each of these makes
}

var (
	get     = Requests{Get: 1}
	put     = Requests{Put: 1}
	list    = Requests{List: 1}
	remove  = Requests{Delete: 1}
	getList = get.Plus(list)
	getPut  = get.Plus(put)
	putList = put.Plus(list)
)

// A way is a layout, and whether it does without If-Match.
type way struct {
	layout    leasehold.Layout
	noIfMatch bool
}

var budgets = map[way]budget{
	{leasehold.LayoutObject, false}: {
		acquire: put, refused: getPut, renew: put, release: put,
		look: get, news: get, freed: get, jump: get,
	},
	{leasehold.LayoutEpochs, true}: {
		acquire: putList, refused: getList.Plus(put), renew: putList, release: putList,
		look: get, news: getList, freed: getList, jump: getList.Plus(get),
		claims: 1, renewals: 1, releasing: 1,
	},
	{leasehold.LayoutEpochs, false}: {
		acquire: putList, refused: getList.Plus(put), renew: put, release: put,
		look: get, news: get, freed: getList, jump: getList.Plus(get),
		claims: 1,
	},
	{leasehold.LayoutMarker, false}: {
		acquire: put, refused: getPut, renew: put, release: remove,
		look: get, news: get, freed: get, jump: get,
	},
}

// budget is that of the plan's layout.
func (p Plan) budget() budget { return budgets[way{p.Layout, p.NoIfMatch}] }

// way is the name of the plan's layout, for people.
func (p Plan) way() string {
	if p.NoIfMatch {
		return string(p.Layout) + " without If-Match"
	}
	return string(p.Layout)
}

// epochs is how many of them so many renewals and changes of holder make.
func (b budget) epochs(renewals, changes float64) float64 {
	return b.renewals*renewals + (b.claims+b.releasing)*changes
}

// How layouts treat the past: see internal/layout.
const (
	collectEvery  = 100 // epochs, from one collection to the next
	signpostEvery = 500 // epochs, from one signpost to the next
	keep          = 100 // leases of the past
)

// collection is what one collection of epochs costs when the lock is older than a day:
// it looks, lists what is old, reads the leases that are kept, and reads and deletes as
// many objects as there are new ones.
func (p Plan) collection(changes float64) Requests {
	each := getList.Plus(list.Times(3)).Plus(get.Times(min(changes, keep)))
	each = each.Plus(get.Plus(remove).Times(collectEvery))
	return each.Plus(Requests{Put: 1, Delete: 1}.Times(float64(collectEvery) / signpostEvery))
}
