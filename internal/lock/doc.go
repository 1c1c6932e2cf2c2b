// Package lock holds what locks, semaphores and tools share: the queue of callers within a
// process, calls of user functions, traces, and the contexts of a release.
package lock
