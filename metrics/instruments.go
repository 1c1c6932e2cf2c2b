package metrics

import (
	"slices"

	"github.com/leasehold/leasehold/locktrace"
)

// A Kind is an instrument's kind.
type Kind string

// The kinds of instruments, with OpenTelemetry's names.
const (
	Counter       Kind = "counter"       // values are added and never negative
	UpDownCounter Kind = "updowncounter" // values are added
	Histogram     Kind = "histogram"     // values form a distribution
	Gauge         Kind = "gauge"         // observable: values are read on demand, see Sink.Observe
)

// An Instrument is one thing that is measured.
type Instrument struct {
	Name        string // by OpenTelemetry's conventions: see PrometheusName
	Unit        string // UCUM: "s", "By", or what is counted, in braces
	Kind        Kind
	Description string
	Attributes  []Attribute
	Buckets     []float64 // for a Histogram: upper bounds, ascending, without infinity
}

// An Attribute distinguishes the values of one instrument.
type Attribute struct {
	Name        string // see PrometheusLabel
	Description string
	Values      []string // all possible values; nil: keys, which Options bounds
}

// Names of the attributes.
const (
	AttrKind      = "leasehold.kind"
	AttrKey       = "leasehold.key"
	AttrOutcome   = "leasehold.outcome"
	AttrOperation = "leasehold.operation"
	AttrWaited    = "leasehold.waited"
	AttrEnd       = "leasehold.end"
	AttrCause     = "leasehold.cause"
	AttrName      = "name" // for the instruments named as in Kubernetes
)

// OtherKey is the value of AttrKey and AttrName for keys without a series of their own.
const OtherKey = "other"

// Bucket bounds for the duration of requests, and of waits, which may last for days.
var (
	requestSeconds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	waitSeconds    = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14400, 86400}
)

func kinds() []string {
	var names []string
	for k := locktrace.Lock; k <= locktrace.Shard; k++ {
		names = append(names, k.String())
	}
	return names
}

var (
	kind = Attribute{AttrKind, "The kind of object.", kinds()}
	key  = Attribute{AttrKey, "The key, if a pattern in the options matches it; otherwise `other`. Only if you set the option, and for elections.", nil}
	name = Attribute{AttrName, "The key of the election, or `other`.", nil}

	requestOutcome = Attribute{AttrOutcome, "`ok`, or the kind of store error.", Outcomes}
)

// The instruments of a Recorder.
var (
	acquireDuration = &Instrument{
		Name: "leasehold.acquire.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of acquisitions, from the call to the lease or error.",
		Attributes: []Attribute{
			kind,
			{AttrOutcome, "`acquired`; `held`: the lock was held, and the caller did not wait; `gave_up`: the caller's context ended; `failed`.", []string{"acquired", "held", "gave_up", "failed"}},
			{AttrWaited, "Whether the acquisition had to wait for a holder.", []string{"true", "false"}},
			key,
		},
		Buckets: waitSeconds,
	}
	acquirePending = &Instrument{
		Name: "leasehold.acquire.pending", Unit: "{acquisition}", Kind: UpDownCounter,
		Description: "Acquisitions in progress.",
		Attributes:  []Attribute{kind, key},
	}
	acquireOldest = &Instrument{
		Name: "leasehold.acquire.oldest", Unit: "s", Kind: Gauge,
		Description: "Age of the oldest acquisition in progress; 0 if none is in progress.",
		Attributes:  []Attribute{kind, key},
	}
	acquireTakeovers = &Instrument{
		Name: "leasehold.acquire.takeovers", Unit: "{acquisition}", Kind: Counter,
		Description: "Acquisitions that took over from a holder without a release.",
		Attributes:  []Attribute{kind, key},
	}
	leasesHeld = &Instrument{
		Name: "leasehold.lease.held", Unit: "{lease}", Kind: UpDownCounter,
		Description: "Leases held.",
		Attributes:  []Attribute{kind, key},
	}
	leaseDuration = &Instrument{
		Name: "leasehold.lease.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of leases, from the acquisition to the end.",
		Attributes: []Attribute{
			kind,
			{AttrEnd, "How the lease ended.", []string{"released", "lost", "detached"}},
			key,
		},
		Buckets: waitSeconds,
	}
	leaseLosses = &Instrument{
		Name: "leasehold.lease.losses", Unit: "{lease}", Kind: Counter,
		Description: "Leases lost before their release.",
		Attributes:  []Attribute{kind, {AttrCause, "Why the lease was lost.", causes}, key},
	}
	releaseDuration = &Instrument{
		Name: "leasehold.release.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of releases, until the result is known.",
		Attributes: []Attribute{
			kind,
			{AttrOutcome, "`confirmed`: the lease no longer holds the lock; `unconfirmed`: others may have to wait until the lease expires.", []string{"confirmed", "unconfirmed"}},
			key,
		},
		Buckets: requestSeconds,
	}
	renewalDuration = &Instrument{
		Name: "leasehold.renewal.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of renewals, from the first request to the first confirmed write.",
		Attributes:  []Attribute{kind, key},
		Buckets:     requestSeconds,
	}
	renewalRemaining = &Instrument{
		Name: "leasehold.renewal.remaining", Unit: "s", Kind: Histogram,
		Description: "Time left on a lease when its renewal was confirmed.",
		Attributes:  []Attribute{kind, key},
		Buckets:     []float64{0.25, 0.5, 1, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 300, 3600},
	}
	renewalLate = &Instrument{
		Name: "leasehold.renewal.late", Unit: "{renewal}", Kind: Counter,
		Description: "Renewals confirmed with less than 1/3 of the TTL left.",
		Attributes:  []Attribute{kind, key},
	}
	requestDuration = &Instrument{
		Name: "leasehold.request.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of lock operations on the store.",
		Attributes: []Attribute{
			kind,
			{AttrOperation, "`check` reads a holder's session; `write` belongs to semaphores.", []string{"read", "check", "claim", "renew", "free", "write"}},
			requestOutcome,
		},
		Buckets: requestSeconds,
	}
	storeTroubles = &Instrument{
		Name: "leasehold.store.troubles", Unit: "{report}", Kind: Counter,
		Description: "Reports of three or more store failures in a row; at most one per minute and lock.",
		Attributes:  []Attribute{kind, key},
	}
	leaderKnown = &Instrument{
		Name: "leasehold.leader.known", Unit: "{election}", Kind: UpDownCounter,
		Description: "Elections whose leader this process knows: 1 or 0 per key.",
		Attributes:  []Attribute{key},
	}
	leaderChanges = &Instrument{
		Name: "leasehold.leader.changes", Unit: "{change}", Kind: Counter,
		Description: "New leaders seen by this process.",
		Attributes:  []Attribute{key},
	}
	masterStatus = &Instrument{
		Name: "leader_election_master_status", Unit: "", Kind: UpDownCounter,
		Description: "Whether this process leads (1) or not (0). Kubernetes uses the same name.",
		Attributes:  []Attribute{name},
	}
	slowPath = &Instrument{
		Name: "leader_election_slowpath_total", Unit: "", Kind: Counter,
		Description: "Leader renewals that took more than one request. Kubernetes uses the same name.",
		Attributes:  []Attribute{name},
	}
)

// The instruments of a Store.
var (
	storeOperation = Attribute{AttrOperation, "The store's method.", []string{"get", "put", "delete", "list", "get_large", "put_large"}}

	storeDuration = &Instrument{
		Name: "leasehold.store.duration", Unit: "s", Kind: Histogram,
		Description: "Duration of store calls; for listings and streamed objects, to the end.",
		Attributes:  []Attribute{storeOperation, requestOutcome},
		Buckets:     requestSeconds,
	}
	storeIO = &Instrument{
		Name: "leasehold.store.io", Unit: "By", Kind: Counter,
		Description: "Bytes of objects read from or written to the store.",
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

// Instruments returns all instruments, in the order of the documentation. Do not modify them.
func Instruments() []*Instrument { return slices.Clone(all) }
