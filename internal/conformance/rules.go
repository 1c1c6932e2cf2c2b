package conformance

// rules are the sentences of docs/format.md that a case can show to be broken, by their numbers.
// A test compares the two.
var rules = map[string]string{
	"F1":  "Every write is one PUT with a condition: `If-Match` with the ETag of the version seen, or `If-None-Match: *` if no object was seen. Nothing is deleted.",
	"F2":  "Every write attempt has a unique `write_id`: the candidate's mark, a dot, and a growing number.",
	"F3":  "An acquisition has a token larger than every token seen in this lock, including those of the candidate's own leases. A renewal and a release keep the token.",
	"F4":  "A lease is valid until `t0 + TTL − m` and no longer, whenever the answer comes. `t0` is the clock before the first byte of the request that wrote the record.",
	"F5":  "Another holder's record is overwritten only after this version stayed unchanged for its own `ttl_ms` + m, counted from the receipt of the first answer that showed it.",
	"F6":  "After any answer to a write except success, the outcome is unknown, and a read decides. If the record has the attempt's `write_id`, the write has landed, with the `t0` of that attempt. If the object is unchanged, the write may still land. Otherwise the write counts as not landed.",
	"F7":  "A release writes the record as free, with its token. The lease stops being valid before the release is sent.",
	"F8":  "Once a release was sent, no earlier write counts as a lease again.",
	"F9":  "Only the `write_id` makes a record a candidate's own, and no other field. A restarted process has no lease.",
	"F10": "The holder learns that its lease has ended before it is told anything else. An ended lease never becomes valid again.",
	"F11": "An object that is not a record of this format is never overwritten. An acquisition that meets one fails at once.",
	"F12": "A record held under a session is not overwritten until that session has ended, however long the record stays unchanged.",
	"F13": "Every write keeps the fields it does not know. It also keeps `history`, `term` and `term_token`, unless it adds to them.",
	"F14": "An acquisition sets all fields of a lease afresh: it keeps nothing of the previous lease's `holder`, `address`, `meta`, `session`, `successor`, `ended`, `freed` and `rest`.",
	"F15": "A free lock is taken at once, with one write. If there is no object, the first token is the store's time in milliseconds, from the `Date` of the answer.",
	"F16": "If a candidate saw an object and it vanished, the candidate waits the TTL + m of the last record before it creates the object again, with a larger token.",
	"F17": "After the n-th failure in a row, the backoff is at least 50 ms · 2^(n−1). It may be capped, at 2 s or more. A permanent error (400, 401, 403, 404 of the bucket, 405, 501) ends an acquisition.",
	"F18": "A holder renews every TTL/3. A failed renewal does not end the lease: the holder keeps trying until its deadline.",
	"F19": "If another holds the lock, an acquisition that does not wait says so, with the name in `holder`, and writes nothing.",
	"F20": "A waiter takes a released lock within 10 s, and a dead holder's lock within 10 s after the time of F5.",
	"F21": "If a holder finds another record, or no record, in place of its own, it has lost its lease. It leaves the object alone.",
	"L1":  "The subject answers each request with one line of the line protocol, within the time the request may take.",
}
