// Package lock holds what locks, semaphores and tools share: the queue of callers within a
// process, calls of user functions, traces, the contexts of a release, and the questions of peers.
package lock
