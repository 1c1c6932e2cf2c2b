package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/s3store"
)

// BenchmarkLog appends to a log from 1, 8 and 64 goroutines, in turns with plain PUTs of
// single records, one after the other, to the same place: a turn is 20 of those, and 20
// appends by each goroutine. "x-PUT" is how many times more records, and so bytes, go
// into the log in the same time.
func BenchmarkLog(b *testing.B) {
	places := map[string]func(b *testing.B) store.Store{
		"file": func(b *testing.B) store.Store {
			b.Helper()
			st, err := filestore.New(filepath.Join(b.TempDir(), "bench"), nil)
			if err != nil {
				b.Fatal(err)
			}
			return st
		},
	}
	for _, name := range servers.Names {
		places[name] = func(b *testing.B) store.Store {
			b.Helper()
			server := servers.Start(b, name)
			st, err := s3store.New(server.Client(), server.Bucket(b), nil)
			if err != nil {
				b.Fatal(err)
			}
			return st
		}
	}
	for name, open := range places {
		b.Run(name, func(b *testing.B) {
			st := open(b)
			for _, size := range []int{100, 10_000} {
				for _, writers := range []int{1, 8, 64} {
					b.Run(fmt.Sprintf("%dB/%d", size, writers), func(b *testing.B) { benchmarkLog(b, st, size, writers) })
				}
			}
		})
	}
}

var benched int

func benchmarkLog(b *testing.B, st store.Store, size, writers int) {
	b.Helper()
	ctx := b.Context()
	const each = 20
	record := bytes.Repeat([]byte("x"), size)
	benched++
	l, err := fencelog.New(st, fmt.Sprint("log-", benched))
	if err != nil {
		b.Fatal(err)
	}
	a, err := l.Claim(ctx, fence.Token(1))
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	var plain, logged time.Duration
	puts := 0
	before := a.Last()
	for b.Loop() {
		begin := time.Now()
		for range each {
			puts++
			if _, err := st.Put(ctx, fmt.Sprintf("plain-%d/%d", benched, puts), record, store.IfAbsent()); err != nil {
				b.Fatal(err)
			}
		}
		plain += time.Since(begin)
		begin = time.Now()
		appendFrom(ctx, b, a, record, writers, each)
		logged += time.Since(begin)
	}
	appends := float64(puts * writers)
	b.ReportMetric(appends/logged.Seconds(), "appends/s")
	b.ReportMetric(appends*float64(size)/1e6/logged.Seconds(), "MB/s")
	b.ReportMetric(appends/logged.Seconds()/(float64(puts)/plain.Seconds()), "x-PUT")
	b.ReportMetric(appends/float64(a.Last()-before), "records/entry")
}

func appendFrom(ctx context.Context, b *testing.B, a *fencelog.Appender, record []byte, writers, each int) {
	b.Helper()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if _, err := a.Append(ctx, record); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
