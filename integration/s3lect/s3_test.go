// Package s3lect_test runs electors of package s3lect on a server.
package s3lect_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/s3lect"
	"github.com/leasehold/leasehold/store/storeurl"
)

const lockfile = "leader/my-group.json"

var quiet = slog.New(slog.DiscardHandler)

// Without a Storage the lockfile lies on S3, where LockfilePath or LEASEHOLD_STORE says.
func TestElectionOnS3WithoutAStorage(t *testing.T) {
	server := servers.Start(t, "minio")
	for _, variable := range server.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	bucket := server.Bucket(t)
	t.Setenv("LEASEHOLD_STORE", server.URL(bucket))
	for i, path := range []string{server.URL(bucket + "/" + lockfile), lockfile} {
		var all []*s3lect.S3Elector
		for n := range 3 {
			e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Logger: quiet, Config: &s3lect.ElectorConfig{
				LockfilePath: path, ServerID: fmt.Sprintf("server-%d-%d", i, n), ServerAddr: "10.0.1.42:8443",
				FrequentInterval: 100 * time.Millisecond, InfrequentInterval: 100 * time.Millisecond, LeaderTimeout: 10 * time.Minute,
			}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		failOver(t, all)
		checkFreed(t, server.URL(bucket))
	}
}

// checkFreed reads the object as the last leader left it.
func checkFreed(t *testing.T, url string) {
	t.Helper()
	st, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	o, err := st.Get(t.Context(), lockfile, "")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		LeaderID    *string   `json:"leaderID"`
		LastUpdated time.Time `json:"lastUpdated"`
		Leasehold   struct{ State, Holder string }
	}
	if err := json.Unmarshal(o.Body, &got); err != nil || got.LeaderID != nil || !got.LastUpdated.IsZero() || got.Leasehold.State != "free" {
		t.Errorf("%s, %v", o.Body, err)
	}
}

// failOver starts the electors and stops the leader until none is left.
func failOver(t *testing.T, all []*s3lect.S3Elector) {
	t.Helper()
	won := make(chan *s3lect.S3Elector)
	for _, e := range all {
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Stop() })
		go func() {
			if e.WaitForLeadership(t.Context()) == nil {
				won <- e
			}
		}()
	}
	for n := range all {
		var leader *s3lect.S3Elector
		select {
		case leader = <-won:
		case <-t.Context().Done():
			t.Fatal("nobody leads")
		}
		id := leader.GetConfig().ServerID
		if !leader.IsLeader() || leader.LeaderID() != id {
			t.Errorf("%s leads, and says %+v", id, leader.GetLeadershipStatus())
		}
		for _, e := range all {
			if e != leader && e.IsLeader() {
				t.Errorf("%s leads, and %s too", id, e.GetConfig().ServerID)
			}
		}
		if err := leader.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("leader %d was %s", n+1, id)
	}
}
