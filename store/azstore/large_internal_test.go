package azstore

import "testing"

// TestBlocks: what PutLarge promises of sizes and of memory.
func TestBlocks(t *testing.T) {
	var total int64
	for n := range maxBlocks {
		size := blockSize(n)
		if total < 78<<30 && size != 8<<20 || size > 128<<20 {
			t.Fatalf("block %d, after %d bytes, has %d", n, total, size)
		}
		total += size
	}
	if total < 49<<40/10 {
		t.Errorf("blocks have room for %d bytes, less than 4.9 TiB", total)
	}
}
