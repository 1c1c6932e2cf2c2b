// Package register is a compare-and-swap register over several stores that fail one by one: CASPaxos
// (Rystsov, 2018), with one object of each member as an acceptor. A [Register] is one key. It is pure:
// it has no clock, no store and no goroutine. [Register.Step] takes in what has happened and says what
// to send; package store/quorumstore sends it, and so does the simulation.
//
// # The rules
//
// Rule Q1. An acceptor is written only over the version that was read.
//
// Rule Q2. A ballot is used once, by one proposer. No acceptor promises or accepts below its promise.
//
// Rule Q3. After a majority of promises, the value accepted under the largest ballot is proposed; or
// the caller's, if that value is the one that the caller wanted to replace.
//
// Rule Q4. A value is written, or is what a read shows, once a majority has accepted it under one
// ballot. A value that fewer have accepted may surface later.
//
// Rule Q5. A member that has lost its objects does not vote. So an object that has accepted nothing, or
// none at all, counts as what it seems only by the member's [Marker]: the one that the configuration
// names, with a number that is not larger, whole, and read after the object was seen. A member that was whole, and
// whose marker is not any more, has lost its objects too: the creation of its marker came once more. Over no object
// only a promise is written, and over an object that has accepted nothing an acceptance only by the
// same marker: so one that was written into an emptied member is never taken for an old one.
//
// Rule Q6. A lost member comes back by a change of the configuration, as a new member. There is at most
// one next configuration, and it is in force at once. An object of the new member from before its time
// counts as none. It votes on a key where a round that had the promises of a majority of the others,
// under the new number, has filled its object; and on every key once it is whole: a majority of the
// others has taken the new number in its marker, and then in every object that it had.
//
// Rule Q7. A deletion marker is deleted in each member, on the condition that it has not changed since it was read. Before
// that, all members have taken the number of the configuration; after that, every member was seen to have this deletion,
// accepted under one ballot and an earlier configuration and untouched for longer than any request is under way, or,
// by its marker, to have no object. The ballots of a configuration are above those of all earlier ones, so no new ballot
// is below a promise that the collection has forgotten.
//
// Each rule is in the model spec/quorum.pml, with the sequence that breaks without it.
package register
