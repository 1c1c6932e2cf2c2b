package main

import "testing"

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
