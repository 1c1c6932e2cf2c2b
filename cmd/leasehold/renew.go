package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
)

func (a *app) renew() *cobra.Command {
	var (
		ttl      time.Duration
		storeURL string
		export   bool
	)
	cmd := &cobra.Command{
		Use:   "renew [flags] [FILE|-]",
		Short: "Renew a lease from leasehold acquire",
		Long: `Renew a lease from leasehold acquire once, for another TTL.

The lease is in FILE, on stdin with -, or by default in LEASEHOLD_LEASE. FILE is
replaced. Otherwise the renewed lease is written to stdout, and the old one can
no longer be used.

FILE can be renewed again even if leasehold is killed. A lease from stdin or
from the variable is lost if leasehold ends after the store has accepted the
renewal and before the lease was written.

` + detachedHelp + `

Exit codes:
  0   the lease was renewed and written
  64  usage
  65  this version does not understand FILE, or its store or lock is invalid, or
      it is for another store than --store-url
  66  FILE does not exist or cannot be read, or the directory of its file://
      store does not exist
  69  the store failed three times in a row, or permanently refused: until the
      lease expires, try again with FILE or with what was written to stdout
  76  the lease is lost: it expired, even if the lock is free; another holds the
      lock; it was released or broken; or another copy of it was used
  77  the store denied access`,
		Example: `  leasehold renew lease.json
  leasehold renew --ttl 1h lease.json
  lines=$(leasehold renew --exec) && eval "$lines"`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := leaseFrom(args)
			if err != nil {
				return err
			}
			if export && in.file != "" {
				return usage("--exec is for a lease in %s: the one in %s is replaced there", leaseVariable, string(in.file))
			}
			if cmd.Flags().Changed("ttl") && (ttl < leasehold.MinTTL || ttl > leasehold.MaxTTL) {
				return usage("--ttl %v is not between %v and %v", ttl, leasehold.MinTTL, leasehold.MaxTTL)
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error { return a.renewLease(ctx, in, storeURL, ttl, export) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&ttl, "ttl", 0, "lease `duration` from now on (default as before)")
	f.StringVar(&storeURL, "store-url", "", "`URL` of the store instead of the one in the lease, for\nother credentials")
	f.BoolVar(&export, "exec", false, "write lines that a POSIX shell can eval, and not JSON")
	return cmd
}

// untilSignal calls do until a signal arrives, and then cancels its context and exits with the signal's code. A second
// signal ends a call that ignores its context, such as opening a file.
func untilSignal(ctx context.Context, do func(context.Context) error) error {
	signals := make(chan os.Signal, 8)
	defer listen(signals)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case sig := <-signals:
		cancel()
		for e := (ending{time.Now()}); ; {
			select {
			case err := <-done:
				if err != nil {
					return stopped(sig, fmt.Errorf("%v: %w", sig, err))
				}
				return nil // it was done by then
			case sig = <-signals:
				if e.again() {
					return stopped(sig, fmt.Errorf("%v: ended at once by a second signal", sig))
				}
			}
		}
	}
}

func (a *app) renewLease(ctx context.Context, in keptLease, storeURL string, ttl time.Duration, export bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d, lock, unlock, err := a.useKept(ctx, in, storeURL, ttl)
	if err != nil {
		return err
	}
	defer unlock()
	var keep func(detached.Lease) error
	if in.file != "" {
		keep = in.file.write
	}
	next, err := detached.Renew(ctx, lock, d, keep)
	if unsettled, ok := errors.AsType[*detached.UnsettledError](err); ok && in.file == "" {
		_ = a.writeLease(unsettled.Lease, export) // the error is reported all the same
	}
	switch {
	case err != nil:
		return lostLease(&d, err)
	case in.file != "":
		err = in.file.write(next)
	default:
		err = a.writeLease(next, export)
	}
	if err != nil {
		return failed(fmt.Errorf("the lease was renewed, and could not be written: %w", err))
	}
	a.console.note("renewed %s%s until %s", d.Key, withToken(d.Token), next.ExpiresAt.Local().Format(time.RFC3339))
	return nil
}

// writeLease writes a lease to stdout.
func (a *app) writeLease(d detached.Lease, export bool) error {
	if export {
		return a.writeData(exports(d))
	}
	return a.writeData(toJSON(d))
}

// A keptLease is where a lease was kept: in a file, or as text that is not replaced.
type keptLease struct {
	file leaseFile
	text []byte
	name string // for people, of what is no file
}

func (k *keptLease) String() string { return k.name + string(k.file) }

// leaseFrom is the lease that a command is to use.
func leaseFrom(args []string) (keptLease, error) {
	switch {
	case len(args) == 0:
		text := os.Getenv(leaseVariable)
		if text == "" {
			return keptLease{}, usage("no lease given: name the file that leasehold acquire has written, or set %s", leaseVariable)
		}
		return keptLease{text: []byte(text), name: "the variable " + leaseVariable}, nil
	case args[0] == "-":
		text, err := readLimited(os.Stdin)
		switch {
		case errors.Is(err, detached.ErrForeign):
			return keptLease{}, failed(fmt.Errorf("stdin is %w", err))
		case err != nil:
			return keptLease{}, &exit{exitAbsent, fmt.Errorf("stdin: %w", err)}
		}
		return keptLease{text: bytes.TrimSpace(text), name: "stdin"}, nil
	case args[0] == "":
		return keptLease{}, usage("the name of the lease's file is empty")
	}
	return keptLease{file: leaseFile(args[0])}, nil
}

// lock keeps others from using the file meanwhile.
func (k *keptLease) lock(ctx context.Context) (unlock func(), err error) {
	if k.file == "" {
		return func() {}, nil
	}
	return k.file.lock(ctx)
}

func (k *keptLease) read() (detached.Lease, error) {
	if k.file != "" {
		return k.file.read()
	}
	d, err := detached.Parse(k.text)
	if err != nil {
		return d, failed(fmt.Errorf("%s is %w", k.name, err))
	}
	return d, nil
}
