// Package metrics measures locks, elections, sessions, semaphores, shards and stores.
// [Instruments] lists all instruments. Their names follow OpenTelemetry's conventions, and each
// attribute has few values.
//
//	set := metrics.NewSet()
//	recorder, err := metrics.New(set, nil)
//	st = metrics.Store(st, set)
//	lock, err := leasehold.NewLock(st, "backup", &leasehold.LockOptions{Trace: recorder.Trace()})
//	http.Handle("/metrics", set)
//
// A [Recorder] measures the events of a locktrace.Trace, and [Store] the calls of a store. Both
// send measurements to a [Sink]: a [Set] keeps them in memory for Prometheus, and the module
// adapter/otel passes them to OpenTelemetry. docs/observability.md has a table of the
// instruments, and the dashboard and alerts based on them.
package metrics
