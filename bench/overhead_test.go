package main

import (
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
)

// The same as in the experiment overhead, to be profiled:
//
//	go test -run '^$' -bench . -benchmem -cpuprofile cpu.out -memprofile mem.out -memprofilerate 1
func BenchmarkAcquireRelease(b *testing.B) {
	o, err := newOverhead(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{"lease": o.cycle(), "session": o.underSession()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Two writes by the bare SDK, by leasehold's store, and a lock that is acquired and released.
func BenchmarkTwoWrites(b *testing.B) {
	p := &place{name: "gofakes3", server: servers.StartProcess(b, "gofakes3")}
	p.bucket, p.endpoint = p.server.Bucket(b), p.server.Endpoint
	f, err := openFloor(b.Context(), p, "floor")
	if err != nil {
		b.Fatal(err)
	}
	st, err := p.store()
	if err != nil {
		b.Fatal(err)
	}
	obj, err := st.Put(b.Context(), "store", f.next(), store.IfAbsent())
	if err != nil {
		b.Fatal(err)
	}
	lock, err := leasehold.NewLock(st, "lock", nil)
	if err != nil {
		b.Fatal(err)
	}
	o := &overheads{ctx: b.Context(), lock: lock}
	for name, f := range map[string]func() error{"bare SDK": f.two, "store": func() error {
		for range 2 {
			if obj, err = st.Put(b.Context(), "store", f.next(), store.IfMatch(obj.Version)); err != nil {
				return err
			}
		}
		return nil
	}, "lock": o.cycle()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			began := cpuTime()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime()-began)*1e6/float64(b.N), "cpu-µs/op")
		})
	}
}
