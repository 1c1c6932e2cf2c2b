package probe_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/leasehold/leasehold/store/probe"
)

// FuzzReport: whatever a report has, it is refused, or it names a store and can be asked and written.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"format":1,"store":"s3://b/p","verdicts":[{"name":"object","safe":true}],"findings":[{"name":"x"}]}`))
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":1,"store":"s3://b","verdicts":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := probe.ReadReport(bytes.NewReader(text))
		if err != nil {
			if r != nil {
				t.Errorf("%+v, %v", r, err)
			}
			return
		}
		if r.Format != 1 || r.Store == "" || len(r.Verdicts) == 0 {
			t.Errorf("accepted %+v", r)
		}
		if found := r.Finding("no such"); found.Name != "no such" || found.Result == "" {
			t.Errorf("a finding that is not there is %+v", found)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("it cannot be written: %v", err)
		}
	})
}
