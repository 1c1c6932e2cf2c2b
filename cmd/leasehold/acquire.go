package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// detachedHelp is what the commands for a lease that no process holds have to say in common.
const detachedHelp = `The lease is not renewed, and nothing stops your work when it ends. Before its
expires_at, the work must have ended or leasehold renew have succeeded. A resource
that checks the token is protected from late work.

Each renewal replaces the record that a lease file refers to. Two processes with
the same file take turns. Of two with copies of it, one succeeds and the other
exits with 76. Anyone who can read the file and write to the store can use the
lease.`

// An acquireCmd is one use of the command acquire.
type acquireCmd struct {
	runCmd
	file   leaseFile
	export bool
}

func (a *app) acquire() *cobra.Command {
	h := &acquireCmd{runCmd: runCmd{job: a.newJob(), wait: wait{forever: true}}}
	cmd := &cobra.Command{
		Use:   "acquire [flags] LOCK --ttl D",
		Short: "Acquire a lock that outlives the process",
		Long: `Acquire a lock that outlives the process, for the steps of a pipeline or playbook.

The lock is held until leasehold release, or until --ttl plus 1/12 has passed.
The lease is written to stdout as JSON, or to a file with --file: keep it for
leasehold renew and leasehold release. For a single command use leasehold run,
which renews the lease and stops the command if the lease is lost.

` + detachedHelp + `

With --exec, stdout is for eval in a POSIX shell. It exports LEASEHOLD_LEASE, which
renew and release read, LEASEHOLD_LOCK, LEASEHOLD_TOKEN, LEASEHOLD_HOLDER and
LEASEHOLD_EXPIRES.

If leasehold is killed by SIGKILL after it got the lock and before it wrote the
lease, the lock stays locked until --ttl has passed.

Exit codes:
  0      the lock is held, and the lease was written
  75     the lock is held, and --wait has passed (see --conflict-exit-code)
  others as for leasehold run`,
		Example: `  leasehold acquire deploy --ttl 30m --file lease.json
  leasehold acquire s3://bucket/locks/deploy --ttl 30m --wait 10m > lease.json
  lines=$(leasehold acquire deploy --ttl 30m --exec) && eval "$lines"`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error { return h.run(cmd.Context(), cmd, args[0]) },
	}
	f := cmd.Flags()
	h.lockFlags(f)
	f.DurationVar(&h.opts.TTL, "ttl", 0, "lease `duration`; required, because the lease is not\nrenewed")
	f.Var(&h.wait, "wait", "how long to wait: 0, a `duration`, or forever")
	f.IntVar(&h.heldCode, "conflict-exit-code", exitHeld, "exit `code` when another holds the lock")
	f.StringVar((*string)(&h.file), "file", "", "write the lease to this `file`, which only you can read, and not to stdout")
	f.BoolVar(&h.export, "exec", false, "write lines that a POSIX shell can eval, and not JSON")
	return cmd
}

// check makes sure of all that can be wrong before the store is asked.
func (h *acquireCmd) check() error {
	ttl := h.opts.TTL
	switch {
	case ttl == 0:
		return usage("no --ttl given: nobody renews the lease, so say how long it is to last, as in --ttl 30m")
	case ttl < leasehold.MinTTL || ttl > leasehold.MaxTTL:
		return usage("--ttl %v is not between %v and %v", ttl, leasehold.MinTTL, leasehold.MaxTTL)
	case !h.opts.Layout.Tokens():
		return usage("--layout %s has no tokens, by which alone a lease can be proven to be one's own: use leasehold run", h.opts.Layout)
	case h.file == "-":
		return usage("--file - is no file: stdout is where the lease goes without it")
	case h.file != "" && h.export:
		return usage("--file and --exec exclude each other: the lease is kept in one place")
	}
	if err := checkCode("conflict", h.heldCode); err != nil {
		return err
	}
	if h.file == "" {
		return nil
	}
	return h.file.vacant(time.Now())
}

func (h *acquireCmd) run(ctx context.Context, _ *cobra.Command, name string) error {
	if err := h.check(); err != nil {
		return err
	}
	if err := h.prepare(ctx, name); err != nil {
		return err
	}
	listen(h.signals)
	return h.take(ctx)
}

// take acquires the lock, and keeps the lease for others.
func (h *acquireCmd) take(ctx context.Context) error {
	lease, err := h.obtain(ctx)
	if err != nil {
		return err
	}
	select {
	case sig := <-h.signals: // it came with the lock
		return h.interrupted(ctx, acquisition{lease: lease}, sig, ending{time.Now()})
	default:
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	lock, own := h.contest.(*lockContest), lease.(*leasehold.Lease) //nolint:errcheck // there is no flag for anything else
	d, err := detached.From(limited, own)
	if err != nil {
		return failed(err)
	}
	d.URL = h.target.storeURL
	if err = h.keep(d); err != nil {
		if e := detached.Release(limited, lock.Lock, d); e != nil {
			h.console.warn("could not release %s: %s: others may have to wait up to %v longer", h.target.name, h.message(e), h.opts.TTL)
		}
		return failed(err)
	}
	h.console.note("holding %s as %s%s until %s", h.target.name, d.Holder, withToken(d.Token), d.ExpiresAt.Local().Format(time.RFC3339))
	return nil
}

// keep writes the lease to where it is to be kept.
func (h *acquireCmd) keep(d detached.Lease) error {
	if h.file != "" {
		return h.file.write(d)
	}
	h.warnReadable()
	text := toJSON(d)
	if h.export {
		text = exports(d)
	}
	if _, err := io.WriteString(h.stdout, text); err != nil {
		return notWritten(err) // even if its reader is gone: the lock has to be freed
	}
	return nil
}

// warnReadable says so where the lease goes to a file that others can read.
func (a *app) warnReadable() {
	f, ok := a.stdout.(*os.File)
	if !ok {
		return
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && readableByOthers(info) {
		a.console.warn("others can read %s, and with it use the lease: write it with --file, or after umask 077", "the file that stdout is")
	}
}

// exports are lines that a POSIX shell can eval.
func exports(d detached.Lease) string {
	text, err := d.MarshalJSON()
	if err != nil {
		panic(err) // nothing in it can fail
	}
	url, _ := urlOf(d.URL, d.Key) // it was opened by that URL
	var b strings.Builder
	for _, v := range [][2]string{
		{leaseVariable, string(text)},
		{ownLock, url},
		{ownToken, d.Token.String()},
		{ownHolder, d.Holder},
		{ownExpires, d.ExpiresAt.UTC().Format(time.RFC3339)},
	} {
		// Within single quotes nothing has a meaning but a single quote.
		fmt.Fprintf(&b, "export %s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	return b.String()
}

// useDetached opens the store of a detached lease, and makes a Lock that can use it. What is wrong
// in the lease is bad data, and no usage: nobody has typed it.
func (a *app) useDetached(ctx context.Context, d *detached.Lease, storeURL string, ttl time.Duration) (*leasehold.Lock, error) {
	bad := func(format string, args ...any) error { return &exit{exitForeign, fmt.Errorf(format, args...)} }
	if err := store.CheckKey("lock", d.Key); err != nil {
		return nil, bad("its key: %w", err)
	}
	given := storeURL != ""
	if !given {
		storeURL = d.URL
	}
	if storeURL == "" {
		return nil, bad("it does not say where its store is: give --store-url")
	}
	p := target{name: d.Key, key: d.Key, storeURL: storeURL, opening: a.opening()}
	if url, err := urlOf(storeURL, d.Key); err == nil {
		p.name = url
	}
	switch err := p.open(ctx); {
	case !given && (errors.Is(err, storeurl.ErrURL) || errors.Is(err, store.ErrInvalid) || errors.Is(err, errInMemory)):
		return nil, bad("its url: %w", errors.Unwrap(err))
	case err != nil:
		return nil, err
	}
	a.at = p.store
	if ttl == 0 {
		ttl = d.TTL
	}
	lock, err := leasehold.NewLock(a.withTimeout(p.store), p.key, &leasehold.LockOptions{
		TTL: ttl, Holder: d.Holder, Layout: d.Layout, NoIfMatch: d.NoIfMatch, Logger: lock.Untroubled(a.console.logger()), // the error at the end says why
	})
	if err != nil { // renew has looked at the TTL, and all else is the lease's
		return nil, bad("%w", err)
	}
	return lock, nil
}

// useKept reads a lease from where it is kept, and makes a Lock that can use it. Until unlock is
// called nobody else uses the file.
func (a *app) useKept(ctx context.Context, in keptLease, storeURL string, ttl time.Duration) (d detached.Lease, lock *leasehold.Lock, unlock func(), err error) {
	if unlock, err = in.lock(ctx); err != nil {
		return d, nil, nil, err
	}
	if d, err = in.read(); err == nil {
		lock, err = a.useDetached(ctx, &d, storeURL, ttl)
		if e, ok := errors.AsType[*exit](err); ok && e.code == exitForeign {
			err = &exit{e.code, fmt.Errorf("%s: %w", &in, e.err)}
		}
	}
	if err != nil {
		unlock()
	}
	return d, lock, unlock, err
}

// lostLease is how the end of a lease is told.
func lostLease(d *detached.Lease, err error) error {
	if !errors.Is(err, leasehold.ErrLost) {
		return failed(late(err))
	}
	if d.Released {
		return &exit{exitLost, fmt.Errorf("the lease of %s%s was released already, or found to be lost", d.Key, withToken(d.Token))}
	}
	return failed(err)
}
