package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
)

// A fenceCmd is one use of the command fence.
type fenceCmd struct {
	*app
	token string
	opts  fence.ObjectOptions
}

func (a *app) fence() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "Write objects that reject a former holder's token",
		Long: `Write objects that reject a former holder's token.

A lease cannot stop a write that is already on its way. A guarded object can:
each write carries the token of its lease, and after a write with a larger
token, those with a smaller one are rejected.

The token is that of the lock around this command, in LEASEHOLD_TOKEN as set by
leasehold run and elect, or --token.

RESOURCE is a URL or a name, like LOCK, but an object of its own. A plain GET
shows the bytes that were put and 392 blanks, or for more than about 1 MiB a
line of JSON with the location of the bytes. Write the object only with
leasehold fence. Never delete it by other means: that deletes its token.

Exit codes:
  65  the object was not written with leasehold fence (see --adopt)
  66  there is nothing to get
  73  the token was rejected
  others as for leasehold run`,
		Example: `  leasehold run --claim state.json jobs/report -- ./report.sh
  # and in report.sh:
  leasehold fence get state.json >old.json
  leasehold fence put state.json <new.json`,
		RunE: subcommand,
	}
	cmd.AddCommand(a.fencePut(), a.fenceGet(), a.fenceClaim(), a.fenceDelete())
	return cmd
}

func (g *fenceCmd) flags(f *pflag.FlagSet, writes bool) {
	if writes {
		f.StringVar(&g.token, tokenFlag, "", "`token` to write with (default that of the lock around this\ncommand)")
		f.BoolVar(&g.mkdir, mkdirFlag, false, mkdirHelp)
	}
	f.BoolVar(&g.opts.Adopt, "adopt", false, "take over an object that was written without a fence, with\nthe smallest token")
}

func (a *app) fencePut() *cobra.Command {
	g := &fenceCmd{app: a}
	cmd := &cobra.Command{
		Use:     "put RESOURCE <FILE",
		Short:   "Write an object from stdin",
		Example: "  leasehold fence put s3://bucket/state.json <state.json",
		Args:    one,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.write(cmd.Context(), args, func(ctx context.Context, o *fence.Object, t fence.Token) error {
				return o.Put(ctx, t, os.Stdin)
			})
		},
	}
	g.flags(cmd.Flags(), true)
	cmd.Flags().BoolVar(&g.opts.Apart, "apart", false, "store the bytes in a separate object, with nothing after\nthem, however few they are")
	return cmd
}

func (a *app) fenceClaim() *cobra.Command {
	return a.fenceEach("claim", "Reject smaller tokens from now on, and change nothing else",
		func(ctx context.Context, o *fence.Object, t fence.Token) error {
			_, err := o.Claim(ctx, t)
			return err
		})
}

func (a *app) fenceDelete() *cobra.Command {
	return a.fenceEach("delete", "Delete an object, but keep rejecting smaller tokens",
		func(ctx context.Context, o *fence.Object, t fence.Token) error { return o.Delete(ctx, t) })
}

// fenceEach is a command that does one thing to each resource.
func (a *app) fenceEach(name, short string, do func(context.Context, *fence.Object, fence.Token) error) *cobra.Command {
	g := &fenceCmd{app: a}
	cmd := &cobra.Command{
		Use: name + " RESOURCE…", Short: short, Args: some,
		RunE: func(cmd *cobra.Command, args []string) error { return g.write(cmd.Context(), args, do) },
	}
	g.flags(cmd.Flags(), true)
	return cmd
}

func (a *app) fenceGet() *cobra.Command {
	g := &fenceCmd{app: a}
	cmd := &cobra.Command{
		Use:   "get RESOURCE",
		Short: "Read an object to stdout, byte for byte",
		Long: `Read an object to stdout, byte for byte. No token is needed.

With --output json, the object's token and size are shown instead.`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error { return g.get(cmd.Context(), args[0]) },
	}
	g.flags(cmd.Flags(), false)
	return cmd
}

// write does one thing to each resource, in their order, until one fails.
func (g *fenceCmd) write(ctx context.Context, resources []string, do func(context.Context, *fence.Object, fence.Token) error) error {
	token, err := g.ownToken()
	if err != nil {
		return err
	}
	var (
		objects []*fence.Object
		stores  []store.Store
	)
	for _, name := range resources {
		o, err := g.guard(ctx, name)
		if err != nil {
			return err
		}
		objects, stores = append(objects, o), append(stores, g.at)
	}
	for i, o := range objects {
		g.at = stores[i]
		done := g.withTimeout(g.at).aloud()
		err := do(ctx, o, token)
		if done(); err != nil {
			return failed(err)
		}
	}
	return nil
}

func (g *fenceCmd) ownToken() (fence.Token, error) {
	text, from := g.token, "--"+tokenFlag
	if text == "" {
		text, from = os.Getenv(ownToken), "the variable "+ownToken
	}
	if text == "" {
		return 0, usage("there is no token to write with: run this under leasehold run or elect, in a layout with tokens, or give --%s", tokenFlag)
	}
	token, err := fence.ParseToken(text)
	if err != nil {
		return 0, usage("%s: %w", from, err)
	}
	return token, nil
}

// guard opens a guarded object. In a job a name lies where the lock around it does, as
// with --claim.
func (g *fenceCmd) guard(ctx context.Context, name string) (*fence.Object, error) {
	home := g.home
	if base := os.Getenv(ownStore); base != "" {
		home = func(string) (string, error) { return base, nil }
	}
	p, err := locate(ctx, name, "", g.opening(), home)
	if err != nil {
		return nil, err
	}
	g.at = p.store
	opts := g.opts
	opts.Logger = g.console.logger()
	return guardAt(p, &opts)
}

func guardAt(p target, opts *fence.ObjectOptions) (*fence.Object, error) {
	o, err := fence.NewObject(p.store, p.key, opts)
	if err != nil {
		return nil, failed(err)
	}
	return o, nil
}

// info is what get shows of an object with --output json.
type info struct {
	Resource string          `json:"resource"`
	Token    leasehold.Token `json:"token"`
	Size     int64           `json:"size"`
}

func (g *fenceCmd) get(ctx context.Context, name string) error {
	o, err := g.guard(ctx, name)
	if err != nil {
		return err
	}
	return g.show(ctx, name, o)
}

// show writes the present value. Of one that is replaced while it is read there is a newer one.
func (g *fenceCmd) show(ctx context.Context, name string, o *fence.Object) error {
	for try := 0; ; try++ {
		v, err := o.Get(ctx)
		if err != nil {
			return failed(err)
		}
		if g.output == "json" {
			return g.writeLine(info{name, v.Token, v.Size})
		}
		r, err := v.Open(ctx)
		switch {
		case errors.Is(err, fence.ErrReplaced) && try < 10:
			continue
		case err != nil:
			return failed(err)
		}
		out := &outlet{w: g.stdout}
		n, err := io.Copy(out, r)
		if err = errors.Join(err, r.Close()); err != nil && !out.failed {
			return failed(fmt.Errorf("%s: after %d of %d bytes: %w", name, n, v.Size, err))
		}
		return written(err)
	}
}

// An outlet tells the failure of a write from that of what is to be written.
type outlet struct {
	w      io.Writer
	failed bool
}

func (o *outlet) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.failed = err != nil
	return n, err
}

// claims are the resources that run and elect claim before the command begins.
type claims struct {
	names   []string
	objects []*fence.Object
}

func (c *claims) flag(f *pflag.FlagSet) {
	f.StringArrayVar(&c.names, "claim", nil, "claim the guarded object `RESOURCE` before the command\nstarts, so that no former holder can write it; repeatable")
}

// open finds the resources. A bare name lies where the lock does, as for leasehold fence
// in the command.
func (c *claims) open(ctx context.Context, lock target) error {
	for _, name := range c.names {
		if err := checkName(name); err != nil {
			return usage("%w", err)
		}
		p := lock
		p.key = name
		if strings.Contains(name, "://") {
			var err error
			if p, err = locate(ctx, name, "", lock.opening, nil); err != nil {
				return err
			}
		}
		o, err := guardAt(p, nil)
		if err != nil {
			return err
		}
		c.objects = append(c.objects, o)
	}
	return nil
}

// claim seals them with the lease's token.
func (c *claims) claim(ctx context.Context, lease held) error {
	for i, o := range c.objects {
		if _, err := o.Claim(ctx, lease); err != nil {
			return fmt.Errorf("cannot claim %s: %w", c.names[i], err)
		}
	}
	return nil
}
