package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A quorumReport is what was found out about a quorum. That of the whole proves it, or does not.
type quorumReport struct {
	*probe.Report
	Members []memberReport `json:"members"`
}

// A memberReport is about one member.
type memberReport struct {
	Member string        `json:"member"`
	Error  string        `json:"error,omitempty"` // why it was not found safe
	Report *probe.Report `json:"report,omitempty"`
}

// diagnoseQuorum probes each member and then the quorum. An unsafe or unreachable member does not stop it.
func (d *diagnosis) diagnoseQuorum(
	ctx context.Context, p target, quorum *quorumstore.Store, sig func() os.Signal,
) error {
	members, err := quorum.Members(ctx)
	if err != nil {
		return d.quorumFailed(p.name, err)
	}
	var all quorumReport
	unsafe, code := []string{}, 0
	for i, m := range members {
		d.price = priceAt(m.String())
		if err = d.heading("Member %d of %d, %s", i+1, len(members), m); err != nil {
			return err
		}
		var report *probe.Report
		report, err = d.probe(ctx, m, quorumstore.Scratch, d.again(p, m))
		if err == nil {
			err = report.Proves(report.Store, d.use)
		}
		of := memberReport{Member: m.String(), Report: report}
		if err != nil && ctx.Err() == nil {
			of.Error = fault(err)
			unsafe = append(unsafe, m.String())
			// What was found to be unsafe counts for more than what could not be found out.
			if c := codeOf(err); code == 0 || c == exitUnsafe {
				code = c
			}
		}
		if all.Members = append(all.Members, of); report != nil {
			err = d.tell(d.text(report) + "\n")
		} else if err = d.tell(fmt.Sprintf("BAD   %s\n\n", plain.Word(of.Error))); of.Error != "" {
			d.console.warn("the member %s could not be probed, and the others are: %s", m, of.Error)
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err = ctx.Err(); err == nil {
		all.Report, err = d.whole(ctx, p, quorum)
	}
	switch {
	case d.output == "json":
		if printErr := d.print("", all); printErr != nil {
			return printErr
		}
	case all.Report != nil:
		if printErr := d.tell(d.text(all.Report)); printErr != nil {
			return printErr
		}
	}
	switch sig := sig(); {
	case sig != nil:
		return stopped(sig, errInterrupted)
	case code == exitUnsafe || len(unsafe) > 0 && err == nil && all.Proves(all.Store, d.use) == nil:
		return &exit{code, fmt.Errorf("%s: the whole is no safer than its members, and %d of %d are not found safe: %s",
			shown(p.name), len(unsafe), len(members), strings.Join(unsafe, ", "))}
	case all.Report == nil:
		return d.quorumFailed(p.name, err)
	}
	return d.outcome(all.Report, err)
}

// whole probes the quorum, and deletes in each member what is left of its scratch objects.
func (d *diagnosis) whole(ctx context.Context, p target, quorum *quorumstore.Store) (*probe.Report, error) {
	d.price = nil // it has none of its own
	if err := d.heading("The quorum %s", quorum); err != nil {
		return nil, err
	}
	directory := "leasehold-doctor-" + strings.ToLower(rand.Text())
	prefix := directory + "/"
	report, err := d.probe(ctx, quorum, prefix, func(ctx context.Context) (store.Store, error) {
		return d.open(ctx, p.storeURL)
	})
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if left := quorum.Forget(clean, prefix+"leasehold-probe-"); left != nil {
		d.console.warn("scratch objects under %s*/ are left: %s", prefix, faults(left))
	}
	members, _ := quorum.Members(clean) // none if it cannot tell them
	for _, m := range members {
		if p, ok := m.(store.Purger); ok {
			if _, left := p.Purge(clean, directory); left != nil {
				d.console.warn("directories under %s are left in %s: %s", directory, m, fault(left))
			}
		}
	}
	return report, err
}

// again opens a member once more, by the URL that it was given by, or that the quorum has.
func (d *diagnosis) again(p target, m store.Store) func(context.Context) (store.Store, error) {
	return func(ctx context.Context) (store.Store, error) {
		urls, err := storeurl.Members(p.storeURL)
		if err != nil {
			return nil, err
		}
		for _, url := range urls {
			if other, err := d.open(ctx, url); err == nil && other.String() == m.String() {
				return other, nil
			}
		}
		return d.open(ctx, m.String())
	}
}

// heading says what the findings that follow are about.
func (d *diagnosis) heading(format string, args ...any) error {
	return d.tell(fmt.Sprintf(format+"\n\n", args...))
}

// tell writes for people.
func (d *diagnosis) tell(text string) error {
	if d.output == "json" {
		return nil
	}
	return d.write(text)
}
