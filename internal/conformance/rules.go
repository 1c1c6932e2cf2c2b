package conformance

// rules are the sentences of docs/format.md that a case can show to be broken, by their numbers.
// A test compares the two.
var rules = map[string]string{
	"F1":  "Every write is one PUT on a condition: `If-Match` with the ETag that was read, or `If-None-Match: *` where no object was seen. Nothing is deleted.",
	"F2":  "Every attempt to write has a `write_id` that no other attempt has: a mark of the candidate, a dot, and a number that grows.",
	"F3":  "An acquisition has a token greater than every token seen in this lock, also after a lease of one's own. A renewal and a release keep the token.",
	"F4":  "A lease is valid until `t0 + TTL − m`, where `t0` is the clock before the first byte of the request that wrote the record, and no longer, whenever the answer comes.",
	"F5":  "A record that another holds is written over only after this version was seen unchanged for its own `ttl_ms` and m, counted from the receipt of the answer that first showed it.",
	"F6":  "After any answer to a write but a success the outcome is unknown, and a read decides: if the record has the `write_id` of the attempt, it has landed, with the `t0` of that attempt; if the object is as it was, it may yet land; else it has not.",
	"F7":  "A release writes the record as free, with its token. From before it is sent the lease is not valid.",
	"F8":  "Once a release was sent, no earlier write is taken for a lease again.",
	"F9":  "A record is one's own by its `write_id`, and by nothing else in it. A process that starts anew has no lease.",
	"F10": "The holder learns that its lease is over before it is told anything else, and a lease that is over never becomes valid again.",
	"F11": "An object that is not a record of this format is never written over, and an acquisition that meets one ends with an error at once.",
	"F12": "A record that is held under a session is not written over, however long it stays unchanged, until that session is over.",
	"F13": "Every write keeps the fields that it does not know, and `history`, `term` and `term_token` if it does not add to them.",
	"F14": "An acquisition begins all fields of a lease anew: nothing of `holder`, `address`, `meta`, `session`, `successor`, `ended`, `freed` and `rest` stays from the lease before.",
	"F15": "A lock that is free is taken at once by one write. Where there is no object, the first token is the store's time in milliseconds, from the `Date` of the answer.",
	"F16": "A candidate that saw an object which is gone waits the TTL and m of its last record before it creates the object anew, with a greater token.",
	"F17": "After the n-th failure in a row there is a pause of at least 50 ms · 2^(n−1), up to at least 2 s. A refusal for good (400, 401, 403, 404 of the bucket, 405, 501) ends an acquisition.",
	"F18": "A holder renews at a third of the TTL, and a failed renewal does not end the lease: until its deadline the holder tries again.",
	"F19": "An acquisition that does not wait says that another holds the lock, by the name in `holder`, and writes nothing.",
	"F20": "One who waits takes a lock that is released within 10 s, and one whose holder is gone within 10 s after the time of F5.",
	"F21": "A holder that finds another record, or none, in place of its own has lost its lease, and leaves the object alone.",
	"L1":  "The subject answers each request with one line of the words below, within the time that the request may take.",
}
