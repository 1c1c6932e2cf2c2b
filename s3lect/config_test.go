package s3lect_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestValidate(t *testing.T) {
	good := s3lect.ElectorConfig{LockfilePath: "p", ServerID: "i", ServerAddr: "a:1"}
	for _, tc := range []struct {
		edit  func(*s3lect.ElectorConfig)
		wrong string // what the error names; empty: nothing
	}{
		{func(*s3lect.ElectorConfig) {}, ""},
		{func(c *s3lect.ElectorConfig) { c.LockfilePath = "" }, "LockfilePath"},
		{func(c *s3lect.ElectorConfig) { c.ServerID = "" }, "ServerID"},
		{func(c *s3lect.ElectorConfig) { c.ServerAddr = "" }, "ServerAddr"},
		{func(c *s3lect.ElectorConfig) { c.FrequentInterval = -1 }, "FrequentInterval"},
		{func(c *s3lect.ElectorConfig) { c.InfrequentInterval = -1 }, "InfrequentInterval"},
		{func(c *s3lect.ElectorConfig) { c.LeaderTimeout = -1 }, "LeaderTimeout"},
		{func(c *s3lect.ElectorConfig) { c.LeaderTimeout = 25 * time.Hour }, "LeaderTimeout"},
		{func(c *s3lect.ElectorConfig) { c.PeerTimeout = -1 }, "PeerTimeout"},
	} {
		c := good
		tc.edit(&c)
		err := c.Validate()
		if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	c := good
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.FrequentInterval != 5*time.Second || c.InfrequentInterval != 30*time.Second || c.LeaderTimeout != 15*time.Second ||
		c.PeerHealthPath != "/health/leadership" || c.PeerTimeout != 3*time.Second || c.PeerMode {
		t.Errorf("the defaults are %+v", c)
	}
	c = good
	c.PeerHealthPath, c.LeaderTimeout = "leader", 300*time.Millisecond
	if err := c.Validate(); err != nil || c.PeerHealthPath != "/leader" || c.InfrequentInterval != 600*time.Millisecond || c.LeaderTimeout != 300*time.Millisecond {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestNewS3ElectorRefuses(t *testing.T) {
	t.Setenv("LEASEHOLD_STORE", "")
	config := func(edit func(*s3lect.ElectorConfig)) *s3lect.ElectorConfig {
		c := &s3lect.ElectorConfig{LockfilePath: lockfile, ServerID: "i", ServerAddr: "a:1"}
		edit(c)
		return c
	}
	mock := s3lect.NewMock()
	t.Cleanup(func() { _ = mock.Cleanup() })
	for _, tc := range []struct {
		opts  s3lect.S3ElectorOptions
		wrong string
	}{
		{s3lect.S3ElectorOptions{Storage: mock, Config: config(func(c *s3lect.ElectorConfig) { c.FrequentInterval = time.Hour })}, ""},
		{s3lect.S3ElectorOptions{Storage: mock}, "Config"},
		{s3lect.S3ElectorOptions{Storage: mock, Config: &s3lect.ElectorConfig{}}, "LockfilePath"},
		{s3lect.S3ElectorOptions{Config: config(func(*s3lect.ElectorConfig) {})}, "LEASEHOLD_STORE"},
		{s3lect.S3ElectorOptions{Config: config(func(c *s3lect.ElectorConfig) { c.LockfilePath = "s3://bucket" })}, "a lock needs a key"},
		{s3lect.S3ElectorOptions{Storage: mock, Config: config(func(c *s3lect.ElectorConfig) { c.LockfilePath = "/" })}, "the key is empty"},
		{s3lect.S3ElectorOptions{Storage: mock, Config: config(func(c *s3lect.ElectorConfig) { c.PeerMode, c.PeerCACert = true, []byte("rubbish") })}, "PeerCACert"},
	} {
		_, err := s3lect.NewS3Elector(tc.opts)
		if tc.wrong == "" {
			if err != nil {
				t.Errorf("%+v: %v", tc.opts.Config, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.wrong) || !strings.HasPrefix(err.Error(), "s3lect: ") {
			t.Errorf("%+v: %v", tc.opts.Config, err)
		}
	}
	t.Setenv("LEASEHOLD_STORE", "rubbish")
	if _, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Config: config(func(*s3lect.ElectorConfig) {})}); err == nil || !strings.Contains(err.Error(), "LEASEHOLD_STORE") {
		t.Errorf("%v", err)
	}
}

func TestUpdateConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := begin(t, st, "a", nil)
		a.lead(t)
		b := begin(t, st, "b", nil)
		time.Sleep(time.Minute)

		c := *b.GetConfig()
		c.InfrequentInterval = 10 * time.Second
		if err := b.UpdateConfig(c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the pause that it was in
		b.net.Reset()
		time.Sleep(time.Hour)
		if n := b.net.Counts().Get; n < 340 || n > 380 {
			t.Errorf("it looked %d times in an hour, at an interval of 10 s", n)
		}

		c = *a.GetConfig()
		c.LeaderTimeout = time.Minute
		c.OnLoseLeadership = func(context.Context) error { a.note("lose otherwise"); return nil }
		if err := a.UpdateConfig(c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.net.Reset()
		time.Sleep(time.Hour)
		if n := a.net.Counts().Put; n < 179 || n > 181 {
			t.Errorf("it renewed %d times in an hour, with a timeout of 60 s", n)
		}
		a.quit(t)
		if got := a.deeds(); !slices.Equal(got, []string{"acquire", "lose otherwise"}) {
			t.Errorf("its hooks were called for %v", got)
		}
	})
}

func TestUpdateConfigRefuses(t *testing.T) {
	a := newInstance(t, memstore.New(), "a", func(c *s3lect.ElectorConfig) { c.PeerCACert = []byte("as it was") })
	for _, tc := range []struct {
		edit  func(*s3lect.ElectorConfig)
		wrong string
	}{
		{func(c *s3lect.ElectorConfig) { c.LockfilePath = "other" }, "LockfilePath"},
		{func(c *s3lect.ElectorConfig) { c.ServerID = "other" }, "ServerID"},
		{func(c *s3lect.ElectorConfig) { c.ServerAddr = "other:1" }, "ServerAddr"},
		{func(c *s3lect.ElectorConfig) { c.LeaderTimeout = -1 }, "LeaderTimeout"},
		{func(c *s3lect.ElectorConfig) { c.PeerMode, c.LeaderTimeout = true, time.Minute }, "PeerCACert"},
	} {
		before, c := a.GetConfig(), *a.GetConfig()
		tc.edit(&c)
		err := a.UpdateConfig(c)
		if err == nil || !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%+v: %v", c, err)
		}
		if after := a.GetConfig(); after.LeaderTimeout != before.LeaderTimeout || after.LockfilePath != before.LockfilePath ||
			after.ServerID != before.ServerID || after.ServerAddr != before.ServerAddr || after.PeerMode {
			t.Errorf("after an error the configuration is %+v", after)
		}
	}
	if err := a.EnablePeerMode([]byte("rubbish")); err == nil || a.GetConfig().PeerMode {
		t.Errorf("%v", err)
	}
	if err := a.EnablePeerMode(nil); err != nil || !a.GetConfig().PeerMode {
		t.Errorf("%v", err)
	}
	copied := a.GetConfig()
	copied.ServerID = "changed"
	if a.GetConfig().ServerID != "a" {
		t.Error("GetConfig gives away what it keeps")
	}
}
