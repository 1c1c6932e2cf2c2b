// Package engine drives candidates of package protocol. An [Engine] is one candidate with a
// mutex, a wake-up and requests; a [Session] is the engine of a heartbeat, with the knowledge
// that the process has of the locks under it. Both carry out the actions of the state machine,
// in their order. An [Owner] is told of everything else, and tells users.
//
// An engine lives in a [Runtime]: the clock, timers, goroutines and contexts of a [Process],
// or the one queue of events of the simulation. Nothing here blocks, reads a clock, draws a
// random number or starts a goroutine by itself, so the simulation drives the very code that
// ships.
//
// # What is locked
//
// The mutex of an engine is held for a step, and never for a request. An [Owner] is called while it
// is held, so a call that may enter another lock's engine, or take its time, goes through
// [Runtime].Apart. Package lockorder has the order of all mutexes, and checks it in tests.
package engine
