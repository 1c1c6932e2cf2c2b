package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/plain"
)

// changeEvents are the events of the changes that watch sees.
var changeEvents = map[leasehold.ChangeKind]eventName{
	leasehold.Elected: eventElected, leasehold.Renewed: eventRenewed, leasehold.Resigned: eventResigned, leasehold.Expired: eventExpired,
	leasehold.TakenOver: eventTakenOver, leasehold.Vanished: eventVanished, leasehold.Unreadable: eventUnreadable,
}

// change writes one line.
func (a *app) change(p target, c leasehold.Change) error {
	if a.output == "json" {
		return a.writeLine(seenEvent(p, c))
	}
	return a.write(seenText(p, c) + "\n")
}

// seenEvent is a change for programs.
func seenEvent(p target, c leasehold.Change) event {
	r := describe(p, c.Info)
	switch c.Kind {
	case leasehold.Vanished:
		r.State = "absent"
	case leasehold.Unreadable:
		r.State = "unknown"
	case leasehold.Elected, leasehold.Renewed, leasehold.Resigned, leasehold.Expired, leasehold.TakenOver:
	}
	return seenAs(r, changeEvents[c.Kind], c.Time, c.Err)
}

// seenAs is that a lock was seen like that, for programs.
func seenAs(r report, name eventName, at time.Time, cause error) event {
	e := event{
		Time: at.UTC().Truncate(time.Millisecond), Event: name, Lock: r.Lock, State: r.State,
		party: r.Party, details: &r.Details,
	}
	if cause != nil {
		e.Cause = oneLine(cause)
	}
	return e
}

// seenText is a change for people.
func seenText(p target, c leasehold.Change) string {
	r := describe(p, c.Info)
	return seenLine(c.Time, c.Kind.String(), c.Err) + seenPart(r, c.Info)
}

// seenChange writes one line of what was found by comparing two looks, with the name if it may be that of
// several.
func (a *app) seenChange(now time.Time, kind, name string, r report, i leasehold.Info, cause error) error {
	switch kind {
	case leasehold.Vanished.String():
		r.State, r.Abandoned = "absent", false
	case leasehold.Unreadable.String():
		if r.State != notLock {
			r.State = "unknown"
		}
	}
	if a.output == "json" {
		return a.writeLine(seenAs(r, eventName(strings.ReplaceAll(kind, " ", "_")), now, cause))
	}
	if name != "" {
		kind = fmt.Sprintf("%-10s  %s", kind, plain.Word(name))
	}
	return a.write(seenLine(now, kind, cause) + seenPart(r, i) + "\n")
}

// seenLine begins a line of watch.
func seenLine(at time.Time, kind string, cause error) string {
	line := fmt.Sprintf("%s  %-10s", at.Local().Format(time.DateTime), kind)
	if cause != nil {
		line += "  " + plain.Word(oneLine(cause))
	}
	return line
}

// seenPart is what such a line says of the lock.
func seenPart(r report, i leasehold.Info) string {
	var b strings.Builder
	part := func(format string, args ...any) { b.WriteString("  " + plain.Word(fmt.Sprintf(format, args...))) }
	if s := r.Semaphore; s != nil {
		part("%s", semaphoreSeen(s))
	}
	if last := lastOf(r.Party); last != "" {
		part("last %s", last)
	}
	if r.Holder != "" {
		part("%s", plain.Word(r.Holder))
	}
	if r.Token != leasehold.NoToken {
		part("token %v", r.Token)
	}
	if r.Address != "" {
		part("%s", plain.Word(r.Address))
	}
	if text := age(i); text != "" {
		part("age %s", text)
	}
	if r.Layout != "" && r.Semaphore == nil {
		part("layout %s", r.LayoutText())
	}
	return b.String()
}
