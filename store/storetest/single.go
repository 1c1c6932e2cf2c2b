package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/store"
)

const key = "jobs/backup"

func create(p *trial) {
	p.absent(key, opens, "opening")
	first := p.create(key, []byte("first"))
	p.unchanged(first, []byte("first"), getReads, "a create")
	_, err := p.put(p.ctx, key, []byte("second"), store.IfAbsent())
	p.refused(err, putPrecondition, "a create over an object", store.ErrPrecondition)
	p.unchanged(first, []byte("first"), putPrecondition, "a refused create")
}

func update(p *trial) {
	first := p.create(key, []byte("first"))
	second := p.update(key, []byte("second"), first.Version)
	p.unchanged(second, []byte("second"), getReads, "an update")
	_, err := p.put(p.ctx, key, []byte("third"), store.IfMatch(first.Version))
	p.refused(err, putPrecondition, "an update over a version that is gone", store.ErrPrecondition)
	p.unchanged(second, []byte("second"), putPrecondition, "a refused update")
	p.update(key, []byte("third"), second.Version)
}

func updateOfNothing(p *trial) {
	gone := p.create("jobs/other", []byte("other")).Version
	_, err := p.put(p.ctx, key, []byte("body"), store.IfMatch(gone))
	p.refused(err, putPrecondition, "an update of no object", store.ErrPrecondition, store.ErrNotExist)
	p.absent(key, putPrecondition, "a refused update of no object")

	was := p.create(key, []byte("body"))
	if err = p.delete(p.ctx, key); err != nil {
		p.stop(deleteRemoves, "delete %q said: %v", key, err)
	}
	_, err = p.put(p.ctx, key, []byte("more"), store.IfMatch(was.Version))
	p.refused(err, putPrecondition, "an update of a deleted object", store.ErrPrecondition, store.ErrNotExist)
	p.absent(key, putPrecondition, "a refused update of a deleted object")
}

func noCondition(p *trial) {
	for _, only := range []store.Condition{{}, store.IfMatch("")} {
		_, err := p.put(p.ctx, key, []byte("body"), only)
		p.refused(err, putRefuses, "a put without a condition", store.ErrInvalid)
	}
	p.absent(key, putRefuses, "a put without a condition")
	was := p.create(key, []byte("body"))
	_, err := p.put(p.ctx, key, []byte("more"), store.Condition{})
	p.refused(err, putRefuses, "a put without a condition over an object", store.ErrInvalid)
	p.unchanged(was, []byte("body"), putRefuses, "a put without a condition")
}

func get(p *trial) {
	p.absent(key, opens, "opening")
	_, err := p.read(p.ctx, key, "no such version")
	p.refused(err, getNotExist, "get of no object, unless a version", store.ErrNotExist)

	first := p.create(key, []byte("first"))
	_, err = p.read(p.ctx, key, first.Version)
	p.refused(err, getNotModified, "get unless the current version", store.ErrNotModified)
	p.unchanged(first, []byte("first"), getReads, "a get that was not modified")

	second := p.update(key, []byte("second"), first.Version)
	o, err := p.read(p.ctx, key, first.Version)
	if err != nil || string(o.Body) != "second" || o.Version != second.Version {
		p.report(getReads, "get unless a former version returned %+v, %v; the object is %q, version %q", o, err, "second", second.Version)
	}
}

func versions(p *trial) {
	put := p.create(key, []byte("0"))
	seen := map[store.Version]string{put.Version: "0"}
	for i := range 20 {
		body := fmt.Sprint(i + 1)
		put = p.update(key, []byte(body), put.Version)
		if former, ok := seen[put.Version]; ok {
			p.report(versionsDiffer, "the bodies %q and %q both had the version %q", former, body, put.Version)
		}
		seen[put.Version] = body
	}
	got := p.mustRead(key)
	for _, e := range p.entries("", "") {
		if e.Key != key || e.Version != got.Version || got.Version != put.Version {
			p.report(putWrites, "put returned the version %q, get %q, list %q for %q", put.Version, got.Version, e.Version, e.Key)
		}
	}
}

func bodies(p *trial) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	largest := bytes.Repeat([]byte("0123456789abcdef"), store.MaxBody/16)
	for i, body := range [][]byte{{}, nil, every, []byte("\r\n\n\r"), []byte("{\"é\": \"\\u00e9\"}"), largest} {
		key := fmt.Sprint("body/", i)
		p.unchanged(p.create(key, body), body, getReads, "a create")
	}
	was := p.create(key, largest)
	p.unchanged(p.update(key, nil, was.Version), nil, getReads, "an update to an empty body")
}

func bodyTooLarge(p *trial) {
	large := make([]byte, store.MaxBody+1)
	_, err := p.put(p.ctx, key, large, store.IfAbsent())
	p.refused(err, putRefuses, "a create with a body over MaxBody", store.ErrTooLarge)
	p.absent(key, putRefuses, "a put of a body over MaxBody")
	was := p.create(key, []byte("body"))
	_, err = p.put(p.ctx, key, large, store.IfMatch(was.Version))
	p.refused(err, putRefuses, "an update with a body over MaxBody", store.ErrTooLarge)
	p.unchanged(was, []byte("body"), putRefuses, "a put of a body over MaxBody")
}

func plantedBodyTooLarge(p *trial) {
	planter, ok := p.st.(Planter)
	if !ok {
		p.skip("the store under test is no storetest.Planter, and by Put nothing over MaxBody gets in")
	}
	for _, size := range []int{store.MaxBody, store.MaxBody + 1} {
		key := fmt.Sprint("planted/", size)
		if err := planter.Plant(p.ctx, key, make([]byte, size)); err != nil {
			p.stop(opens, "planting %q: %v", key, err)
		}
		o, err := p.read(p.ctx, key, "")
		switch {
		case size > store.MaxBody:
			p.refused(err, getTooLarge, "get of a body over MaxBody", store.ErrTooLarge)
		case err != nil:
			p.report(getReads, "get of a body of MaxBody said: %v", err)
		case len(o.Body) != size:
			p.report(getReads, "get of a body of MaxBody returned %d bytes", len(o.Body))
		}
	}
}

func bodiesAreCopied(p *trial) {
	body := []byte("body")
	was := p.create(key, body)
	copy(body, "XXXX")
	p.unchanged(was, []byte("body"), getReads, "the caller wrote to the slice that it had put")
	copy(p.mustRead(key).Body, "XXXX")
	p.unchanged(was, []byte("body"), getReads, "the caller wrote to the slice that it was given")
}

func remove(p *trial) {
	if err := p.delete(p.ctx, key); err != nil {
		p.report(deleteRemoves, "delete of no object said: %v", err)
	}
	p.create("jobs/other", []byte("other"))
	for i := range 3 {
		p.create(key, fmt.Append(nil, "life ", i))
		for range 2 {
			if err := p.delete(p.ctx, key); err != nil {
				p.report(deleteRemoves, "delete %q said: %v", key, err)
			}
			p.absent(key, deleteRemoves, "a delete")
		}
	}
	if o := p.mustRead("jobs/other"); string(o.Body) != "other" {
		p.report(deleteRemoves, "after the delete of %q, %q is %s", key, o.Key, brief(o.Body))
	}
}

// times compares the store's times with each other and never with this
// machine's clock. Servers were seen whose Date lags behind their own
// Last-Modified by 1.3 s; the bounds leave room for that and for a slow answer.
func times(p *trial) {
	put := p.create(key, []byte("body"))
	got := p.mustRead(key)
	_, err := p.put(p.ctx, key, []byte("more"), store.IfAbsent())
	modified := put.LastModified
	if modified.IsZero() {
		modified = got.LastModified
	}
	for what, date := range map[string]time.Time{"put": put.Date, "get": got.Date, "a refused put": store.DateOf(err)} {
		age := date.Sub(modified)
		if !date.IsZero() && !modified.IsZero() && (age < -2*time.Second || age > time.Minute) {
			p.report(dateClock, "%s gave the Date %v, which is %v after the LastModified of an object just written", what, date, age)
		}
	}
	if !got.LastModified.IsZero() && !put.LastModified.IsZero() && got.LastModified.Sub(put.LastModified).Abs() > 2*time.Second {
		p.report(dateClock, "put gave the LastModified %v, get %v", put.LastModified, got.LastModified)
	}
}
