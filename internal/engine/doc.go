// Package engine drives candidates of package protocol. An [Engine] is one candidate with a
// mutex, a wake-up and requests; a [Session] is the engine of a heartbeat, and what the
// process knows of all that is under it. Both carry out what the state machine says, in the
// order in which it says it. What else there is to be done, and what users are told, is
// reported to an [Owner].
//
// An engine lives in a [Runtime]: the clock, timers, goroutines and contexts of a [Process],
// or the one queue of events of the simulation. Nothing here blocks, reads a clock, draws a
// random number or starts a goroutine by itself, so the simulation drives the very code that
// ships.
package engine
