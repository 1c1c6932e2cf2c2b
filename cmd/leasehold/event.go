package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// An event is one line of --output json: of run, elect and the other commands on stderr, of watch
// on stdout. Programs go by the names of its fields and of the events: they stay.
type event struct {
	Time    time.Time `json:"time"` // UTC
	Event   eventName `json:"event"`
	Level   string    `json:"level,omitempty"`
	Message string    `json:"message,omitempty"`
	Lock    string    `json:"lock,omitempty"` // the URL
	State   string    `json:"state,omitempty"`
	party
	*details // of watch

	Cause    string `json:"cause,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`
	Waited   *int64 `json:"waited_ms,omitempty"`
	Ahead    *int   `json:"ahead,omitempty"`
	Pause    *int64 `json:"pause_ms,omitempty"`
	Docs     string `json:"docs,omitempty"` // the page that explains it
}

// An eventName says what happened.
type eventName string

// The events of run and elect. The last two are of all commands.
const (
	eventWaiting    eventName = "waiting"
	eventTrouble    eventName = "trouble"
	eventAcquired   eventName = "acquired"
	eventStarted    eventName = "started"
	eventSignalled  eventName = "signalled"
	eventEnded      eventName = "ended"
	eventLost       eventName = "lost"
	eventReleased   eventName = "released"
	eventUnreleased eventName = "unreleased"
	eventCampaign   eventName = "campaign"
	eventFailed     eventName = "failed"
	eventMessage    eventName = "message"
)

// The events of watch: see changeEvents. A prefix has one more.
const (
	eventElected    eventName = "elected"
	eventRenewed    eventName = "renewed"
	eventResigned   eventName = "resigned"
	eventExpired    eventName = "expired"
	eventTakenOver  eventName = "taken_over"
	eventVanished   eventName = "vanished"
	eventUnreadable eventName = "unreadable"
	eventAppeared   eventName = "appeared" // of a prefix
)

// An eventKind says of the events of one name what they mean and which fields they have, for
// people that write programs.
type eventKind struct {
	name      eventName
	of        string // the commands
	means     string
	always    string // the fields that each of them has
	sometimes string // and those that it has where they apply
}

const (
	// said are the fields of all that is said on stderr.
	said = "time event level message "
	// seen are those of all that watch sees, and seenToo those of them that a record may lack.
	seen    = "time event lock state abandoned"
	seenToo = "holder last_holder address last_address token last_token layout no_if_match ttl_ms age_ms term acquired_at renewed_at expires_at rest_ms session meta version semaphore"
)

// eventKinds are all events that there are.
var eventKinds = []eventKind{
	{eventWaiting, "run, elect, watch", "another holds the lock, or it has no holder yet; repeated when the holder or the place in the queue changes, and once a minute; ahead is the number of waiters before this one", said + "lock", "holder address token waited_ms ahead"},
	{eventTrouble, "run, elect", "the store failed; leasehold tries again", said + "lock cause", ""},
	{eventAcquired, "run, elect", "the lock is held; in elect, this candidate leads", said + "lock holder", "address token"},
	{eventStarted, "run, elect", "the command was started", said + "lock holder", "address token"},
	{eventSignalled, "run, elect", "a signal was passed on to the command", said + "lock holder signal", "address token"},
	{eventEnded, "run, elect", "the command ended; signal is the one that killed it", said + "lock holder exit_code", "address token signal"},
	{eventLost, "run, elect", "the lease was lost, and the command was stopped", said + "lock holder cause", "address token"},
	{eventReleased, "run, elect", "the lock is free", said + "lock holder", "address token"},
	{eventUnreleased, "run, elect", "the release was not confirmed; others may have to wait for the TTL", said + "lock holder cause", "address token"},
	{eventCampaign, "elect", "this candidate stopped leading, or could not campaign; it campaigns again after pause_ms", said + "lock pause_ms", "cause"},
	{eventElected, "watch", "the lock has a holder, from now on or since before watch started", seen, seenToo},
	{eventRenewed, "watch", "the holder renewed its lease; with -v only", seen, seenToo},
	{eventResigned, "watch", "the holder released the lock", seen, seenToo},
	{eventExpired, "watch", "the holder did not renew its lease in time; another may take over", seen, seenToo},
	{eventTakenOver, "watch", "the lock has another holder, and no release was seen", seen, seenToo},
	{eventChanged, "watch", "of a semaphore: its holders or waiters changed", seen, seenToo},
	{eventVanished, "watch", "the lock's object was deleted", seen, seenToo},
	{eventUnreadable, "watch", "the store did not respond, or the object is not a lock; all else is from the last successful read", seen + " cause", seenToo},
	{eventAppeared, "watch", "of a prefix: a new lock without a holder", seen, seenToo},
	{eventFailed, "all", "leasehold exits because of an error", said + "exit_code", "lock holder token docs"},
	{eventMessage, "all", "anything else, for people", said, "lock"},
}

// fields are the names in a list of an eventKind.
func fields(list string) []string { return strings.Fields(list) }

// milliseconds is a duration as an event has it.
func milliseconds(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}

// events is a topic of the help, and no command.
func (a *app) events() *cobra.Command {
	var b strings.Builder
	b.WriteString(`With --output json, run and elect print one JSON object per event to stderr, and
watch to stdout. All other lines on stderr are objects, too, of the last two
kinds. -q leaves only failures. -v adds messages and, for watch, renewals.

"time" is in UTC (RFC 3339), "lock" is a URL, and a name that ends in _ms is a
number of milliseconds. New events and fields may be added; existing ones stay.

`)
	for _, k := range eventKinds {
		fmt.Fprintf(&b, "  %s (%s)\n      %s\n      always     %s\n", k.name, k.of, k.means, strings.Join(fields(k.always), ", "))
		if k.sometimes != "" {
			fmt.Fprintf(&b, "      sometimes  %s\n", strings.Join(fields(k.sometimes), ", "))
		}
	}
	return &cobra.Command{Use: "events", Short: "Events of --output json and their fields", Long: strings.TrimSuffix(b.String(), "\n")}
}
