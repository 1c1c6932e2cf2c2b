package layout_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store/memstore"
)

// A lockInfo is what Terraform decodes the lock of its S3 backend into, by package encoding/json.
type lockInfo struct {
	ID, Operation, Info, Who, Version string
	Created                           time.Time
	Path                              string
}

func lockInfoIn(t *testing.T, st *memstore.Store, key string) (i lockInfo) {
	t.Helper()
	obj, err := st.Get(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	if err = json.Unmarshal(obj.Body, &i); err != nil {
		t.Fatalf("%v: %s", err, obj.Body)
	}
	return i
}

// TestMarkerForTerraform: a marker says in Terraform's words who holds the lock. Its ID is that of the lease: a
// renewal keeps it, and another lease has another one.
func TestMarkerForTerraform(t *testing.T) {
	const key = "prod/terraform.tfstate.tflock"
	st := memstore.New()
	m := layout.Marker{Store: st, Key: key, TTL: 15 * time.Second, IfMatch: true}
	claim := candidate.Write{Op: candidate.Claim, Record: newRecord(true)}
	claim.Record.Token, claim.Record.WriteID = 0, "0f9c.7"
	claimed, err := m.Write(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	first := lockInfoIn(t, st, key)
	if !strings.HasPrefix(first.ID, "0f9c-") || first.Who != "h" || first.Path != key || first.Operation != "leasehold" ||
		first.Created.UnixMilli() != claim.Record.AcquiredAt.UnixMilli() || !strings.Contains(first.Info, claim.Record.ExpiresAt.UTC().Format(time.RFC3339)) {
		t.Errorf("it says %+v", first)
	}
	seen := look(t, m, "")
	wants(t, "seen", seen.Record.Unknown, claimed.Record.Unknown)

	renewal := candidate.Write{Op: candidate.Renew, Record: seen.Record, Over: seen.Record, Expect: seen.Version}
	renewal.Record.WriteID, renewal.Record.ExpiresAt = "0f9c.8", seen.Record.ExpiresAt.Add(time.Hour)
	renewed, err := m.Write(t.Context(), renewal)
	if err != nil {
		t.Fatal(err)
	}
	second := lockInfoIn(t, st, key)
	if second.ID != first.ID || second.Info == first.Info {
		t.Errorf("renewed it says %+v", second)
	}

	next := candidate.Write{Op: candidate.Claim, Record: renewed.Record, Over: renewed.Record, Expect: renewed.Version}
	next.Record.WriteID, next.Record.Holder, next.Record.AcquiredAt = "0f9c.9", strings.Repeat("ä", 1000), time.Now().Add(time.Second)
	if _, err = m.Write(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	third := lockInfoIn(t, st, key)
	if third.ID == first.ID || third.Who != strings.Repeat("ä", 128) {
		t.Errorf("taken over it says %+v", third)
	}
}

// TestMarkerOfNoTerraform: only a marker at KEY.tflock has Terraform's fields. All markers had them once.
func TestMarkerOfNoTerraform(t *testing.T) {
	for key, terraform := range map[string]bool{"l.tflock": true, "l": false, "tflock": false, "l.tflock/l": false, "l.tflock.json": false} {
		for _, ifMatch := range []bool{false, true} {
			st := memstore.New()
			m := layout.Marker{Store: st, Key: key, TTL: time.Minute, IfMatch: ifMatch}
			s := write(t, m, candidate.Claim, look(t, m, ""))
			obj, err := st.Get(t.Context(), key, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"ID", "Operation", "Info", "Who", "Version", "Created", "Path"} {
				if _, written := s.Record.Unknown[field]; written != terraform || strings.Contains(string(obj.Body), `"`+field+`"`) != terraform {
					t.Errorf("%s, if-match=%v: the field %s: %v in %s", key, ifMatch, field, written, obj.Body)
				}
			}
		}
	}
	for _, l := range []layout.Layout{
		layout.Object{Store: memstore.New(), Key: "l.tflock"},
		layout.Epochs{Store: memstore.New(), Key: "l.tflock"},
		layout.Epochs{Store: memstore.New(), Key: "l.tflock", IfMatch: true},
		layout.Heartbeat{Store: memstore.New(), Key: "l.tflock"},
	} {
		if s := write(t, l, candidate.Claim, layout.Snapshot{}); s.Record.Unknown != nil {
			t.Errorf("%T has the fields %v", l, s.Record.Unknown)
		}
	}
}

// TestTerraformsMarker: who holds a lock of Terraform's is told by its name, and it is another tool's all the same.
func TestTerraformsMarker(t *testing.T) {
	for body, holder := range map[string]string{
		`{"ID":"3c1f","Operation":"OperationTypeApply","Info":"","Who":"ann@laptop","Version":"1.11.4","Created":"2026-11-20T10:30:45.1Z","Path":"b/prod/terraform.tfstate"}`: "ann@laptop (Terraform, lock ID 3c1f)",
		`{"ID":"3c1f","Who":"` + strings.Repeat("x", 1000) + `"}`: strings.Repeat("x", 256) + " (Terraform, lock ID 3c1f)",
		`{"ID":"3c1f"}`:       "another tool",
		`{"ID":1,"Who":"me"}`: "another tool",
		`[]`:                  "another tool",
	} {
		st := memstore.New()
		plant(t, st, "l.tflock", body)
		s := look(t, layout.Marker{Store: st, Key: "l.tflock", TTL: time.Second}, "")
		if !s.Record.Opaque || !s.Record.Held || s.Record.Holder != holder {
			t.Errorf("%s is seen as %+v", body, s.Record)
		}
	}
}
