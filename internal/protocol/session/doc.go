// Package session is what a process knows of sessions: its own, in a [Membership], and those of other
// processes that it waits for, in a [Watch]. Both are pure bookkeeping beside the candidate that
// renews or polls the session's heartbeat. The rules D1 to D8 are those of
// docs/protocol-sessions.md.
package session
