package metrics

import "context"

// A Sink receives measurements. Its methods may be called by several goroutines at a time and
// must be fast, because some calls are on the goroutine of a request.
type Sink interface {
	// Record adds one value of an instrument that is not a Gauge. attributes has all of its
	// attributes, except for keys that are not measured. The context may carry the span of the
	// measurement. Record must not keep or change the attributes.
	Record(ctx context.Context, i *Instrument, value float64, attributes ...Attr)
	// Observe registers f, which yields all values of a Gauge, to be called whenever they are
	// needed.
	Observe(i *Instrument, f func(yield func(value float64, attributes ...Attr)))
}

// An Attr is an attribute's value.
type Attr struct{ Name, Value string }
