package metrics

import "context"

// A Sink takes in measurements. Its methods may be called by many goroutines at a time and must be quick:
// some are called on the goroutine of a request.
type Sink interface {
	// Record takes in one value of an instrument that is no Gauge, with a value for each of its
	// attributes but keys that are not named. The context may have a span that the measurement belongs to. The
	// attributes must not be kept or changed.
	Record(ctx context.Context, i *Instrument, value float64, attributes ...Attr)
	// Observe has f called whenever the values of a Gauge are wanted: f yields each of them.
	Observe(i *Instrument, f func(yield func(value float64, attributes ...Attr)))
}

// An Attr is the value of an attribute.
type Attr struct{ Name, Value string }
