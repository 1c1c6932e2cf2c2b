package terraform

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzLockInfo: whatever is sent as a lock, what is kept of it is short and UTF-8.
func FuzzLockInfo(f *testing.F) {
	f.Add([]byte(``))
	f.Add([]byte(`{"ID":"1","Operation":"OperationTypeApply","Info":"","Who":"me@host","Version":"1.9.0","Created":"2026-01-02T03:04:05Z","Path":"x"}`))
	f.Add([]byte(`{"ID":7}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		i, err := parseLockInfo(body)
		if err != nil {
			return
		}
		for text, most := range map[string]int{i.ID: maxID, i.Who: maxWho, i.Operation: maxWho, i.Version: maxWho, i.Info: maxText, i.Path: maxText} {
			if len(text) > max(most, maxID) && len(text) > maxText || !utf8.ValidString(text) {
				t.Errorf("%d bytes are kept of %q", len(text), text)
			}
		}
		if _, err := json.Marshal(i); err != nil {
			t.Errorf("%+v cannot be written: %v", i, err)
		}
	})
}

// FuzzManifest: whatever lies in the place of a manifest, it is refused as one, or it is of the format that is known.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"states":[{"serial":1}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeManifest(body)
		if err != nil {
			if !errors.Is(err, errForeign) || m != nil {
				t.Errorf("%+v, %v", m, err)
			}
			return
		}
		if m.Format != manifestFormat {
			t.Errorf("accepted the format %d", m.Format)
		}
		next, dropped := m.with(Version{}, 20)
		if len(next.States) > 20 || len(next.States)+len(dropped) != len(m.States)+1 {
			t.Errorf("of %d states %d are kept and %d dropped", len(m.States), len(next.States), len(dropped))
		}
		_ = m.newest()
	})
}
