package cost

import "github.com/leasehold/leasehold"

// A budget is the requests of a layout's operations, as in the table in docs/requests.md. Tests of the
// root package count them.
type budget struct {
	acquire, refused            Requests // the lock is free; it was free when last read
	renew, release              Requests
	look, news, freed, jump     Requests // a poll that finds the record unchanged, renewed, released, or several changes later
	claims, renewals, releasing float64  // number of epochs that each creates
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

// A way is a layout with or without If-Match.
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

// budget returns the budget of the plan's layout.
func (p Plan) budget() budget { return budgets[way{p.Layout, p.NoIfMatch}] }

// way returns the name of the plan's layout for messages.
func (p Plan) way() string {
	if p.NoIfMatch {
		return string(p.Layout) + " without If-Match"
	}
	return string(p.Layout)
}

// epochs returns how many epochs these renewals and changes of holder create.
func (b budget) epochs(renewals, changes float64) float64 {
	return b.renewals*renewals + (b.claims+b.releasing)*changes
}

// How layouts collect old epochs: see internal/layout.
const (
	collectEvery  = 100 // epochs between two collections
	signpostEvery = 500 // epochs between two signposts
	keep          = 100 // earlier leases
)

// collection returns the requests of one collection of epochs, for a lock older than a day: it reads the
// lock, lists the old epochs, reads the leases to keep, and reads and deletes as many epochs as
// were created since the last one.
func (p Plan) collection(changes float64) Requests {
	each := getList.Plus(list.Times(3)).Plus(get.Times(min(changes, keep)))
	each = each.Plus(get.Plus(remove).Times(collectEvery))
	return each.Plus(Requests{Put: 1, Delete: 1}.Times(float64(collectEvery) / signpostEvery))
}
