// Package queue is the state machine of semaphores: one object lists who holds slots and who waits
// for some, in order. Callers' entries are under sessions, whose heartbeats say whether they are
// valid (rule T2). So a Machine whose callers all hold slots sends nothing.
//
// queue.go has the vocabulary, the memory and [Machine.Step]. A step takes in an answer (answer.go)
// or what a caller wants (caller.go), decides what the object must look like (next.go), and plans
// the next poll (pace.go). watch.go decides whose sessions to watch, and told.go what to do about
// notifications from other processes.
//
// The rules T1 to T8 are those of docs/protocol-tables.md. Each stands at the line that keeps it,
// and each has a scenario in testdata whose header names it.
package queue
