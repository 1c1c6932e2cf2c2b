package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A coordinator assigns shards while its worker leads the election. It decides by its own
// reads, and its mistakes cannot give a shard two owners.
type coordinator struct {
	*planStore
	worker  *Worker
	lease   *leasehold.Lease
	members *members
	serial  int64

	plan    *wirePlan         // as last read or written; nil: none yet
	owners  map[string]string // by that plan
	version store.Version     // of the plan's object; empty: there is none

	sessions map[string]bool // alive at the last poll
	patient  int             // polls spent waiting for newcomers
}

// errDeposed means the plan has a larger token, so another coordinator is in office.
var errDeposed = errors.New("another coordinator is in office")

// newcomers is for how many polls a coordinator waits for more newcomers, so shards are
// assigned only once when a fleet starts.
const newcomers = 3

// coordinate polls every TTL/3 until ctx ends or another coordinator is in office. It passes
// each plan to its own worker without a request.
func (t *term) coordinate(ctx context.Context, lease *leasehold.Lease, told func(*Plan)) error {
	w := t.Worker
	r := &members{Worker: w, session: t.session, me: t.me, news: make(chan struct{}, 1), all: map[string]*member{}}
	c := &coordinator{planStore: w.planStore, worker: w, lease: lease, members: r}
	ctx, cancel := context.WithCancel(ctx)
	defer r.watches.Wait()
	defer cancel() // or the watches never end, and a deposed coordinator never leaves
	var last *wirePlan
	for failures := 0; ; {
		err := c.look(ctx)
		if errors.Is(err, errDeposed) || ctx.Err() != nil {
			return err
		}
		if err == nil && c.plan != last {
			told(c.plan.named(c.owners))
			last = c.plan
		}
		w.failing(err)
		pause := w.interval()
		if failures++; err == nil {
			failures = 0
		} else {
			pause = min(pause, protocol.Pause(failures, nil))
		}
		select {
		case <-time.After(pause):
		case <-r.news:
			sleep(ctx, w.opts.TTL/60) // others may be leaving too
		case <-ctx.Done():
			return nil
		}
	}
}

// look brings the plan up to date, and writes it if necessary.
func (c *coordinator) look(ctx context.Context) error {
	if err := c.reread(ctx); err != nil {
		return err
	}
	living, err := c.members.call(ctx)
	if err != nil {
		return err
	}
	seals := c.version == "" || c.plan.Token != int64(c.lease.Token())
	wait := c.waits(living)
	switch {
	case wait && c.plan == nil:
		return c.write(ctx, &wirePlan{Lists: []string{}, Workers: []Member{}, Owners: []int{}})
	case wait && seals:
		again := *c.plan
		return c.write(ctx, &again)
	case wait:
		return nil
	}
	next, err := c.arrange(ctx, living)
	if err != nil || !seals && next.same(c.plan) {
		return err
	}
	return c.write(ctx, next)
}

// reread reads the plan again, because the object may have been deleted or replaced.
func (c *coordinator) reread(ctx context.Context) error {
	p, version, err := c.readPlan(ctx, c.version)
	switch {
	case errors.Is(err, store.ErrNotModified):
		return nil
	case err != nil:
		return err
	case p == nil: // a deletion of the plan must not move shards
		c.version = ""
		return nil
	case p.Token > int64(c.lease.Token()):
		return fmt.Errorf("%w: the plan of %s has token %d, and this one's is %v", errDeposed, p.Coordinator, p.Token, c.lease.Token())
	}
	owners, err := c.resolve(ctx, p)
	if err != nil && !errors.Is(err, store.ErrNotExist) { // without its lists, the plan is unknown
		return err
	}
	if c.plan, c.owners, c.version = p, owners, version; p.Token == int64(c.lease.Token()) {
		c.wrote() // by a request whose answer was lost
	}
	return nil
}

// wrote reports a plan of this coordinator to the user.
func (c *coordinator) wrote() {
	if f := c.worker.opts.OnPlan; f != nil {
		f(*c.plan.named(c.owners))
	}
}

// waits reports whether to wait for more newcomers: for a few polls, as long as workers arrive
// and none leave.
func (c *coordinator) waits(living []*member) bool {
	before := c.sessions
	if before == nil { // workers in the plan are not newcomers
		before = map[string]bool{}
		if c.plan != nil {
			for _, m := range c.plan.Workers {
				before[m.Session] = true
			}
		}
	}
	stayed := 0
	c.sessions = make(map[string]bool, len(living))
	for _, w := range living {
		c.sessions[w.session] = true
		if before[w.session] {
			stayed++
		}
	}
	come, gone := len(living) > stayed, len(before) > stayed
	if gone && stayed > 0 || !come || c.patient == newcomers {
		c.patient = 0
		return false
	}
	c.patient++
	return true
}

// arrange makes the next plan from the present one.
func (c *coordinator) arrange(ctx context.Context, living []*member) (*wirePlan, error) {
	next := &wirePlan{Workers: []Member{}, Lists: []string{}}
	index, list, weight := map[string]int{}, []int{}, []int{}
	for _, w := range living {
		if _, err := c.list(ctx, w.list); err != nil {
			if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrInvalid) || errors.Is(err, ErrForeign) {
				c.worker.note(&c.worker.trouble.list, "a worker gets no shards, since nobody knows which it has", fmt.Errorf("%s: %w", w.holder, err))
				continue
			}
			return nil, err
		}
		if !slices.Contains(next.Lists, w.list) {
			next.Lists = append(next.Lists, w.list)
		}
		index[w.session] = len(next.Workers)
		next.Workers = append(next.Workers, Member{Session: w.session, Holder: w.holder, Weight: w.weight})
		weight = append(weight, w.weight)
		list = append(list, slices.Index(next.Lists, w.list))
	}
	all, err := c.union(ctx, next.Lists)
	if err != nil {
		return nil, err
	}
	owner := make([]int, len(all.names))
	for i, name := range all.names {
		w, there := index[c.owners[name]]
		if owner[i] = nobody; there {
			owner[i] = w
		}
	}
	next.Owners = arrange(owner, weight, list, all.in)
	return next, nil
}

// same reports whether two plans are equal.
func (p *wirePlan) same(q *wirePlan) bool {
	return slices.Equal(p.Lists, q.Lists) && slices.Equal(p.Workers, q.Workers) && slices.Equal(p.Owners, q.Owners)
}

// write replaces the known version of the plan. That locks out all earlier coordinators,
// because they do not know the new version.
func (c *coordinator) write(ctx context.Context, next *wirePlan) error {
	c.serial++ // even if the write fails, so that no two plans are equal
	next.Format, next.Token, next.Serial = planFormat, int64(c.lease.Token()), c.serial
	next.Coordinator, next.WrittenAt = c.lease.Holder(), time.Now().UTC()
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	only := store.IfAbsent()
	if c.version != "" {
		only = store.IfMatch(c.version)
	}
	if err = c.lease.Err(); err != nil {
		return fmt.Errorf("%w: %w", errDeposed, err)
	}
	owners, err := c.resolve(ctx, next)
	if err != nil {
		return err
	}
	obj, err := c.put(ctx, c.planKey(), append(body, '\n'), only)
	if err != nil {
		return fmt.Errorf("the plan was not written: %w", err)
	}
	c.plan, c.owners, c.version = next, owners, obj.Version
	c.wrote()
	return nil
}
