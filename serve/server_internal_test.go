package serve

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store/memstore"
)

// Without options a server has the defaults of the documentation; and those that are given stay as they are.
func TestDefaults(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	st := memstore.New()
	want := Options{
		TTL: 15 * time.Second, Holder: fmt.Sprintf("%s/%d", host, os.Getpid()), Leases: 10_000, Waiting: 1000, Subscribers: 64,
		Every: 5 * time.Second, Budget: 600, Limit: 1000, Logger: slog.Default(),
	}
	given := Options{
		TTL: time.Minute, Holder: "me", Leases: 1, Waiting: 1, Subscribers: 1, Every: time.Second, Budget: 1, Limit: 1, Logger: slog.New(slog.DiscardHandler),
		Prefix: "p/", Address: "here", Price: "s3", MetricKeys: []string{"k"}, AllowBreak: true,
	}
	for name, tc := range map[string]struct{ opts, want *Options }{"none": {nil, &want}, "zero": {&Options{}, &want}, "all": {&given, &given}} {
		s, err := New(st, tc.opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if url := s.opts.URL("k"); url != "mem://k" {
			t.Errorf("%s: the URL of k is %s", name, url)
		}
		got := s.opts
		got.URL = nil
		if !reflect.DeepEqual(got, *tc.want) || s.ended.most != got.Leases || s.log != got.Logger {
			t.Errorf("%s: %+v, want %+v", name, got, *tc.want)
		}
	}
}

// Without a Logger, what no answer tells goes to the default one.
func TestLogsByDefault(t *testing.T) {
	s, err := New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.log != slog.Default() {
		t.Errorf("it logs to %v", s.log)
	}
}
