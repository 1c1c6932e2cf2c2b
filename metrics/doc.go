// Package metrics measures locks, elections, sessions, semaphores, shards and stores. [Instruments] is the
// list of what there is, with names by OpenTelemetry's conventions and attributes of which each has few
// values.
//
//	set := metrics.NewSet()
//	recorder, err := metrics.New(set, nil)
//	st = metrics.Store(st, set)
//	lock, err := leasehold.NewLock(st, "backup", &leasehold.LockOptions{Trace: recorder.Trace()})
//	http.Handle("/metrics", set)
//
// A [Recorder] makes measurements of the events of a leasehold.Trace, and [Store] of the calls of a store. Both
// go to a [Sink]: a [Set] keeps them in memory for Prometheus, and the module adapter/otel hands them to
// OpenTelemetry. docs/observability.md has the instruments in a table, and the dashboard and the alerts
// that are made of them.
package metrics
