package shard

import "testing"

// FuzzPlan: whatever lies in the place of a plan, it is refused, or it gives shards to workers that it has.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"format":1,"token":1,"serial":1,"coordinator":"c","lists":["a"],"workers":[{"session":"s"}],"owners":[0,-1]}`))
	f.Add([]byte(`{"format":1,"token":1,"serial":1,"owners":[0]}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := decodePlan(body)
		if err != nil {
			if p != nil {
				t.Errorf("%+v, %v", p, err)
			}
			return
		}
		if p.Format != planFormat || p.Token < 1 || p.Serial < 1 {
			t.Errorf("accepted %+v", p)
		}
		for _, w := range p.Owners {
			if w != nobody && (w < 0 || w >= len(p.Workers)) {
				t.Errorf("a shard is worker %d's, of %d", w, len(p.Workers))
			}
		}
	})
}
