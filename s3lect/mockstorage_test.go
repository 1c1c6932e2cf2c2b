package s3lect_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/s3lect"
)

func TestMockStorage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "anew")
	m, err := s3lect.NewMockStorage(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const key = "leader/my-group.json"
	if _, _, err = m.Get(ctx, key); !errors.Is(err, s3lect.ErrStorageNotFound) {
		t.Errorf("got %v", err)
	}
	if err = m.PutIfMatch(ctx, key, []byte("one"), "0f9c"); !errors.Is(err, s3lect.ErrStoragePrecondition) {
		t.Errorf("got %v", err)
	}
	if err = m.PutIfMatch(ctx, key, []byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	if err = m.PutIfMatch(ctx, key, []byte("two"), ""); !errors.Is(err, s3lect.ErrStoragePrecondition) {
		t.Errorf("got %v", err)
	}
	data, etag, err := m.Get(ctx, "/"+key) // as in a path
	if err != nil || string(data) != "one" || etag == "" {
		t.Fatalf("%q, %q, %v", data, etag, err)
	}
	if err := m.PutIfMatch(ctx, key, []byte("two"), etag); err != nil {
		t.Fatal(err)
	}
	if err := m.PutIfMatch(ctx, key, []byte("three"), etag); !errors.Is(err, s3lect.ErrStoragePrecondition) {
		t.Errorf("got %v", err)
	}
	if file, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(key))); err != nil || string(file) != "two" {
		t.Errorf("the file has %q, %v", file, err)
	}
	if err := m.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Get(ctx, key); !errors.Is(err, s3lect.ErrStorageNotFound) {
		t.Errorf("after Cleanup: %v", err)
	}
	if err := m.PutIfMatch(ctx, key, []byte("one"), ""); err != nil {
		t.Errorf("after Cleanup: %v", err)
	}
}

func TestCleanupOfAMock(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary) // on Windows
	m := s3lect.NewMock()
	for range 2 {
		if err := m.PutIfMatch(t.Context(), "leader/key", []byte("one"), ""); err != nil {
			t.Fatal(err)
		}
		if data, _, err := m.Get(t.Context(), "leader/key"); err != nil || string(data) != "one" {
			t.Errorf("%q, %v", data, err)
		}
		if err := m.Cleanup(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("there is %v, %v", left, err)
		}
	}
}

func TestMockStorageWhereNoneCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s3lect.NewMockStorage(file); err == nil {
		t.Error("a file was taken for a directory")
	}
	t.Setenv("TMPDIR", file)
	t.Setenv("TMP", file) // on Windows
	defer func() {
		if recover() == nil {
			t.Error("NewMock returned")
		}
	}()
	s3lect.NewMock()
}

// Of all writes on one condition one lands, also between two MockStorages on one
// directory: each of them used to have a lock of its own.
func TestMockStoragesRace(t *testing.T) {
	dir := t.TempDir()
	const rounds, writers = 20, 8
	var all []*s3lect.MockStorage
	for range writers {
		m, err := s3lect.NewMockStorage(dir)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	etag := ""
	for round := range rounds {
		var racing sync.WaitGroup
		var won atomic.Int32
		for i, m := range all {
			racing.Go(func() {
				err := m.PutIfMatch(t.Context(), "key", []byte(strconv.Itoa(round*writers+i)), etag)
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, s3lect.ErrStoragePrecondition) {
					t.Error(err)
				}
			})
		}
		racing.Wait()
		if n := won.Load(); n != 1 {
			t.Fatalf("round %d: %d of %d writes landed", round, n, writers)
		}
		var err error
		if _, etag, err = all[round%writers].Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
}

// An election over the files of a directory.
func TestElectionOverMockStorage(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		var all []*s3lect.S3Elector
		for i := range 3 {
			m, err := s3lect.NewMockStorage(dir)
			if err != nil {
				t.Fatal(err)
			}
			e, err := s3lect.NewS3Elector(s3lect.S3ElectorOptions{Logger: quiet, Storage: m, Config: &s3lect.ElectorConfig{
				LockfilePath: "/leader.json", ServerID: fmt.Sprintf("server-%d", i), ServerAddr: fmt.Sprintf("10.0.0.%d:8443", i),
				FrequentInterval: 50 * time.Millisecond, LeaderTimeout: 300 * time.Millisecond,
			}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		failOver(t, all)
	})
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
