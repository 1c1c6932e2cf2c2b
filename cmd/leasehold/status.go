package main

import (
	"context"
	"encoding/json"
	"errors"
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
	Lock       string            `json:"lock"`
	State      string            `json:"state"`            // absent, free, held
	Holder     string            `json:"holder,omitempty"` // of a free lock: the last
	Address    string            `json:"address,omitempty"`
	Token      leasehold.Token   `json:"token,omitempty"`
	Layout     leasehold.Layout  `json:"layout,omitempty"` // unless it is object
	TTL        int64             `json:"ttl_ms,omitempty"`
	Age        *int64            `json:"age_ms,omitempty"` // not there if the store does not tell
	Abandoned  bool              `json:"abandoned"`
	AcquiredAt *time.Time        `json:"acquired_at,omitempty"`
	RenewedAt  *time.Time        `json:"renewed_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	Session    string            `json:"session,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Version    string            `json:"version,omitempty"`
}

func (a *app) status() *cobra.Command {
	var opts leasehold.LockOptions
	cmd := &cobra.Command{
		Use:   "status LOCK",
		Short: "Tell who holds a lock",
		Long: `Tell who holds a lock, without touching it.

The exit code is 0 whether the lock is held, free or absent; --output json has it
in "state". Without --layout it is that of the lock, except for markers. A lock whose
holder is gone is shown as held until another takes it; "abandoned" says that it looks
to be so.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			p, info, err := a.see(ctx, args[0], &opts, chosen(cmd))
			if err != nil {
				return err
			}
			r := describe(p, info)
			return a.print(r.text(info), r)
		},
	}
	layoutFlag(cmd.Flags(), &opts.Layout)
	return cmd
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

// see reads a lock. If no layout was chosen, it is the one that the lock has.
func (a *app) see(ctx context.Context, name string, opts *leasehold.LockOptions, chosen bool) (target, leasehold.Info, error) {
	p, lock, err := a.open(ctx, name, opts)
	if err != nil {
		return target{}, leasehold.Info{}, err
	}
	info, err := inspect(ctx, p, lock)
	if has, other := errors.AsType[*otherLayout](err); other && has.layout.Tokens() && !chosen {
		opts.Layout = has.layout
		return a.see(ctx, name, opts, true)
	}
	return p, info, err
}

func describe(p target, i leasehold.Info) report {
	if p.layout == "" {
		p.layout = i.Layout
	}
	r := report{
		Lock: p.url, State: "absent", Holder: i.Holder, Address: i.Address, Token: i.Token,
		TTL: i.TTL.Milliseconds(), Abandoned: i.Abandoned,
		AcquiredAt: known(i.AcquiredAt), RenewedAt: known(i.RenewedAt), ExpiresAt: known(i.ExpiresAt),
		Session: i.Session, Meta: i.Meta, Version: string(i.Version),
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
	switch {
	case r.Holder == "":
	case i.Held:
		line("holder", "%s", printable(r.Holder))
	default:
		line("last", "%s", printable(r.Holder))
	}
	if r.Address != "" {
		line("address", "%s", printable(r.Address))
	}
	if r.Token != leasehold.NoToken {
		line("token", "%v", r.Token)
	}
	if r.Layout != "" {
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

func toJSON(data any) string {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		panic(err) // nothing that we print can fail
	}
	return string(text) + "\n"
}
