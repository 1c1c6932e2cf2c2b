package main

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/serve/terraform"
)

// terraformPath is where serve answers Terraform.
const terraformPath = "/terraform/"

// states are those of Terraform that serve keeps, if it is to.
type states struct {
	prefix  string // as the user gave it; empty: none are kept
	target  target
	handler *terraform.Handler
}

// locatePrefixes opens the stores of the locks and of the states. If states are kept and no place is named for locks,
// those of the states are served.
func (c *serveCmd) locatePrefixes(ctx context.Context, prefix string) (err error) {
	if err = slashed("PREFIX", prefix); err != nil {
		return err
	}
	if c.states.prefix != "" {
		if err = slashed("--terraform", c.states.prefix); err != nil {
			return err
		}
		how := c.opening()
		how.private = true // there are secrets in states
		if c.states.target, err = locatePrefix(ctx, c.states.prefix, how, c.home); err != nil {
			return err
		}
		if c.at = c.states.target.store; prefix == "" {
			c.target = c.states.target
			c.target.key += terraform.LocksPrefix
			return nil
		}
	}
	if c.target, err = c.locatePrefix(ctx, prefix); err != nil || c.states.prefix == "" {
		return err
	}
	locks, states := c.target, c.states.target
	if among(states, locks) {
		return usage("--terraform %s lies among the locks under %s: each look at them would read all the states, so give another place", states.name, locks.name)
	}
	if states.key += terraform.StatesPrefix; among(locks, states) {
		return usage("PREFIX %s lies among the states under %s: give another place", locks.name, c.states.prefix)
	}
	return nil
}

// slashed makes sure that keys can be put behind a prefix of bare names.
func slashed(what, prefix string) error {
	if !strings.Contains(prefix, "://") && prefix != "" && !strings.HasSuffix(prefix, "/") {
		return usage("%s %q does not end in a slash: keys are put behind it, so write %s/", what, prefix, prefix)
	}
	return nil
}

// among reports that all that is under the first is under the second, too.
func among(inner, outer target) bool {
	in, errIn := inner.root()
	out, errOut := outer.root()
	return errIn == nil && errOut == nil && in.Scheme == out.Scheme && in.Host == out.Host && strings.HasPrefix(in.Path, out.Path)
}

// root is the URL of all that is under a prefix, whose path ends in a slash.
func (p *target) root() (*url.URL, error) {
	u, err := url.Parse(p.storeURL)
	if err != nil {
		return nil, err
	}
	u.Path = strings.TrimSuffix(path.Join("/", u.Path, p.key), "/") + "/"
	return u, nil
}

// keepStates has serve answer Terraform, if it is to.
func (c *serveCmd) keepStates() (err error) {
	if c.states.prefix == "" {
		return nil
	}
	st, trace := c.server.Measure(c.states.target.store)
	c.states.handler, err = terraform.New(st, &terraform.Options{
		Prefix: c.states.target.key, Path: terraformPath, Address: c.opts.Address, Proof: c.opts.Proof, Trace: trace, Logger: c.opts.Logger,
	})
	if err != nil {
		return unusable(fmt.Errorf("--terraform %s: %w", c.states.prefix, err))
	}
	c.server.Handle(terraformPath, c.states.handler)
	return nil
}

// tellOfStates says where Terraform is answered, and who else is.
func (c *serveCmd) tellOfStates(listener *localhttp.Server) {
	if c.states.prefix == "" {
		return
	}
	c.console.tell("keeping the states of Terraform under %s, at %s%sNAME", c.states.target.name, c.where(listener), terraformPath)
	if c.http.Token == (localhttp.Token{}) && c.files.ClientCA == "" && !strings.HasPrefix(c.where(listener), "unix:") {
		c.console.warn("every user of this machine can read and write the states, and there are secrets in them: give --http-token-file")
	}
}

// leaveStates lets the locks of the states go, which stay locked for their TTL.
func (c *serveCmd) leaveStates(ctx context.Context) {
	if c.states.handler == nil {
		return
	}
	if err := c.states.handler.Close(ctx); err != nil {
		c.console.warn("not all runs of Terraform have ended well: %s", oneLine(err))
	}
}
