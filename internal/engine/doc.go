// Package engine drives candidates of package protocol. An [Engine] is one candidate with a
// mutex, a wake-up and requests; a [Session] is the engine of a heartbeat, with the knowledge
// that the process has of the locks under it. Both carry out the actions of the state machine,
// in their order. An [Owner] is told of everything else, and tells users.
//
// An engine lives in a [Runtime]: the clock, timers, goroutines and contexts of a [Process],
// or the one queue of events of the simulation. Nothing here blocks, reads a clock, draws a
// random number or starts a goroutine by itself, so the simulation drives the very code that
// ships.
package engine
