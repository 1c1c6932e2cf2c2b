package metrics

import (
	"slices"

	"github.com/leasehold/leasehold"
)

// A Kind is how the values of an instrument behave.
type Kind string

// The kinds of instrument, by the names that OpenTelemetry has for them.
const (
	Counter       Kind = "counter"       // a value is added, and none is negative
	UpDownCounter Kind = "updowncounter" // a value is added
	Histogram     Kind = "histogram"     // a value is one of a distribution
	Gauge         Kind = "gauge"         // observable: values are asked for, see Sink.Observe
)

// An Instrument is one thing that is measured.
type Instrument struct {
	Name        string // by OpenTelemetry's conventions: see PrometheusName
	Unit        string // UCUM: "s", "By", or what is counted in braces
	Kind        Kind
	Description string
	Attributes  []Attribute
	Buckets     []float64 // of a Histogram: upper bounds, ascending, without infinity
}

// An Attribute tells the values of one instrument apart.
type Attribute struct {
	Name        string // see PrometheusLabel
	Description string
	Values      []string // all that it may have; nil: keys, which Options bounds
}

// The attributes.
const (
	AttrKind      = "leasehold.kind"
	AttrKey       = "leasehold.key"
	AttrOutcome   = "leasehold.outcome"
	AttrOperation = "leasehold.operation"
	AttrWaited    = "leasehold.waited"
	AttrEnd       = "leasehold.end"
	AttrCause     = "leasehold.cause"
	AttrName      = "name" // of the instruments that have the names of Kubernetes
)

// OtherKey is the value of AttrKey and AttrName for keys that have none of their own.
const OtherKey = "other"

// The bounds of durations: of a request, and of a wait, which may last for days.
var (
	requestSeconds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	waitSeconds    = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14400, 86400}
)

func kinds() []string {
	var names []string
	for _, k := range leasehold.TraceKinds {
		names = append(names, k.String())
	}
	return names
}

var (
	kind = Attribute{AttrKind, "What it is about.", kinds()}
	key  = Attribute{AttrKey, "Its key, if that is named in the options, or `other`. Only with such options, and for elections.", nil}
	name = Attribute{AttrName, "The key of the election, or `other`.", nil}

	requestOutcome = Attribute{AttrOutcome, "`ok`, or the kind of the store's error.", Outcomes}
)

// The instruments of a Recorder.
var (
	acquireDuration = &Instrument{
		Name: "leasehold.acquire.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of acquisitions, from the call to the lease or the error.",
		Attributes: []Attribute{
			kind,
			{AttrOutcome, "`acquired`; `held`: another holds it, and the caller did not wait; `gave_up`: the caller's context ended; `failed`.", []string{"acquired", "held", "gave_up", "failed"}},
			{AttrWaited, "Whether it had to wait for a holder.", []string{"true", "false"}},
			key,
		},
		Buckets: waitSeconds,
	}
	acquirePending = &Instrument{
		Name: "leasehold.acquire.pending", Unit: "{acquisition}", Kind: UpDownCounter,
		Description: "Acquisitions that are under way.",
		Attributes:  []Attribute{kind, key},
	}
	acquireOldest = &Instrument{
		Name: "leasehold.acquire.oldest", Unit: "s", Kind: Gauge,
		Description: "How long the oldest acquisition has been under way; 0 if there is none any more.",
		Attributes:  []Attribute{kind, key},
	}
	acquireTakeovers = &Instrument{
		Name: "leasehold.acquire.takeovers", Unit: "{acquisition}", Kind: Counter,
		Description: "Acquisitions that took over from a holder that had not released.",
		Attributes:  []Attribute{kind, key},
	}
	leasesHeld = &Instrument{
		Name: "leasehold.lease.held", Unit: "{lease}", Kind: UpDownCounter,
		Description: "Leases that are held.",
		Attributes:  []Attribute{kind, key},
	}
	leaseDuration = &Instrument{
		Name: "leasehold.lease.duration", Unit: "s", Kind: Histogram,
		Description: "How long leases were held, from the acquisition to their end.",
		Attributes: []Attribute{
			kind,
			{AttrEnd, "How the lease ended.", []string{"released", "lost", "detached"}},
			key,
		},
		Buckets: waitSeconds,
	}
	leaseLosses = &Instrument{
		Name: "leasehold.lease.losses", Unit: "{lease}", Kind: Counter,
		Description: "Leases that ended before they were released.",
		Attributes:  []Attribute{kind, {AttrCause, "Why the lease was lost.", causes}, key},
	}
	releaseDuration = &Instrument{
		Name: "leasehold.release.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of releases, until it is known whether the lock is free.",
		Attributes: []Attribute{
			kind,
			{AttrOutcome, "`confirmed`: the lock is not this lease's any more; `unconfirmed`: others may have to wait the lease out.", []string{"confirmed", "unconfirmed"}},
			key,
		},
		Buckets: requestSeconds,
	}
	renewalDuration = &Instrument{
		Name: "leasehold.renewal.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of renewals, from the first sending until one is known to have landed.",
		Attributes:  []Attribute{kind, key},
		Buckets:     requestSeconds,
	}
	renewalRemaining = &Instrument{
		Name: "leasehold.renewal.remaining", Unit: "s", Kind: Histogram,
		Description: "For how much longer a lease would have been valid when its renewal came through.",
		Attributes:  []Attribute{kind, key},
		Buckets:     []float64{0.25, 0.5, 1, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 300, 3600},
	}
	renewalLate = &Instrument{
		Name: "leasehold.renewal.late", Unit: "{renewal}", Kind: Counter,
		Description: "Renewals that came through when less than a third of the TTL was left.",
		Attributes:  []Attribute{kind, key},
	}
	requestDuration = &Instrument{
		Name: "leasehold.request.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of what was asked of the store for locks, as their layouts see it.",
		Attributes: []Attribute{
			kind,
			{AttrOperation, "`check` is a look at the session of a holder, `write` is of semaphores.", []string{"read", "check", "claim", "renew", "free", "write"}},
			requestOutcome,
		},
		Buckets: requestSeconds,
	}
	storeTroubles = &Instrument{
		Name: "leasehold.store.troubles", Unit: "{report}", Kind: Counter,
		Description: "Reports that the store has failed three times in a row, and goes on to, one a minute at most for each lock.",
		Attributes:  []Attribute{kind, key},
	}
	leaderKnown = &Instrument{
		Name: "leasehold.leader.known", Unit: "{election}", Kind: UpDownCounter,
		Description: "Elections of which this process knows the leader: 1 or 0 for each, by its key.",
		Attributes:  []Attribute{key},
	}
	leaderChanges = &Instrument{
		Name: "leasehold.leader.changes", Unit: "{change}", Kind: Counter,
		Description: "New leaders that this process has seen.",
		Attributes:  []Attribute{key},
	}
	masterStatus = &Instrument{
		Name: "leader_election_master_status", Unit: "", Kind: UpDownCounter,
		Description: "Whether this process leads (1) or not (0), under the name that Kubernetes has for it.",
		Attributes:  []Attribute{name},
	}
	slowPath = &Instrument{
		Name: "leader_election_slowpath_total", Unit: "", Kind: Counter,
		Description: "Renewals of a leader that took more than one request, under the name that Kubernetes has for them.",
		Attributes:  []Attribute{name},
	}
)

// The instruments of a Store.
var (
	storeOperation = Attribute{AttrOperation, "The method of the store.", []string{"get", "put", "delete", "list", "get_large", "put_large"}}

	storeDuration = &Instrument{
		Name: "leasehold.store.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of calls of the store; of a listing and of an object that is read bit by bit to its end.",
		Attributes:  []Attribute{storeOperation, requestOutcome},
		Buckets:     requestSeconds,
	}
	storeIO = &Instrument{
		Name: "leasehold.store.io", Unit: "By", Kind: Counter,
		Description: "Bytes of objects that were read from the store or sent to it.",
		Attributes:  []Attribute{storeOperation},
	}
)

var all = []*Instrument{
	acquireDuration, acquirePending, acquireOldest, acquireTakeovers,
	leasesHeld, leaseDuration, leaseLosses, releaseDuration,
	renewalDuration, renewalRemaining, renewalLate,
	leaderKnown, leaderChanges, masterStatus, slowPath,
	requestDuration, storeTroubles, storeDuration, storeIO,
}

// Instruments are all that there are, in the order in which they are documented. They must not be
// changed.
func Instruments() []*Instrument { return slices.Clone(all) }
