// Package engine drives the state machines of package protocol. An [Engine] is one candidate for a lock,
// with a mutex, an alarm and requests. A [Table] is the same for a semaphore, and a [Session] is the engine
// of a heartbeat, with what the process knows about the leases under it. They carry out the actions of
// their machine, in order. An [Owner] is told about everything else, and tells users.
//
// An engine lives in a [Runtime]: the clock, timers, goroutines and contexts of a [Process], or the
// simulation's queue of events. Nothing here blocks, reads a clock, draws a random number or starts a
// goroutine by itself, so the simulation drives the shipped code.
//
// # Locking
//
// An engine's mutex is held for a step, and never for a request. The [Owner] is called while it is held, so
// a call that may enter another lock's engine, or that takes time, goes through [Runtime].Apart. [Rank]
// is the order of all mutexes. Tests built with the tag lockorder check it.
package engine
