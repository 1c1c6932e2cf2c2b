package layout

import (
	"testing"
	"unicode/utf8"
)

// FuzzTerraform: whatever another tool has written into a marker, its holder is told in a text that is short and UTF-8.
func FuzzTerraform(f *testing.F) {
	f.Add([]byte(`{"ID":"1","Operation":"OperationTypeApply","Who":"me@host","Version":"1.9.0","Created":"2026-01-02T03:04:05Z","Path":"b/k"}`))
	f.Add([]byte(`{"ID":"1","Who":"` + string(make([]byte, 3)) + `"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		holder := otherHolder(body)
		if holder == "" || !utf8.ValidString(holder) || len(holder) > 2*maxTFText+64 {
			t.Errorf("the holder is %q", holder)
		}
	})
}
