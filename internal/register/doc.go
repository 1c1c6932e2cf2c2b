// Package register is a compare-and-swap register over several stores, some of which may fail: CASPaxos
// (Rystsov, 2018), with one object per member as an acceptor. A [Register] is one key. It is a pure state
// machine without clock, store or goroutines. [Register.Step] takes an event and returns what to send.
// Package store/quorumstore and the simulation both send it.
//
// # The rules
//
// Rule Q1. An acceptor is written only over the version that was read.
//
// Rule Q2. A ballot is used once, by one proposer. An acceptor promises and accepts nothing below its promise.
//
// Rule Q3. After a majority has promised, the proposer proposes the value accepted under the largest ballot,
// or the caller's value if the caller wanted to replace exactly that value.
//
// Rule Q4. A value is written, and a read may return it, once a majority has accepted it under one ballot. A
// value that fewer have accepted may surface later.
//
// Rule Q5. A member that has lost its objects does not vote. A missing object, or one that has accepted nothing,
// therefore counts only if the member's [Marker] was read after it and is intact: it has the name in the
// configuration, no larger number, and is whole. A whole member whose marker is no longer whole has lost its
// objects too, because a delayed request has recreated the marker. If there is no object, only a promise is
// written. If an object has accepted nothing, an acceptance is written only after the same check of the marker.
// So an object that was written into an emptied member never looks like an old one.
//
// Rule Q6. A lost member returns as a new member, by a change of the configuration. There is at most one next
// configuration, and it takes effect at once. Objects of a new member from an earlier configuration do not count.
// The new member votes on a key after a round has filled its object, with promises from a majority of the others
// under the new number. It votes on every key once it is whole: a majority of the others has taken the new number
// in its markers, and then all their objects were copied.
//
// Rule Q7. A deletion is removed from each member, on the condition that the object has not changed since it was
// read. Before that, all members have taken the configuration's number. After that, every member was seen with
// this deletion, accepted under one ballot and an earlier configuration, and unchanged for longer than any request
// is in flight; or, by its marker, without an object. The ballots of a configuration are above those of all earlier
// ones, so no new ballot is below a promise that the removal has forgotten.
//
// Each rule is in the model spec/quorum.pml, with the sequence that breaks without it.
package register
