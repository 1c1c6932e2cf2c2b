package leasehold_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// BenchmarkAcquireRelease: a lock that one candidate takes and gives back, in memory. "young": nobody
// has held it before, so all leases are one entry of its history. "old": it remembers as much as it
// can, sixteen leases of others.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, past := range []string{"young", "old"} {
		b.Run(past, func(b *testing.B) {
			st := memstore.New()
			if past == "old" {
				if _, err := st.Put(b.Context(), "jobs/backup", oldRecord(b), store.IfAbsent()); err != nil {
					b.Fatal(err)
				}
			}
			lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: "web-7d9f8b6c5d-x2x4z/1", Layout: leasehold.LayoutObject})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				lease, err := lock.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// oldRecord is the record of a lock that many have held, and that is free.
func oldRecord(t testing.TB) []byte {
	t.Helper()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := record.Record{Token: 1795170600000, TTL: 15 * time.Second, WriteID: "other.1", AcquiredAt: at}
	for n := range 20 {
		r.Term, r.TermToken = int64(n+1), r.Token
		p := record.Past{Token: r.Token, Term: r.Term, Holder: fmt.Sprintf("web-7d9f8b6c5d-%05d/1", n%5), From: at, To: at.Add(time.Minute), How: "released"}
		at = at.Add(time.Minute)
		r.History = r.Remember(p)
		r.Token, r.AcquiredAt, r.RenewedAt = r.Token+1, at, at.Add(time.Minute)
	}
	r.Term, r.TermToken = r.Term+1, r.Token
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return body
}
