package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
)

// patience bounds a command that asks the store once or twice.
const patience = 30 * time.Second

// A report is what is known of a lock. The names are for scripts: they stay.
type report struct {
	Lock  string `json:"lock"`
	State string `json:"state"` // absent, free, held
	party
	details
}

// A party is the holder of a lock that is held, and the last one of a lock that is free: by
// another name, so that a script does not take a holder of the past for one of the present.
type party struct {
	Holder      string          `json:"holder,omitempty"`
	LastHolder  string          `json:"last_holder,omitempty"`
	Address     string          `json:"address,omitempty"`
	LastAddress string          `json:"last_address,omitempty"`
	Token       leasehold.Token `json:"token,omitempty"`
	LastToken   leasehold.Token `json:"last_token,omitempty"`
}

// partyOf is who holds a lock, or held it last.
func partyOf(i leasehold.Info) party {
	if i.Held {
		return party{Holder: i.Holder, Address: i.Address, Token: i.Token}
	}
	return party{LastHolder: i.Holder, LastAddress: i.Address, LastToken: i.Token}
}

// details are the rest of a record.
type details struct {
	Layout     leasehold.Layout  `json:"layout,omitempty"` // unless it is object
	TTL        int64             `json:"ttl_ms,omitempty"`
	Age        *int64            `json:"age_ms,omitempty"` // not there if the store does not tell
	Abandoned  bool              `json:"abandoned"`
	Term       int64             `json:"term,omitempty"` // not there if it was not counted
	AcquiredAt *time.Time        `json:"acquired_at,omitempty"`
	RenewedAt  *time.Time        `json:"renewed_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	Rest       int64             `json:"rest_ms,omitempty"` // of a free lock: others leave it alone for so much longer
	Session    string            `json:"session,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Version    string            `json:"version,omitempty"`
	Semaphore  *seatsReport      `json:"semaphore,omitempty"` // of a semaphore only
}

// The exit codes of status --exit-code. A lock that is held has 0.
const (
	exitFree    = 1
	exitMissing = 2
)

func (a *app) status() *cobra.Command {
	var (
		opts   leasehold.LockOptions
		toCode bool
	)
	cmd := &cobra.Command{
		Use:   "status LOCK",
		Short: "Tell who holds a lock",
		Long: `Tell who holds a lock, without touching it.

The exit code is 0 whether the lock is held, free or absent; --output json has it
in "state". With --exit-code it is 0 if the lock is held, 1 if it is free, and 2 if
there is none; errors keep the codes that "leasehold run --help" lists, from 64 on. A
lock whose holder is gone is held until another takes it; "abandoned" says that it
looks to be so. Of a lock that is free the last holder and token are shown, as
"last_holder" and "last_token".

Of a semaphore the holders are shown and, in order, those that wait; it is held if any
seat is taken, and "token" is the last that was granted.

` + foundOut,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			p, e, err := a.see(ctx, args[0], &opts, chosen(cmd))
			if err != nil {
				return err
			}
			r := describeEntry(p, e)
			if err := a.print(r.text(e.Info), r); err != nil || !toCode {
				return err
			}
			return stateCode(e.Info)
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	cmd.Flags().BoolVar(&toCode, "exit-code", false, "exit with 0 if the lock is held, 1 if it is free, 2 if it is absent")
	return cmd
}

// stateCode is the exit that says whether a lock is held.
func stateCode(i leasehold.Info) error {
	switch {
	case i.Held:
		return nil
	case i.Exists:
		return &exit{exitFree, nil}
	}
	return &exit{exitMissing, nil}
}

// open finds a lock and makes a candidate for it.
func (a *app) open(ctx context.Context, name string, opts *leasehold.LockOptions) (target, *leasehold.Lock, error) {
	p, err := a.locate(ctx, name, opts.Layout)
	if err != nil {
		return target{}, nil, err
	}
	p.store = a.withTimeout(p.store)
	lock, err := leasehold.NewLock(p.store, p.key, opts)
	if err != nil {
		return target{}, nil, &exit{exitUsage, err}
	}
	return p, lock, nil
}

func describe(p target, i leasehold.Info) report {
	if p.layout == "" {
		p.layout = i.Layout
	}
	r := report{
		Lock: p.url, State: "absent", party: partyOf(i),
		details: details{
			TTL: i.TTL.Milliseconds(), Abandoned: i.Abandoned,
			AcquiredAt: known(i.AcquiredAt), RenewedAt: known(i.RenewedAt), ExpiresAt: known(i.ExpiresAt),
			Session: i.Session, Meta: i.Meta, Version: string(i.Version), Rest: i.Rest.Milliseconds(), Term: i.Term,
		},
	}
	if p.layout != leasehold.LayoutObject {
		r.Layout = p.layout
	}
	if !i.Held && !p.layout.Tokens() {
		r.TTL = 0 // there is no marker that would have one
	}
	switch {
	case i.Held:
		r.State = "held"
	case i.Exists:
		r.State = "free"
	}
	if i.Exists && i.Age >= 0 {
		age := i.Age.Milliseconds()
		r.Age = &age
	}
	return r
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// text is the report for people: a line for each thing that there is to say.
func (r report) text(i leasehold.Info) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("lock", "%s", r.Lock)
	state := r.State
	if r.Abandoned {
		state += ", but its holder looks to be gone"
	}
	line("state", "%s", state)
	if !i.Exists {
		return b.String()
	}
	if r.Semaphore != nil {
		r.Semaphore.text(line)
	}
	if last := r.last(); last != "" {
		line("last", "%s", last)
	}
	if r.Holder != "" {
		line("holder", "%s", printable(r.Holder))
	}
	if r.Rest > 0 {
		line("rest", "%v more, as its last holder has asked", i.Rest.Round(time.Second))
	}
	if r.Address != "" {
		line("address", "%s", printable(r.Address))
	}
	if r.Token != leasehold.NoToken {
		line("token", "%v", r.Token)
	}
	if r.Term != 0 {
		line("term", "%d", r.Term)
	}
	if r.Layout != "" && r.Semaphore == nil {
		line("layout", "%s", r.Layout)
	}
	if r.TTL != 0 {
		line("ttl", "%v", i.TTL)
	}
	if r.Age != nil {
		line("age", "%v since the last write", i.Age.Round(time.Second))
	}
	if r.AcquiredAt != nil {
		line("acquired", "%s by the holder's clock", r.AcquiredAt.Local().Format(time.DateTime))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Meta)) {
		line("meta", "%s", printable(key+"="+r.Meta[key]))
	}
	return b.String()
}

// last says who held a lock that is free, if anybody did.
func (p party) last() string {
	var parts []string
	if p.LastHolder != "" {
		parts = append(parts, printable(p.LastHolder))
	}
	if p.LastToken != leasehold.NoToken {
		parts = append(parts, fmt.Sprintf("token %v", p.LastToken))
	}
	if p.LastAddress != "" {
		parts = append(parts, printable(p.LastAddress))
	}
	return strings.Join(parts, ", ")
}

func toJSON(data any) string {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		panic(err) // nothing that we print can fail
	}
	return string(text) + "\n"
}
